"""Length and spread: how far s strays at a length, and the share of answers that is clipped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import traitlets

from gspo_edu.widgets.assets import module
from gspo_edu.widgets.base import CLIP_RANGES, LessonWidget, check, check_clip_bound

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 10_000  # tokens


@dataclass(frozen=True)
class SequenceRatioSpread:
    """Distribution of the sequence ratio s of answers with one length.

    Attributes:
        mean, std: of log s, which is normal.
        below, above: share of answers with s under and over the range; the clipped share of
            answers with A < 0 and with A > 0.
        outside: their sum.
        product_90: the interval that holds the middle 90 % of the product of the ratios.
    """

    mean: float
    std: float
    below: float
    above: float
    outside: float
    product_90: tuple[float, float]


def sequence_ratio_spread(
    sigma: float, length: int, clip_low: float, clip_high: float
) -> SequenceRatioSpread:
    """Spread of s when token log-ratios are independent and normal.

    Their mean is -sigma^2 / 2, so that the mean token ratio is 1. It is also the mean of log s and
    does not shrink with length; the standard deviation does, as sigma / sqrt(length).

    Args:
        sigma: standard deviation of a token's log-ratio.
        length: tokens in the answer.
        clip_low, clip_high: the range [1 - clip_low, 1 + clip_high].
    """
    log_s = NormalDist(-(sigma**2) / 2, sigma / math.sqrt(length))
    below = log_s.cdf(math.log1p(-clip_low))
    above = 1 - log_s.cdf(math.log1p(clip_high))
    product = [math.exp(length * log_s.inv_cdf(share)) for share in (0.05, 0.95)]
    return SequenceRatioSpread(
        log_s.mean, log_s.stdev, below, above, below + above, (product[0], product[1])
    )


class LengthSpread(LessonWidget):
    """Distribution of s at one length, and the clipped share of answers over all lengths.

    The arguments are traits: they follow the reader's hand, and setting one moves the widget.

    Args:
        sigma: standard deviation of a token's log-ratio, 0.001 to 1.
        length: tokens in the answer, 1 to 10 000.
        clip_low, clip_high: the range [1 - clip_low, 1 + clip_high]; GSPO's unless said.

    Raises:
        TraitError: for a setting without meaning; the message says what was expected.
    """

    name = "length_spread"
    title = "Length and spread"
    _esm = module("length_spread")

    sigma = traitlets.Float(0.02).tag(sync=True)
    length = traitlets.Int(1000).tag(sync=True)
    clip_low = traitlets.Float(CLIP_RANGES["gspo"][0]).tag(sync=True)
    clip_high = traitlets.Float(CLIP_RANGES["gspo"][1]).tag(sync=True)
    presets = traitlets.Dict(
        {name: CLIP_RANGES[name] for name in ("gspo", "grpo")}, read_only=True
    ).tag(sync=True)

    @traitlets.validate("clip_low", "clip_high")
    def _check_range(self, proposal: dict[str, Any]) -> float:
        return check_clip_bound(self, proposal["trait"].name, proposal["value"])

    @traitlets.validate("sigma")
    def _check_sigma(self, proposal: dict[str, Any]) -> float:
        sigma: float = proposal["value"]
        check(0.001 <= sigma <= 1, self, "sigma", sigma, "0.001 to 1, a std of log-ratios")
        return sigma

    @traitlets.validate("length")
    def _check_length(self, proposal: dict[str, Any]) -> int:
        length: int = proposal["value"]
        check(1 <= length <= LONGEST, self, "length", length, f"1 to {LONGEST} tokens")
        return length

    @property
    def spread(self) -> SequenceRatioSpread:
        """What the widget shows, in numbers."""
        return sequence_ratio_spread(self.sigma, self.length, self.clip_low, self.clip_high)

    def words(self) -> str:
        spread = self.spread
        return (
            f"Length and spread: token log-ratios with std {self.sigma:g}, {self.length} tokens, "
            f"range {1 - self.clip_low:g} to {1 + self.clip_high:g}. log s has mean "
            f"{spread.mean:.2g} and std {spread.std:.2g}; {spread.outside:.1%} of answers are "
            f"outside; clipped are {spread.above:.1%} of those with A > 0 and {spread.below:.1%} "
            "of those with A < 0."
        )

    def picture(self) -> Figure:
        import numpy as np

        from gspo_edu.plots import BLUE, GREEN, GREY, PURPLE
        from gspo_edu.widgets.pictures import INK, headline, panels

        figure, (left, right) = panels(300)
        spread = self.spread
        z = np.linspace(-4, 4, 321)
        s = np.exp(spread.mean + z * spread.std)
        height = np.exp(-(z**2) / 2)
        low, high = 1 - self.clip_low, 1 + self.clip_high
        left.axvspan(low, high, ymax=0.86, color=GREEN, alpha=0.15, lw=0)
        for where, color, name in (
            (s <= low, BLUE, "below the range"),
            (s >= high, PURPLE, "above the range"),
        ):
            left.fill_between(s, height, where=where, color=color, alpha=0.6, lw=0, label=name)
        left.plot(s, height, color=INK, lw=1.5)
        left.axvline(1, ymax=0.86, color=GREY, lw=0.8)
        left.set_yticks([])
        left.set_ylim(0, 1.3)
        left.legend(fontsize=8, frameon=False, loc="upper center", ncols=2)
        left.locator_params(axis="x", nbins=4)
        left.set_xlabel(f"sequence ratio s   (green: {low:g} … {high:g})")
        headline(left, f"σ = {self.sigma:g}, L = {self.length}: {spread.outside:.1%} outside")

        lengths = np.geomspace(1, LONGEST, 161)
        along = [
            sequence_ratio_spread(self.sigma, length, self.clip_low, self.clip_high)
            for length in lengths
        ]
        for name, style, color, text in (
            ("outside", "-", INK, "outside"),
            ("above", "--", PURPLE, "clipped if A > 0"),
            ("below", ":", BLUE, "clipped if A < 0"),
        ):
            shares = [100 * getattr(point, name) for point in along]
            right.plot(lengths, shares, style, color=color, lw=2, label=text)
            right.plot(self.length, 100 * getattr(spread, name), "o", color=color, ms=6)
        right.set_xscale("log")
        right.set_ylim(0, 100)
        right.set_xlabel("answer length L (tokens)")
        right.set_ylabel("% of answers")
        right.legend(fontsize=8, frameon=False)
        headline(right, "Share of answers, over length")
        return figure
