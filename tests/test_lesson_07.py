"""Lesson 07: its questions accept what they should, and its texts say what its numbers say."""

from __future__ import annotations

import math
from typing import Any

import pytest
from lesson_cells import question_names

from gspo_edu.questions import check_answer


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    return question_names("07_experts_and_drift")


@pytest.mark.parametrize(
    ("question", "answer", "words"),
    [
        ("warm_up_1", 0.11, "Right"),
        ("warm_up_1", 0.44, "four answers of the group as well"),
        ("warm_up_1", 0.55, "five tokens of the answer as well"),
        ("warm_up_1", 0.1, "a factor 1.1"),
        ("warm_up_1", 0, "nothing is clipped"),
        ("warm_up_2", 3, "Right"),
        ("warm_up_2", 4, "count as fewer"),
        ("warm_up_2", 2, "largest weight"),
        ("warm_up_2", 1 / 3, "other way round"),
        ("warm_up_2", 0.5, "Square the sum first"),
        ("question_1", 1 / (1 + math.exp(0.3)), "Right"),
        (
            "question_1",
            math.exp(0.5) / (math.exp(0.8) + math.exp(0.5) + math.exp(0.4) + math.exp(-1)),
            "Only the chosen two",
        ),
        ("question_1", 1 / (1 + math.exp(-0.3)), "first expert"),
        ("question_1", 0.5, "equal gates need equal logits"),
        ("question_2", 1 / 6, "Right"),
        ("question_2", 0.5, "Order within a layer"),
        ("question_2", 1 / 3, "only one of its two experts"),
        ("question_2", 5 / 6, "not those that stayed"),
        ("question_2", 1, "counts its slots"),
        ("question_3", math.exp(0.3), "Right"),
        ("question_3", math.exp(0.4), "whole ratio"),
        ("question_3", math.exp(0.1), "weights part"),
        ("question_3", 0.3, "By which factor"),
        ("question_3", math.exp(-0.3), "The sign"),
    ],
)
def test_the_questions(
    names: dict[str, Any],
    question: str,
    answer: float,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    check_answer(answer, *names[question])
    assert words in " ".join(capsys.readouterr().out.split())
