"""Tasks: metrics and book-keeping that logs are read by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gspo_edu import metrics
from gspo_edu.batch import mini_batch_rows
from gspo_edu.checks.cases import Case
from gspo_edu.checks.drawing import uniform
from gspo_edu.checks.task import Fault, FunctionTask
from gspo_edu.moe.routes import drift


def draw_logs(dice: torch.Generator) -> list[Case]:
    """Cases of (clip_fractions, mini_batches): one number per update, 0 at each rollout's first."""
    cases: list[Case] = []
    for rollouts, parts in ((2, 4), (5, 4), (4, 3), (3, 2)):
        share = uniform(dice, 0.1, 0.6, rollouts * parts)
        share[::parts] = 0.0
        cases.append({"clip_fractions": share, "mini_batches": parts})
    return cases


def later_mean(case: Case, *, which: str = "right") -> Tensor:
    """Mean over the updates that can clip, or over others."""
    share, parts = case["clip_fractions"].double(), case["mini_batches"]
    found: dict[str, Callable[[], Tensor]] = {
        "right": lambda: share.reshape(-1, parts)[:, 1:].mean(),
        "all_updates": share.mean,
        "first_of_all": lambda: share[1:].mean(),
        "first_only": lambda: share[::parts].mean(),
        "last_only": lambda: share[parts - 1 :: parts].mean(),
        "without_last": lambda: share.reshape(-1, parts)[:, :-1].mean(),
        "last_rollout": lambda: share[-parts + 1 :].mean(),
        "sum": share.sum,
    }
    return found[which]()


LATER_UPDATES = FunctionTask(
    name="later_updates",
    draw=draw_logs,
    right=later_mean,
    formula=later_mean,
    faults=(
        Fault(
            "which",
            "all_updates",
            "The mean over all updates. Each rollout's first has only ratios of 1 and can clip "
            "nothing: leave it out.",
        ),
        Fault(
            "which",
            "first_of_all",
            "Only the run's very first update is left out. Every rollout has a first one.",
        ),
        Fault("which", "first_only", "Only each rollout's first update, whose ratios are all 1."),
        Fault("which", "last_only", "Only the last update of each rollout. The middle ones count."),
        Fault("which", "without_last", "The last of each rollout is left out, not the first."),
        Fault("which", "last_rollout", "That is the last rollout alone."),
        Fault("which", "sum", "A sum. Divide by how many updates it runs over."),
    ),
)


def draw_routes(dice: torch.Generator) -> list[Case]:
    """Cases of (routes, reference), each (S, K): experts now and before, in any order."""
    cases: list[Case] = []
    for tokens, experts, k in ((2, 6, 2), (7, 8, 3), (13, 9, 3)):
        ranks = [torch.rand(tokens, experts, generator=dice) for _ in range(2)]
        before, other = (rank.argsort(dim=1)[:, :k].contiguous() for rank in ranks)
        # The second token keeps its experts in another order, the third in the same one, the fourth
        # its first in place.
        keep = torch.rand(tokens, generator=dice) < 0.3
        keep[:2] = torch.tensor([False, True])
        after = torch.where(keep[:, None], before.roll(1, dims=1), other)
        after[2:3] = before[2:3]
        after[3:4] = torch.cat([before[3:4, :1], before[3:4, 1:].roll(1, dims=1)], dim=1)
        cases.append({"routes": after, "reference": before})
    return cases


def drift_formula(case: Case, *, count: str = "right") -> Tensor:
    """Share of slots whose expert is new, or another share."""
    now, before = case["routes"], case["reference"]
    new = ~(now.unsqueeze(-1) == before.unsqueeze(-2)).any(dim=-1)
    found: dict[str, Tensor] = {
        "right": new.double().mean(),
        "order_counts": (now != before).double().mean(),
        "tokens_touched": new.any(dim=-1).double().mean(),
        "kept": (~new).double().mean(),
        "everything": torch.tensor(1.0, dtype=torch.float64),
        "first_token": new[0].double().sum() / new.numel(),
        "percent": 100 * new.double().mean(),
        "sorted_places": (now.sort(dim=1).values != before.sort(dim=1).values).double().mean(),
        "per_token": new.double().sum() / len(new),
        "number": new.double().sum(),
        "first_expert_only": (now[:, 0] != before[:, 0]).double().mean(),
        "anywhere": (~torch.isin(now, before)).double().mean(),
    }
    return found[count]


EXPERT_DRIFT = FunctionTask(
    name="expert_drift",
    draw=draw_routes,
    right=lambda case: drift(case["routes"], case["reference"]).double(),
    formula=drift_formula,
    faults=(
        Fault("count", "order_counts", "Order counts here. {3, 7} and {7, 3} are one choice."),
        Fault(
            "count",
            "tokens_touched",
            "This is the share of tokens that are touched. Drift counts their slots.",
        ),
        Fault(
            "count",
            "everything",
            "Everything counts as new. A set of tensors compares objects: take .tolist() first. "
            "And new is what differs from all of the token's experts, not from any.",
        ),
        Fault("count", "first_token", "Only the first token is counted. Is return in the loop?"),
        Fault("count", "percent", "This is in percent. Give a share between 0 and 1."),
        Fault(
            "count",
            "sorted_places",
            "Sorted, then compared place by place: one new expert shifts the others. Look each up "
            "among the token's experts of before.",
        ),
        Fault("count", "per_token", "Divided by the tokens. Each token has K slots."),
        Fault("count", "kept", "This is the share that stayed. Drift counts what is new."),
        Fault("count", "number", "This is a number of slots. Divide by how many there are."),
        Fault("count", "first_expert_only", "Only the first expert is compared, place by place."),
        Fault(
            "count",
            "anywhere",
            "An expert is compared with those of all tokens. Look at the same token only.",
        ),
    ),
)


def draw_kl(dice: torch.Generator) -> list[Case]:
    """Cases of (logp, logp_ref), each (N,)."""
    return [
        {"logp": uniform(dice, -3, -0.2, size), "logp_ref": uniform(dice, -3, -0.2, size)}
        for size in (1, 3, 6)
    ]


def kl_formula(case: Case, *, kind: str = "k3") -> Tensor:
    """The estimate of the KL to the reference, or another number."""
    x: Tensor = case["logp_ref"].double() - case["logp"].double()
    found: dict[str, Tensor] = {
        "k3": x.exp() - x - 1,
        "wrong_direction": (-x).exp() + x - 1,
        "k1": -x,
        "k2": x**2 / 2,
        "wrong_sign": x + 1 - x.exp(),
        "no_one": x.exp() - x,
        "ratio_only": x.exp() - 1,
    }
    return found[kind]


K3 = FunctionTask(
    name="k3",
    draw=draw_kl,
    right=lambda case: metrics.k3(case["logp"], case["logp_ref"]),
    formula=kl_formula,
    faults=(
        Fault("kind", "wrong_direction", "The quotient is upside down: the reference is on top."),
        Fault("kind", "k1", "This is k1, the plain difference of the log-probs."),
        Fault("kind", "k2", "This is k2, half the square of the difference."),
        Fault("kind", "wrong_sign", "The sign: k3 is never negative."),
        Fault("kind", "no_one", "Subtract 1: for equal probabilities k3 is 0."),
        Fault("kind", "ratio_only", "The log of the quotient has to be subtracted as well."),
    ),
    gradient="logp",
    no_gradient="The value is right, but no gradient flows to the policy's log-probs.",
)


def draw_sizes(dice: torch.Generator) -> list[Case]:
    """Cases of (answers, mini_batches)."""
    more = int(torch.randint(5, 30, (), generator=dice))
    pairs = ((10, 4), (8, 4), (4 * more + 3, 4), (3 * more + 1, 3))
    return [{"answers": answers, "mini_batches": parts} for answers, parts in pairs]


def package_sizes(case: Case) -> Tensor:
    """Sizes of the package's mini-batches."""
    group, dice = torch.arange(case["answers"]), torch.Generator().manual_seed(0)
    rows = mini_batch_rows(group, case["mini_batches"], dice)
    return torch.tensor([len(part) for part in rows], dtype=torch.float64)


def size_formula(case: Case, *, split: str = "even") -> Tensor:
    """Sizes of mini-batches."""
    n, parts = case["answers"], case["mini_batches"]
    low, rest = divmod(n, parts)
    high = -(-n // parts)
    found = {
        "even": [low + 1] * rest + [low] * (parts - rest),
        "rest_dropped": [low] * parts,
        "rest_in_last": [low] * (parts - 1) + [low + rest],
        "rounded_up": [high] * parts,
        "last_is_short": [high] * (parts - 1) + [n - high * (parts - 1)],
        "fractions": [n / parts] * parts,
    }
    return torch.tensor(found[split], dtype=torch.float64)


def sorted_sizes(case: Case, output: Any) -> Tensor:
    """Sizes from large to small, since their order is free."""
    from gspo_edu.checks.calling import numbers

    value = numbers(output)
    return value.sort(descending=True).values if value.dim() == 1 else value


MINI_BATCHES = FunctionTask(
    name="mini_batches",
    draw=draw_sizes,
    right=package_sizes,
    formula=lambda case, split="even": size_formula(case, split=split).sort(descending=True).values,
    faults=(
        Fault(
            "split",
            "rest_dropped",
            "The answers that do not fill a mini-batch are dropped. Each answer is used once.",
        ),
        Fault("split", "rest_in_last", "The whole rest is in one mini-batch. Spread it."),
        Fault("split", "last_is_short", "The last one is short. Sizes differ by one at most."),
        Fault("split", "rounded_up", "These add up to more answers than there are."),
        Fault("split", "fractions", "There is no part of an answer."),
    ),
    reading=sorted_sizes,
)
