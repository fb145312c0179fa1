"""Task: the clip fraction."""

from __future__ import annotations

import torch
from torch import Tensor

from gspo_edu.checks.cases import Case
from gspo_edu.checks.drawing import lengths_to_mask, signed, uniform
from gspo_edu.checks.task import Fault, FunctionTask
from gspo_edu.checks.terms import BOUNDS, limits
from gspo_edu.metrics import clip_metrics
from gspo_edu.objectives import clipped_surrogate


def draw_fractions(dice: torch.Generator) -> list[Case]:
    """Cases of (ratio, advantages, mask, clip_low, clip_high); the padding holds ratios as well."""
    cases = []
    for lengths, width, low, high in (
        ((4,), 4, 0.2, 0.3),
        ((7, 2, 4), 8, 0.1, 0.3),
        ((5, 11, 8, 13), 15, 0.3, 0.1),
        ((14, 9, 12), 16, 0.25, 0.4),
        ((12, 15, 7), 16, 0.6, 0.25),
    ):
        mask = lengths_to_mask(lengths, width)
        # Mostly above where the first lines lie and below further down, so that shares differ.
        ratio = uniform(dice, 0.5, 1.6, *mask.shape)
        ratio[:, 0] = torch.tensor([1.55, 0.52] * len(lengths), dtype=torch.float64)[: len(lengths)]
        ratio[0, :2] = torch.tensor([1.55, 0.9], dtype=torch.float64)
        # Exactly on the bound that would silence them, where that is a number without rounding.
        if high == 0.25:
            ratio[0, 2] = 1.25
        if low == 0.25:
            ratio[1, 2] = 0.75
        signs = [1.0 if row % 3 == 0 else -1.0 for row in range(len(lengths))]
        case = {"ratio": ratio, "advantages": signed(dice, signs), "mask": mask}
        cases.append({**case, "clip_low": low, "clip_high": high})
    return cases


def fraction_formula(
    case: Case, *, count: str = "right", over: str = "tokens", bounds: str = "right"
) -> Tensor:
    """The share of tokens whose gradient the clip sets to zero, or another share."""
    ratio, mask = case["ratio"].double(), case["mask"].double()
    positive = (case["advantages"] > 0)[:, None]
    lower, upper = limits(case, bounds)
    above, below = ratio > upper, ratio < lower
    flags = {
        "right": (above & positive) | (below & ~positive),
        "on_bound": ((ratio >= upper) & positive) | ((ratio <= lower) & ~positive),
        "outside": above | below,
        "wrong_corners": (above & ~positive) | (below & positive),
        "above_only": above & positive,
        "above_any_sign": above,
        "below_only": below & ~positive,
        "inside": ~(above | below),
    }[count].double()
    kept, lengths = flags * mask, mask.sum(dim=1)
    found: Tensor = {
        "tokens": lambda: kept.sum() / lengths.sum(),
        "mean_of_answers": lambda: (kept.sum(dim=1) / lengths).mean(),
        "padding_counted": lambda: flags.mean(),
        "padded_width": lambda: kept.mean(),
        "count": lambda: kept.sum(),
        "percent": lambda: 100 * kept.sum() / lengths.sum(),
    }[over]()
    return found


def package_fraction(case: Case) -> Tensor:
    """The package's ``clip_fraction_token_weighted``."""
    advantage = case["advantages"][:, None]
    found = clipped_surrogate(case["ratio"], advantage, case["clip_low"], case["clip_high"])
    return clip_metrics(found[1], found[2], case["mask"])["clip_fraction_token_weighted"]


CLIP_FRACTION = FunctionTask(
    name="clip_fraction",
    draw=draw_fractions,
    right=package_fraction,
    formula=fraction_formula,
    faults=(
        Fault(
            "count",
            "outside",
            "This counts every ratio outside the range. Half of the corners keep their gradient: "
            "a token counts for A > 0 above the range, and for A < 0 below it.",
        ),
        Fault(
            "count",
            "wrong_corners",
            "These are the outsiders that keep their gradient. min() silences the others: A > 0 "
            "above the range, A < 0 below it.",
        ),
        Fault("count", "on_bound", "A ratio exactly on a bound is counted. It still is inside."),
        Fault("count", "above_only", "Only A > 0 is counted. A < 0 is clipped below the range."),
        Fault("count", "above_any_sign", "Only the upper bound is looked at, and no sign of A."),
        Fault("count", "below_only", "Only A < 0 is counted. A > 0 is clipped above the range."),
        Fault("count", "inside", "This is the share inside of the range."),
        Fault(
            "over",
            "mean_of_answers",
            "This averages the answers' shares. Here every token counts the same: all clipped "
            "tokens over all tokens.",
        ),
        Fault("over", "padding_counted", "The padding counts, too. Use the mask."),
        Fault("over", "padded_width", "Divided by all places. Divide by the number of tokens."),
        Fault("over", "count", "This is a number of tokens. Divide by how many there are."),
        Fault("over", "percent", "This is in percent. Give a share between 0 and 1."),
        *BOUNDS,
    ),
)
