"""Numbers worked out by hand: right to a tolerance, or wrong in a way that has a name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
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
        if value is None or value is ...:
            said = f"Put your number in place of {'None' if value is None else '...'}."
            return CheckResult(name, False, said, started=False)
        if isinstance(value, str):
            return CheckResult(name, False, "This is text. Write the number without quotes.")
        if isinstance(value, Fraction | Decimal):
            value = float(value)
        try:
            given = in_time(lambda: numbers(value), 1.0)
        except Unusable as error:
            return CheckResult(name, False, f"{error} Expected one number.".replace(*WORDS))
        except BaseException:
            return CheckResult(name, False, "This cannot be read. Expected one number.")
        return self._judge(name, given)

    def _judge(self, name: str, given: Tensor) -> CheckResult:
        if given.numel() != 1:
            pair = given.shape == (2,) and bool((given == given.round()).all())
            comma = " Decimals have a point: 1.5." if pair else ""
            return CheckResult(name, False, f"Expected one number, found {given.numel()}.{comma}")
        answer, right = given.item(), self.right()
        if not math.isfinite(answer):
            return CheckResult(name, False, f"This is {answer}. Expected a finite number.")
        if abs(answer - right) <= self.tolerance * (1 + 1e-9):
            return CheckResult(name, True, f"{round(right, self.places):.10g}.")
        for key, leads_to, said in self.mistakes:
            if abs(answer - leads_to()) <= self.tolerance * (1 + 1e-9):
                return CheckResult(name, False, f"{answer:.6g}: {said}", (key,))
        return self._not_quite(name, answer, right)

    def _not_quite(self, name: str, answer: float, right: float) -> CheckResult:
        """What to say to a number that is neither right nor one of the mistakes to the digit."""
        near = {0: 0, 1: 0, 2: 4}.get(self.places, 20)
        if abs(answer - right) <= near * self.tolerance or self._cut(answer, right):
            said = f"Close, but {self.places} decimals have to be right."
            return CheckResult(name, False, f"{said} Was something rounded on the way?")
        cut = [(key, said) for key, value, said in self.mistakes if self._cut(answer, value())]
        if len(cut) == 1:
            return CheckResult(name, False, f"{answer:.6g}: {cut[0][1]}", (cut[0][0],))
        if right and abs(answer + right) <= self.tolerance:
            return CheckResult(name, False, f"{answer:.6g}: the size is right, the sign is not.")
        if 0 < right < 1 and abs(answer / 100 - right) <= self.tolerance:
            said = f"{answer:.6g} is 100 times too large. Is it in percent?"
            return CheckResult(name, False, said)
        return CheckResult(name, False, f"{answer:.6g} is not it. Work it out step by step.")

    def _cut(self, answer: float, value: float) -> bool:
        """Whether ``answer`` is ``value`` with fewer digits, two of them at least."""
        for places in range(1, self.places):
            unit = 10.0**-places
            for shorter in (round(value / unit), math.trunc(value / unit)):
                if abs(shorter) >= 10 and shorter % 10 and abs(answer - shorter * unit) < 1e-9:
                    return True
        return False


WORDS = ("It returns", "This is")
