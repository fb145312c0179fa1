"""Lesson 12: its pictures tell what they should, its page prints, its questions have answers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from lesson_cells import code_cells, question_names

from gspo_edu import figure_reading as reading
from gspo_edu.paper_page import GSPO_ANSWERS, QUESTIONS, page
from gspo_edu.plots import png
from gspo_edu.questions import check_answer


@pytest.fixture(scope="module")
def cells() -> list[str]:
    return code_cells("12_critical_reading")


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    return question_names("12_critical_reading")


@pytest.mark.parametrize(
    ("question", "answer", "words"),
    [
        ("warm_up_1", 0.0015811, "Right"),
        ("warm_up_1", 0.00005, "not σ/L"),
        ("warm_up_1", 0.05, "one token"),
        ("warm_up_1", 1.5811, "sum"),
        ("warm_up_1", 0.00125, "slips"),
        ("warm_up_2", -0.025, "Right"),
        ("warm_up_2", -0.25, "1/L"),
        ("warm_up_2", -0.1, "four answers"),
        ("warm_up_2", 0, "inside every range"),
        ("warm_up_2", 0.025, "pushes down"),
        ("question_1", 0.8, "Right"),
        ("question_1", 12 / 13, "against one"),
        ("question_1", 0.2, "best of three"),
        ("question_1", 0.5, "numbers of tries"),
        ("question_1", 0.25, "all runs"),
        ("question_2", 0.02 - 3.18245 * math.sqrt(1 / 3000) / 2, "Right"),
        ("question_2", 0.02 - 1.96 * math.sqrt(1 / 3000) / 2, "3.182"),
        ("question_2", 0.02 - 3.182 * math.sqrt(1 / 3000), "√4"),
        ("question_2", 0.02 - 3.182 * math.sqrt(1 / 4000) / 2, "n - 1"),
        ("question_2", 0.02 + 3.182 * math.sqrt(1 / 3000) / 2, "upper end"),
        ("question_3", 17.92 / 20.16 + 19.21 / 20.16, "Right"),
        ("question_3", 1, "did not overlap"),
        ("question_3", 0.8889, "GSPO's share"),
        ("question_3", 0.9529, "replay's share"),
        ("question_3", 3.19 / 20.16, "is left"),
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


def test_the_pleasing_picture_has_its_faults() -> None:
    study = reading.calm()
    left, right = reading.chosen_bars()
    assert study.pair("GSPO", "GRPO", reading.SETTING).above == 0, "GRPO is ahead on every seed"
    for bars in (left, right):
        assert [bar.arm for bar in bars] == ["GRPO", "GSPO"]
        assert bars[0].value < bars[1].value
        assert reading.times_as_high(bars) > 2 * bars[1].value / bars[0].value
        assert bars[0].value > reading.FLOOR
    assert left[0].rollouts < left[1].rollouts
    assert right[0].lr != right[1].lr
    assert left[1].value == max(study.group("GSPO", reading.SETTING).values.values())
    final = study.group("GRPO", reading.SETTING).values
    assert final[left[0].seed] == min(final.values())
    assert left[0].value < final[left[0].seed], "it was stopped early"


def test_both_pictures_are_drawn() -> None:
    pleasing, honest = reading.pleasing_figure(), reading.honest_figure()
    assert all(ax.get_ylim()[0] == reading.FLOOR for ax in pleasing.axes)
    assert honest.axes[0].get_ylim() == (0, 1)
    assert honest.axes[1].get_ylim()[0] < 0 < honest.axes[1].get_ylim()[1]
    seeds = [line for line in honest.axes[0].lines if len(line.get_xdata()) == 8]
    assert len(seeds) == len(reading.ARMS)
    assert png(pleasing) != png(honest)


def test_the_small_print_tells_what_the_picture_does_not() -> None:
    words = reading.small_print()
    assert f"{reading.STOPPED} rollouts" in words
    assert f"learning rate {reading.OTHER_RATE:g}" in words


def test_a_reward_that_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="rollout is 7"):
        reading.held_out("GRPO", 0, 7)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "Not filled in yet"),
        ([], "0 of 5 faults found. Still to be found: 5"),
        ([4], "4: no fault. Ratios of tokens"),
        ([1, 2], "1 of 5 faults found. 1: a fault."),
        ([1, 3, 5, 6, 8], "5 of 5 faults found."),
    ],
)
def test_the_faults_are_checked(
    given: list[int] | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reading.check_faults(given)
    said = " ".join(capsys.readouterr().out.split())
    assert words in said
    assert ("Still to be found" in said) == (given is not None and len(given) < 5)


def test_a_number_that_no_statement_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"found is \[1, 9\]; expected numbers from 1 to 8"):
        reading.check_faults([1, 9])


def test_the_page_holds_answers_and_lines() -> None:
    empty, full = page(), page(GSPO_ANSWERS, paper="Group & Sequence")
    assert empty.open_questions == [question.key for question in QUESTIONS]
    assert full.open_questions == []
    for question in QUESTIONS:
        assert question.text in empty.markdown()
        assert GSPO_ANSWERS[question.key] in full.markdown()
    assert "____" in empty.markdown()
    assert 'class="line"' in empty.html()
    assert 'class="line"' not in full.html()
    assert "Group &amp; Sequence" in full.html()
    assert full.html().startswith("<!DOCTYPE html>")
    assert repr(full) == full.markdown()


def test_empty_answers_count_as_open() -> None:
    assert page({"claim": "  ", "who": None, "mine": "x"}).open_questions[:2] == ["claim", "kind"]
    with pytest.raises(ValueError, match="answers has 'clame'"):
        page({"clame": "x"})


def test_the_page_is_saved(tmp_path: Path) -> None:
    full = page(GSPO_ANSWERS)
    for name, text in (("a.html", full.html()), ("a.md", full.markdown())):
        assert full.save(tmp_path / name).read_text(encoding="utf-8") == text
    with pytest.raises(ValueError, match=r"ends with \.html or \.md"):
        full.save(tmp_path / "a.pdf")


def test_the_lesson_asks_every_question_of_the_page(cells: list[str]) -> None:
    (cell,) = [source for source in cells if "my_page = {" in source]
    for question in QUESTIONS:
        assert f'"{question.key}": None' in cell
