"""Drawings of what a method is made of: boxes for models, arrows for what they pass on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gspo_edu.plots import BLACK, GREY, GRID, SKY, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float]
Kind = tuple[str, Literal["-", "--", ":"]]
# Fill and edge: trained in this method, only read, no model at all.
TRAINED: Kind = (SKY, "-")
FIXED: Kind = (GRID, "--")
DATA: Kind = ("white", ":")


def box(ax: Axes, centre: Point, text: str, kind: Kind = DATA, width: float = 2.3) -> None:
    """One part of the method; its frame says the same as its colour."""
    from matplotlib.patches import FancyBboxPatch

    fill, line = kind
    x, y = centre
    patch = FancyBboxPatch(
        (x - width / 2, y - 0.42),
        width,
        0.84,
        boxstyle="round,pad=0.02,rounding_size=0.12",
        facecolor=fill,
        edgecolor=BLACK,
        linestyle=line,
        linewidth=1.3,
    )
    ax.add_patch(patch)
    ax.annotate(text, centre, ha="center", va="center", fontsize=9)


def arrow(ax: Axes, start: Point, end: Point, text: str = "", at: Point = (0, 0)) -> None:
    """A straight arrow with a word beside its middle, shifted by ``at``."""
    style = {"arrowstyle": "-|>", "color": GREY, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=style)
    middle = (start[0] + end[0]) / 2 + at[0], (start[1] + end[1]) / 2 + at[1]
    ax.annotate(text, middle, ha="center", va="center", fontsize=8, color=GREY)


def arrow_back(ax: Axes, start: Point, end: Point, text: str, level: float = 0.45) -> None:
    """An arrow that runs back below everything else, at height ``level``."""
    ax.plot([start[0], start[0], end[0]], [start[1], level, level], color=GREY, lw=1.4)
    arrow(ax, (end[0], level), end)
    middle = ((start[0] + end[0]) / 2, level - 0.25)
    ax.annotate(text, middle, ha="center", va="center", fontsize=8, color=GREY)


def draw_ppo(ax: Axes) -> None:
    """PPO for language models: four models, two trained (arXiv 2402.03300, figure 4)."""
    box(ax, (1.4, 3), "policy", TRAINED)
    box(ax, (5.2, 3), "one answer", width=2)
    box(ax, (9, 4.4), "reward model", FIXED)
    box(ax, (9, 3), "reference policy", FIXED)
    box(ax, (9, 1.6), "critic", TRAINED)
    box(ax, (13, 3), "advantage\nof each token", width=2.4)
    arrow(ax, (2.6, 3), (4.15, 3), "samples", (0, 0.25))
    arrow(ax, (6.25, 3.2), (7.8, 4.3))
    arrow(ax, (6.25, 3), (7.8, 3))
    arrow(ax, (6.25, 2.8), (7.8, 1.7))
    arrow(ax, (10.2, 4.3), (12.4, 3.5), "reward", (0.35, 0.25))
    arrow(ax, (10.2, 3), (11.75, 3), "KL", (0, 0.22))
    arrow(ax, (10.2, 1.7), (12.2, 2.5), "guess", (0.3, -0.22))
    arrow_back(ax, (13, 2.55), (1.4, 2.55), "loss with clipping, gradient step")
    ax.set_title("PPO", loc="left", fontsize=11)


def draw_grpo(ax: Axes) -> None:
    """GRPO: no critic; the other answers of the group stand in for it."""
    box(ax, (1.4, 3), "policy", TRAINED)
    box(ax, (5.2, 3), "a group of\nG answers", width=2)
    box(ax, (9, 4.4), "verifier or\nreward model", FIXED)
    box(ax, (9, 1.6), "reference policy", FIXED)
    box(ax, (13, 4.4), "mean and std\nof the group", width=2.4)
    box(ax, (13, 3), "advantage\nof each answer", width=2.4)
    arrow(ax, (2.6, 3), (4.15, 3), "samples", (0, 0.25))
    arrow(ax, (6.25, 3.2), (7.8, 4.3))
    arrow(ax, (6.25, 2.8), (7.8, 1.7))
    arrow(ax, (10.2, 4.4), (11.75, 4.4), "G rewards", (0, 0.22))
    arrow(ax, (13, 3.95), (13, 3.47))
    arrow(ax, (9, 1.15), (9, 0.47), "KL", (0.35, 0))
    arrow_back(ax, (13, 2.55), (1.4, 2.55), "loss with clipping and KL, gradient step")
    ax.set_title("GRPO", loc="left", fontsize=11)


def parts_figure(*methods: str) -> Figure:
    """The parts of the named methods, "ppo" or "grpo", one below the other.

    Raises:
        ValueError: if a method has no drawing.
    """
    drawings = {"ppo": draw_ppo, "grpo": draw_grpo}
    for method in methods:
        if method not in drawings:
            raise ValueError(f"method is {method!r}; expected one of {', '.join(drawings)}.")
    figure, axes = new_figure(1, len(methods), width=8, height=3)
    for ax, method in zip(axes, methods, strict=True):
        ax.set(xlim=(0, 14.4), ylim=(-0.1, 5.1), xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        ax.grid(visible=False)
        drawings[method](ax)
    legend(axes[-1])
    return figure


def legend(ax: Axes) -> None:
    """What the frames mean."""
    from matplotlib.patches import Patch

    meanings = {"trained": TRAINED, "a fixed model or program": FIXED, "data": DATA}
    handles = [
        Patch(facecolor=fill, edgecolor=BLACK, linestyle=line, label=meaning)
        for meaning, (fill, line) in meanings.items()
    ]
    ax.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0, 0.98), fontsize=8, frameon=False
    )
