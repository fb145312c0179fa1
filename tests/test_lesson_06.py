"""Lesson 06: its objectives have four lines each, its questions accept what they should."""

from __future__ import annotations

import ast
import math
from typing import Any

import pytest
from lesson_cells import code_cells, question_names

from gspo_edu.gradient_map import SHOWN
from gspo_edu.questions import check_answer


@pytest.fixture(scope="module")
def cells() -> list[str]:
    return code_cells("06_who_gets_the_gradient")


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    pytest.importorskip("anywidget")
    return question_names("06_who_gets_the_gradient")


def test_each_objective_has_four_lines(cells: list[str]) -> None:
    nodes = [node for source in cells for node in ast.parse(source).body]
    bodies = {node.name: node.body for node in nodes if isinstance(node, ast.FunctionDef)}
    for name in (*SHOWN, "gspo_token"):
        assert len(bodies[name]) == 4, name
        assert all(line.lineno == line.end_lineno for line in bodies[name])


@pytest.mark.parametrize(
    ("question", "answer", "words"),
    [
        ("warm_up_1", (0.8 * 1.5) ** (1 / 3), "Right"),
        ("warm_up_1", 1.2, "product"),
        ("warm_up_1", 1.1, "arithmetic"),
        ("warm_up_1", 1.0954, "L is 3"),
        ("warm_up_2", -math.sqrt(3), "Right"),
        ("warm_up_2", -0.75, "not yet divided"),
        ("warm_up_2", -1.5, "n - 1"),
        ("warm_up_2", math.sqrt(3), "worse than its group"),
        ("question_1", -(1.1**0.25) / 32, "Right"),
        ("question_1", 1.1**0.25 / 32, "A = -1"),
        ("question_1", -(1.1**0.25) / 8, "four tokens as well"),
        ("question_1", -2 / 32, "the token's own ratio"),
        ("question_1", -1.1 / 32, "fourth root"),
        ("question_1", 0, "not clipped"),
        ("question_2", 2 / 3, "Right"),
        ("question_2", 3 / 2, "other way round"),
        ("question_2", 4 / 3, "long answer"),
        ("question_2", 1, "1/30"),
        ("question_2", 1 / 3, "two answers as well"),
        ("question_3", 0.7 * 2 / 3, "Right"),
        ("question_3", 2.2, "get nothing"),
        ("question_3", 2.16, "does not cap"),
        ("question_3", 1.4, "silent ones included"),
        ("question_3", 0.8 * 2 / 3, "r counts"),
        ("question_3", 0, "keeps its gradient"),
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
