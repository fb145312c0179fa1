"""The questions at the end of a lesson: a number to compute, and a word on each known mistake."""

from __future__ import annotations

from collections.abc import Sequence

from gspo_edu.predictions import is_hit, number

DIGITS = 1e-3


def check_answer(
    answer: float | None, right: float, mistakes: Sequence[tuple[float, str]] = ()
) -> None:
    """Print whether a computed answer is right and, if it is a known mistake, which.

    Args:
        answer: the reader's number, right to four digits; None if not answered yet.
        right: the number.
        mistakes: (number that a mistake leads to, what the mistake is).

    Raises:
        ValueError: if the answer is not a number, or a mistake leads to the right number.
    """
    for value, _ in mistakes:
        if is_hit(value, right, 2 * DIGITS):
            raise ValueError(f"mistakes has {value}, which cannot be told from the answer {right}.")
    if answer is None:
        print("Not answered yet. Put your number after my_answer = and run the cell again.")
        return
    given = number(answer)
    if is_hit(given, right, DIGITS):
        print(f"Right: {right:.6g}.")
        return
    for value, mistake in mistakes:
        if is_hit(given, value, DIGITS):
            print(f"{given:.6g} is not it. {mistake}")
            return
    print(f"{given:.6g} is not it (four digits are enough). Compute it again, step by step.")
