"""Pictures: one style per objective, alt texts, and figures of runs drawn from their records."""

from __future__ import annotations

import json

import pytest

from gspo_edu.figures import per_rollout, run_figure
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.plots import COLOURS_AND_LINES, LABELS, new_figure, objective_style, png, show

RECORDS = [
    {"rollout": 1, "update": 1, "reward": 0.4, "clip_fraction_seq": 0.0, "drift_per_update": 0.01},
    {"rollout": 1, "update": 2, "reward": 0.4, "clip_fraction_seq": 0.2, "drift_per_update": 0.03},
    {"rollout": 2, "update": 3, "reward": 0.6, "clip_fraction_seq": 0.4, "drift_per_update": 0.02},
]


def test_every_objective_has_a_style_of_its_own() -> None:
    assert COLOURS_AND_LINES.keys() == LABELS.keys() == OBJECTIVES.keys()
    assert len(set(map(str, COLOURS_AND_LINES.values()))) == len(OBJECTIVES)


def test_unknown_objective_is_named() -> None:
    with pytest.raises(ValueError, match="'gpso'; expected one of ppo"):
        objective_style("gpso")


def test_a_picture_without_alt_text_is_refused() -> None:
    figure, _ = new_figure()
    with pytest.raises(ValueError, match="alt is empty"):
        show(figure, " ")


def test_alt_text_reaches_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    figure, _ = new_figure()
    show(figure, "An empty panel.")
    _, metadata = shown[0]._repr_mimebundle_()
    assert metadata["image/png"]["alt"] == "An empty panel."


def test_a_figure_is_shown_by_ipython_7_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colab has IPython 7, whose Image has no argument ``alt``."""
    from IPython.display import Image

    def of_version_7(data: bytes, *, format: str, metadata: dict[str, str]) -> Image:
        return Image(data, format=format, metadata=metadata)

    shown = []
    monkeypatch.setattr("IPython.display.Image", of_version_7)
    monkeypatch.setattr("IPython.display.display", shown.append)
    show(new_figure()[0], "An empty panel.")
    assert shown[0]._repr_mimebundle_()[1]["image/png"]["alt"] == "An empty panel."


def test_equal_figures_are_equal_files() -> None:
    assert png(run_figure({"gspo": [RECORDS]})) == png(run_figure({"gspo": [RECORDS]}))


def test_per_rollout_is_the_mean_over_its_updates() -> None:
    assert per_rollout(RECORDS, "clip_fraction_seq") == pytest.approx([0.1, 0.4])
    assert per_rollout(RECORDS, "drift_per_rollout") == []


def test_run_figure_draws_each_run_and_their_mean() -> None:
    higher = [{**record, "reward": record["reward"] + 0.2} for record in RECORDS]
    figure = run_figure({"grpo": [RECORDS, higher], "gspo": [RECORDS]}, start=0.45)
    reward, clip, drift = figure.axes
    drawn = [line.get_ydata() for line in reward.lines]
    assert [list(y) for y in drawn[:4]] == [
        pytest.approx([0.4, 0.6]),
        pytest.approx([0.6, 0.8]),
        pytest.approx([0.5, 0.7]),
        pytest.approx([0.4, 0.6]),
    ]
    assert list(drawn[4]) == [0.45, 0.45]
    assert [text.get_text() for text in reward.get_legend().get_texts()] == [
        "GRPO",
        "GSPO",
        "held-out, at the start",
    ]
    assert all(ax.get_xlabel() and ax.get_ylabel() and ax.get_title() for ax in figure.axes)
    assert clip.get_yscale() == "symlog"
    assert list(drift.lines[-1].get_ydata()) == pytest.approx([0.02, 0.02])


def test_a_dense_run_has_no_drift_curve() -> None:
    dense = [{k: v for k, v in r.items() if k != "drift_per_update"} for r in RECORDS]
    figure = run_figure({"gspo": [dense]})
    assert [len(ax.lines) for ax in figure.axes] == [1, 1, 0]


def test_records_of_a_run_without_rollouts_draw_empty_panels() -> None:
    figure = run_figure({"gspo": [[]]})
    assert [len(ax.lines) for ax in figure.axes] == [0, 0, 0]
    assert json.dumps(per_rollout([], "reward")) == "[]"
