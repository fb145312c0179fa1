"""Whatever a learner's function does, a check answers in words and in time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gspo_edu.checks import TASKS
from gspo_edu.checks.calling import TimeUp, in_time
from gspo_edu.objectives import gspo


class Angry:
    """Raises whatever is done to it."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "__dict__"):
            return object.__getattribute__(self, name)
        raise RuntimeError("leave me alone")

    def __array__(self, *args: Any) -> Any:
        raise RuntimeError("no array")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raising(error: BaseException) -> Callable[..., Any]:
    def function(*args: Any) -> Any:
        raise error

    return function


def recursive(*args: Any) -> Any:
    return recursive(*args)


def inside_itself(*args: Any) -> Any:
    found: list[Any] = []
    found.append(found)
    return found


def spoil(*args: Any) -> Any:
    for x in args:
        if torch.is_tensor(x):
            x.mul_(0)
    return 0.0


GARBAGE: list[Any] = [
    None,
    3,
    "text",
    [],
    Angry(),
    *[
        lambda *a, found=found: found
        for found in (
            *(1.044, 0, -1, True, float("nan"), float("inf"), 1j, "1.044", b"x", {}, set(), [], ()),
            *([[]], [1, [2, 3]], ["a"], [None], object(), object, Angry(), range(3), slice(1)),
            *(np.zeros(0), np.zeros((2, 2, 2)), np.array(["a"]), np.array([None]), 10**400),
            *(torch.zeros(0), torch.full((2,), torch.nan), torch.zeros(2, dtype=torch.complex64)),
            *(torch.zeros(3).to_sparse(), torch.zeros(1_000_000), torch.zeros(2, device="meta")),
            *((torch.zeros(2), torch.zeros(3)), [torch.zeros(2, requires_grad=True), 1.0]),
        )
    ],
    lambda: 1.0,
    lambda a, b, c, d, e, f, g, h: 1.0,
    lambda *a: a,
    lambda *a: a[0],
    lambda *a: torch.randn_like(a[0]) if torch.is_tensor(a[0]) else 0,
    lambda *a: exit(),
    raising(ValueError("multi\nline")),
    raising(KeyboardInterrupt()),
    raising(Unreadable()),
    raising(AssertionError()),
    raising(MemoryError()),
    raising(StopIteration()),
    raising(GeneratorExit()),
    recursive,
    inside_itself,
    spoil,
    np.sum,
    torch.sigmoid,
    dict,
]


@pytest.mark.parametrize("task", TASKS)
def test_garbage_is_never_accepted_and_never_raises(
    task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for thing in GARBAGE:
        result = TASKS[task].check(thing, seed=0)
        assert not result.passed
        assert result.message
        assert str(result).startswith(task)
        assert "<b>" in result._repr_html_()
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    task=st.sampled_from(sorted(TASKS)),
    output=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.complex_numbers(),
        lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    ),
)
def test_any_constant_is_refused(task: str, output: Any) -> None:
    assert not TASKS[task].check(lambda *a: output, seed=1).passed


def test_the_answer_to_other_inputs_is_refused() -> None:
    for task in TASKS.values():
        answers = [task.right(case) for case in task.draw(torch.Generator().manual_seed(5))]

        def remembered(*args: Any, answers: list[Any] = answers) -> Any:
            return answers[0]

        assert not task.check(remembered, seed=6).passed


@pytest.mark.parametrize("stubborn", [False, True])
def test_an_endless_loop_is_stopped(stubborn: bool) -> None:
    def gentle(*args: Any) -> Any:
        while True:
            time.sleep(0.001)

    def swallowing(*args: Any) -> Any:
        tries = 0
        while tries < 5:
            try:
                while True:
                    time.sleep(0.001)
            except BaseException:
                tries += 1

    began = time.monotonic()
    function = swallowing if stubborn else gentle
    result = TASKS["sequence_ratio"].check(function, seed=0, seconds=0.2)
    assert time.monotonic() - began < 5
    assert "stopped after 0.2 seconds" in result.message


def test_an_import_is_not_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_module_for_a_check.py").write_text("import time\ntime.sleep(0.6)\nx = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def importing() -> int:
        import slow_module_for_a_check

        return int(slow_module_for_a_check.x)

    assert in_time(importing, 0.1) == 3


def test_time_up_reaches_past_except_exception() -> None:
    def swallowing() -> None:
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.001)

    with pytest.raises(TimeUp):
        in_time(swallowing, 0.1)


def test_what_the_learner_switched_off_does_not_spoil_the_check() -> None:
    from gspo_edu.ratios import sequence_ratio

    with torch.no_grad():
        assert TASKS["sequence_ratio"].check(sequence_ratio, seed=0).passed


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda new, old, m: None, "returns None"),
        (raising(NotImplementedError()), "NotImplementedError"),
        (lambda new, old, m: (new - old).exp() * m, "shape"),
        (lambda new, old, m: ..., "returns ..."),
        (lambda new, old, m: [[1.0] * int(row.sum()) for row in m], "rows have different lengths"),
        # With one answer the numbers would be right; what is wrong shows where there are several.
        (
            lambda new, old, m: (((new - old) * m).sum() / m.sum()).exp(),
            "The output is a single number; expected one that has shape (3,)",
        ),
        (lambda new, old, m: ((new - old) * m).sum(0).exp(), "go along each row"),
        (
            lambda new, old, m: (
                ((new.bfloat16() - old.bfloat16()).float() * m).sum(1) / m.sum(1)
            ).exp(),
            "half precision",
        ),
        (
            lambda new, old, m: (((new - old) * m).sum(1) / m.sum(1)).exp()[:, None],
            "numbers are right, the shape is not",
        ),
        (
            lambda new, old, m: (((new - old) * m).sum(1) / m.sum(1)).bfloat16().exp(),
            "half precision",
        ),
        (
            lambda new, old, m: (((new - old) * m).sum(1) / m.sum(1)).exp().round(decimals=2),
            "rounded",
        ),
        (lambda new, old, m: 1.044, "returned the same for 4 different inputs"),
        (lambda new, old, m: ((new - old) * m).sum(1).log(), "NaN"),
        (lambda new, old, m: m.sum(1) / 0, "infinity"),
        (lambda new, old: 1, "TypeError"),
        (lambda new, old, m: None * m, "return None?"),
    ],
)
def test_other_troubles_are_told_in_words(function: Callable[..., Any], words: str) -> None:
    result = TASKS["sequence_ratio"].check(function, seed=0)
    assert not result.passed
    assert words in result.message


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("min(logp.sum(1), logp_old.sum(1))", "torch.minimum"),
        ("logp if logp.sum(1) > 0 else 0", "torch.where"),
        ("np.exp(logp)", "import numpy as np"),
        ("math.exp(1)", "import math"),
        ("(logp + 0).grad.zero_()", "None until the first backward"),
        ("None.sum()", "return None"),
        ("grpo", "text without quotes"),
        ("2 ** logp > 1 & logp", "put each comparison into brackets"),
        ("2.7 ^ logp", "A power is **"),
        ("__import__('math').exp(torch.ones(2))", "torch.exp"),
        ("(1 - mask) * logp.exp()", "~mask"),
        ("(logp * 2).sum().backward()", ".requires_grad_()"),
        ("torch.ones(3, 5) / torch.ones(3)", "keepdim=True"),
        ("__import__('numpy').ones((3, 5)) / __import__('numpy').ones(3)", "keepdims=True"),
    ],
)
def test_an_error_of_torch_or_python_comes_with_what_helps(body: str, hint: str) -> None:
    function = eval(f"lambda logp, logp_old, mask: {body}", {"torch": torch})
    result = TASKS["sequence_ratio"].check(function, seed=0)
    assert result.message.startswith("It stops with")
    assert hint in result.message


def test_numpy_on_what_needs_a_gradient_is_not_sent_to_detach() -> None:
    def loss(logp: Any, logp_old: Any, advantages: Any, mask: Any, low: float, high: float) -> Any:
        return np.minimum((logp - logp_old).exp(), 1.0).sum()

    assert "Use torch's function" in TASKS["gspo_loss"].check(loss, seed=0).message


def test_a_loss_without_a_gradient_is_right_and_told_so() -> None:
    def loss(logp: Any, logp_old: Any, advantages: Any, mask: Any, low: float, high: float) -> Any:
        return gspo(logp, logp_old, advantages, mask, clip_low=low, clip_high=high).loss.item()

    result = TASKS["gspo_loss"].check(loss, seed=0)
    assert result.passed
    assert "nothing could be trained" in result.message
