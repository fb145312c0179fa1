"""Tasks "write this function": varied inputs, one right formula, and known wrong ones.

The right value always comes from the package itself. Each task also has a formula with switches,
one per mistake. A learner's outputs that agree with one setting of the switches on every input have
that mistake; two switches at once are tried after that.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from gspo_edu.checks.calling import SECONDS, Outcome, numbers, outcome_of, weighted
from gspo_edu.checks.cases import KINDS, Case, as_lists, in_half
from gspo_edu.checks.result import CheckResult, Example, shown

RELATIVE, ABSOLUTE = 1e-4, 1e-7
NEARLY = 1e-2
GRADIENT = (("no_gradient",), ("wrong_gradient",))


@dataclass(frozen=True)
class Fault:
    """One known mistake: ``formula(case, **{slot: key})`` makes it."""

    slot: str
    key: str
    message: str


@dataclass(frozen=True)
class FunctionTask:
    """A function for learners to write, and how to judge what they wrote.

    Attributes:
        name: of the task.
        draw: generator to cases, the simplest first; a case is {argument: value}.
        right: case to the right output, from the package.
        formula: case and switches to what a mistake gives; without switches the right output.
        faults: the mistakes it knows.
        reading: the learner's output to a tensor that can be compared with ``right``.
        gradient: argument through which a gradient has to flow if the output is a tensor.
        no_gradient: what to say if it does not.
        show: output to text, for the example.
        plain_numbers: whether an output without gradient will do, as a loop or NumPy gives it.
    """

    name: str
    draw: Callable[[torch.Generator], list[Case]]
    right: Callable[[Case], Tensor]
    formula: Callable[..., Tensor]
    faults: tuple[Fault, ...]
    reading: Callable[[Case, Any], Tensor] = field(default=lambda case, output: numbers(output))
    gradient: str | None = None
    no_gradient: str = ""
    show: Callable[[Tensor], str] = shown
    plain_numbers: bool = True

    def check(
        self, function: Any, *, seed: int | None = None, seconds: float = SECONDS
    ) -> CheckResult:
        """Judge a learner's function; never raises because of it.

        Args:
            function: the learner's.
            seed: of the inputs; None draws new ones each time.
            seconds: time limit for each call.
        """
        if not callable(function):
            return self._no_function(function)
        dice = torch.Generator().manual_seed(secrets.randbits(62) if seed is None else seed)
        with warnings.catch_warnings():
            # A warning about drawn inputs would be taken for one about the learner's work.
            warnings.simplefilter("ignore")
            return self._checked(function, self.draw(dice), seconds)

    def _checked(self, function: Any, cases: list[Case], seconds: float) -> CheckResult:
        convert, first = self._convention(function, cases[0], seconds)
        if first.missing:
            return self._not_started(first)
        outcomes: list[Outcome] = []
        for case in cases:
            outcome = self._call(function, convert(case), case, seconds) if outcomes else first
            if outcome.value is None:
                result = self._not_it(outcome.problem, self._example(case, None))
                return replace(result, printed=outcome.printed)
            outcomes.append(outcome)
        result = self._judge(cases, outcomes)
        if result.misconceptions in GRADIENT and self.plain_numbers:
            plain = [self._call(function, as_lists(case), case, seconds) for case in cases]
            if all(o.value is not None for o in plain) and self._all_right(cases, plain):
                return CheckResult(self.name, True, self._of_plain(cases))
        example = result.example.inputs if result.example else ()
        shown_at = next((n for n, case in enumerate(cases) if _inputs(case) == example), 0)
        return replace(result, printed=outcomes[shown_at].printed)

    def _convention(
        self, function: Any, case: Case, seconds: float
    ) -> tuple[Callable[[Case], Case], Outcome]:
        """The first of tensors, arrays and lists that the function can take, and its outcome."""
        tried = []
        for convert in KINDS:
            outcome = self._call(function, convert(case), case, seconds)
            tried.append((convert, outcome))
            if outcome.value is not None or outcome.missing or outcome.late:
                return convert, outcome
        return tried[0]

    def _call(self, function: Any, given: Case, case: Case, seconds: float) -> Outcome:
        return outcome_of(
            function,
            given,
            gradient=self.gradient,
            reading=lambda output: self.reading(case, output),
            seconds=seconds,
        )

    def _judge(self, cases: Sequence[Case], outcomes: Sequence[Outcome]) -> CheckResult:
        rights = [self.right(case) for case in cases]
        values = [_fitted(o.value, right) for o, right in zip(outcomes, rights, strict=True)]
        constant = _constant(values) and not _constant(rights)
        if constant and not self._recognised(cases, values):
            said = f"It returned the same for {len(cases)} different inputs. Compute the output "
            said += "from the inputs."
            return self._not_it(said, self._example(cases[0], values[0], rights[0]), ("constant",))
        if any(value.shape != right.shape for value, right in zip(values, rights, strict=True)):
            return self._wrong_shape(cases, values, rights)
        wrong = [n for n, value in enumerate(values) if not close(value, rights[n])]
        if not wrong:
            return self._judge_gradient(cases, outcomes)
        example = self._example(cases[wrong[0]], values[wrong[0]], rights[wrong[0]])
        found = self._recognised(cases, values)
        if found:
            said = " And: ".join(fault.message for fault in found)
            return self._not_it(said, example, tuple(fault.key for fault in found))
        return self._not_it(self._unknown(cases, values, rights, outcomes), example)

    def _judge_gradient(self, cases: Sequence[Case], outcomes: Sequence[Outcome]) -> CheckResult:
        """The values are right; is their slope?"""
        name = self.gradient
        plain = not any(outcome.is_tensor for outcome in outcomes)
        if plain and name is not None and not self.plain_numbers:
            said = "The values are right, but these are plain numbers: no gradient can flow."
            return self._not_it(said, keys=("no_gradient",))
        if name is None or plain:
            return CheckResult(self.name, True, self._of_plain(cases))
        for case, outcome in zip(cases, outcomes, strict=True):
            slope = self._slope(case)
            given = torch.zeros_like(slope) if outcome.gradient is None else outcome.gradient
            if not same_slope(given, slope):
                said = self.no_gradient
                key = "no_gradient"
                if outcome.gradient is not None and bool((given != 0).any()):
                    said, key = "The values are right, their gradient is not.", "wrong_gradient"
                labels = Example(_inputs(case), shown(slope), shown(given))
                return self._not_it(f"{said} (Shown: the gradient for {name}.)", labels, (key,))
        return CheckResult(
            self.name, True, f"{len(cases)} different inputs, values and gradients as expected."
        )

    def _of_plain(self, cases: Sequence[Case]) -> str:
        """What to say to right values without a gradient."""
        said = f"{len(cases)} different inputs, all as expected."
        if self.gradient is not None:
            said += " They are plain numbers: nothing could be trained with them."
        return said

    def _all_right(self, cases: Sequence[Case], outcomes: Sequence[Outcome]) -> bool:
        rights = [self.right(case) for case in cases]
        return all(close(_fitted(o.value, r), r) for o, r in zip(outcomes, rights, strict=True))

    def _slope(self, case: Case) -> Tensor:
        leaf = case[self.gradient or ""].detach().double().requires_grad_()
        slope: Tensor
        (slope,) = torch.autograd.grad(
            weighted(self.right({**case, self.gradient or "": leaf})), leaf
        )
        return slope

    def _recognised(self, cases: Sequence[Case], values: Sequence[Tensor]) -> tuple[Fault, ...]:
        """The mistake, or the two, that give just these values; empty if none does."""
        for faults in self.combinations():
            switches = {fault.slot: fault.key for fault in faults}
            if all(
                close(value, self.formula(case, **switches).detach(), nan=True)
                for case, value in zip(cases, values, strict=True)
            ):
                return faults
        return ()

    def combinations(self) -> Iterator[tuple[Fault, ...]]:
        """Each fault, then each two that can go together."""
        for fault in self.faults:
            yield (fault,)
        for first, second in combinations(self.faults, 2):
            if first.slot != second.slot:
                yield first, second

    def _unknown(
        self,
        cases: Sequence[Case],
        values: Sequence[Tensor],
        rights: Sequence[Tensor],
        outcomes: Sequence[Outcome],
    ) -> str:
        if any(bool(torch.isnan(value).any()) for value in values):
            return "There is a NaN in the output: look for 0 / 0 or the log of a negative number."
        if any(bool(torch.isinf(value).any()) for value in values):
            return "There is an infinity in the output: look for a division by 0."
        near = all(close(v, r, NEARLY) for v, r in zip(values, rights, strict=True))
        rounded = [self.right(in_half(case)) for case in cases]
        apart = RELATIVE if near else 2 * NEARLY
        if (near and any(outcome.half for outcome in outcomes)) or all(
            close(v, r, apart) for v, r in zip(values, rounded, strict=True)
        ):
            return "This is what half precision gives. Compute in float32 or float64."
        if near:
            return "Close, but not the same. Is something rounded, or a small number added?"
        return "Compare the example with a computation by hand, step by step."

    def _wrong_shape(
        self, cases: Sequence[Case], values: Sequence[Tensor], rights: Sequence[Tensor]
    ) -> CheckResult:
        """The case that shows best what is wrong: one where not even the count of numbers fits."""
        pairs = list(zip(values, rights, strict=True))
        wrong = [n for n, (value, right) in enumerate(pairs) if value.shape != right.shape]
        other = [n for n in wrong if values[n].numel() != rights[n].numel()]
        at = (other or wrong)[0]
        value, right, mask = values[at], rights[at], cases[at].get("mask")
        if all(v.shape == (1, *r.shape) for v, r in pairs):
            said = "The output has a dimension too many. Is there a comma after return? That makes "
            return self._not_it(f"{said}a tuple.", self._example(cases[at], value, right))
        said = f"The output {_shape(value)}; expected one that {_shape(right)}."
        if not other and all(close(v.reshape(r.shape), r) for v, r in pairs):
            said = f"The numbers are right, the shape is not. {said}"
        elif mask is not None and (*value.shape, *right.shape) == (*mask.T.shape,):
            said += " One number per place is too many: go along each row (dim=1)."
        elif value.numel() == 1 < right.numel() and mask is not None:
            said += " Does return stand inside the loop, or was everything summed into one?"
        return self._not_it(said, self._example(cases[at], value, right))

    def _example(self, case: Case, value: Tensor | None, right: Tensor | None = None) -> Example:
        right = self.right(case) if right is None else right
        return Example(
            _inputs(case),
            self.show(right.detach()),
            "nothing" if value is None else self.show(value),
        )

    def _not_it(
        self, message: str, example: Example | None = None, keys: tuple[str, ...] = ()
    ) -> CheckResult:
        return CheckResult(self.name, False, message, keys, example)

    def _not_started(self, outcome: Outcome) -> CheckResult:
        if outcome.printed:
            said = f"It prints, but {outcome.problem[3:]} Give the result back with return."
            return CheckResult(self.name, False, said, printed=outcome.printed)
        said = f"{outcome.problem} Write the function, or give back the result with return."
        return CheckResult(self.name, False, said, started=False)

    def _no_function(self, given: Any) -> CheckResult:
        if given is None or given is ...:
            said = f"Expected a function, given {given}. Write it, or give its name."
            return CheckResult(self.name, False, said, started=False)
        said = f"Expected a function, given {type(given).__name__}. Leave out the brackets ()."
        return self._not_it(said)


def close(a: Tensor, b: Tensor, relative: float = RELATIVE, *, nan: bool = False) -> bool:
    """Whether two tensors agree in shape and value."""
    if a.shape != b.shape:
        return False
    return torch.allclose(
        a.detach().double(), b.detach().double(), rtol=relative, atol=ABSOLUTE, equal_nan=nan
    )


def same_slope(given: Tensor, right: Tensor) -> bool:
    """Whether two gradients agree, to a share of the largest entry: small ones are rounded off."""
    scale = float(right.abs().max())
    return bool(((given.double() - right.double()).abs() <= RELATIVE * scale).all())


def _shape(value: Tensor) -> str:
    return f"has shape {tuple(value.shape)}" if value.dim() else "is a single number"


def _constant(values: Sequence[Tensor]) -> bool:
    return all(close(value, values[0]) for value in values)


def _fitted(value: Tensor | None, right: Tensor) -> Tensor:
    """``value``, as a number where one number is expected and there is one in some brackets."""
    assert value is not None
    return value.reshape(()) if right.dim() == 0 and value.numel() == 1 else value


def _inputs(case: Case) -> tuple[tuple[str, str], ...]:
    return tuple((name, shown(value)) for name, value in case.items())
