"""Who gets the gradient, as a picture and as text: a row for each objective, a column per token.

All numbers are ``token_weight`` of ``gspo_edu.objectives``: how hard an update pulls at the
log-prob of each token, positive towards likelier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gspo_edu.plots import BLUE, GREY, LABELS, VERMILION, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

SHOWN = ("grpo", "dr_grpo", "dapo", "cispo", "gspo", "gmpo", "sapo")
GAP = 0.4  # between two answers, in columns
DEEPEST = 0.62  # share of the colour in the largest weight's cell: its number stays readable
INK = "#1F2328"

Weights = Mapping[str, Sequence[Sequence[float]]]


def token_weights(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    settings: Mapping[str, Mapping[str, Any]],
    names: Sequence[str] = SHOWN,
) -> dict[str, list[list[float]]]:
    """Each token's gradient weight under each objective, {name: [[weight, ...] per answer]}.

    Args:
        logp, logp_old, advantages, mask: as every objective takes them.
        settings: {name: keywords}, such as ``{"dr_grpo": {"max_len": 8}}``.
        names: which objectives, in which order.
    """
    from gspo_edu.objectives import OBJECTIVES

    found = {}
    for name in names:
        result = OBJECTIVES[name](logp, logp_old, advantages, mask, **settings.get(name, {}))
        rows = zip(result.token_weight, mask.bool(), strict=True)
        # Adding 0 turns -0 into 0.
        found[name] = [(weight[inside] + 0.0).tolist() for weight, inside in rows]
    return found


def silent(weights: Sequence[Sequence[float]]) -> int:
    """Number of tokens whose gradient is exactly zero."""
    return sum(weight == 0 for answer in weights for weight in answer)


def weight_lines(weights: Weights) -> str:
    """The weights as text, one line per objective, answers set apart; 0 means exactly zero."""
    lengths = [len(answer) for answer in next(iter(weights.values()))]
    heads = [f"answer {i + 1}".ljust(8 * length) for i, length in enumerate(lengths)]
    lines = [f"{'':10}" + "  ".join(heads).rstrip()]
    for name, answers in weights.items():
        cells = ["".join(f"{number(weight):8}" for weight in answer) for answer in answers]
        lines.append(f"{LABELS[name]:10}" + "  ".join(cells).rstrip())
    return "\n".join(lines)


def number(weight: float) -> str:
    """Three decimals with the sign; a bare 0 only where the weight is exactly zero."""
    return "0" if weight == 0 else f"{weight:+.3f}"


def columns(lengths: Sequence[int]) -> list[list[float]]:
    """Where each token's column has its middle, answer by answer, with gaps between answers."""
    places, at = [], 0.0
    for length in lengths:
        places.append([at + token + 0.5 for token in range(length)])
        at += length + GAP
    return places


def draw_map(ax: Axes, weights: Weights, numbers: bool = True) -> None:
    """Fill ``ax``: blue is pushed up, orange down, hatched gets exactly nothing.

    Args:
        ax: empty axes.
        weights: as ``token_weights`` returns them.
        numbers: write each weight into its cell.
    """
    largest = max(abs(w) for answers in weights.values() for answer in answers for w in answer)
    places = columns([len(answer) for answer in next(iter(weights.values()))])
    for row, answers in enumerate(weights.values()):
        for middles, answer in zip(places, answers, strict=True):
            for x, weight in zip(middles, answer, strict=True):
                draw_cell(ax, x, row, weight, largest)
                if numbers:
                    text = number(weight).replace("-", "−")
                    ax.text(x, row, text, ha="center", va="center", fontsize=8, color=INK)
    ax.set_yticks(range(len(weights)), [LABELS[name] for name in weights])
    ax.set_ylim(len(weights) - 0.5, -0.5)
    ax.set_xlim(places[0][0] - 0.5, places[-1][-1] + 0.5)
    ax.set_xticks([sum(middles) / len(middles) for middles in places])
    ax.set_xticklabels([f"answer {i + 1}" for i in range(len(places))])
    ax.tick_params(length=0)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.grid(visible=False)


def draw_cell(ax: Axes, x: float, row: int, weight: float, largest: float) -> None:
    """One token under one objective."""
    look: dict[str, Any] = {"facecolor": "white", "edgecolor": GREY, "hatch": "////", "lw": 0.6}
    if weight:
        part = DEEPEST * (abs(weight) / largest) ** 0.7
        look = {"facecolor": tint(BLUE if weight > 0 else VERMILION, part), "lw": 0}
    (cell,) = ax.bar(x, 0.88, bottom=row - 0.44, width=0.92)
    cell.set(**look)
    if not weight:
        cell.set_alpha(0.45)


def tint(colour: str, part: float) -> str:
    """``colour`` mixed with white; ``part`` 0 is white and 1 the colour."""
    mixed = (255 - part * (255 - int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(level):02X}" for level in mixed)


def gradient_figure(panels: Mapping[str, Weights], width: float = 7.6) -> Figure:
    """Heat maps below each other, {title: weights}, each with its own depth of colour."""
    heights = [0.75 + 0.3 * len(weights) for weights in panels.values()]
    mean_height = sum(heights) / len(heights)
    figure, axes = new_figure(
        rows=len(panels), width=width, height=mean_height, height_ratios=heights
    )
    for ax, (title, weights) in zip(axes, panels.items(), strict=True):
        draw_map(ax, weights)
        ax.set_title(title, loc="left", fontsize=10)
    return figure
