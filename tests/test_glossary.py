"""The glossary has every term, in four languages, and finds what people type."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import jupytext
import pytest

from gspo_edu import glossary
from gspo_edu.glossary import Term, table, term, terms

WANTED = """
importance ratio · sequence-level clipping · token-level clipping · length normalization ·
model collapse · Routing Replay · partial rollout · training–inference disaggregation ·
mixture of experts · advantage · group relative policy optimization ·
group sequence policy optimization · proximal policy optimization · critic · reward model · RLHF ·
verifiable reward · off-policy · importance sampling · policy · reference policy · rollout ·
mini-batch · expert drift · router · top-k routing · clip fraction · geometric mean · cold start ·
multi-turn RL · inference engine · effective sample size · KL penalty · behaviour policy ·
target policy · pre-training · post-training · clipping · variance · sparse activation · ill-posed ·
dense model · fine-tuning · scalability · checkpoint · benchmark · group · dead group · KL estimator
"""
TEXTS = Path(__file__).resolve().parents[1] / "lessons/text"
LESSONS = {int(path.name[:2]): path for path in TEXTS.glob("[0-9][0-9]_*.py")}
SCRIPTS = {"ru": r"[а-яё]", "zh": r"[\u4e00-\u9fff]"}


@pytest.mark.parametrize("name", [" ".join(name.split()) for name in WANTED.split("·")])
def test_the_course_explains_this_term(name: str) -> None:
    assert term(name).term == name


@pytest.mark.parametrize("entry", terms(), ids=lambda entry: entry.term)
def test_each_entry_is_whole(entry: Term) -> None:
    assert re.fullmatch(r"[^.]*(?:\.\w[^.]*)*\.", entry.definition), "one sentence with a full stop"
    assert entry.lesson is None or entry.lesson in LESSONS
    for code in glossary.LANGUAGES:
        assert getattr(entry, code).strip()
    for code, letters in SCRIPTS.items():
        assert re.search(letters, getattr(entry, code), re.IGNORECASE)
    assert not re.search(r"[а-яё\u4e00-\u9fff]", entry.pl, re.IGNORECASE)


def occurs(entry: Term, prose: str) -> bool:
    """Whether one of the term's English names is a word of the text, in singular or plural."""
    words = (re.escape(glossary.plain(name)) for name in (entry.term, *entry.aliases))
    return bool(re.search(rf"\b(?:{'|'.join(words)})(?:e?s)?\b", glossary.plain(prose)))


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_that_introduces_a_term_has_it_in_its_text(lesson: int) -> None:
    cells = jupytext.read(LESSONS[lesson], fmt="py:percent").cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert [entry.term for entry in table(lesson) if not occurs(entry, prose)] == []


def test_a_name_inside_another_word_does_not_count() -> None:
    assert occurs(term("group"), "Two groups.")
    assert occurs(term("Routing Replay"), "with routing\nreplay")
    assert not occurs(term("group"), "He grouped them.")


def test_no_name_means_two_terms() -> None:
    english = [glossary.plain(n) for entry in terms() for n in (entry.term, *entry.aliases)]
    assert len(set(english)) == len(english)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("GSPO", "group sequence policy optimization"),
        ("Importance  Ratio", "importance ratio"),
        ("routing_replay", "Routing Replay"),
        ("training-inference disaggregation", "training–inference disaggregation"),
        ("length normalisation", "length normalization"),
        ("смесь экспертов", "mixture of experts"),
        ("średnia geometryczna", "geometric mean"),
        ("重要性采样比率", "importance ratio"),
    ],
)
def test_it_finds_what_people_type(typed: str, found: str) -> None:
    assert term(typed).term == found


def test_an_unknown_term_suggests_close_ones() -> None:
    with pytest.raises(KeyError, match="did you mean 'importance ratio'"):
        term("importence ratio")
    with pytest.raises(KeyError, match=r"table\(\) lists all"):
        term("quantum")


def test_a_term_reads_well() -> None:
    text = str(term("importance ratio"))
    assert text.startswith("importance ratio (lesson 02): The probability of a sample")
    assert "zh: 重要性采样比率" in text
    without_lesson = replace(term("importance ratio"), lesson=None)
    assert str(without_lesson).startswith("importance ratio: The probability of a sample")
    page = term("importance ratio")._repr_html_()
    assert '<span lang="ru">отношение вероятностей (вес важности)</span>' in page


def test_the_table_shows_all_terms_or_one_lesson() -> None:
    assert [entry.term for entry in table()] == [entry.term for entry in terms()]
    page = table()._repr_html_()
    assert page.count("<tr>") == len(terms()) + 1
    assert page.count('<td lang="zh"') == len(terms())
    fifth = table(lesson=5)
    assert {entry.lesson for entry in fifth} == {5}
    assert "geometric mean" in repr(fifth)
    assert "Routing Replay" not in repr(fifth)
    with pytest.raises(ValueError, match="lesson is 99"):
        table(lesson=99)
