"""Task: the group advantage."""

from __future__ import annotations

import torch
from torch import Tensor

from gspo_edu.advantages import group_advantages
from gspo_edu.checks.cases import Case
from gspo_edu.checks.task import Fault, FunctionTask

LIBRARY_EPS = 1e-4


def draw(dice: torch.Generator) -> list[Case]:
    """Cases of rewards (P, G): one group, several, small rewards, a group without a difference."""

    def spread(prompts: int, size: int, unit: float, places: int) -> Tensor:
        # Around a level of their own, so that the whole batch is another baseline than the group.
        level = torch.arange(prompts, dtype=torch.float64)[:, None] * 2
        drawn = torch.rand(prompts, size, generator=dice, dtype=torch.float64)
        drawn[:, 0], drawn[:, 1] = drawn[:, 0] / 2 - 1, drawn[:, 1] / 2 + 1.5
        return ((level + drawn) * unit).round(decimals=places)

    dead = spread(3, 4, 1.0, 2)
    dead[1] = 0.5
    cases = [spread(1, 4, 1.0, 1), spread(2, 3, 1.0, 2), spread(3, 5, 0.01, 5), dead]
    return [{"rewards": rewards} for rewards in [*cases, spread(2, 4, 1.0, 2).float()]]


def right(case: Case) -> Tensor:
    """The package's group advantages, as (P, G)."""
    rewards = case["rewards"]
    prompts, size = rewards.shape
    groups = torch.arange(prompts).repeat_interleave(size)
    return group_advantages(rewards.reshape(-1), groups).reshape(prompts, size)


def formula(
    case: Case,
    *,
    centre: str = "mean",
    spread: str = "std",
    sign: str = "right",
    dead: str = "zero",
) -> Tensor:
    """(rewards - mean) / std of each row, or something else."""
    rewards = case["rewards"].double()
    size = rewards.shape[1]
    axis: tuple[int, ...] = {"whole_batch": (0, 1), "over_prompts": (0,)}.get(centre, (1,))
    mean = rewards.mean(dim=axis, keepdim=True)
    if centre == "others":
        mean = (mean * size - rewards) / (size - 1)
    if centre == "best":
        mean = rewards.max(dim=1, keepdim=True).values
    centred = rewards if centre == "not_centred" else rewards - mean
    std = rewards.std(dim=axis, correction=0, keepdim=True)
    scale = {
        "std": std,
        "sample_std": rewards.std(dim=axis, correction=1, keepdim=True)
        if centre != "over_prompts" or len(rewards) > 1
        else torch.full_like(std, torch.nan),
        "no_std": torch.ones_like(std),
        "variance": std**2,
        "library_eps": std + LIBRARY_EPS,
        "trl": rewards.std(dim=1, correction=1, keepdim=True) + LIBRARY_EPS,
        "range": rewards.amax(dim=axis, keepdim=True) - rewards.amin(dim=axis, keepdim=True),
    }[spread]
    found: Tensor = centred / scale
    if dead == "zero":
        found = found.where(scale != 0, 0.0)
    return -found if sign == "wrong_sign" else found


GROUP_ADVANTAGE = FunctionTask(
    name="group_advantage",
    draw=draw,
    right=right,
    formula=formula,
    faults=(
        Fault(
            "spread",
            "sample_std",
            "That std divides by n - 1. This course takes n: torch's std() needs correction=0, "
            "NumPy's divides by n by itself.",
        ),
        Fault("spread", "no_std", "Centred, but not divided by the group's std."),
        Fault("spread", "variance", "Divided by the variance. Take its square root, the std."),
        Fault(
            "spread",
            "library_eps",
            "There is 1e-4 added to the std, as in TRL. The formula has no such term, and for "
            "small rewards it is felt.",
        ),
        Fault(
            "spread",
            "trl",
            "This is TRL's way: n - 1 in the std, and 1e-4 added to it. This course takes n and "
            "adds nothing.",
        ),
        Fault("spread", "range", "Divided by the range, largest minus smallest. Take the std."),
        Fault("centre", "not_centred", "The group's mean is not subtracted."),
        Fault(
            "centre",
            "whole_batch",
            "Mean and std of the whole batch. A group is one row: the answers to one prompt.",
        ),
        Fault(
            "centre",
            "over_prompts",
            "Mean and std over the prompts (down the columns). Take them along each row.",
        ),
        Fault(
            "centre",
            "others",
            "The baseline is the mean of the other answers (leave-one-out). The group's mean "
            "includes the answer itself.",
        ),
        Fault("centre", "best", "The best answer is the baseline. Subtract the mean."),
        Fault(
            "sign",
            "wrong_sign",
            "The sign of the advantage: a reward above the mean gives A > 0.",
        ),
        Fault(
            "dead",
            "nan_in_dead_group",
            "Right, except where all rewards of a group are equal: 0 / 0 is NaN. There the "
            "advantage is 0, since nothing can be learned.",
        ),
    ),
)
