"""Task: the correction for a sampler that disagrees with the trainer."""

from __future__ import annotations

import torch
from torch import Tensor

from gspo_edu.checks.cases import Case
from gspo_edu.checks.drawing import lengths_to_mask, uniform
from gspo_edu.checks.task import Fault, FunctionTask
from gspo_edu.objectives.corrections import correction_weight


def draw(dice: torch.Generator) -> list[Case]:
    """Cases of (logp_old, logp_engine, mask, cap)."""
    cases: list[Case] = []
    for lengths, width, cap in (((3,), 3, 1.2), ((4, 1, 3), 6, 1.3), ((2, 6, 5), 7, 1.1)):
        mask = lengths_to_mask(lengths, width)
        engine = uniform(dice, -4.0, -1.6, *mask.shape)
        gap = uniform(dice, -1.5, 1.5, *mask.shape)
        gap[:, 0] = 1.4  # above every cap
        case = {"logp_old": engine + gap, "logp_engine": engine, "mask": mask}
        cases.append({**case, "cap": cap})
    return cases


def right(case: Case) -> Tensor:
    """The package's truncated weights."""
    kind = {"kind": "tis", "cap": case["cap"]}
    return correction_weight(kind, case["logp_old"], case["logp_engine"], case["mask"])


def formula(case: Case, *, weight: str = "tis", padding: str = "zero") -> Tensor:
    """Weights of the tokens, right or wrong."""
    gap, cap = (case["logp_old"] - case["logp_engine"]).double(), case["cap"]
    rho = gap.exp()
    found: Tensor = {
        "tis": rho.clamp(max=cap),
        "inverse": (-gap).exp().clamp(max=cap),
        "no_cap": rho,
        "dropped": rho.where(rho <= cap, 0.0),
        "two_sided": rho.clamp(1 / cap, cap),
        "log_capped": gap.clamp(max=cap).exp(),
        "log": gap.clamp(max=cap),
    }[weight]
    return found if padding == "padding_counted" else found * case["mask"]


TIS_WEIGHTS = FunctionTask(
    name="tis_weights",
    draw=draw,
    right=right,
    formula=formula,
    faults=(
        Fault("weight", "inverse", "Upside down: the trainer over the engine, who sampled."),
        Fault("weight", "no_cap", "Nothing is truncated: a large rho is dangerous. min(rho, cap)."),
        Fault("weight", "dropped", "IcePop drops what is too large. TIS keeps it, at the cap."),
        Fault("weight", "two_sided", "Truncated on both sides. TIS has no lower bound."),
        Fault("weight", "log_capped", "The cap is put on log rho. It is a bound of rho itself."),
        Fault("weight", "log", "This is the log of rho. Take exp first."),
        Fault("padding", "padding_counted", "The padding has weights. Outside the mask: 0."),
    ),
)
