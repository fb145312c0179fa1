"""Task: the clipped term; and what the losses share with it: bounds, choices, known mistakes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gspo_edu.checks.cases import Case
from gspo_edu.checks.drawing import signed, uniform
from gspo_edu.checks.task import Fault, FunctionTask
from gspo_edu.objectives import clipped_surrogate

PPO_RANGE = 0.2
PAPER_LOW, PAPER_HIGH = 3e-4, 4e-4
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
    Fault("bounds", "paper_range", "This is always GSPO's range. Use clip_low and clip_high."),
)
LOG_BOUNDS = Fault(
    "bounds",
    "log_bounds",
    "The range is put on the log of the ratio. It is the ratio's own: 1 - clip_low, 1 + clip_high.",
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
    Fault(
        "choose",
        "advantage_twice",
        "The advantage is multiplied in twice: before the minimum and once more after it.",
    ),
    Fault("choose", "clip_product", "This clips r·A. Clip the ratio, then multiply by A."),
    Fault(
        "choose",
        "one_side",
        "Clipped above the range only. Below it, A < 0 is clipped, too.",
    ),
)
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
        "log_bounds": (math.exp(-low), math.exp(high)),
        "bounds_swapped": (1 - high, 1 + low),
        "low_for_both": (1 - low, 1 + low),
        "high_for_both": (1 - high, 1 + high),
        "ppo_range": (1 - PPO_RANGE, 1 + PPO_RANGE),
        "paper_range": (1 - PAPER_LOW, 1 + PAPER_HIGH),
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
        "advantage_twice": low * advantage,
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
        LOG_BOUNDS,
        Fault("sign", "wrong_sign", "The sign: this is the term to maximise, without a minus."),
    ),
    gradient="ratio",
    no_gradient=NO_GRADIENT,
)
