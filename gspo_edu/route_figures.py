"""Pictures of routes: who took which expert, how choices drift, and what that does to ratios."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gspo_edu.plots import BLACK, BLUE, GREY, ORANGE, PURPLE, SKY, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Slots = Sequence[Sequence[Sequence[int]]]  # [token][layer][slot] -> expert
SHADES = (BLACK, BLUE, PURPLE, ORANGE, SKY)
DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (1, 3)))


def tie_figure(
    places: Sequence[float], curves: Mapping[str, Sequence[float]], tie: float
) -> Figure:
    """What a layer puts out while one router logit slides past another at ``tie``."""
    figure, (ax,) = new_figure(width=5.6)
    for (name, values), colour, line in zip(curves.items(), SHADES, DASHES, strict=False):
        ax.plot(places, values, color=colour, linestyle=line, linewidth=2, label=name)
    ax.axvline(tie, color=GREY, linewidth=1)
    ax.annotate("tie", (tie, 1), (4, -2), xycoords=("data", "axes fraction"), **BESIDE)
    ax.set(xlabel="logit of the third expert", ylabel="output of the layer")
    ax.legend(fontsize=8)
    return figure


BESIDE: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "va": "top"}


def route_map(tokens: Sequence[str], before: Slots, after: Slots) -> Figure:
    """The experts of each token, layer by layer, after an update; what is new stands out.

    Args:
        tokens: the answer's tokens as text.
        before, after: expert ids, [token][layer][slot].

    Returns:
        One column per token, one row per layer. A cell holds the experts of ``after``; if some
        were not there before it is filled, and the ones that went are written below, crossed out.
    """
    layers = len(after[0])
    figure, (ax,) = new_figure(width=0.62 * len(tokens) + 1, height=0.6 * layers + 0.5)
    for x, (old_token, new_token) in enumerate(zip(before, after, strict=True)):
        for row, (old, new) in enumerate(zip(old_token, new_token, strict=True)):
            gone = [expert for expert in old if expert not in new]
            (cell,) = ax.bar(x, 0.88, bottom=row - 0.44, width=0.92)
            cell.set(
                facecolor="#FBE3B8" if gone else "white", edgecolor=GREY, lw=1.6 if gone else 0.6
            )
            text = " ".join(map(str, sorted(new)))
            if gone:
                text += "\n(" + " ".join(map(str, sorted(gone))) + ")"
            ax.text(x, row, text, ha="center", va="center", fontsize=8)
    ax.set_xticks(range(len(tokens)), tokens, fontsize=9)
    ax.set_yticks(range(layers), [f"layer {row}" for row in range(layers)], fontsize=9)
    ax.set_ylim(layers - 0.5, -0.5)
    ax.set_xlim(-0.5, len(tokens) - 0.5)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.grid(visible=False)
    return figure


def flip_figure(shares: Mapping[str, float], counts: Sequence[int]) -> Figure:
    """Share of choices that changed, by how near the tie was before: {bin: share}."""
    figure, (ax,) = new_figure(width=5.6)
    bars = ax.bar(range(len(shares)), list(shares.values()), color=SKY, edgecolor=BLACK, lw=0.8)
    for bar, share, count in zip(bars, shares.values(), counts, strict=True):
        middle = bar.get_x() + bar.get_width() / 2
        ax.annotate(
            f"{share:.1%}\nof {count}",
            (middle, share),
            (0, 2),
            ha="center",
            va="bottom",
            textcoords="offset points",
            fontsize=8,
        )
    ax.set_xticks(range(len(shares)), list(shares), fontsize=8)
    ax.set(
        xlabel="margin before the update (difference of two logits)", ylabel="share that changed"
    )
    ax.set_ylim(0, max(shares.values()) * 1.25)
    return figure


def drift_figure(
    runs: Mapping[str, tuple[Sequence[float], Sequence[float]]], rollout: int
) -> Figure:
    """Drift per update and per rollout in two panels that share their axes.

    Args:
        runs: {label: (per update, per rollout)} after each update.
        rollout: updates per rollout, at whose ends lines are drawn.
    """
    figure, axes = new_figure(columns=2, width=4.4)
    titles = ("per update: against the policy before it", "per rollout: against π_old")
    for side, (ax, title) in enumerate(zip(axes, titles, strict=True)):
        for (name, both), colour, line in zip(runs.items(), SHADES, DASHES, strict=False):
            values = both[side]
            ax.plot(
                range(1, len(values) + 1),
                values,
                color=colour,
                linestyle=line,
                marker=".",
                label=name,
            )
        for end in range(rollout, len(values), rollout):
            ax.axvline(end + 0.5, color=GREY, linewidth=0.8)
        ax.set_title(title, fontsize=10)
        ax.set(xlabel="update (a grey line: a new rollout)", ylabel="share of expert slots")
    top = 1.05 * max(max(max(both[0]), max(both[1])) for both in runs.values())
    for ax in axes:
        ax.set_ylim(0, top)
    axes[0].legend(fontsize=8)
    return figure


def split_figure(
    panels: Mapping[str, tuple[Sequence[float], Sequence[float]]], low: float, high: float
) -> Figure:
    """Weights part (x) and route part (y) of log r, a dot per token, {title: (x, y)}.

    Between the slanted lines the ratio is inside ``low`` to ``high``.
    """
    figure, axes = new_figure(columns=len(panels), width=4.2, height=3.6)
    reach = 1.0
    for ax, (title, (weights, route)) in zip(axes, panels.items(), strict=True):
        ax.plot(weights, route, ".", color=BLUE, markersize=2.5, alpha=0.5)
        for bound in (low, high):
            ends = (-reach, reach)
            ax.plot(ends, [math.log(bound) - x for x in ends], color=BLACK, lw=1, ls="--")
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
        ax.set_xlabel("weights part of log r")
        ax.set_ylabel("route part of log r")
        ax.set_title(title, fontsize=10)
    return figure


def step_figure(steps: Sequence[float], route: Sequence[float], weights: Sequence[float]) -> Figure:
    """Size of both parts when only a fraction of the way is gone, on double-log axes."""
    figure, (ax,) = new_figure(width=5.6, height=3.4)
    ax.loglog(steps, weights, color=BLUE, linestyle="--", marker="s", ms=4, label="weights part")
    ax.loglog(steps, route, color=ORANGE, linestyle="-", marker="o", ms=4, label="route part")
    first = steps.index(max(steps))
    ax.loglog(
        steps,
        [weights[first] * step for step in steps],
        color=GREY,
        lw=0.8,
        ls=":",
        label="∝ step",
    )
    ax.loglog(
        steps,
        [route[first] * step**0.5 for step in steps],
        color=GREY,
        lw=0.8,
        ls="-.",
        label="∝ √step",
    )
    ax.set(xlabel="fraction of the way", ylabel="root mean square over tokens")
    ax.legend(fontsize=8)
    return figure


def mark(ax: Axes, level: float, text: str, *, left: bool = False) -> None:
    """A grey level line with its name."""
    ax.axhline(level, color=GREY, linewidth=1)
    end, inwards, side = (0, 2, "left") if left else (1, -2, "right")
    where = ("axes fraction", "data")
    ax.annotate(text, (end, level), (inwards, 2), xycoords=where, ha=side, **ABOVE)


ABOVE: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "va": "bottom"}


def forgiveness_figure(
    lengths: Sequence[int],
    curves: Mapping[str, Sequence[float]],
    level: float,
    name: str,
    *,
    left: bool = False,
) -> Figure:
    """How far log s moves (one standard deviation) at each length, {label: values}.

    The level's name stands at its right end unless ``left``.
    """
    figure, (ax,) = new_figure(width=5.6, height=3.4)
    for (label, values), colour, line in zip(curves.items(), SHADES, DASHES, strict=False):
        ax.loglog(lengths, values, color=colour, linestyle=line, marker=".", label=label)
    mark(ax, level, name, left=left)
    ax.set(xlabel="length of the answer (tokens)", ylabel="standard deviation")
    ax.legend(fontsize=8)
    return figure


def arms_figure(
    arms: Mapping[str, Sequence[Mapping[str, Sequence[float]]]],
    styles: Mapping[str, tuple[str, Any]],
    titles: Mapping[str, str],
) -> Figure:
    """A panel per metric: thin lines are seeds, thick ones their mean.

    Args:
        arms: {label: [{metric: value per rollout}, one per seed]}.
        styles: {label: (colour, line style)}.
        titles: {metric: title of its panel}.
    """
    figure, axes = new_figure(columns=len(titles), width=4.0, height=3.2)
    for ax, (metric, title) in zip(axes, titles.items(), strict=True):
        for label, seeds in arms.items():
            colour, line = styles[label]
            curves = [seed[metric] for seed in seeds]
            for curve in curves:
                ax.plot(range(1, len(curve) + 1), curve, color=colour, ls=line, lw=0.7, alpha=0.5)
            mean = [sum(values) / len(values) for values in zip(*curves, strict=True)]
            ax.plot(range(1, len(mean) + 1), mean, color=colour, ls=line, lw=2, label=label)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("rollout")
        ax.set_ylim(bottom=0)
    axes[0].legend(fontsize=8)
    return figure
