"""Slides of two lessons: nothing given away, nothing fetched."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

for needed in ("nbconvert", "latex2mathml", "mdit_py_plugins"):
    pytest.importorskip(needed)

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))
slides = importlib.import_module("slides")


@pytest.fixture(params=["02_ppo", "05_gspo"])
def lesson(request: pytest.FixtureRequest) -> Any:
    return nbformat.read(ROOT / "lessons" / f"{request.param}.ipynb", 4)


def kind(cell: Any) -> str:
    """A cell's place on the slides."""
    return str(cell.metadata["slideshow"]["slide_type"])


def tags(cell: Any) -> list[str]:
    """A cell's tags."""
    return list(cell.metadata.get("tags", []))


def test_each_section_begins_a_slide_and_an_outcome_is_not_beside_its_question(lesson: Any) -> None:
    cells = slides.deck(lesson).cells
    assert sum(kind(cell) == "slide" for cell in cells) > 8
    questions = [place for place, cell in enumerate(cells) if "predict" in tags(cell)]
    assert questions
    for place in questions:
        assert kind(cells[place]) == "subslide"
        assert kind(cells[place + 1]) in ("slide", "subslide")


def test_no_answers_and_no_closing_questions(lesson: Any) -> None:
    cells = slides.deck(lesson).cells
    assert not any(set(tags(cell)) & slides.LEFT_OUT for cell in cells)
    assert not any(cell.source.startswith(slides.ends()) for cell in cells)
    shown = "".join(str(cell.get("outputs", "")) for cell in cells)
    assert "No prediction yet" in str([cell.get("outputs", "") for cell in lesson.cells])
    assert "No prediction yet" not in shown


def test_with_a_local_reveal_nothing_is_fetched(lesson: Any) -> None:
    html = slides.page(lesson, "reveal")
    loaded = re.findall(r'<(?:script|img|link|iframe)[^>]*?(?:src|href)="([^"]+)"', html)
    assert [name for name in loaded if not name.startswith("data:")] == [
        "reveal/dist/reveal.css",
        "reveal/dist/theme/white.css",
        "reveal/dist/reveal.js",
    ]
    assert not re.search(r"@import|url\(['\"]?https?:|unpkg|cdnjs|jsdelivr|googleapis", html)
    assert "<math" in html
    pictures = re.findall(r'<img [^>]*?alt="([^"]*)"', html)
    assert len(pictures) == html.count("<img ") > 2
    assert all(len(about) > 40 for about in pictures)


def test_formulas_become_mathml_and_code_stays() -> None:
    assert "<mi>&#x003C0;</mi>" in slides.with_formulas(r"so $\pi$ and `a $b$ c`")
    assert "`a $b$ c`" in slides.with_formulas(r"so $\pi$ and `a $b$ c`")
    assert 'display="block"' in slides.with_formulas("$$ a_1 $$")
    # In a table or between stars these would be taken for Markdown.
    assert not re.search(r"[*_|]", slides.with_formulas("$a_1 * |b|$"))
