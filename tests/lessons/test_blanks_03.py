"""Lesson 03's blanks accept a right line and name each usual mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jupytext
import pytest

TEXT = Path(__file__).resolve().parents[2] / "lessons/text/03_grpo.py"


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the lesson's cells up to the second blank define, pictures left out."""
    pytest.importorskip("anywidget")
    found: dict[str, Any] = {}
    folder = tmp_path_factory.mktemp("lesson")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GSPO_EDU_PREDICTIONS", str(folder / "predictions.json"))
        for cell in jupytext.read(TEXT, fmt="py:percent").cells:
            drawn = "nbval-ignore-output" in cell.metadata.get("tags", [])
            if cell.cell_type == "code" and not drawn:
                exec(cell.source, found)
            if "blank_2" in found:
                return found
    raise AssertionError(f"{TEXT} has no second blank")


def said(names: dict[str, Any], blank: str, line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What ``check_answer`` prints about a reader's line."""
    capsys.readouterr()
    names["check_answer"](eval(line, names), *names[blank])
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("None", "Not filled in yet"),
        ("(R - mean) / std", "Right"),
        ("R - mean", "only centred"),
        ("(R - mean) / R.std(ddof=1)", "n - 1"),
        ("(R - mean) / std**2", "variance"),
        ("R / std", "mean is missing"),
        ("[1.51, -0.91, 0.30, -0.91]", "Nearly"),
        ("R", "is not it"),
    ],
)
def test_the_advantages(
    names: dict[str, Any], line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in said(names, "blank_1", line, capsys)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("None", "Not filled in yet"),
        ("(sums / lengths).mean()", "Right"),
        ("sum(sums / lengths) / G", "Right"),
        ("sums.sum() / batch.mask.sum()", "mean over all tokens"),
        ("sums.mean()", "by the length of its answer"),
        ("sum(sums / lengths)", "divide by G"),
        ("-(sums / lengths).mean()", "other sign"),
        ("(surrogate * batch.mask).mean()", "the padded width"),
        ("surrogate.mean(axis=1).mean()", "forgets the mask"),
        ("(surrogate.sum(axis=1) / lengths).mean()", "sums forget the mask"),
        ("-0.112", "Nearly"),
        ("1.0", "is not it"),
    ],
)
def test_the_objective(
    names: dict[str, Any], line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in said(names, "blank_2", line, capsys)
