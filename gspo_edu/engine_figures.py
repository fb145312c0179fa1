"""Pictures of engines that disagree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from gspo_edu.plots import BLUE, GREY, VERMILION, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Tokens look like GRPO and answers like GSPO everywhere.
LOOKS = {"token": (VERMILION, "--"), "answer": (BLUE, "-")}


def distance_figure(
    distances: Mapping[str, Mapping[str, Tensor]], bounds: Mapping[str, tuple[float, str]]
) -> Figure:
    """Share of tokens and of answers whose log-ratio lies beyond a distance, a panel per engine.

    Args:
        distances: {engine: {"token": log-ratios, "answer": log-ratios}}, one-dimensional.
        bounds: {"token": (clip bound, name), "answer": the same}, drawn as levels.
    """
    figure, axes = new_figure(columns=len(distances), width=3.9, height=3.2)
    for ax, (engine, of_engine) in zip(axes, distances.items(), strict=True):
        for unit, values in of_engine.items():
            colour, line = LOOKS[unit]
            far = values.abs().sort().values.clamp(min=1e-6)
            beyond = [1 - place / len(far) for place in range(len(far))]
            ax.plot(far, beyond, color=colour, linestyle=line, linewidth=2, label=f"{unit}s")
            bound, name = bounds[unit]
            ax.axvline(bound, color=GREY, linestyle=line, linewidth=1)
            ax.annotate(
                name, (bound, 0.03), (3, 0), textcoords="offset points", fontsize=8, rotation=90
            )
        ax.set_xscale("log")
        ax.set(xlim=(1e-5, 1), ylim=(0, 1.02), xlabel="distance |log ratio|")
        ax.set_title(engine, fontsize=10)
    axes[0].set_ylabel("share that is farther away")
    axes[0].legend(fontsize=8, loc="upper right")
    return figure
