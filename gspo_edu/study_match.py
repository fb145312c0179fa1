"""The learning rate at which a policy moves as far per rollout as another one does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gspo_edu.records import Record
from gspo_edu.run_files import by_rollout

MOST_TRIES = 6
DIGITS = 4  # of a rate that was found: more would claim a precision that it has not


def step_size(records: Sequence[Record]) -> float:
    """How far the policy moves within a rollout: the mean of KL(pi_old || pi) at its last update.

    Each record measures the KL per token before its own update, so the last of a rollout shows
    what the updates before it did; one update per rollout gives 0, a KL that is not finite NaN.
    """
    ends = [rollout[-1]["kl_from_old"] for rollout in by_rollout([*records])]
    return float(np.mean([math.nan if kl is None else kl for kl in ends]))


@dataclass(frozen=True)
class Matched:
    """The outcome of a search for the rate that gives a wanted step size.

    Attributes:
        lr: the rate that came closest.
        found: step size there.
        tried: (rate, step size) in the order of the tries.
    """

    lr: float
    found: float
    tried: tuple[tuple[float, float], ...]


def matched_rate(
    measure: Callable[[float], float],
    target: float,
    start: float,
    *,
    tolerance: float = 0.1,
    tries: int = MOST_TRIES,
) -> Matched:
    """The learning rate at which a policy moves by ``target`` per rollout.

    The first step takes the KL to grow with the square of the rate, as it does for small steps;
    later ones take the slope between the last two tries, and stay between the highest rate known to
    be too low and the lowest known to be too high.

    Args:
        measure: step size at a rate; infinite where training diverged.
        target: wanted step size, more than 0.
        start: rate to try first.
        tolerance: relative difference at which the search ends.
        tries: most calls of ``measure``.

    Raises:
        ValueError: if the target is no positive number, or no try gave a finite step size.
    """
    if not 0 < target < math.inf:
        raise ValueError(f"target is {target}; expected a positive step size.")
    tried: list[tuple[float, float]] = []
    lr, low, high, slope = start, 0.0, math.inf, 2.0
    while len(tried) < tries:
        found = measure(lr)
        tried.append((lr, found))
        if abs(found / target - 1) <= tolerance:
            break
        low, high = (lr, high) if found < target else (low, min(lr, high))
        slope = slope_of(tried, slope)
        usable = 0 < found < math.inf
        guess = lr * (target / found) ** (1 / slope) if usable else (lr / 2 if found else lr * 2)
        if not low < guess < high:
            guess = math.sqrt(low * high) if low and high < math.inf else (low * 2 or high / 2)
        lr = min(float(f"{guess:.{DIGITS}g}"), 1.0)
    usable_tries = [(rate, found) for rate, found in tried if 0 < found < math.inf]
    if not usable_tries:
        raise ValueError(f"no rate gave a finite step size; tried {[rate for rate, _ in tried]}.")
    lr, found = min(usable_tries, key=lambda one: abs(math.log(one[1] / target)))
    return Matched(lr, found, tuple(tried))


def slope_of(tried: Sequence[tuple[float, float]], otherwise: float) -> float:
    """d log(step size) / d log(rate) between the last two tries, within reason."""
    if len(tried) < 2 or not all(0 < found < math.inf for _, found in tried[-2:]):
        return otherwise
    (lr0, found0), (lr1, found1) = tried[-2:]
    if lr0 == lr1:
        return otherwise
    return float(np.clip(math.log(found1 / found0) / math.log(lr1 / lr0), 0.5, 4.0))
