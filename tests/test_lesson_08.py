"""Lesson 08: its questions accept what they should, and what it says of sizes is so."""

from __future__ import annotations

import math
from typing import Any

import pytest
from lesson_cells import question_names

from gspo_edu.config import TrainConfig
from gspo_edu.initial import initial_policy
from gspo_edu.questions import check_answer
from gspo_edu.stored_studies import stored_study


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    return question_names("08_the_experiment")


@pytest.mark.parametrize(
    ("question", "answer", "words"),
    [
        ("warm_up_1", 1 - 0.99**48, "Right"),
        ("warm_up_1", 0.01, "touches the token"),
        ("warm_up_1", 0.48, "do not add up"),
        ("warm_up_1", 1 - 0.99**12, "48 in all"),
        ("warm_up_1", 0.99**48, "not touched"),
        ("warm_up_2", 0.4, "Right"),
        ("warm_up_2", 0.8, "Four are outside"),
        ("warm_up_2", 0.5, "all five"),
        ("warm_up_2", 0.2, "Both signs"),
        ("warm_up_2", 0.6, "A > 0 and s below"),
        ("question_1", 0.56, "Right"),
        ("question_1", 0.42, "first update"),
        ("question_1", 0.315, "other way round"),
        ("question_1", 1.68, "Three of them"),
        ("question_2", 0.07, "Right"),
        ("question_2", 0.0035, "log s has"),
        ("question_2", 1.4, "square root"),
        ("question_2", 0.005, "How many of it"),
        ("question_3", -0.025 + 3.182 * math.sqrt(5e-4 / 3) / 2, "Right"),
        ("question_3", -0.025 + 1.96 * math.sqrt(5e-4 / 3) / 2, "not 1.96"),
        ("question_3", -0.025 + 3.182 * math.sqrt(5e-4 / 4) / 2, "takes n - 1"),
        ("question_3", -0.025 + 3.182 * math.sqrt(5e-4 / 3), "Divide the std"),
        ("question_3", 0.0309, "they are paired"),
        ("question_3", -0.0455, "the lower end"),
        ("question_3", -0.025, "the middle"),
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


def test_the_models_are_as_small_as_it_says() -> None:
    storm = TrainConfig(experts=32, task_size=20)
    for config, low, high in ((TrainConfig(), 0.1e6, 0.2e6), (storm, 0.4e6, 0.55e6)):
        policy = initial_policy(config)[0]
        assert low < sum(weight.numel() for weight in policy.parameters()) < high


@pytest.mark.parametrize("name", ["calm", "stormy"])
def test_answers_are_as_short_as_it_says(name: str) -> None:
    study = stored_study(name)
    for group in study.groups:
        if group.setting == "lr tuned":
            lengths = study.means(group.arm, group.setting, "length")
            assert 4.5 < sum(lengths) / len(lengths) < 9.5, group.arm
