"""What an exercise asks for, what has been solved, and how many points that makes."""

from __future__ import annotations

import contextlib
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from gspo_edu.checks.cells import last_error, watch_cells
from gspo_edu.checks.memory import missed_before, remember, set_aside_if_damaged
from gspo_edu.checks.result import CheckResult

TABLE = Path(__file__).with_name("exercises.toml")


@dataclass(frozen=True)
class Item:
    """One task of an exercise.

    Attributes:
        name: of the check, such as "sequence_ratio" or "05 four tokens".
        points: 1 or more.
        goal: what a learner who solves it can do.
        by_hand: graded by a reader with the rubric, not by a check.
        task: the check's name, where that is another one: a bug to mend is judged by the check of
            the function that has it.
        trains: plain numbers will not do, since the bug is that nothing is trained.
    """

    name: str
    points: int
    goal: str
    by_hand: bool = False
    task: str = ""
    trains: bool = False


@dataclass(frozen=True)
class Exercise:
    """An exercise notebook: its card and its tasks.

    Attributes:
        number: of the lesson it belongs to, two digits, or its own name.
        title, objective: in words.
        minutes: how long it takes.
        difficulty, importance: 1 to 5.
        items: the tasks in order.
    """

    number: str
    title: str
    objective: str
    minutes: int
    difficulty: int
    importance: int
    items: tuple[Item, ...]

    @property
    def points(self) -> int:
        """Sum over the tasks that checks grade."""
        return sum(item.points for item in self.items if not item.by_hand)

    def item(self, name: str) -> Item:
        """The task of that name.

        Raises:
            ValueError: if there is none.
        """
        for item in self.items:
            if item.name == name:
                return item
        known = ", ".join(item.name for item in self.items)
        raise ValueError(f"exercise {self.number} has no task {name!r}; it has: {known}.")

    def card(self) -> str:
        """Objective, minutes, difficulty and importance, as a Markdown table."""
        return "\n".join(
            [
                "| | |",
                "|---|---|",
                f"| **Objective** | {self.objective} |",
                f"| **Time** | {self.minutes} minutes |",
                f"| **Difficulty** | {scale(self.difficulty)} |",
                f"| **Importance** | {scale(self.importance)} |",
                f"| **Points** | {self.points} checked at once{self._read_points()} |",
            ]
        )

    def _read_points(self) -> str:
        read = sum(item.points for item in self.items if item.by_hand)
        return f", {read} given by a reader" if read else ""


def scale(value: int) -> str:
    """Dots for the eye and a number for whoever hears the page."""
    return f"{'●' * value}{'○' * (5 - value)} {value} of 5"


@cache
def exercises() -> dict[str, Exercise]:
    """Every exercise by number, in order."""
    with TABLE.open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)
    return {
        number: Exercise(
            number=number,
            items=tuple(Item(**item) for item in entry.pop("items")),
            **entry,
        )
        for number, entry in sorted(table.items())
    }


def all_items() -> dict[str, Item]:
    """The tasks of all exercises by name."""
    return {item.name: item for exercise in exercises().values() for item in exercise.items}


@dataclass
class _Board:
    exercise: Exercise | None = None
    results: dict[str, list[CheckResult]] | None = None


_board = _Board()


def begin(number: str) -> None:
    """Start an exercise: forget earlier results of this notebook and say what there is to do.

    Raises:
        ValueError: if there is no such exercise.
    """
    if number not in exercises():
        raise ValueError(f"number is {number!r}; expected one of {', '.join(exercises())}.")
    _board.exercise, _board.results = exercises()[number], {}
    watch_cells()
    backup = None
    with contextlib.suppress(OSError):  # as in remember: the exercise goes on without
        backup = set_aside_if_damaged()
    if backup is not None:
        print(f"The progress file could not be read; it is kept as {backup.name}.")
    done = _board.exercise
    count = sum(not item.by_hand for item in done.items)
    print(f"Exercise {number}: {count} checked tasks, {done.points} points.")
    missed = missed_before(number, [key for key in exercises() if key.isdecimal()])
    if missed:
        print("Missed before, so once more (answer in a cell of your own):")
        for name in missed:
            print(f'  checks.again("{name}")')


def record(result: CheckResult, *, again: bool = False) -> CheckResult:
    """Keep a result; ``again`` adds it to the one before, so that both have to be right."""
    if error := last_error():
        stale = f"The cell before stopped with {error}: what stood there earlier was judged."
        result = replace(result, message=f"{result.message} ({stale})")
    if _board.exercise is not None and _board.results is not None:
        if result.started and not again:
            remember(result.task, _board.exercise.number, right=result.passed)
        before = _board.results.get(result.task, []) if again else []
        _board.results[result.task] = [*before, result]
    return result


def points(name: str) -> float:
    """Points for the task ``name``: all if everything recorded for it is right, else 0.

    As the last line of a cell it tells nbgrader the score.

    Raises:
        ValueError: if no exercise has begun, or it has no such task.
    """
    item = current().item(name)
    results = (_board.results or {}).get(name, [])
    solved = bool(results) and all(result.passed for result in results)
    return float(item.points) if solved else 0.0


def current() -> Exercise:
    """The exercise that has begun.

    Raises:
        ValueError: if none has.
    """
    if _board.exercise is None:
        raise ValueError('no exercise has begun; run the cell with checks.begin("...") first.')
    return _board.exercise


def summary() -> float:
    """Print a line per task and the sum of the points; return the sum."""
    done = current()
    print(f"{'task':28} {'points':>8}   what it shows that you can do")
    total = 0.0
    for item in done.items:
        if item.by_hand:
            got = f"- / {item.points}"
        else:
            total += points(item.name)
            got = f"{points(item.name):g} / {item.points}"
        print(f"{item.name:28} {got:>8}   {item.goal}")
    print(f"{'Sum':28} {f'{total:g} / {done.points}':>8}")
    print("Each task counts as it stood at its last check. `gspo-edu progress` in a terminal (or")
    print("`python course.py progress`) counts what you have ever solved.")
    return total
