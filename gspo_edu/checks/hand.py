"""Numbers worked out by hand: right to a tolerance, or wrong in a way that has a name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gspo_edu.checks.calling import Unusable, in_time, numbers
from gspo_edu.checks.result import CheckResult


@dataclass(frozen=True)
class HandNumber:
    """A number to work out.

    Attributes:
        question: what is asked, in Markdown.
        right: computes the answer, so that no number is typed where code can compute it.
        mistakes: (key, what the mistake leads to, which mistake that is).
        tolerance: largest difference that counts as right: half a unit of the last digit asked for.
    """

    question: str
    right: Callable[[], float]
    mistakes: tuple[tuple[str, Callable[[], float], str], ...]
    tolerance: float

    @property
    def places(self) -> int:
        """Decimals that the tolerance asks for."""
        return max(0, round(-math.log10(2 * self.tolerance)))

    def check(self, name: str, value: Any) -> CheckResult:
        """Judge an answer; never raises because of it."""
        if value is None:
            return CheckResult(name, False, "Put your number in place of None.", started=False)
        try:
            given = in_time(lambda: numbers(value), 1.0)
        except Unusable as error:
            return CheckResult(name, False, f"{error} Expected one number.".replace(*WORDS))
        except BaseException:
            return CheckResult(name, False, "This cannot be read. Expected one number.")
        return self._judge(name, given)

    def _judge(self, name: str, given: Tensor) -> CheckResult:
        if given.numel() != 1:
            return CheckResult(name, False, f"Expected one number, found {given.numel()}.")
        answer, right = given.item(), self.right()
        if not math.isfinite(answer):
            return CheckResult(name, False, f"This is {answer}. Expected a finite number.")
        if abs(answer - right) <= self.tolerance * (1 + 1e-9):
            return CheckResult(name, True, f"{round(right, self.places):.10g}.")
        for key, leads_to, said in self.mistakes:
            if abs(answer - leads_to()) <= self.tolerance * (1 + 1e-9):
                return CheckResult(name, False, f"{answer:.6g}: {said}", (key,))
        if abs(answer - right) <= 20 * self.tolerance:
            said = f"Nearly: {self.places} decimals are asked for, so keep more on the way."
            return CheckResult(name, False, said)
        return CheckResult(name, False, f"{answer:.6g} is not it. Work it out step by step.")


WORDS = ("It returns", "This is")
