"""The drawings show the parts that the lessons speak of, and nothing overlaps."""

from __future__ import annotations

import pytest

from gspo_edu.diagrams import parts_figure


def texts(method: str) -> set[str]:
    (ax,) = parts_figure(method).axes
    return {text.get_text().replace("\n", " ") for text in ax.texts}


def test_only_ppo_has_a_critic() -> None:
    assert "critic" in texts("ppo")
    assert "critic" not in texts("grpo")
    assert "mean and std of the group" in texts("grpo")


@pytest.mark.parametrize("method", ["ppo", "grpo"])
def test_boxes_do_not_overlap(method: str) -> None:
    figure = parts_figure(method)
    figure.canvas.draw()
    boxes = [patch.get_window_extent() for patch in figure.axes[0].patches]
    assert len(boxes) >= 6
    pairs = [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :]]
    assert not any(a.overlaps(b) for a, b in pairs)


def test_an_unknown_method_is_an_error() -> None:
    with pytest.raises(ValueError, match="method is 'gspo'"):
        parts_figure("gspo")
