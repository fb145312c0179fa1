"""Tasks: the ratio by the book, the effective sample size, and who gets the gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gspo_edu import ratios
from gspo_edu.checks.cases import Case
from gspo_edu.checks.drawing import uniform
from gspo_edu.checks.losses import draw_losses
from gspo_edu.checks.ratios import draw, sequence_formula
from gspo_edu.checks.task import Fault, FunctionTask
from gspo_edu.checks.terms import limits
from gspo_edu.metrics import effective_sample_size
from gspo_edu.objectives import gspo

PRODUCT_RATIO = FunctionTask(
    name="product_ratio",
    draw=draw,
    right=lambda case: ratios.product_ratio(case["logp"], case["logp_old"], case["mask"]),
    formula=lambda case, ratio="no_root", padding="masked": sequence_formula(
        case, ratio=ratio, padding=padding
    ),
    faults=(
        Fault("ratio", "right", "This is GSPO's s. By the book there is no root."),
        Fault("ratio", "arithmetic_mean", "This averages the ratios. Multiply them."),
        Fault("ratio", "log", "This is the mean log-ratio. By the book: exp of the sum."),
        Fault("padding", "padding_counted", "The padding counts, too. Use the mask."),
    ),
)


def draw_weights(dice: torch.Generator) -> list[Case]:
    """Cases of (weights,), importance ratios (B,)."""
    return [{"weights": uniform(dice, 0.1, 3.0, size)} for size in (2, 4, 9)]


def size_formula(case: Case, *, size: str = "right") -> Tensor:
    """The effective sample size, or another number."""
    w = case["weights"].double()
    found: dict[str, Callable[[], Tensor]] = {
        "right": lambda: w.sum() ** 2 / (w**2).sum(),
        "share": lambda: w.sum() ** 2 / (w**2).sum() / len(w),
        "no_square": lambda: w.sum() / (w**2).sum(),
        "inverse": lambda: (w**2).sum() / w.sum() ** 2,
        "sum_of_weights": w.sum,
        "squares_of_mean": lambda: (w**2).sum() / w.mean() ** 2,
    }
    return found[size]()


EFFECTIVE_SIZE = FunctionTask(
    name="effective_size",
    draw=draw_weights,
    right=lambda case: effective_sample_size(case["weights"]),
    formula=size_formula,
    faults=(
        Fault("size", "share", "This is a share of the batch. Do not divide by its size."),
        Fault("size", "no_square", "The sum on top is squared."),
        Fault("size", "inverse", "Upside down: the square of the sum stands on top."),
        Fault("size", "sum_of_weights", "That is the sum. Unequal weights count for less."),
        Fault("size", "squares_of_mean", "Sum of squares over the square of the mean: turn round."),
    ),
)


def weight_formula(
    case: Case,
    *,
    ratio: str = "s",
    length: str = "own",
    mean: str = "answers",
    choose: str = "min",
    sign: str = "right",
) -> Tensor:
    """(B, T) gradient weights of GSPO, or wrong ones."""
    A, mask = case["advantages"].double()[:, None], case["mask"].double()
    s = sequence_formula(case)[:, None]
    r = (case["logp"].double() - case["logp_old"].double()).exp()
    lower, upper = limits(case, "right")
    clipped = ((s > upper) & (A > 0)) | ((s < lower) & (A < 0))
    if choose == "outside_is_clipped":
        clipped = (s > upper) | (s < lower)
    factor = {"s": s, "token_ratio": r, "left_out": torch.ones_like(s)}[ratio]
    share = {
        "own": mask / mask.sum(dim=1, keepdim=True),
        "no_length": mask,
        "padded_width": mask / mask.shape[1],
        "all_tokens": mask * len(mask) / mask.sum(),
    }[length]
    if choose == "bound_as_weight":
        factor = factor.clamp(lower, upper).where(clipped, factor)
    found: Tensor = factor * A * share
    if choose not in ("no_clip", "bound_as_weight"):
        found = found.where(~clipped, 0.0)
    found = found / (len(mask) if mean == "answers" else 1)
    return -found if sign == "wrong_sign" else found


def package_weights(case: Case) -> Tensor:
    """GSPO's ``token_weight``."""
    inputs = (case["logp"], case["logp_old"], case["advantages"], case["mask"])
    return gspo(*inputs, clip_low=case["clip_low"], clip_high=case["clip_high"]).token_weight


GSPO_WEIGHTS = FunctionTask(
    name="gspo_weights",
    draw=draw_losses,
    right=package_weights,
    formula=weight_formula,
    faults=(
        Fault("ratio", "token_ratio", "That is GRPO's factor. Every token of an answer gets s."),
        Fault("ratio", "left_out", "The sequence ratio is missing: the slope of s contains s."),
        Fault("length", "no_length", "1/L is missing: log s is a mean over the answer's tokens."),
        Fault("length", "padded_width", "Divided by the padded width instead of the own length."),
        Fault("length", "all_tokens", "Divided by all tokens. GSPO: own length, then answers."),
        Fault("mean", "no_mean_over_answers", "The mean over the answers is missing: divide by G."),
        Fault(
            "choose",
            "outside_is_clipped",
            "Everything outside is silenced. What moved the wrong way keeps its weight.",
        ),
        Fault(
            "choose",
            "bound_as_weight",
            "Where min() takes the clipped term its value stands here. That term is a constant: "
            "its slope is 0.",
        ),
        Fault("choose", "no_clip", "Nothing is silenced. Where min() takes the clipped term: 0."),
        Fault("sign", "wrong_sign", "The sign: for A > 0 a weight pulls up."),
    ),
)
