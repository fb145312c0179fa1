"""Toy tasks whose rewards a few lines can verify."""

from typing import Any

from gspo_edu.tasks.base import Task
from gspo_edu.tasks.clock_walk import ClockWalk
from gspo_edu.tasks.sort_digits import SortDigits
from gspo_edu.tasks.two_turn import TwoTurnWalk

__all__ = ["TASKS", "ClockWalk", "SortDigits", "Task", "TwoTurnWalk", "make_task", "task_size"]

TASKS: dict[str, tuple[Any, str]] = {
    "clock_walk": (ClockWalk, "longest"),
    "sort_digits": (SortDigits, "digits"),
    "two_turn": (TwoTurnWalk, "longest"),
}


def make_task(name: str, size: int | None = None) -> Task:
    """The task called ``name``; ``size`` is its longest demonstrated walk or its number of digits.

    Raises:
        ValueError: if there is no such task, or the size does not suit it.
    """
    if name not in TASKS:
        raise ValueError(f"task is {name!r}; expected one of {', '.join(TASKS)}.")
    kind, setting = TASKS[name]
    task: Task = kind() if size is None else kind(**{setting: size})
    return task


def task_size(task: Task) -> int:
    """The size with which ``make_task`` would make ``task``."""
    settings = dict(TASKS.values())
    return int(getattr(task, settings[type(task)]))
