"""The heat map and the text of gradient weights show the numbers that they are given."""

from __future__ import annotations

import pytest

from gspo_edu.advantages import group_advantages
from gspo_edu.gradient_map import (
    SHOWN,
    columns,
    gradient_figure,
    number,
    silent,
    tint,
    token_weights,
    weight_lines,
)
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.one_batch import ONE_BATCH
from gspo_edu.plots import LABELS

BATCH = ONE_BATCH.tensors()
GIVEN = (BATCH.logp, BATCH.logp_old, group_advantages(BATCH.rewards, BATCH.group), BATCH.mask)
SETTINGS = {"dr_grpo": {"max_len": 8}}


def flat(answers: list[list[float]]) -> list[float]:
    """The weights of all answers in a row."""
    return [weight for answer in answers for weight in answer]


def test_weights_are_those_of_the_objectives_without_padding() -> None:
    found = token_weights(*GIVEN, SETTINGS)
    assert list(found) == list(SHOWN)
    for name, answers in found.items():
        assert [len(answer) for answer in answers] == [3, 2, 1, 4]
        wanted = OBJECTIVES[name](*GIVEN, **SETTINGS.get(name, {})).token_weight[BATCH.mask]
        assert flat(answers) == (wanted + 0.0).tolist()


def test_names_and_settings_are_chosen() -> None:
    wide = {"gspo": {"clip_low": 0.9, "clip_high": 0.3}}
    (name,) = found = token_weights(*GIVEN, wide, ["gspo"])
    assert name == "gspo"
    assert silent(found["gspo"]) == 0
    assert silent(token_weights(*GIVEN, {}, ["gspo"])["gspo"]) == 1


def test_zero_is_written_only_for_exactly_zero() -> None:
    assert number(0.0) == "0"
    assert number(1e-9) == "+0.000"
    assert number(-0.25) == "-0.250"
    assert silent([[0.0, 1e-300], [-0.0]]) == 2


def test_lines_hold_every_weight() -> None:
    found = token_weights(*GIVEN, SETTINGS)
    head, *lines = weight_lines(found).splitlines()
    assert head.split("answer")[1:] == [part for part in head.split("answer")[1:] if part]
    for name, line in zip(SHOWN, lines, strict=True):
        assert line.startswith(LABELS[name])
        shown = line[10:].split()
        assert shown == [number(weight) for weight in flat(found[name])]
    # The numbers of an answer stand below its name.
    for answer, first in enumerate((0, 3, 5, 6)):
        place = head.index(f"answer {answer + 1}")
        weight = flat(found["cispo"])[first]
        assert lines[SHOWN.index("cispo")][place:].startswith(number(weight))


def test_columns_leave_gaps_between_answers() -> None:
    (first, second), (third,) = columns([2, 1])
    assert second - first == 1
    assert third - second > 1.2


@pytest.mark.parametrize(("part", "colour"), [(0, "#FFFFFF"), (1, "#0072B2"), (0.5, "#80B8D8")])
def test_tint(part: float, colour: str) -> None:
    assert tint("#0072B2", part) == colour


def test_map_has_a_cell_per_token_and_hatches_the_silent_ones() -> None:
    found = token_weights(*GIVEN, SETTINGS)
    figure = gradient_figure({"above": found, "below": {"gspo": found["gspo"]}})
    above, below = figure.axes
    assert above.get_title(loc="left") == "above"
    assert len(above.patches) == 70
    assert len(below.patches) == 10
    every = [weight for answers in found.values() for weight in flat(answers)]
    for cell, text, weight in zip(above.patches, above.texts, every, strict=True):
        assert (cell.get_hatch() is not None) == (weight == 0)
        assert text.get_text() == number(weight).replace("-", "−")
        red, _, blue, _ = cell.get_facecolor()
        assert weight == 0 or (blue > red) == (weight > 0)
    names = [label.get_text() for label in above.get_yticklabels()]
    assert names == [LABELS[name] for name in SHOWN]
    assert [label.get_text() for label in below.get_xticklabels()] == [
        f"answer {i}" for i in (1, 2, 3, 4)
    ]


def test_a_batch_without_any_gradient_can_be_drawn() -> None:
    (ax,) = gradient_figure({"dead": {"grpo": [[0.0, 0.0]]}}).axes
    assert all(cell.get_hatch() for cell in ax.patches)
