"""One answer: token ratios, their product and geometric mean, and who is clipped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import traitlets

from gspo_edu.widgets.assets import module
from gspo_edu.widgets.base import CLIP_RANGES, LessonWidget, Numbers, check, check_clip_bound

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gspo_edu.objectives import ObjectiveResult

MOST_TOKENS = 200
OBJECTIVE_NAMES = ("grpo", "gspo")
BOUNDS = ("grpo_low", "grpo_high", "gspo_low", "gspo_high")


def tokens(count: int) -> str:
    """The number with its noun."""
    return f"{count} token{'s' * (count != 1)}"


class OneAnswer(LessonWidget):
    """The ratios of one answer's tokens as bars; which tokens GRPO and GSPO clip, for both signs.

    ``ratios``, ``token`` (the chosen one, counted from 1) and the four bounds are traits: they
    follow the reader's hand, and setting one moves the widget.

    Args:
        ratios: 1 to 200 positive token ratios.
        token: which token is chosen.
        grpo_low, grpo_high, gspo_low, gspo_high: clip ranges [1 - low, 1 + high].

    Raises:
        TraitError: for a setting without meaning; the message says what was expected.
    """

    name = "one_answer"
    title = "One answer"
    _esm = module("one_answer")

    ratios = Numbers().tag(sync=True)
    token = traitlets.Int(1).tag(sync=True)
    grpo_low = traitlets.Float(CLIP_RANGES["grpo"][0]).tag(sync=True)
    grpo_high = traitlets.Float(CLIP_RANGES["grpo"][1]).tag(sync=True)
    gspo_low = traitlets.Float(CLIP_RANGES["gspo"][0]).tag(sync=True)
    gspo_high = traitlets.Float(CLIP_RANGES["gspo"][1]).tag(sync=True)

    def __init__(self, ratios: Any = (1.2, 0.9, 1.0, 1.1), **kwargs: Any) -> None:
        super().__init__(ratios=ratios, **kwargs)

    @traitlets.validate(*BOUNDS)
    def _check_range(self, proposal: dict[str, Any]) -> float:
        return check_clip_bound(self, proposal["trait"].name, proposal["value"])

    @traitlets.validate("ratios")
    def _check_ratios(self, proposal: dict[str, Any]) -> list[float]:
        ratios: list[float] = proposal["value"]
        expected = f"1 to {MOST_TOKENS} positive numbers, one for each token"
        check(1 <= len(ratios) <= MOST_TOKENS, self, "ratios", f"{len(ratios)} long", expected)
        bad = [ratio for ratio in ratios if not (math.isfinite(ratio) and ratio > 0)]
        check(not bad, self, "ratios", ratios, expected)
        return ratios

    @traitlets.validate("token")
    def _check_token(self, proposal: dict[str, Any]) -> int:
        token: int = proposal["value"]
        valid = 1 <= token <= MOST_TOKENS
        check(valid, self, "token", token, f"1 to {MOST_TOKENS}, counted from 1")
        return token

    @property
    def product(self) -> float:
        """Product of the ratios."""
        from gspo_edu.ratios import product_ratio

        return float(product_ratio(*self._answer()))

    @property
    def product_text(self) -> str:
        """The product in words; beyond the range of a float its power of ten."""
        if 0 < self.product < math.inf:
            return f"{self.product:.6g}"
        return f"10^{round(sum(map(math.log10, self.ratios)))}"

    @property
    def geometric_mean(self) -> float:
        """s, the sequence ratio."""
        from gspo_edu.ratios import sequence_ratio

        return float(sequence_ratio(*self._answer()))

    def clipped(self, objective: str, advantage: float) -> int:
        """Number of tokens without gradient under "grpo" or "gspo" at this advantage.

        Raises:
            ValueError: for another objective.
        """
        share = self._result(objective, advantage).metrics["clip_fraction_seq"]
        return round(float(share) * len(self.ratios))

    def outside(self, objective: str) -> int:
        """Number of tokens whose ratio, or answer's ratio, is beyond the range.

        Raises:
            ValueError: for another objective than "grpo" and "gspo".
        """
        share = self._result(objective, 1.0).metrics["outside_fraction_seq"]
        return round(float(share) * len(self.ratios))

    def _answer(self) -> tuple[Any, Any, Any]:
        import torch

        logp = torch.tensor([self.ratios], dtype=torch.float64).log()
        return logp, torch.zeros_like(logp), torch.ones_like(logp)

    def _result(self, objective: str, advantage: float) -> ObjectiveResult:
        import torch

        from gspo_edu.objectives import OBJECTIVES

        if objective not in OBJECTIVE_NAMES:
            expected = " or ".join(map(repr, OBJECTIVE_NAMES))
            raise ValueError(f"objective is {objective!r}; expected {expected}.")
        logp, logp_old, mask = self._answer()
        bounds = {
            "clip_low": getattr(self, f"{objective}_low"),
            "clip_high": getattr(self, f"{objective}_high"),
        }
        given = torch.tensor([advantage], dtype=torch.float64)
        return OBJECTIVES[objective](logp, logp_old, given, mask, **bounds)

    def words(self) -> str:
        count = len(self.ratios)
        clipped = "; ".join(
            f"{name.upper()} clips {self.clipped(name, 1.0)} of {count} if A > 0, "
            f"{self.clipped(name, -1.0)} if A < 0"
            for name in OBJECTIVE_NAMES
        )
        return (
            f"One answer of {tokens(count)}: product of the ratios {self.product_text}, geometric "
            f"mean s = {self.geometric_mean:.6f}. Tokens without gradient: {clipped}."
        )

    def picture(self) -> Figure:
        import numpy as np

        from gspo_edu.plots import BLUE, GREEN, VERMILION
        from gspo_edu.widgets.pictures import INK, headline, panels

        figure, (top, strip) = panels(330, rows=2, columns=1, height_ratios=[2.2, 1])
        place = np.arange(1, len(self.ratios) + 1)
        few = len(self.ratios) <= 12
        top.axhspan(1 - self.grpo_low, 1 + self.grpo_high, color=GREEN, alpha=0.15, lw=0)
        top.bar(place, np.array(self.ratios) - 1, bottom=1, width=0.7, color=BLUE, alpha=0.75)
        top.axhline(self.geometric_mean, color=INK, ls="--", lw=1.3)
        top.axhline(1, color=INK, lw=0.8)
        top.set_yscale("log")
        reach = max(max(self.ratios), 1 / min(self.ratios), 1.5) * 1.05
        top.set_ylim(1 / reach, reach)
        marks = [1 / reach**0.8, 1, reach**0.8]
        top.set_yticks(marks, [f"{mark:.2g}" for mark in marks], minor=False)
        top.set_yticks([], minor=True)
        top.set_ylabel("token ratio (log)")
        top.set_xticks(place if few else [])
        if few:
            top.set_xticklabels([f"{ratio:g}" for ratio in self.ratios])
            top.set_xlabel("ratio of each token")
        headline(
            top,
            f"{tokens(len(self.ratios))}: product {self.product_text}, "
            f"geometric mean s = {self.geometric_mean:.6f} (dashed); green: GRPO's range",
        )
        rows = [("grpo", 1.0), ("grpo", -1.0), ("gspo", 1.0), ("gspo", -1.0)]
        for row, (name, advantage) in enumerate(rows):
            zero = self._result(name, advantage).token_weight[0] == 0
            strip.bar(
                place,
                0.8,
                bottom=-row - 0.4,
                width=0.7,
                color=[VERMILION if gone else "#B8D6E8" for gone in zero.tolist()],
            )
        strip.set_yticks(
            [-row for row in range(len(rows))],
            [f"{name.upper()}, A {'>' if sign > 0 else '<'} 0" for name, sign in rows],
        )
        strip.set_ylim(-len(rows) + 0.4, 0.6)
        strip.set_xticks([])
        strip.grid(visible=False)
        for ax in (top, strip):
            ax.set_xlim(0.4, len(self.ratios) + 0.6)
        headline(strip, "Blue: the token gets a gradient. Orange: exactly zero.", 9)
        return figure
