"""Tasks: the token ratio and the sequence ratio."""

from __future__ import annotations

import torch
from torch import Tensor

from gspo_edu import ratios
from gspo_edu.checks.cases import Case
from gspo_edu.checks.drawing import lengths_to_mask, log_probs
from gspo_edu.checks.task import Fault, FunctionTask

MASK_FIRST = "The padding counts, too. Use the mask"


def draw(dice: torch.Generator) -> list[Case]:
    """Cases of (logp, logp_old, mask): without padding, with padding, with a hole, in float32."""
    cases = []
    for lengths, width, log_s, hole in (
        ((2,), 2, (0.2,), False),
        ((4, 1, 3), 5, (0.15, -0.2, 0.1), False),
        ((1, 6, 2, 3), 7, (0.3, -0.1, 0.05, -0.3), False),
        ((5, 2, 4), 6, (-0.2, 0.2, 0.1), True),
    ):
        mask = lengths_to_mask(lengths, width, hole=hole)
        logp, logp_old = log_probs(dice, mask, log_s)
        if hole:
            logp, logp_old = logp.float(), logp_old.float()
        cases.append({"logp": logp, "logp_old": logp_old, "mask": mask})
    return cases


def token_formula(case: Case, *, ratio: str = "right", padding: str = "zero") -> Tensor:
    """The token ratio, or a wrong one."""
    new, old, mask = case["logp"].double(), case["logp_old"].double(), case["mask"]
    gap = (new - old) * mask if padding == "masked_before_exp" else new - old
    wrong = {
        "right": gap.exp,
        "log": lambda: gap,
        "inverse": (-gap).exp,
        "ratio_of_logs": lambda: new / old,
        "new_only": new.exp,
        "difference": lambda: new.exp() - old.exp(),
    }
    found: Tensor = wrong[ratio]()
    return found * mask if padding == "zero" else found


TOKEN_RATIO = FunctionTask(
    name="token_ratio",
    draw=draw,
    right=lambda case: ratios.token_ratio(case["logp"], case["logp_old"], case["mask"]),
    formula=token_formula,
    faults=(
        Fault("ratio", "log", "This is the log of the ratio. Take exp of the difference."),
        Fault("ratio", "inverse", "Upside down: the new policy's probability stands on top."),
        Fault(
            "ratio",
            "ratio_of_logs",
            "This divides log-probs. Subtract them and take exp: logs turn division into "
            "subtraction.",
        ),
        Fault("ratio", "new_only", "This is the new policy's probability. Divide by the old one."),
        Fault("ratio", "difference", "This subtracts the probabilities. A ratio divides them."),
        Fault(
            "padding",
            "padding_counted",
            "The padding is not masked: outside the mask the output should be 0.",
        ),
        Fault(
            "padding",
            "masked_before_exp",
            "Masked before exp: exp(0) is 1, so the padding got ratio 1. Multiply by the mask "
            "after exp.",
        ),
    ),
)


def sequence_formula(case: Case, *, ratio: str = "right", padding: str = "masked") -> Tensor:
    """The sequence ratio, or a wrong one."""
    gap, mask = case["logp"].double() - case["logp_old"].double(), case["mask"].double()
    lengths = mask.sum(dim=1)
    counted = mask if padding in ("masked", "unmoved_left_out") else torch.ones_like(mask)
    if padding == "reply_counted":
        counted = mask.flip(1).cummax(dim=1).values.flip(1)
        lengths = counted.sum(dim=1)
    if padding == "padding_counted":
        lengths = counted.sum(dim=1)
    if padding == "unmoved_left_out":
        lengths = (gap * mask != 0).double().sum(dim=1)
    if ratio == "padded_width":
        lengths = torch.full_like(lengths, mask.shape[1])
    total = (gap * counted).sum(dim=1)
    if padding == "zero_in_product":
        total = total.where(mask.all(dim=1), -torch.inf)
    wrong = {
        "right": lambda: (total / lengths).exp(),
        "padded_width": lambda: (total / lengths).exp(),
        "no_root": total.exp,
        "arithmetic_mean": lambda: (gap.exp() * counted).sum(dim=1) / lengths,
        "inverse": lambda: (-total / lengths).exp(),
        "log": lambda: total / lengths,
        "square_root": lambda: (total / 2).exp(),
        "answers_as_length": lambda: (total / len(mask)).exp(),
        "root_of_length": lambda: (total / lengths.sqrt()).exp(),
        "probability": lambda: ((case["logp"] * counted).sum(dim=1) / lengths).exp(),
    }
    found: Tensor = wrong[ratio]()
    return found


SEQUENCE_FAULTS = (
    Fault(
        "ratio",
        "no_root",
        "The root is missing: this is the product of the token ratios, or exp of the sum of their "
        "logs. Divide the sum by the answer's length before exp.",
    ),
    Fault(
        "ratio",
        "arithmetic_mean",
        "This averages the ratios. Average the log-ratios, then take exp: the geometric mean.",
    ),
    Fault(
        "ratio",
        "padded_width",
        "Each sum is divided by the padded width. Divide it by its own answer's length, the sum "
        "of its mask.",
    ),
    Fault("ratio", "inverse", "Upside down: the new policy's probability stands on top."),
    Fault("ratio", "log", "This is the log of the sequence ratio. Take exp at the end."),
    Fault("ratio", "square_root", "A square root for every length. Take the L-th root."),
    Fault(
        "ratio",
        "answers_as_length",
        "Each sum is divided by the number of answers: len(mask) counts rows. An answer's length "
        "is the sum of its row.",
    ),
    Fault(
        "ratio",
        "root_of_length",
        "Divided by the root of the length. The L-th root is a division of the log by L.",
    ),
    Fault(
        "ratio",
        "probability",
        "The old policy is missing: subtract its log-probs from the new ones first.",
    ),
    Fault("padding", "padding_counted", f"{MASK_FIRST} in the sum and in the length."),
    Fault(
        "padding",
        "reply_counted",
        "Right for plain answers, but what stands between two of an answer's own tokens (a tool's "
        "reply, mask 0) counts as well. Leave it out of the sum and of the length.",
    ),
    Fault(
        "padding",
        "unmoved_left_out",
        "A token whose log-prob has not changed is taken for padding. Its ratio is 1, and it "
        "counts in the length: that is the sum of the mask.",
    ),
    Fault("padding", "padding_in_sum", f"{MASK_FIRST} in the sum as well as in the length."),
    Fault(
        "padding",
        "zero_in_product",
        "The ratios of the padding are 0, and so is each product that has one in it. Mask the "
        "log-ratios instead: exp(0) is 1.",
    ),
)

SEQUENCE_RATIO = FunctionTask(
    name="sequence_ratio",
    draw=draw,
    right=lambda case: ratios.sequence_ratio(case["logp"], case["logp_old"], case["mask"]),
    formula=sequence_formula,
    faults=SEQUENCE_FAULTS,
)
