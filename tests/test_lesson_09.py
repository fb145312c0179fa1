"""Lesson 09: its questions accept what they should, and its simulation follows the formula."""

from __future__ import annotations

import math
from typing import Any

import pytest
from lesson_cells import question_names

from gspo_edu.questions import check_answer


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    return question_names("09_routing_replay")


@pytest.mark.parametrize(
    ("question", "answer", "words"),
    [
        ("warm_up_1", 19.2, "Right"),
        ("warm_up_1", 2.4, "counts layers"),
        ("warm_up_1", 0.4, "one layer"),
        ("warm_up_1", 1, "chance that any"),
        ("warm_up_2", 1.5**0.05, "Right"),
        ("warm_up_2", 1.5**10, "200th root"),
        ("warm_up_2", 1.025, "arithmetic"),
        ("warm_up_2", 1.5, "count in the length"),
        ("warm_up_2", 1.5**0.005, "not one"),
        ("question_1", 192_000, "Right"),
        ("question_1", 24 * 60 * 2000, "not the scores of all 60"),
        ("question_1", 48_000, "Four experts"),
        ("question_1", 384_000, "One byte per number"),
        ("question_1", 96, "one token"),
        ("question_2", 1 / (1 + math.exp(0.8)), "Right"),
        ("question_2", 0, "the fault of section 4"),
        ("question_2", 1 / (1 + math.exp(0.4)), "the live choice"),
        ("question_2", 0.2119, "replayed experts only"),
        ("question_3", 0.004, "Right"),
        ("question_3", 0.016, "one direction"),
        ("question_3", 1.6, "Divide by the length"),
        ("question_3", 0.0008, "under the root"),
        ("question_3", 0.02, "Only 4 %"),
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
