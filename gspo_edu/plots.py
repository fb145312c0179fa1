"""One look for every picture of the course: a colour and a line style per objective, alt texts.

The colours are Okabe and Ito's, which readers with any common colour blindness tell apart; the
line styles carry the same information without colour.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, GRID = "#57606A", "#E6E9ED"
PALETTE = 64  # colours of a stored picture: a quarter of the size, no difference to the eye

LABELS = {
    "ppo": "PPO",
    "ppo_dual_clip": "PPO, dual clip",
    "grpo": "GRPO",
    "dr_grpo": "Dr. GRPO",
    "dapo": "DAPO",
    "cispo": "CISPO",
    "gspo": "GSPO",
    "gspo_token": "GSPO-token",
    "seq_unnormalised": "product, no root",
    "gmpo": "GMPO",
    "sapo": "SAPO",
}
Line = str | tuple[int, tuple[int, ...]]
COLOURS_AND_LINES: dict[str, tuple[str, Line]] = {
    "ppo": (BLACK, ":"),
    "ppo_dual_clip": (GREY, (0, (1, 3))),
    "grpo": (VERMILION, "--"),
    "dr_grpo": (ORANGE, "-."),
    "dapo": (ORANGE, "--"),
    "cispo": (PURPLE, "-"),
    "gspo": (BLUE, "-"),
    "gspo_token": (SKY, "--"),
    "seq_unnormalised": (GREEN, "-."),
    "gmpo": (GREEN, "-"),
    "sapo": (PURPLE, ":"),
}


class LineStyle(TypedDict):
    """Keyword arguments of ``Axes.plot``."""

    color: str
    linestyle: Line
    label: str


def objective_style(name: str) -> LineStyle:
    """Colour, line style and label of an objective, the same in every picture.

    Raises:
        ValueError: if there is no such objective.
    """
    if name not in COLOURS_AND_LINES:
        raise ValueError(f"name is {name!r}; expected one of {', '.join(COLOURS_AND_LINES)}.")
    colour, line = COLOURS_AND_LINES[name]
    return {"color": colour, "linestyle": line, "label": LABELS[name]}


def new_figure(
    columns: int = 1, rows: int = 1, *, width: float = 4.0, height: float = 3.0, **grid: Any
) -> tuple[Figure, list[Axes]]:
    """A white figure of ``rows`` x ``columns`` plain panels, each of the given size in inches.

    ``grid`` goes to matplotlib's GridSpec, such as ``width_ratios``. It does not go through pyplot,
    so that no notebook shows it twice and no display is needed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), dpi=100, layout="constrained")
    axes: list[Axes] = list(figure.subplots(rows, columns, squeeze=False, gridspec_kw=grid).flat)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color=GRID, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.xaxis.label.set_fontsize(9)
        ax.yaxis.label.set_fontsize(9)
        ax.tick_params(labelsize=8)
    return figure, axes


def png(figure: Figure, dpi: float | None = None, *, colours: int = PALETTE) -> bytes:
    """The figure as PNG of few colours without a date: equal figures are equal files.

    Args:
        figure: what to draw.
        dpi: pixels per inch; the figure's own unless given.
        colours: at most 256. Many lines of many colours need more than ``PALETTE``, or those that
            cover little are lost.
    """
    from PIL import Image

    full, small = io.BytesIO(), io.BytesIO()
    figure.savefig(full, format="png", dpi=dpi or "figure")
    image = Image.open(full).convert("RGB").quantize(colours, dither=Image.Dither.NONE)
    image.save(small, format="png", optimize=True)
    return small.getvalue()


def show(figure: Figure, alt: str, *, colours: int = PALETTE) -> None:
    """Display the figure in a notebook, with a text for those who cannot see it.

    Args:
        figure: what to show.
        alt: one or two sentences that say what the picture shows, not how it looks.
        colours: see ``png``.

    Raises:
        ValueError: if ``alt`` is empty.
    """
    if not alt.strip():
        raise ValueError("alt is empty; expected a sentence that says what the figure shows.")
    from IPython.display import Image, display

    # As metadata: IPython 7, which Colab has, knows no argument alt.
    picture = Image(png(figure, colours=colours), format="png", metadata={"alt": alt})  # type: ignore[no-untyped-call]
    display(picture)  # type: ignore[no-untyped-call]
