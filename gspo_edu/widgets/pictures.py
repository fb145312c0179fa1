"""Look of the static pictures: the live widgets on white, in the colours of ``gspo_edu.plots``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gspo_edu.plots import GREY, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 760  # CSS pixels
DPI = 96

INK = "#1F2328"


def panels(height: int, rows: int = 1, columns: int = 2, **grid: Any) -> tuple[Figure, list[Axes]]:
    """A white figure of ``WIDTH`` x ``height`` pixels with plain axes, row by row."""
    size = {"width": WIDTH / DPI / columns, "height": height / DPI / rows}
    figure, axes = new_figure(columns, rows, **size, **grid)
    for ax in axes:
        ax.spines[["left", "bottom"]].set_color("#A9B1BA")
        ax.tick_params(colors=GREY, labelsize=9)
        ax.xaxis.label.set_color(INK)
        ax.yaxis.label.set_color(INK)
        ax.ticklabel_format(useOffset=False)
    return figure, axes


def headline(ax: Axes, text: str, size: int = 10) -> None:
    """Left-aligned title of one panel."""
    ax.set_title(text, loc="left", fontsize=size, color=INK)
