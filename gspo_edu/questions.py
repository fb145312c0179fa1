"""Questions and blanks of the lessons: numbers to compute, and a word on each known mistake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gspo_edu.predictions import say, sentence

DIGITS, NEARLY = 1e-3, 1e-2


def check_answer(
    answer: ArrayLike | None, right: ArrayLike, mistakes: Sequence[tuple[ArrayLike, str]] = ()
) -> None:
    """Print whether a computed answer is right or nearly so and, if it is a known mistake, which.

    Args:
        answer: the reader's number or numbers, right to four digits, in a list, an array or a
            tensor of any shape; None if not answered yet. What is no number is answered in words:
            an error would stop the reader's notebook.
        right: the number or numbers.
        mistakes: (what a mistake leads to, which mistake that is).

    Raises:
        ValueError: if a mistake leads to the right answer.
    """
    wanted = _numbers("right", right)
    for value, _ in mistakes:
        if _agree(_numbers("mistakes", value), wanted, 2 * DIGITS):
            raise ValueError(
                f"mistakes has {value!r}, which cannot be told from the answer {right!r}."
            )
    if answer is None:
        print("Not filled in yet. Put your answer in place of None and run the cell again.")
        return
    try:
        given = _numbers("the answer", answer)
    except ValueError as error:
        say(sentence(str(error)))
        return
    if given.size != wanted.size:
        print(f"Expected {_count(wanted)}, found {_count(given)}.")
        return
    if _agree(given, wanted, DIGITS):
        print(f"Right: {_shown(wanted)}.")
        return
    for value, mistake in mistakes:
        if _agree(given, _numbers("mistakes", value), DIGITS):
            print(f"{_shown(given)} is not it.")
            say(f"  {mistake}")
            return
    if _agree(given, wanted, NEARLY):
        print("Nearly: give four digits.")
        return
    print(f"{_shown(given)} is not it.")
    print("  Compute it again, step by step; four digits are enough.")


def _numbers(name: str, value: Any) -> NDArray[np.float64]:
    try:
        numbers = np.ravel(np.asarray(_plain(value), dtype=np.float64))
    except OverflowError:
        raise ValueError(f"{name} is beyond 1e308; expected numbers such as 0.25.") from None
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}; expected numbers such as 0.25.") from None
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} is {value!r}; expected finite numbers.")
    return numbers


def _plain(value: Any) -> Any:
    """Tensors, also those that NumPy refuses (with gradient, in bfloat16), as numbers."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _agree(a: NDArray[np.float64], b: NDArray[np.float64], digits: float) -> bool:
    return a.size == b.size and bool(np.allclose(a, b, rtol=digits, atol=1e-9))


def _count(numbers: NDArray[np.float64]) -> str:
    return "one number" if numbers.size == 1 else f"{numbers.size} numbers"


def _shown(numbers: NDArray[np.float64]) -> str:
    return ", ".join(f"{number:.6g}" for number in numbers)
