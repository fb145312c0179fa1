"""Ratio and clipping: the objective over the ratio, its slope, and the truth table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import traitlets

from gspo_edu.widgets.assets import module
from gspo_edu.widgets.base import CLIP_RANGES, LessonWidget, check, check_clip_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST = 0.01  # ratio


class RatioClip(LessonWidget):
    """min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) over r, with one point to drag.

    ``objective``, ``clip_low``, ``clip_high``, ``ratio`` and ``advantage`` are traits: they follow
    the reader's hand, and setting one moves the widget. Setting ``objective`` sets the range.

    Args:
        objective: "ppo", "grpo" or "gspo", which have different ranges; under "gspo" the ratio is
            that of a whole answer.
        clip_low, clip_high: the range, if not the published one of ``objective``.
        ratio: where the point is; above the range unless said.
        advantage: A, any number but 0.

    Raises:
        TraitError: for a setting without meaning; the message says what was expected.
    """

    name = "ratio_clip"
    title = "Ratio and clipping"
    _esm = module("ratio_clip")

    objective = traitlets.Enum(list(CLIP_RANGES), "ppo").tag(sync=True)
    clip_low = traitlets.Float().tag(sync=True)
    clip_high = traitlets.Float().tag(sync=True)
    ratio = traitlets.Float().tag(sync=True)
    advantage = traitlets.Float().tag(sync=True)
    presets = traitlets.Dict(CLIP_RANGES, read_only=True).tag(sync=True)

    def __init__(
        self,
        objective: str = "ppo",
        *,
        clip_low: float | None = None,
        clip_high: float | None = None,
        ratio: float | None = None,
        advantage: float = 1.0,
        **kwargs: Any,
    ) -> None:
        low, high = CLIP_RANGES.get(objective, (0.2, 0.2))
        high = high if clip_high is None else clip_high
        super().__init__(
            objective=objective,
            clip_low=low if clip_low is None else clip_low,
            clip_high=high,
            ratio=round(1 + 1.5 * high, 6) if ratio is None else ratio,
            advantage=advantage,
            **kwargs,
        )
        self.observe(self._take_range, "objective")

    def _take_range(self, change: dict[str, Any]) -> None:
        low, high = CLIP_RANGES[change["new"]]
        if (self.clip_low, self.clip_high) == (low, high):
            return
        # The point keeps its place relative to the range, as it does under the reader's hand.
        zoom = max(low, high) / max(self.clip_low, self.clip_high)
        self.set_trait("ratio", round(max(1 + (self.ratio - 1) * zoom, LEAST), 6))
        self.set_trait("clip_low", low)
        self.set_trait("clip_high", high)

    @traitlets.validate("clip_low", "clip_high")
    def _check_range(self, proposal: dict[str, Any]) -> float:
        return check_clip_bound(self, proposal["trait"].name, proposal["value"])

    @traitlets.validate("ratio")
    def _check_ratio(self, proposal: dict[str, Any]) -> float:
        ratio: float = proposal["value"]
        valid = math.isfinite(ratio) and ratio > 0
        check(valid, self, "ratio", ratio, "a positive number, because probabilities are")
        return ratio

    @traitlets.validate("advantage")
    def _check_advantage(self, proposal: dict[str, Any]) -> float:
        advantage: float = proposal["value"]
        valid = math.isfinite(advantage) and advantage != 0
        check(valid, self, "advantage", advantage, "a number other than 0, which has no gradient")
        return advantage

    @property
    def surrogate(self) -> float:
        """Objective at ``ratio``."""
        return self._point()[0]

    @property
    def clipped(self) -> bool:
        """Whether min() chose the clipped branch, so that the gradient is exactly zero."""
        return self._point()[1]

    @property
    def outside(self) -> bool:
        """Whether ``ratio`` lies beyond the range, which alone does not stop the gradient."""
        return self._point()[2]

    @property
    def slope(self) -> float:
        """d objective / d ratio at ``ratio``."""
        return 0.0 if self.clipped else self.advantage

    def _point(self) -> tuple[float, bool, bool]:
        import torch

        from gspo_edu.objectives import clipped_surrogate

        value, clipped, outside = clipped_surrogate(
            torch.tensor(self.ratio, dtype=torch.float64),
            torch.tensor(self.advantage, dtype=torch.float64),
            self.clip_low,
            self.clip_high,
        )
        return float(value), bool(clipped), bool(outside)

    def words(self) -> str:
        place = "outside" if self.outside else "inside"
        branch = "clipped" if self.clipped else "unclipped"
        return (
            f"Ratio and clipping ({self.objective.upper()}): ratio {self.ratio:g}, advantage "
            f"{self.advantage:+g}, range {1 - self.clip_low:g} to {1 + self.clip_high:g}. "
            f"The ratio is {place} the range; the objective is {self.surrogate:g} on the {branch} "
            f"branch, with slope {self.slope:g}."
        )

    def picture(self) -> Figure:
        from gspo_edu.widgets.pictures import panels

        figure, axes = panels(300)
        size = abs(self.advantage)
        for ax, advantage in zip(axes, (size, -size), strict=True):
            self._draw(ax, advantage)
        return figure

    def _draw(self, ax: Axes, advantage: float) -> None:
        import torch

        from gspo_edu.objectives import clipped_surrogate
        from gspo_edu.plots import BLUE, GREEN, GREY, VERMILION
        from gspo_edu.widgets.pictures import headline

        half = max(3.5 * max(self.clip_low, self.clip_high), 1.1 * abs(self.ratio - 1))
        ratio = torch.linspace(max(1 - half, 0), 1 + half, 401, dtype=torch.float64)
        value, clipped, _ = clipped_surrogate(
            ratio, torch.full_like(ratio, advantage), self.clip_low, self.clip_high
        )
        symbol = "s" if self.objective == "gspo" else "r"
        ax.axvspan(1 - self.clip_low, 1 + self.clip_high, color=GREEN, alpha=0.15, lw=0)
        ax.plot(ratio, ratio * advantage, "--", color=GREY, lw=1.2, label=f"{symbol}·A")
        nan = torch.nan
        ax.plot(ratio, value.where(~clipped, nan), color=BLUE, lw=2.5, label="gradient flows")
        ax.plot(ratio, value.where(clipped, nan), ":", color=VERMILION, lw=3, label="gradient zero")
        if advantage == self.advantage:
            ax.plot(
                self.ratio,
                self.surrogate,
                "o",
                ms=10,
                mec="white",
                mew=2,
                color=VERMILION if self.clipped else BLUE,
            )
        better = "better" if advantage > 0 else "worse"
        title = f"{self.objective.upper()}, A = {advantage:+g} ({better} than expected)"
        headline(ax, title.replace("-", "−"))
        whose = "sequence ratio s" if symbol == "s" else "importance ratio r"
        ax.set_xlabel(f"{whose}   (green: {1 - self.clip_low:g} … {1 + self.clip_high:g})")
        ax.set_ylabel("objective")
        ax.locator_params(axis="x", nbins=6)
        ax.legend(fontsize=8, frameon=False)
