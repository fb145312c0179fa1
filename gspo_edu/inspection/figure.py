"""The figure of a recorded run: six panels, one per question of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from gspo_edu.inspection.numbers import Measured, answer_clipping
from gspo_edu.inspection.rules import bounds_text, default_rules
from gspo_edu.plots import BLUE, GREY, LABELS, ORANGE, SKY, new_figure, objective_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gspo_edu.inspection.columns import Array

RANGES_DRAWN = 61
LENGTH_BINS = 12
DRAWN_ANSWERS = 2000


def figure(measured: Measured) -> Figure:
    """Everything that a picture says better than a number."""
    made, axes = new_figure(columns=3, rows=2, height=3.1)
    token_panel(axes[0], measured)
    sequence_panel(axes[1], measured)
    length_panel(axes[2], measured)
    correlation_panel(axes[3], measured.numbers["token_log_ratio"]["autocorrelation"])
    clip_panel(axes[4], measured.numbers["clip"])
    range_panel(axes[5], measured)
    return made


def there(measured: Measured) -> Array:
    """log s of the answers that have tokens."""
    found: Array = measured.log_s[measured.lengths > 0]
    return found


def histogram(ax: Axes, values: Array, mean: float, std: float, label: str) -> None:
    """Density of ``values`` with the normal curve that is expected."""
    rare = min(0.001, 1 / len(values)) if len(values) > 100 else 0.0
    ends = np.quantile(values, [rare, 1 - rare])
    if not ends[0] < ends[1]:  # all equal: one bar
        ends = np.array([values.min() - 1e-6, values.max() + 1e-6])
    ax.hist(values, bins=60, range=(ends[0], ends[1]), density=True, color=SKY, label="measured")
    if std > 0:
        x = np.linspace(ends[0], ends[1], 200)
        curve = [NormalDist(mean, std).pdf(at) for at in x]
        ax.plot(x, curve, color=ORANGE, linestyle="--", label=label)
    ax.set_ylabel("density")
    ax.locator_params(axis="x", nbins=5)


def token_panel(ax: Axes, measured: Measured) -> None:
    """Token log-ratios against a normal distribution of their sigma."""
    about = measured.numbers["token_log_ratio"]
    histogram(ax, measured.some_log_ratios, about["mean"], about["std"], "normal")
    ax.set_title(f"Token log-ratios: σ = {about['std']:.3g}", fontsize=10)
    ax.set(xlabel="log r", yscale="log")
    if about["std"] > 0:
        ax.set_ylim(bottom=1e-3 / about["std"])
    ax.legend(fontsize=8)


def sequence_panel(ax: Axes, measured: Measured) -> None:
    """log s against what independent tokens would give, with GSPO's own range."""
    about = measured.numbers["sequence_log_ratio"]
    histogram(
        ax, there(measured), about["expected_mean"], about["expected_std"], "independent tokens"
    )
    own = default_rules({}, only="gspo")[0].settings
    for bound in (math.log1p(-own["clip_low"]), math.log1p(own["clip_high"])):
        ax.axvline(bound, color=BLUE, linewidth=1)
    ax.axvline(math.nan, color=BLUE, linewidth=1, label=f"GSPO's range {bounds_text(own)}")
    ax.set_title(f"log s: std {about['std']:.3g}", fontsize=10)
    ax.set_xlabel("log s")
    ax.set_ylim(top=1.4 * ax.get_ylim()[1])  # room for the legend
    ax.legend(fontsize=7, loc="upper right")


def length_panel(ax: Axes, measured: Measured) -> None:
    """How log s scatters at each length, against sigma over the root of the length."""
    inside = measured.lengths > 0
    lengths, log_s = measured.lengths[inside], measured.log_s[inside]
    step = max(1, len(lengths) // DRAWN_ANSWERS)
    sigma = measured.numbers["token_log_ratio"]["std"]
    ax.plot(lengths[::step], log_s[::step], ".", color=SKY, markersize=2, label="answers")
    x = np.geomspace(lengths.min(), max(lengths.max(), lengths.min() + 1), 100)
    for sign, label in ((1, "−σ²/2 ± 2σ/√L"), (-1, "_other side")):
        ax.plot(
            x, -(sigma**2) / 2 + sign * 2 * sigma / np.sqrt(x), color=ORANGE, ls="--", label=label
        )
    ax.set_title("Scatter over length", fontsize=10)
    ax.set(xlabel="length L (tokens)", ylabel="log s")
    ax.legend(fontsize=8)


def correlation_panel(ax: Axes, found: Mapping[str, float | None]) -> None:
    """Autocorrelation of token log-ratios."""
    known = {lag: value for lag, value in found.items() if value is not None}
    places = range(len(known))
    ax.bar(places, list(known.values()), color=GREY)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_xticks(places, list(known))
    ax.set_title("Autocorrelation of log r", fontsize=10)
    ax.set(xlabel="distance (tokens)", ylabel="correlation")
    if known:
        largest = max(abs(value) for value in known.values())
        ax.set_ylim(
            min(-0.1, -1.1 * largest if min(known.values()) < 0 else -0.1), max(0.2, 1.1 * largest)
        )


def clip_panel(ax: Axes, rules: Sequence[Mapping[str, Any]]) -> None:
    """Clipped and outside shares of every objective, per answer."""
    names = []
    for place, rule in enumerate(reversed(rules)):
        colour = objective_style(rule["objective"])["color"]
        outside, clipped = rule["outside_fraction_seq"], rule["clip_fraction_seq"]
        ax.barh(place, outside, color=colour, alpha=0.3)
        if clipped is not None and rule["objective"] != "cispo":
            ax.barh(place, clipped, height=0.4, color=colour)
        names.append(f"{LABELS[rule['objective']]} {bounds_text(rule['settings'])}")
    ax.set_yticks(range(len(names)), names, fontsize=7)
    ax.set_xlim(0, 1)
    ax.set_title("Outside (pale) and clipped (full)", fontsize=10)
    ax.set_xlabel("share, mean over answers")


def range_panel(ax: Axes, measured: Measured) -> None:
    """What a symmetric range of every width would leave outside and clip under GSPO."""
    ax.set_title("GSPO: share over width of the range", fontsize=10)
    ax.set(xlabel="ε of the range [1 − ε, 1 + ε]", ylabel="share of answers", ylim=(0, 1))
    values = np.abs(np.expm1(there(measured)))
    if not values.max() > 0:
        return
    advantages = measured.advantages
    signs = None if advantages is None else advantages[measured.lengths > 0]
    widest = min(0.99, 1.5 * float(values.max()))
    low = max(float(np.quantile(values, 0.02)), 1e-3 * float(values.max()))
    widths = np.geomspace(min(low, widest) / 2, widest, RANGES_DRAWN)
    found = [answer_clipping(there(measured), signs, float(w), float(w)) for w in widths]
    style = objective_style("gspo")
    ax.plot(
        widths, [f["outside_fraction_seq"] for f in found], color=GREY, ls="--", label="outside"
    )
    if signs is not None:
        clipped = [f["clip_fraction_seq"] for f in found]
        ax.plot(widths, clipped, color=style["color"], ls=style["linestyle"], label="clipped")
    ax.set_xscale("log")
    ax.legend(fontsize=8)
