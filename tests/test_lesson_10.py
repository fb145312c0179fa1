"""Lesson 10: its questions accept what they should, and its long answers follow the formula."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lesson_cells import question_names

from gspo_edu.questions import check_answer
from gspo_edu.ratios import sequence_ratio
from gspo_edu.stored_studies import stored_study


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    return question_names("10_engines")


@pytest.mark.parametrize(
    ("question", "answer", "words"),
    [
        ("warm_up_1", 10_000, "Right"),
        ("warm_up_1", 100, "root of the length"),
        ("warm_up_1", 2500, "Half of the bound"),
        ("warm_up_1", 4444.4, "the lower bound"),
        ("warm_up_2", 0.12 * math.sqrt(0.0002), "Right"),
        ("warm_up_2", 0.0024, "one direction"),
        ("warm_up_2", 0.012, "Only 2 %"),
        ("warm_up_2", 0.1697, "Divide by the length"),
        ("question_1", 2.4596, "Right"),
        ("question_1", 2, "TIS with a cap"),
        ("question_1", 0.40657, "other way round"),
        ("question_1", 0, "inside the range"),
        ("question_1", 0.9, "log rho"),
        ("question_2", -0.00045, "Right"),
        ("question_2", 0, "a shift remains"),
        ("question_2", 0.00045, "wrong side"),
        ("question_2", -0.0009, "Half of that"),
        ("question_2", -0.03, "one token"),
        ("question_3", 1.051271, "Right"),
        ("question_3", math.exp(1.45 / 14), "above and below"),
        ("question_3", math.exp(0.45 / 14), "still in the length"),
        ("question_3", math.exp(1.45 / 9), "still in the sum"),
        ("question_3", math.exp(0.45), "root is missing"),
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


def test_the_dialogue_of_the_third_question_in_code(names: dict[str, Any]) -> None:
    """6 tokens of 0.05, a reply of 5 tokens of 0.2, and 3 tokens of 0.05."""
    log_r = torch.tensor([[0.05] * 6 + [0.2] * 5 + [0.05] * 3])
    mask = torch.tensor([[True] * 6 + [False] * 5 + [True] * 3])
    s = sequence_ratio(log_r, torch.zeros_like(log_r), mask)
    assert s.item() == pytest.approx(names["question_3"][0])


def test_the_stored_study_has_what_the_lesson_says() -> None:
    study = stored_study("engines")
    assert {len(group.values) for group in study.groups} == {8}
    assert all(group.diverged == group.missing == () for group in study.groups)
    settings = {row["arm"]: row for row in study.runs}
    for arm, row in settings.items():
        assert row["engine"] == ("bf16" if "bf16" in arm else "fp32")
        assert row["lag"] == (4 if "lag 4" in arm else 0)
        assert row["recompute_old"] == any(w in arm for w in ("recomputed", "TIS", "IcePop"))
        assert (row["clip_low"], row["clip_high"]) == (
            (0.0323, 0.0251) if "wide" in arm else (None, None)
        )
