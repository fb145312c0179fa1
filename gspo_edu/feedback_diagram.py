"""A drawing of where the reward comes from: from people by way of a model, or from a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gspo_edu.diagrams import DATA, FIXED, TRAINED, arrow, arrow_back, box, legend
from gspo_edu.plots import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_human_feedback(ax: Axes) -> None:
    """RLHF: people compare once, a reward model speaks for them from then on."""
    box(ax, (1.4, 3), "policy", TRAINED)
    box(ax, (5.2, 3), "answers", width=2)
    box(ax, (9, 4.4), "people compare\ntwo answers", DATA, width=2.6)
    box(ax, (9, 3), "reward model", TRAINED, width=2.6)
    box(ax, (13, 3), "reward", width=2)
    arrow(ax, (2.6, 3), (4.15, 3), "samples", (0, 0.25))
    arrow(ax, (6.25, 3.2), (7.65, 4.3), "a few", (-0.35, 0.2))
    arrow(ax, (9, 3.95), (9, 3.47), "labels", (0.6, 0))
    arrow(ax, (6.25, 3), (7.65, 3), "all", (0, 0.22))
    arrow(ax, (10.35, 3), (11.95, 3), "score", (0, 0.22))
    arrow_back(ax, (13, 2.55), (1.4, 2.55), "gradient step", level=1.5)
    ax.set_title("human feedback", loc="left", fontsize=11)


def draw_verifiable_reward(ax: Axes) -> None:
    """A program checks every answer; nobody compares, nothing besides the policy is trained."""
    box(ax, (1.4, 3), "policy", TRAINED)
    box(ax, (5.2, 3), "answers", width=2)
    box(ax, (9, 3), "verifier", FIXED, width=2.6)
    box(ax, (13, 3), "reward", width=2)
    arrow(ax, (2.6, 3), (4.15, 3), "samples", (0, 0.25))
    arrow(ax, (6.25, 3), (7.65, 3), "all", (0, 0.22))
    arrow(ax, (10.35, 3), (11.95, 3), "checks", (0, 0.22))
    arrow_back(ax, (13, 2.55), (1.4, 2.55), "gradient step", level=1.5)
    ax.set_title("verifiable reward", loc="left", fontsize=11)


def feedback_figure() -> Figure:
    """Reinforcement learning from human feedback above, with a verifiable reward below."""
    figure, axes = new_figure(1, 2, width=8, height=2.5)
    for ax, draw in zip(axes, (draw_human_feedback, draw_verifiable_reward), strict=True):
        ax.set(xlim=(0, 14.4), ylim=(1.0, 5.0), xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        ax.grid(visible=False)
        draw(ax)
    legend(axes[-1])
    return figure
