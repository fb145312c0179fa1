"""Checks of what learners write: feedback that names the misconception.

    from gspo_edu import checks

    checks.sequence_ratio(my_function)      # calls it with inputs drawn anew each time
    checks.number("05 four tokens", 1.188)  # a number worked out by hand

Each check returns a ``CheckResult``; none raises because of what a learner wrote.
"""

import os
from dataclasses import replace
from typing import Any

import torch

from gspo_edu.checks.advantages import GROUP_ADVANTAGE
from gspo_edu.checks.board import Exercise, all_items, begin, exercises, points, record, summary
from gspo_edu.checks.cases import output_of
from gspo_edu.checks.clipping import CLIP_FRACTION
from gspo_edu.checks.counting import EXPERT_DRIFT, K3, LATER_UPDATES, MINI_BATCHES
from gspo_edu.checks.engines import TIS_WEIGHTS
from gspo_edu.checks.hand import HandNumber
from gspo_edu.checks.losses import GRPO_LOSS, GSPO_LOSS
from gspo_edu.checks.numbers_02_03 import LESSON_02, LESSON_03
from gspo_edu.checks.numbers_04_06 import LESSON_04, LESSON_06
from gspo_edu.checks.numbers_05 import LESSON_05
from gspo_edu.checks.numbers_07_09 import LESSON_07, LESSON_08, LESSON_09
from gspo_edu.checks.numbers_10 import LESSON_10
from gspo_edu.checks.numbers_11 import LESSON_11
from gspo_edu.checks.ratios import SEQUENCE_RATIO, TOKEN_RATIO
from gspo_edu.checks.result import CheckResult, Example
from gspo_edu.checks.routing import REPLAY_GATES, ROUTER_TOP_K
from gspo_edu.checks.task import FunctionTask
from gspo_edu.checks.terms import CLIPPED_TERM
from gspo_edu.checks.training import GSPO_UPDATES, PPO_UPDATES
from gspo_edu.checks.trl_settings import TRL_ROLLOUT, TRL_SETTINGS
from gspo_edu.checks.weights import EFFECTIVE_SIZE, GSPO_WEIGHTS, PRODUCT_RATIO
from gspo_edu.predictions import say

TASKS: dict[str, FunctionTask] = {
    task.name: task
    for task in (
        TOKEN_RATIO,
        GROUP_ADVANTAGE,
        CLIPPED_TERM,
        GRPO_LOSS,
        SEQUENCE_RATIO,
        GSPO_LOSS,
        CLIP_FRACTION,
        ROUTER_TOP_K,
        REPLAY_GATES,
        PPO_UPDATES,
        GSPO_UPDATES,
        LATER_UPDATES,
        EXPERT_DRIFT,
        K3,
        MINI_BATCHES,
        PRODUCT_RATIO,
        EFFECTIVE_SIZE,
        GSPO_WEIGHTS,
        TIS_WEIGHTS,
        TRL_ROLLOUT,
        TRL_SETTINGS,
    )
}
NUMBERS: dict[str, HandNumber] = {
    **LESSON_02,
    **LESSON_03,
    **LESSON_04,
    **LESSON_05,
    **LESSON_06,
    **LESSON_07,
    **LESSON_08,
    **LESSON_09,
    **LESSON_10,
    **LESSON_11,
}


def function(
    name: str, answer: Any, *, seed: int | None = None, item: str | None = None
) -> CheckResult:
    """Check a learner's function.

    Args:
        name: one of ``TASKS``.
        answer: the function.
        seed: of the inputs; None draws new ones each time. A result with a seed is added to the
            one before: both have to be right for the points.
        item: the exercise's name for it, where that is another one, such as "03 bug".

    Raises:
        ValueError: if there is no such task.
    """
    if name not in TASKS:
        raise ValueError(f"name is {name!r}; expected one of {', '.join(TASKS)}.")
    trains = item in all_items() and all_items()[item].trains
    task = replace(TASKS[name], plain_numbers=not trains)
    result = replace(task.check(answer, seed=seed), task=item or name)
    return record(result, again=seed is not None)


def token_ratio(answer: Any, *, seed: int | None = None) -> CheckResult:
    """Check ``f(logp, logp_old, mask)``, each (B, T): the ratios (B, T), 0 outside the mask."""
    return function("token_ratio", answer, seed=seed)


def group_advantage(answer: Any, *, seed: int | None = None) -> CheckResult:
    """Check ``f(rewards)``, rewards (P, G) with one row per prompt: the advantages (P, G)."""
    return function("group_advantage", answer, seed=seed)


def clipped_term(answer: Any, *, seed: int | None = None) -> CheckResult:
    """Check ``f(ratio, advantage, clip_low, clip_high)``, the first two (N,): min(...) (N,)."""
    return function("clipped_term", answer, seed=seed)


def sequence_ratio(answer: Any, *, seed: int | None = None) -> CheckResult:
    """Check ``f(logp, logp_old, mask)``, each (B, T): one ratio per answer, (B,)."""
    return function("sequence_ratio", answer, seed=seed)


def grpo_loss(answer: Any, *, seed: int | None = None) -> CheckResult:
    """Check ``f(logp, logp_old, advantages, mask, clip_low, clip_high)``: GRPO's loss."""
    return function("grpo_loss", answer, seed=seed)


def gspo_loss(answer: Any, *, seed: int | None = None) -> CheckResult:
    """Check ``f(logp, logp_old, advantages, mask, clip_low, clip_high)``: GSPO's loss."""
    return function("gspo_loss", answer, seed=seed)


def clip_fraction(answer: Any, *, seed: int | None = None) -> CheckResult:
    """Check ``f(ratio, advantages, mask, clip_low, clip_high)``: clipped share of all tokens."""
    return function("clip_fraction", answer, seed=seed)


def router_top_k(answer: Any, *, seed: int | None = None) -> CheckResult:
    """Check ``f(logits, k)``, logits (S, E): experts and gates, each (S, k)."""
    return function("router_top_k", answer, seed=seed)


def replay_gates(answer: Any, *, seed: int | None = None) -> CheckResult:
    """Check ``f(logits, experts, old_gates)``: the gates (S, K) of the recorded experts."""
    return function("replay_gates", answer, seed=seed)


def number(name: str, value: Any) -> CheckResult:
    """Check a number that was worked out by hand.

    Raises:
        ValueError: if there is no such question.
    """
    if name not in NUMBERS:
        raise ValueError(f"name is {name!r}; expected one of {', '.join(NUMBERS)}.")
    return record(NUMBERS[name].check(name, value))


def again(name: str) -> None:
    """Say what a task from an earlier exercise was, and how to check it here.

    Raises:
        ValueError: if there is no such task.
    """
    if name in NUMBERS:
        say(NUMBERS[name].question)
        print(f'Then: checks.number("{name}", ...)')
        return
    items = all_items()
    if name not in items or items[name].by_hand:
        raise ValueError(f"name is {name!r}; expected the name of a checked task.")
    task = items[name].task or name
    wanted = ", ".join(TASKS[task].draw(torch.Generator().manual_seed(0))[0])
    say(f"Write a function of ({wanted}): {items[name].goal}.")
    print(f'Then: checks.function("{task}", ...)')


def class_seed() -> int:
    """The seed of the hidden tests: what the teacher put into GSPO_EDU_CLASS_SEED, or 0."""
    given = os.environ.get("GSPO_EDU_CLASS_SEED", "0")
    try:
        return int(given)
    except ValueError:
        raise ValueError(f"GSPO_EDU_CLASS_SEED is {given!r}; expected a whole number.") from None


__all__ = [
    "NUMBERS",
    "TASKS",
    "CheckResult",
    "Example",
    "Exercise",
    "HandNumber",
    "again",
    "begin",
    "class_seed",
    "clip_fraction",
    "clipped_term",
    "exercises",
    "function",
    "group_advantage",
    "grpo_loss",
    "gspo_loss",
    "number",
    "output_of",
    "points",
    "replay_gates",
    "router_top_k",
    "sequence_ratio",
    "summary",
    "token_ratio",
]
