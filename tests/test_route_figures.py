"""Pictures of routes draw the numbers that they are given."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.colors import to_hex

from gspo_edu.plots import BLUE, VERMILION
from gspo_edu.route_figures import (
    arms_figure,
    drift_figure,
    flip_figure,
    forgiveness_figure,
    route_map,
    split_figure,
    step_figure,
    tie_figure,
)


def drawn(ax, label):
    """y values of the line with this label."""
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return list(line.get_ydata())


def looks(ax):
    """(colour, line style) of each line that has a label."""
    lines = [line for line in ax.lines if not line.get_label().startswith("_")]
    return [(to_hex(line.get_color()), str(line._unscaled_dash_pattern)) for line in lines]


def test_curves_of_a_tie_differ_in_colour_and_line() -> None:
    (ax,) = tie_figure([0, 1, 2], {"a": [1, 1, 0], "b": [3, 2, 1]}, tie=1.5).axes
    assert drawn(ax, "a") == [1, 1, 0]
    assert drawn(ax, "b") == [3, 2, 1]
    (one, other) = looks(ax)
    assert one[0] != other[0]
    assert one[1] != other[1]


def test_a_map_fills_what_has_changed_and_names_what_left() -> None:
    before = [[[3, 7], [0, 5]], [[1, 2], [4, 6]]]
    after = [[[7, 3], [5, 9]], [[2, 1], [6, 4]]]
    (ax,) = route_map(["8", "end"], before, after).axes
    texts = {(text.get_position()): text.get_text() for text in ax.texts}
    assert texts == {(0, 0): "3 7", (0, 1): "5 9\n(0)", (1, 0): "1 2", (1, 1): "4 6"}
    filled = [(bar.get_x() + bar.get_width() / 2, bar.get_y() + 0.44) for bar in ax.patches]
    white = [to_hex(bar.get_facecolor()) == "#ffffff" for bar in ax.patches]
    changed = [place for place, plain in zip(filled, white, strict=True) if not plain]
    assert np.allclose(changed, [(0, 1)])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["8", "end"]


def test_bars_are_the_shares() -> None:
    (ax,) = flip_figure({"near": 0.4, "far": 0.01}, [10, 200]).axes
    assert [bar.get_height() for bar in ax.patches] == [0.4, 0.01]
    assert [text.get_text() for text in ax.texts] == ["40.0%\nof 10", "1.0%\nof 200"]


def test_both_kinds_of_drift_have_a_panel_and_one_scale() -> None:
    runs = {"seed 0": ([0.1, 0.2, 0.1, 0.1], [0.1, 0.3, 0.1, 0.2])}
    update, rollout = drift_figure(runs, rollout=2).axes
    assert drawn(update, "seed 0") == runs["seed 0"][0]
    assert drawn(rollout, "seed 0") == runs["seed 0"][1]
    assert update.get_ylim() == rollout.get_ylim()
    assert update.get_ylim()[1] > 0.3
    assert "update" in update.get_title()
    assert "rollout" in rollout.get_title()
    ends = [line.get_xdata()[0] for line in update.lines if line.get_label().startswith("_")]
    assert ends == [2.5]


def test_the_slanted_lines_are_the_bounds_of_the_ratio() -> None:
    (ax,) = split_figure({"all": ([0.1, 0.2], [0.3, -0.1])}, 0.8, 1.27).axes
    dots, low, high = ax.lines
    assert list(dots.get_xdata()) == [0.1, 0.2]
    assert list(dots.get_ydata()) == [0.3, -0.1]
    for line, bound in ((low, 0.8), (high, 1.27)):
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True):
            assert math.exp(x + y) == pytest.approx(bound)


def test_the_guides_start_at_the_whole_way() -> None:
    (ax,) = step_figure([1.0, 0.25], [0.2, 0.1], [0.4, 0.1]).axes
    assert drawn(ax, "route part") == [0.2, 0.1]
    assert drawn(ax, "weights part") == [0.4, 0.1]
    assert drawn(ax, "∝ step") == pytest.approx([0.4, 0.1])
    assert drawn(ax, "∝ √step") == pytest.approx([0.2, 0.1])
    assert ax.get_xscale() == ax.get_yscale() == "log"


def test_the_level_is_named() -> None:
    (ax,) = forgiveness_figure([10, 100], {"1 %": [0.1, 0.03]}, 4e-4, "the bound").axes
    assert drawn(ax, "1 %") == [0.1, 0.03]
    assert any(set(line.get_ydata()) == {4e-4} for line in ax.lines)
    assert [text.get_text() for text in ax.texts] == ["the bound"]


def test_every_seed_has_a_thin_line_and_the_mean_a_thick_one() -> None:
    arms = {"GSPO": [{"reward": [0.1, 0.3]}, {"reward": [0.3, 0.5]}], "GRPO": [{"reward": [0, 1]}]}
    styles = {"GSPO": (BLUE, "-"), "GRPO": (VERMILION, "--")}
    (ax,) = arms_figure(arms, styles, {"reward": "reward"}).axes
    assert drawn(ax, "GSPO") == pytest.approx([0.2, 0.4])
    assert drawn(ax, "GRPO") == [0, 1]
    thin = [list(line.get_ydata()) for line in ax.lines if line.get_linewidth() < 1]
    assert thin == [[0.1, 0.3], [0.3, 0.5], [0, 1]]
    assert {colour.upper() for colour, _ in looks(ax)} == {BLUE.upper(), VERMILION.upper()}
