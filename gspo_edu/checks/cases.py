"""The inputs of one call, as tensors, as arrays or as lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from gspo_edu.checks.calling import outcome_of

Case = dict[str, Any]
BETWEEN_CHECKS = 1.0  # seconds, where a cell of an exercise uses what a learner wrote


def as_tensors(case: Case) -> Case:
    """A case in torch, as it was drawn."""
    return dict(case)


def as_arrays(case: Case) -> Case:
    """A case in NumPy."""
    return {n: v.detach().numpy() if isinstance(v, Tensor) else v for n, v in case.items()}


def as_lists(case: Case) -> Case:
    """A case in plain lists."""
    return {n: v.tolist() if isinstance(v, Tensor) else v for n, v in case.items()}


def in_half(case: Case) -> Case:
    """A case as it looks in bfloat16."""
    return {
        n: v.bfloat16().to(v.dtype) if isinstance(v, Tensor) and v.is_floating_point() else v
        for n, v in case.items()
    }


KINDS = (as_tensors, as_arrays, as_lists)


def output_of(function: Callable[..., Any], *given: Any) -> Tensor | None:
    """What a learner's function makes of tensors, whether it takes those, arrays or lists.

    Returns:
        a tensor without graph, or None if the function is not written yet or gives no numbers.
    """
    case = {str(place): value for place, value in enumerate(given)}
    for convert in KINDS:
        outcome = outcome_of(function, convert(case), seconds=BETWEEN_CHECKS)
        if outcome.value is not None or outcome.missing or outcome.late:
            return outcome.value
    return None
