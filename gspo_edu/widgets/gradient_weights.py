"""Gradient weights: for a few answers, what each objective gives to every token."""

from __future__ import annotations

import math
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

import traitlets

from gspo_edu.gradient_map import SHOWN, number, silent
from gspo_edu.one_batch import PROBABILITIES_NEW, PROBABILITIES_OLD, REWARDS
from gspo_edu.plots import LABELS
from gspo_edu.widgets.assets import module
from gspo_edu.widgets.base import CLIP_RANGES, LessonWidget, Numbers, check, check_clip_bound
from gspo_edu.widgets.one_answer import tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ANSWERS, MOST_TOKENS, MOST = 6, 12, 40  # answers, tokens of one, tokens of all
RANGES = ("grpo", "dapo", "gspo")
BOUNDS = tuple(f"{name}_{end}" for name in RANGES for end in ("low", "high"))
POSITIVE = ("cispo_cap", "gmpo_low", "gmpo_high", "sapo_pos", "sapo_neg")
# How each objective's settings are called in gspo_edu.objectives, {objective: {keyword: trait}}.
KEYWORDS = {
    "grpo": {"clip_low": "grpo_low", "clip_high": "grpo_high"},
    "dr_grpo": {"clip_low": "grpo_low", "clip_high": "grpo_high", "max_len": "max_len"},
    "dapo": {"clip_low": "dapo_low", "clip_high": "dapo_high"},
    "cispo": {"cap": "cispo_cap"},
    "gspo": {"clip_low": "gspo_low", "clip_high": "gspo_high"},
    "gmpo": {"log_clip_low": "gmpo_low", "log_clip_high": "gmpo_high"},
    "sapo": {"tau_pos": "sapo_pos", "tau_neg": "sapo_neg"},
}


def one_batch_ratios() -> list[list[float]]:
    """Token ratios of the one batch."""
    rows = zip(PROBABILITIES_NEW, PROBABILITIES_OLD, strict=True)
    return [[round(n / o, 9) for n, o in zip(new, old, strict=True)] for new, old in rows]


def one_batch_advantages() -> list[float]:
    """Its group advantages, std with n."""
    return [(reward - fmean(REWARDS)) / pstdev(REWARDS) for reward in REWARDS]


class GradientWeights(LessonWidget):
    """Token ratios of a group of answers, and every token's gradient weight per objective.

    All arguments are traits: they follow the reader's hand, and setting one moves the widget.

    Args:
        ratios: one list of positive token ratios per answer, 1 to 6 answers of 1 to 12 tokens, no
            more than 40 in all. The one batch unless given.
        advantages: one number per answer.
        objective: the chosen row, "grpo", "dr_grpo", "dapo", "cispo", "gspo", "gmpo" or "sapo".
        answer, token: the chosen column, each counted from 1.
        grpo_low, grpo_high: range of GRPO and Dr. GRPO, [1 - low, 1 + high].
        dapo_low, dapo_high, gspo_low, gspo_high: ranges of DAPO and GSPO.
        cispo_cap: absolute cap of CISPO's weights.
        gmpo_low, gmpo_high: GMPO's range of log-ratios, [-low, high].
        sapo_pos, sapo_neg: SAPO's temperatures for A > 0 and for the rest.
        max_len: Dr. GRPO's constant, in tokens.

    Raises:
        TraitError: for a setting without meaning; the message says what was expected.
    """

    name = "gradient_weights"
    title = "Gradient weights"
    _esm = module("gradient_weights")

    ratios = traitlets.List(Numbers()).tag(sync=True)
    advantages = Numbers().tag(sync=True)
    objective = traitlets.Enum(list(SHOWN), "gspo").tag(sync=True)
    answer = traitlets.Int(1).tag(sync=True)
    token = traitlets.Int(1).tag(sync=True)
    grpo_low = traitlets.Float(CLIP_RANGES["grpo"][0]).tag(sync=True)
    grpo_high = traitlets.Float(CLIP_RANGES["grpo"][1]).tag(sync=True)
    dapo_low = traitlets.Float(0.2).tag(sync=True)
    dapo_high = traitlets.Float(0.28).tag(sync=True)
    cispo_cap = traitlets.Float(5.0).tag(sync=True)
    gspo_low = traitlets.Float(CLIP_RANGES["gspo"][0]).tag(sync=True)
    gspo_high = traitlets.Float(CLIP_RANGES["gspo"][1]).tag(sync=True)
    gmpo_low = traitlets.Float(0.4).tag(sync=True)
    gmpo_high = traitlets.Float(0.4).tag(sync=True)
    sapo_pos = traitlets.Float(1.0).tag(sync=True)
    sapo_neg = traitlets.Float(1.05).tag(sync=True)
    max_len = traitlets.Int(8).tag(sync=True)

    def __init__(self, ratios: Any = None, advantages: Any = None, **kwargs: Any) -> None:
        if ratios is None:
            ratios = one_batch_ratios()
            advantages = one_batch_advantages() if advantages is None else advantages
        elif advantages is None:
            advantages = [1.0] * len(ratios)
        ratios = ratios.tolist() if hasattr(ratios, "tolist") else [list(row) for row in ratios]
        super().__init__(ratios=ratios, advantages=advantages, **kwargs)

    @traitlets.validate(*BOUNDS)
    def _check_range(self, proposal: dict[str, Any]) -> float:
        return check_clip_bound(self, proposal["trait"].name, proposal["value"])

    @traitlets.validate(*POSITIVE)
    def _check_positive(self, proposal: dict[str, Any]) -> float:
        value: float = proposal["value"]
        valid = math.isfinite(value) and value > 0
        check(valid, self, proposal["trait"].name, value, "a positive number")
        return value

    @traitlets.validate("max_len", "answer", "token")
    def _check_count(self, proposal: dict[str, Any]) -> int:
        value: int = proposal["value"]
        check(value >= 1, self, proposal["trait"].name, value, "1 or more")
        return value

    @traitlets.validate("ratios")
    def _check_ratios(self, proposal: dict[str, Any]) -> list[list[float]]:
        ratios: list[list[float]] = proposal["value"]
        lengths = [len(row) for row in ratios]
        expected = (
            f"1 to {MOST_ANSWERS} answers of 1 to {MOST_TOKENS} tokens each, {MOST} tokens in all"
        )
        fits = 1 <= len(ratios) <= MOST_ANSWERS and sum(lengths) <= MOST
        fits = fits and all(1 <= length <= MOST_TOKENS for length in lengths)
        check(fits, self, "ratios", f"of lengths {lengths}", expected)
        valid = all(math.isfinite(ratio) and ratio > 0 for row in ratios for ratio in row)
        check(valid, self, "ratios", ratios, "positive numbers")
        self._check_fit(ratios, self.advantages)
        return ratios

    @traitlets.validate("advantages")
    def _check_advantages(self, proposal: dict[str, Any]) -> list[float]:
        advantages: list[float] = proposal["value"]
        self._check_fit(self.ratios, advantages)
        return advantages

    def _check_fit(self, ratios: list[list[float]], advantages: list[float]) -> None:
        valid = all(math.isfinite(advantage) for advantage in advantages)
        expected = (
            f"{len(ratios)} numbers, one for each answer (set ratios and advantages together, "
            "within hold_trait_notifications())"
        )
        fits = valid and len(advantages) == len(ratios)
        check(fits, self, "advantages", advantages, expected)

    def weights(self) -> dict[str, list[list[float]]]:
        """{objective: [[weight of each token] of each answer]}; exactly 0 where nothing flows."""
        import torch

        from gspo_edu.gradient_map import token_weights

        width = max(map(len, self.ratios))
        padded = [[*row, *[1.0] * (width - len(row))] for row in self.ratios]
        logp = torch.tensor(padded, dtype=torch.float64).log()
        lengths = torch.tensor([len(row) for row in self.ratios])
        mask = torch.arange(width) < lengths[:, None]
        advantages = torch.tensor(self.advantages, dtype=torch.float64)
        settings = {
            name: {keyword: getattr(self, trait) for keyword, trait in keywords.items()}
            for name, keywords in KEYWORDS.items()
        }
        return token_weights(logp, torch.zeros_like(logp), advantages, mask, settings)

    def chosen(self) -> tuple[int, int]:
        """Row and column of the chosen token, counted from 0, within the answers there are."""
        answer = min(self.answer, len(self.ratios)) - 1
        return answer, min(self.token, len(self.ratios[answer])) - 1

    def words(self) -> str:
        weights = self.weights()
        answer, token = self.chosen()
        count = sum(map(len, self.ratios))
        none = ", ".join(f"{LABELS[name]} {silent(weights[name])}" for name in SHOWN)
        each = ((LABELS[name], weights[name][answer][token]) for name in SHOWN)
        given = ", ".join(f"{label} {number(weight)}" for label, weight in each)
        answers = f"{len(self.ratios)} answer{'s' * (len(self.ratios) != 1)}"
        return (
            f"Gradient weights of {tokens(count)} in {answers}. Tokens with a gradient of exactly "
            f"zero: {none}. Token {token + 1} of answer {answer + 1} (ratio "
            f"{self.ratios[answer][token]:g}, A = {self.advantages[answer]:+.2f}): {given}."
        )

    def picture(self) -> Figure:
        from gspo_edu.gradient_map import columns, draw_map
        from gspo_edu.plots import BLUE, GREEN
        from gspo_edu.widgets.pictures import INK, headline, panels

        figure, (bars, cells) = panels(430, rows=2, columns=1, height_ratios=[1, 1.9])
        places = columns([len(row) for row in self.ratios])
        middles = [x for row in places for x in row]
        ratios = [ratio for row in self.ratios for ratio in row]
        bars.axhspan(1 - self.grpo_low, 1 + self.grpo_high, color=GREEN, alpha=0.15, lw=0)
        heights = [ratio - 1 for ratio in ratios]
        bars.bar(middles, heights, bottom=1, width=0.7, color=BLUE, alpha=0.75)
        bars.axhline(1, color=INK, lw=0.8)
        bars.set_yscale("log")
        reach = max(max(ratios), 1 / min(ratios), 1.5) * 1.05
        bars.set_ylim(1 / reach, reach)
        marks = [1 / reach**0.8, 1, reach**0.8]
        bars.set_yticks(marks, [f"{mark:.2g}" for mark in marks], minor=False)
        bars.set_yticks([], minor=True)
        bars.set_ylabel("token ratio (log)")
        few = len(ratios) <= 14
        bars.set_xticks(middles if few else [], [f"{r:g}" for r in ratios] if few else [])
        headline(bars, "Ratio of each token; green: GRPO's range")
        draw_map(cells, self.weights(), numbers=few)
        signs = zip(self.advantages, cells.get_xticklabels(), strict=True)
        labels = [f"{text.get_text()}\nA = {a:+.2f}".replace("-", "−") for a, text in signs]
        cells.set_xticklabels(labels)
        bars.set_xlim(cells.get_xlim())
        headline(cells, "Gradient weight. Blue: up. Orange: down. Hatched: exactly zero.")
        return figure
