"""Tasks: the losses of GRPO and GSPO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gspo_edu.checks.cases import Case
from gspo_edu.checks.drawing import lengths_to_mask, log_probs, shuffled, signed
from gspo_edu.checks.ratios import SEQUENCE_FAULTS, sequence_formula
from gspo_edu.checks.task import Fault, FunctionTask
from gspo_edu.checks.terms import BOUNDS, CHOICES, LOG_BOUNDS, NO_GRADIENT, chosen
from gspo_edu.objectives import grpo, gspo

# Above and below the range with both signs of A, and one answer in the middle.
CORNERS = ((0.35, 1.0), (-0.35, 1.0), (0.35, -1.0), (-0.35, -1.0), (0.0, 1.0))
DEEP = (-0.75, -1.0)  # between 0.4 and 0.6, where clip_low = 0.6 is told from 1 - clip_low

Plan = tuple[list[tuple[float, float]], tuple[int, ...], int, float, float]

SIGN = Fault("sign", "wrong_sign", "The sign: the loss is minimised, so it is minus the objective.")


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
        LOG_BOUNDS,
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


# How token_loss calls what these mistakes of a mean over answers are.
TOKEN_MEANS = {
    "no_mean_over_answers": "no_mean_over_answers",
    "weighted_by_length": "mean_over_tokens",
    "times_length": "no_mean_over_tokens",
}


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
        over = TOKEN_MEANS.get(mean, "answers")
        return token_loss(case, choose=choose, bounds=bounds, sign=sign, mean=over)
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
        LOG_BOUNDS,
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
