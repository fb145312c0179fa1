"""The picture of engines that disagree draws what it is given."""

import pytest
import torch

from gspo_edu.engine_figures import LOOKS, distance_figure
from gspo_edu.plots import png


def test_the_share_farther_away_is_drawn_for_tokens_and_answers():
    values = torch.tensor([0.1, -0.2, 0.0, 0.4])
    figure = distance_figure(
        {"bf16": {"token": values, "answer": values / 10}, "int8": {"token": values}},
        {"token": (0.2, "GRPO"), "answer": (3e-4, "GSPO")},
    )
    first, second = figure.axes
    curve = first.lines[0]
    assert curve.get_xdata().tolist() == pytest.approx([1e-6, 0.1, 0.2, 0.4])
    assert list(curve.get_ydata()) == [1.0, 0.75, 0.5, 0.25]
    assert (curve.get_color(), curve.get_linestyle()) == LOOKS["token"]
    assert first.lines[1].get_xdata()[0] == 0.2
    assert first.lines[3].get_xdata()[0] == 3e-4
    assert [text.get_text() for text in first.texts] == ["GRPO", "GSPO"]
    assert first.get_title() == "bf16"
    assert len(second.lines) == 2
    assert first.get_xlabel()
    assert first.get_ylabel()
    assert png(figure)
