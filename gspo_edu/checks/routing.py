"""Tasks: a router's top-k, and the gates of a replayed route."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gspo_edu.checks.calling import Unusable, numbers
from gspo_edu.checks.cases import Case
from gspo_edu.checks.drawing import uniform
from gspo_edu.checks.result import shown
from gspo_edu.checks.task import Fault, FunctionTask
from gspo_edu.moe.routes import replay_gates

SIZES = ((1, 4, 2), (3, 6, 2), (5, 8, 3), (4, 7, 4))  # tokens, experts, chosen


def distinct(dice: torch.Generator, tokens: int, experts: int) -> Tensor:
    """Router logits (S, E), no two in a row closer than 0.2."""
    order = torch.rand(tokens, experts, generator=dice).argsort(dim=1)
    return order * 0.5 - 1.0 + uniform(dice, -0.15, 0.15, tokens, experts)


def draw_logits(dice: torch.Generator) -> list[Case]:
    """Cases of (logits, k), the last in float32."""
    cases: list[Case] = [{"logits": distinct(dice, s, e), "k": k} for s, e, k in SIZES]
    cases[-1]["logits"] = cases[-1]["logits"].float()
    return cases


def spread_out(logits: Tensor, experts: Tensor, gates: Tensor) -> Tensor:
    """(S, E): each expert's gate, 0 for those that were not chosen."""
    return torch.zeros_like(logits).scatter(1, experts, gates)


def read_routes(case: Case, output: Any) -> Tensor:
    """The pair (experts, gates) as gates by expert, in whatever order the experts come.

    Raises:
        Unusable: saying what is not as it should be.
    """
    tokens, experts = case["logits"].shape
    shape = (tokens, case["k"])
    if not (isinstance(output, tuple | list) and len(output) == 2):
        kind = type(output).__name__
        raise Unusable(f"It returns {kind}; expected two things: experts, gates.")
    chosen, gates = (numbers(part) for part in output)
    for name, part in (("experts", chosen), ("gates", gates)):
        if tuple(part.shape) != shape:
            raise Unusable(f"{name} has shape {tuple(part.shape)}; expected (tokens, k) = {shape}.")
    known = (chosen == chosen.round()) & (chosen >= 0) & (chosen < experts)
    if not bool(known.all()):
        raise Unusable(
            f"experts holds {float(chosen[~known][0]):g}; expected numbers of experts, 0 to "
            f"{experts - 1}: the first is 0. Were experts and gates returned in this order?"
        )
    ordered = chosen.sort(dim=1).values
    if bool((ordered[:, 1:] == ordered[:, :-1]).any()):
        raise Unusable("experts names one expert twice for the same token.")
    return spread_out(torch.zeros(tokens, experts, dtype=gates.dtype), chosen.long(), gates)


def top_k_formula(case: Case, *, choose: str = "highest", gates: str = "renormalised") -> Tensor:
    """Gates by expert, right or wrong."""
    logits, k = case["logits"].double(), case["k"]
    ranked = -logits if choose == "lowest" else logits
    if choose == "largest_absolute":
        ranked = logits.abs()
    experts = torch.arange(k).expand(len(logits), k)
    if choose == "same_for_all":
        experts = logits.mean(dim=0).topk(k).indices.expand(len(logits), k)
    elif choose != "first":
        experts = ranked.topk(k, dim=1).indices
    kept = logits.gather(1, experts)
    weights: dict[str, Callable[[], Tensor]] = {
        "renormalised": lambda: kept.softmax(dim=1),
        "not_renormalised": lambda: logits.softmax(dim=1).gather(1, experts),
        "equal_gates": lambda: torch.full_like(kept, 1 / k),
        "raw_logits": lambda: kept,
        "over_tokens": lambda: kept.softmax(dim=0),
        "divided_logits": lambda: kept / kept.sum(dim=1, keepdim=True),
        "gates_reversed": lambda: kept.softmax(dim=1).flip(1),
    }
    return spread_out(logits, experts, weights[gates]())


def top_k_right(case: Case) -> Tensor:
    """Top-k choice with the package's gates."""
    logits = case["logits"]
    experts = logits.detach().topk(case["k"], dim=-1).indices
    return spread_out(logits, experts, replay_gates(logits, experts))


ROUTER_TOP_K = FunctionTask(
    name="router_top_k",
    draw=draw_logits,
    right=top_k_right,
    formula=top_k_formula,
    faults=(
        Fault("choose", "lowest", "These are the k lowest logits. Sort downwards."),
        Fault("choose", "largest_absolute", "Chosen by absolute value. A low logit means: no."),
        Fault(
            "choose",
            "same_for_all",
            "All tokens get the same experts. Each token chooses for itself: along its own row.",
        ),
        Fault("choose", "first", "These are the first k experts, whatever their logits."),
        Fault(
            "gates",
            "not_renormalised",
            "The gates come from the softmax over all experts, so they do not add up to 1. Take "
            "the softmax over the chosen k.",
        ),
        Fault("gates", "equal_gates", "The chosen experts count alike. Weigh them by softmax."),
        Fault("gates", "raw_logits", "These are logits. Take their softmax."),
        Fault(
            "gates",
            "over_tokens",
            "That softmax runs over the tokens. Take it along each token's experts.",
        ),
        Fault("gates", "divided_logits", "Divided by the sum. Take exp first: that is softmax."),
        Fault(
            "gates",
            "gates_reversed",
            "The gates are in the opposite order of the experts.",
        ),
    ),
    reading=read_routes,
    show=lambda gates: f"each expert's gate, 0 if it was not chosen:\n{shown(gates)}",
    gradient="logits",
    no_gradient="The gates are right, but the router gets no gradient and cannot learn.",
)


def draw_replays(dice: torch.Generator) -> list[Case]:
    """Cases of (logits, experts, old_gates): live logits, and what the old policy recorded."""
    cases = []
    for number, (tokens, size, k) in enumerate(SIZES):
        logits, old = distinct(dice, tokens, size), distinct(dice, tokens, size)
        # The live router would choose otherwise: the old favourite is now the last.
        favourite = old.argmax(dim=1, keepdim=True)
        logits = logits.scatter(1, favourite, logits.min(dim=1, keepdim=True).values - 0.3)
        experts = old.topk(k, dim=1).indices
        gates = replay_gates(old, experts).round(decimals=4)
        if number == len(SIZES) - 1:
            logits, gates = logits.float(), gates.float()
        cases.append({"logits": logits, "experts": experts, "old_gates": gates})
    return cases


def replay_formula(case: Case, *, gates: str = "right") -> Tensor:
    """The gates of a replayed route, or something else."""
    logits, experts = case["logits"].double(), case["experts"]
    kept, k = logits.gather(1, experts), experts.shape[1]
    found: dict[str, Callable[[], Tensor]] = {
        "right": lambda: kept.softmax(dim=1),
        "copied_gates": lambda: case["old_gates"].double(),
        "live_experts": lambda: logits.topk(k, dim=1).values.softmax(dim=1),
        "not_renormalised": lambda: logits.softmax(dim=1).gather(1, experts),
        "equal_gates": lambda: torch.full_like(kept, 1 / k),
        "raw_logits": lambda: kept,
        "sorted_gates": lambda: kept.softmax(dim=1).sort(dim=1, descending=True).values,
        "over_tokens": lambda: kept.softmax(dim=0),
        "zero_filled": lambda: (
            torch.zeros_like(logits).scatter(1, experts, kept).softmax(dim=1).gather(1, experts)
        ),
        "mixed_with_old": lambda: (kept.softmax(dim=1) + case["old_gates"].double()) / 2,
    }
    return found[gates]()


REPLAY_GATES = FunctionTask(
    name="replay_gates",
    draw=draw_replays,
    right=lambda case: replay_gates(case["logits"], case["experts"]),
    formula=replay_formula,
    faults=(
        Fault(
            "gates",
            "copied_gates",
            "These are the old gates, copied. Replay keeps which experts run; how much each "
            "counts comes from the live logits, or the router cannot learn.",
        ),
        Fault(
            "gates",
            "live_experts",
            "The live router has chosen here. Replay takes the recorded experts.",
        ),
        Fault(
            "gates",
            "not_renormalised",
            "The gates come from the softmax over all experts. Take it over the recorded ones.",
        ),
        Fault("gates", "equal_gates", "The experts count alike. Weigh them by the live logits."),
        Fault("gates", "raw_logits", "These are logits. Take their softmax."),
        Fault("gates", "over_tokens", "That softmax runs over the tokens. Take it along each row."),
        Fault(
            "gates",
            "zero_filled",
            "Experts that do not run still take a share: to a softmax a logit of 0 is not nothing.",
        ),
        Fault("gates", "sorted_gates", "The gates are sorted. Keep the order of `experts`."),
        Fault("gates", "mixed_with_old", "Old and live gates are averaged. Only the live count."),
    ),
    gradient="logits",
    no_gradient=(
        "The gates are right, but no gradient reaches the logits: replay fixes the experts, not "
        "the router."
    ),
)
