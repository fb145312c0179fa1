"""The drawing of human feedback against a verifiable reward."""

from __future__ import annotations

from gspo_edu.feedback_diagram import feedback_figure
from gspo_edu.plots import png


def test_only_human_feedback_has_people_and_a_second_trained_model() -> None:
    feedback, verifiable = feedback_figure().axes
    above, below = ({text.get_text() for text in ax.texts} for ax in (feedback, verifiable))
    assert {"policy", "answers", "reward", "gradient step"} <= above & below
    assert above - below >= {"people compare\ntwo answers", "reward model", "labels"}
    assert "verifier" in below - above


def test_it_can_be_drawn() -> None:
    assert png(feedback_figure()).startswith(b"\x89PNG")
