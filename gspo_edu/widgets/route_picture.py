"""The static picture of ``Routes``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gspo_edu.plots import BLUE, GREEN, VERMILION
from gspo_edu.widgets.pictures import INK, headline, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gspo_edu.widgets.routes import Routes

Slots = list[list[list[int]]]  # [token][layer][slot] -> expert
# What the four kinds of cells look like.
CELLS: dict[str, dict[str, Any]] = {
    "kept": {"facecolor": "#73AFD3", "edgecolor": "none"},
    "came": {"facecolor": VERMILION, "edgecolor": INK, "lw": 0.8},
    "gone": {"facecolor": "none", "edgecolor": VERMILION, "lw": 1, "ls": "--"},
    "wanted": {"facecolor": "none", "edgecolor": VERMILION, "lw": 1, "ls": ":"},
}


def route_picture(widget: Routes, before: Slots, used: Slots, wanted: Slots) -> Figure:
    """A grid of experts and tokens for every layer, and the token ratios below."""
    record = widget.record
    layers, tokens = record["layers"], record["tokens"]
    figure, axes = panels(430, rows=2, columns=len(layers), height_ratios=[2.4, 1])
    experts = len(record["logits"][0][0][0])
    for n, ax in enumerate(axes[: len(layers)]):
        for t, old in enumerate(before):
            draw_column(ax, t, set(old[n]), set(used[t][n]), set(wanted[t][n]))
        ax.set_xlim(-0.5, len(tokens) - 0.5)
        ax.set_ylim(experts - 0.5, -0.5)
        ax.set_xticks(range(len(tokens)), tokens)
        ax.grid(visible=False)
        headline(ax, f"layer {layers[n]}")
    axes[0].set_ylabel("expert")
    lower = axes[len(layers) :]
    for ax in lower[1:]:
        ax.remove()
    grid = lower[0].get_gridspec()
    if grid is not None:
        lower[0].set_subplotspec(grid[1, :])
    draw_ratios(widget, lower[0])
    cells = "Blue: as when sampled. Orange: new. Dashed: gone. Dotted: wanted, not used."
    figure.supxlabel(cells, fontsize=9, color=INK)
    return figure


def draw_column(ax: Axes, t: int, old: set[int], used: set[int], wanted: set[int]) -> None:
    """The cells of one token in one layer."""
    sets = {"kept": used & old, "came": used - old, "gone": old - used, "wanted": wanted - used}
    for kind, experts in sets.items():
        for expert in experts:
            (cell,) = ax.bar(t, 0.9, bottom=expert - 0.45, width=0.9)
            cell.set(**CELLS[kind])


def draw_ratios(widget: Routes, ax: Axes) -> None:
    """Bars of the token ratios over the clip range."""
    ratios = widget.ratios
    ax.axhspan(1 - widget.grpo_low, 1 + widget.grpo_high, color=GREEN, alpha=0.15, lw=0)
    ax.bar(range(len(ratios)), [r - 1 for r in ratios], bottom=1, color=BLUE, alpha=0.75)
    ax.axhline(1, color=INK, lw=0.8)
    ax.set_yscale("log")
    reach = max(*ratios, *(1 / ratio for ratio in ratios), 1.5) * 1.05
    ax.set_ylim(1 / reach, reach)
    marks = [1 / reach**0.8, 1, reach**0.8]
    ax.set_yticks(marks, [f"{mark:.2g}" for mark in marks], minor=False)
    ax.set_yticks([], minor=True)
    ax.set_xticks(range(len(ratios)), widget.record["tokens"])
    ax.set_ylabel("ratio (log)")
