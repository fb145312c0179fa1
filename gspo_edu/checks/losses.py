"""Tasks: the clipped term, and the losses of GRPO and GSPO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gspo_edu.checks.drawing import lengths_to_mask, log_probs, shuffled, signed, uniform
from gspo_edu.checks.ratios import SEQUENCE_FAULTS, sequence_formula
from gspo_edu.checks.task import Case, Fault, FunctionTask
from gspo_edu.objectives import clipped_surrogate, grpo, gspo

PPO_RANGE = 0.2
# Above and below the range with both signs of A, and one answer in the middle.
CORNERS = ((0.35, 1.0), (-0.35, 1.0), (0.35, -1.0), (-0.35, -1.0), (0.0, 1.0))
DEEP = (-0.75, -1.0)  # between 0.4 and 0.6, where clip_low = 0.6 is told from 1 - clip_low

Plan = tuple[list[tuple[float, float]], tuple[int, ...], int, float, float]

BOUNDS = (
    Fault(
        "bounds",
        "range_without_one",
        "The range runs from clip_low to 1 + clip_high here. It is [1 - clip_low, 1 + clip_high].",
    ),
    Fault(
        "bounds",
        "bounds_without_one",
        "clip_low and clip_high are widths. The bounds are 1 - clip_low and 1 + clip_high.",
    ),
    Fault("bounds", "bounds_swapped", "clip_low and clip_high have changed places."),
    Fault("bounds", "low_for_both", "clip_low is used on both sides; above 1 it is clip_high."),
    Fault("bounds", "high_for_both", "clip_high is used on both sides; below 1 it is clip_low."),
    Fault("bounds", "ppo_range", "This is PPO's range of 0.2. Use clip_low and clip_high."),
)
CHOICES = (
    Fault("choose", "max", "max() instead of min(): it keeps the term that min() drops."),
    Fault(
        "choose",
        "max_for_negative",
        "For A < 0 this takes the maximum; so does a min() of the ratios before A is multiplied "
        "in. Multiply first, then take the minimum, whatever the sign of A.",
    ),
    Fault(
        "choose",
        "clip_only",
        "Clipped always. Take the min() of the plain and the clipped term: what has moved the "
        "wrong way keeps its gradient.",
    ),
    Fault("choose", "no_clip", "Nothing is clipped here."),
    Fault("choose", "clip_product", "This clips r·A. Clip the ratio, then multiply by A."),
    Fault(
        "choose",
        "one_side",
        "Clipped above the range only. Below it, A < 0 is clipped, too.",
    ),
)
SIGN = Fault("sign", "wrong_sign", "The sign: the loss is minimised, so it is minus the objective.")
NO_GRADIENT = (
    "The value is right, but no gradient flows: was the ratio computed under no_grad, detached, or "
    "turned into a plain number on the way?"
)


def limits(case: Case, bounds: str) -> tuple[float, float]:
    """Lower and upper bound of the ratio, right or wrong."""
    low, high = case["clip_low"], case["clip_high"]
    found: tuple[float, float] = {
        "right": (1 - low, 1 + high),
        "range_without_one": (low, 1 + high),
        "bounds_without_one": (low, high),
        "bounds_swapped": (1 - high, 1 + low),
        "low_for_both": (1 - low, 1 + low),
        "high_for_both": (1 - high, 1 + high),
        "ppo_range": (1 - PPO_RANGE, 1 + PPO_RANGE),
    }[bounds]
    return found


def chosen(ratio: Tensor, advantage: Tensor, case: Case, choose: str, bounds: str) -> Tensor:
    """min(r A, clip(r) A), or what a mistake makes of it."""
    lower, upper = limits(case, bounds)
    plain, clipped = ratio * advantage, ratio.clamp(lower, upper) * advantage
    low, high = torch.minimum(plain, clipped), torch.maximum(plain, clipped)
    found: Tensor = {
        "min": low,
        "max": high,
        "max_for_negative": low.where(advantage > 0, high),
        "clip_only": clipped,
        "no_clip": plain,
        "clip_product": plain.clamp(max=upper),
        "one_side": torch.minimum(plain, ratio.clamp(max=upper) * advantage),
    }[choose]
    return found


def draw_terms(dice: torch.Generator) -> list[Case]:
    """Cases of (ratio, advantage, clip_low, clip_high) with ratio and advantage (N,)."""
    cases = []
    for extra, low, high in ((0, 0.2, 0.2), (4, 0.1, 0.3), (6, 0.3, 0.15), (6, 0.6, 0.25)):
        around = torch.tensor([1.5, 0.55, 1.5, 0.55, 1.0, 1.25, 0.75, 1.25, 0.75, 1.05, 0.95])
        sign = [1.0, 1.0, -1.0, -1.0, 1.0, 1.0, 1.0, -1.0, -1.0, 1.0, -1.0]
        ratio = around.double()[: 5 + extra] + uniform(dice, -0.04, 0.04, 5 + extra)
        advantage = signed(dice, sign[: 5 + extra])
        order = torch.randperm(len(ratio), generator=dice)
        case = {"ratio": ratio[order], "advantage": advantage[order]}
        cases.append({**case, "clip_low": low, "clip_high": high})
    return cases


CLIPPED_TERM = FunctionTask(
    name="clipped_term",
    draw=draw_terms,
    right=lambda case: clipped_surrogate(*case.values())[0],
    formula=lambda case, choose="min", bounds="right", sign="right": (
        (-1 if sign == "wrong_sign" else 1)
        * chosen(case["ratio"].double(), case["advantage"].double(), case, choose, bounds)
    ),
    faults=(
        *CHOICES,
        *BOUNDS,
        Fault("sign", "wrong_sign", "The sign: this is the term to maximise, without a minus."),
    ),
    gradient="ratio",
    no_gradient=NO_GRADIENT,
)


def draw_losses(dice: torch.Generator) -> list[Case]:
    """Cases of (logp, logp_old, advantages, mask, clip_low, clip_high), the last in float32."""
    two = [CORNERS[1], CORNERS[2]]
    lengths: tuple[tuple[int, ...], ...] = ((2, 2), (3, 1, 5, 2), (2, 6, 1, 4, 3, 5), (4, 7, 5, 2))
    plans: list[Plan] = [
        ([CORNERS[0], CORNERS[3]], lengths[0], 2, 0.1, 0.15),
        (shuffled(dice, two + two), lengths[1], 6, 0.2, 0.3),
        (shuffled(dice, CORNERS), lengths[2][:5], 7, 0.05, 0.1),
        (shuffled(dice, CORNERS[:4]), lengths[3], 8, 3e-4, 4e-4),
        (shuffled(dice, [*CORNERS, DEEP]), lengths[2], 7, 0.6, 0.15),
    ]
    cases = []
    for number, (corners, length, width, low, high) in enumerate(plans):
        last = number == len(plans) - 1
        mask = lengths_to_mask(length, width, hole=last)
        logp, logp_old = log_probs(dice, mask, [log_s for log_s, _ in corners])
        advantages = signed(dice, [sign for _, sign in corners])
        tensors = {"logp": logp, "logp_old": logp_old, "advantages": advantages}
        if last:
            tensors = {name: given.float() for name, given in tensors.items()}
        cases.append({**tensors, "mask": mask, "clip_low": low, "clip_high": high})
    return cases


def package_loss(objective: Any, case: Case) -> Tensor:
    """The package's own loss of a case."""
    inputs = (case["logp"], case["logp_old"], case["advantages"], case["mask"])
    loss: Tensor = objective(*inputs, clip_low=case["clip_low"], clip_high=case["clip_high"]).loss
    return loss


def token_loss(
    case: Case,
    *,
    ratio: str = "right",
    choose: str = "min",
    bounds: str = "right",
    mean: str = "answers",
    sign: str = "right",
) -> Tensor:
    """GRPO's loss, or a wrong one."""
    new, old, mask = case["logp"].double(), case["logp_old"].double(), case["mask"].double()
    gap, lengths = new - old, mask.sum(dim=1)
    of_answer = (gap * mask).sum(dim=1, keepdim=True) / lengths[:, None]
    r = {
        "right": gap.exp(),
        "sequence_ratio": of_answer.exp().expand_as(gap),
        "inverse": (-gap).exp(),
        "log": gap,
        "ratio_of_logs": new / old,
    }[ratio]
    term = chosen(r, case["advantages"].double()[:, None], case, choose, bounds)
    kept = term * mask
    objectives: dict[str, Callable[[], Tensor]] = {
        "answers": lambda: (kept.sum(dim=1) / lengths).mean(),
        "mean_over_tokens": lambda: kept.sum() / lengths.sum(),
        "no_mean_over_answers": lambda: (kept.sum(dim=1) / lengths).sum(),
        "no_mean_over_tokens": lambda: kept.sum(dim=1).mean(),
        "padded_width": lambda: kept.mean(),
        "padding_counted": lambda: term.mean(),
        "padding_in_sum": lambda: (term.sum(dim=1) / lengths).mean(),
    }
    objective = objectives[mean]()
    return objective if sign == "wrong_sign" else -objective


GRPO_LOSS = FunctionTask(
    name="grpo_loss",
    draw=draw_losses,
    right=lambda case: package_loss(grpo, case),
    formula=token_loss,
    faults=(
        SIGN,
        *CHOICES,
        *BOUNDS,
        Fault(
            "mean",
            "mean_over_tokens",
            "This is the mean over all tokens, so long answers count more. GRPO takes the mean "
            "over each answer first, then over the answers.",
        ),
        Fault("mean", "no_mean_over_answers", "The mean over the answers is missing."),
        Fault("mean", "no_mean_over_tokens", "The sums are not divided by the answers' lengths."),
        Fault(
            "mean",
            "padded_width",
            "Each sum is divided by the padded width. Divide it by its own answer's length.",
        ),
        Fault("mean", "padding_counted", "The padding counts, too, in the sums and the lengths."),
        Fault("mean", "padding_in_sum", "The padding is in the sums. Multiply by the mask first."),
        Fault(
            "ratio",
            "sequence_ratio",
            "This clips answers: one ratio for all tokens, as in GSPO. GRPO has a ratio per token.",
        ),
        Fault("ratio", "inverse", "The ratio is upside down: the new policy stands on top."),
        Fault("ratio", "log", "These are log-ratios. Take exp first."),
        Fault("ratio", "ratio_of_logs", "This divides log-probs. Subtract them, then take exp."),
    ),
    gradient="logp",
    no_gradient=NO_GRADIENT,
)


def answer_loss(
    case: Case,
    *,
    ratio: str = "right",
    padding: str = "masked",
    choose: str = "min",
    bounds: str = "right",
    mean: str = "answers",
    sign: str = "right",
) -> Tensor:
    """GSPO's loss, or a wrong one."""
    advantage, lengths = case["advantages"].double(), case["mask"].double().sum(dim=1)
    if ratio == "clipped_tokens":
        return token_loss(case, choose=choose, bounds=bounds, sign=sign) * (
            len(lengths) if mean == "no_mean_over_answers" else 1
        )
    s = sequence_formula(case, ratio=ratio, padding=padding)
    term = chosen(s, advantage, case, choose, bounds)
    objectives: dict[str, Callable[[], Tensor]] = {
        "answers": lambda: term.mean(),
        "no_mean_over_answers": lambda: term.sum(),
        "weighted_by_length": lambda: (term * lengths).sum() / lengths.sum(),
        "times_length": lambda: (term * lengths).mean(),
        "crossed": lambda: chosen(s, advantage[:, None], case, choose, bounds).mean(),
    }
    objective = objectives[mean]()
    return objective if sign == "wrong_sign" else -objective


GSPO_LOSS = FunctionTask(
    name="gspo_loss",
    draw=draw_losses,
    right=lambda case: package_loss(gspo, case),
    formula=answer_loss,
    faults=(
        SIGN,
        Fault(
            "ratio",
            "clipped_tokens",
            "This clips tokens: it is GRPO's loss. GSPO has one ratio per answer and clips the "
            "answer.",
        ),
        *SEQUENCE_FAULTS,
        *CHOICES,
        *BOUNDS,
        Fault("mean", "no_mean_over_answers", "The mean over the answers is missing."),
        Fault(
            "mean",
            "weighted_by_length",
            "Long answers count more: this is a mean over tokens. GSPO's runs over answers.",
        ),
        Fault(
            "mean",
            "times_length",
            "Each answer is counted once per token. It has one term, whatever its length.",
        ),
        Fault(
            "mean",
            "crossed",
            "Every ratio meets every advantage: shapes (B,) and (B, 1) make a (B, B) table. Give "
            "both the same shape.",
        ),
    ),
    gradient="logp",
    no_gradient=NO_GRADIENT,
)
