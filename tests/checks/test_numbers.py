"""The hand computations: right values pass, and no mistake can be taken for another."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest

from gspo_edu.checks import NUMBERS, exercises

MISTAKES = [(name, key) for name, task in NUMBERS.items() for key, *_ in task.mistakes]


@pytest.mark.parametrize("name", NUMBERS)
def test_the_right_number_passes(name: str) -> None:
    task = NUMBERS[name]
    assert task.check(name, task.right()).passed
    assert task.check(name, round(task.right(), task.places)).passed
    assert task.check(name, Fraction(task.right())).passed
    assert task.check(name, Decimal(task.right())).passed
    assert not task.check(name, task.right() + 2.1 * task.tolerance).passed


@pytest.mark.parametrize(("name", "key"), MISTAKES)
def test_each_mistake_is_named(name: str, key: str) -> None:
    ((leads_to, said),) = [(v, text) for k, v, text in NUMBERS[name].mistakes if k == key]
    result = NUMBERS[name].check(name, leads_to())
    assert not result.passed
    assert result.misconceptions == (key,)
    assert result.message.endswith(said)


@pytest.mark.parametrize("name", NUMBERS)
def test_mistakes_are_told_apart_by_the_digits_asked_for(name: str) -> None:
    task = NUMBERS[name]
    values = [task.right(), *{leads_to() for _, leads_to, _ in task.mistakes}]
    assert all(abs(a - b) > 2 * task.tolerance for a, b in combinations(values, 2))
    assert len({text for *_, text in task.mistakes}) >= len(values) - 1


@pytest.mark.parametrize(
    "value", [None, "0.5", "x", {}, [1, 2], float("nan"), float("inf"), object(), 1j, print, [[]]]
)
@pytest.mark.parametrize("name", ["05 four tokens", "05 long enough"])
def test_what_is_no_number_is_answered_in_words(name: str, value: Any) -> None:
    result = NUMBERS[name].check(name, value)
    assert not result.passed
    assert result.misconceptions == ()
    assert result.started == (value is not None)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("05 four tokens", 1.04, "4 decimals have to be right"),
        ("05 four tokens", 1.0439, "4 decimals have to be right"),
        ("05 loud token", 1.02, "4 decimals have to be right"),
        ("02 advantage", 0.48, "4 decimals have to be right"),
        ("02 ratio", 0.83, "upside down"),
        ("09 route factor", 1.49, "routes alone"),
        ("02 corners", 3, "is not it"),
        ("02 clipped share", 0.2, "is not it"),
        ("02 clipped share", 30, "in percent"),
        ("05 four tokens", 1, "is not it"),
        ("05 long enough", 5757.6, "Round up"),
        ("02 bad and likelier", -1.8, "is not it"),
        ("09 gate", -0.2891, "the sign is not"),
        ("05 four tokens", ..., "in place of ..."),
        ("05 four tokens", "1.044", "without quotes"),
        ("05 four tokens", (1, 44), "Decimals have a point"),
    ],
)
def test_a_number_that_is_nearly_right_is_told_from_a_wrong_one(
    name: str, value: Any, words: str
) -> None:
    result = NUMBERS[name].check(name, value)
    assert not result.passed
    assert words in result.message


def test_every_number_belongs_to_one_exercise() -> None:
    asked = [item.name for exercise in exercises().values() for item in exercise.items]
    for name in NUMBERS:
        assert asked.count(name) == 1, name
