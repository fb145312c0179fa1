"""Figures of finished runs, from their metrics.jsonl: reward, clip fraction and drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gspo_edu.checkpoint import load_card
from gspo_edu.compare import folder_of
from gspo_edu.config import TrainConfig
from gspo_edu.files import write_atomically
from gspo_edu.plots import GREY, new_figure, objective_style, png
from gspo_edu.runs import INIT, METRICS, by_rollout, read_config, read_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Records = Sequence[Mapping[str, Any]]
FIGURE, COMPARISON = "figure.png", "comparison.png"
PANELS = {
    "reward": "reward of the rollout",
    "clip_fraction_seq": "clip fraction (share of each answer)",
    "drift_per_update": "drift per update (share of expert slots)",
}


def run_figure(runs: Mapping[str, Sequence[Records]], start: float | None = None) -> Figure:
    """Reward, clip fraction and drift over the rollouts.

    Args:
        runs: for each objective the records of its runs, one sequence per seed. A thin line is
            a run, the thick line the mean over the runs.
        start: mean reward of the policy that all runs started from, drawn as a level.
    """
    figure, axes = new_figure(columns=3)
    for ax, (metric, title) in zip(axes, PANELS.items(), strict=True):
        ax.set_title(title, fontsize=10)
        ax.set(xlabel="rollout", ylabel="mean over its updates")
        for objective, seeds in runs.items():
            draw_runs(ax, metric, objective, seeds)
        ax.set_ylim(bottom=0)
    axes[0].set(ylabel="mean over its answers", ylim=(0, 1))
    if start is not None:
        axes[0].axhline(start, color=GREY, linewidth=1, label="held-out, at the start")
    # GSPO's share is tens of times GRPO's: on a linear axis the smaller would look like 0.
    axes[1].set_yscale("symlog", linthresh=1e-3)
    axes[1].set_ylim(0, 1)
    if axes[0].get_legend_handles_labels()[0]:
        axes[0].legend(fontsize=8, loc="lower right")
    return figure


def draw_runs(ax: Axes, metric: str, objective: str, seeds: Sequence[Records]) -> None:
    """One thin line per run and their mean; nothing for what a dense model does not have."""
    style = objective_style(objective)
    curves = [curve for records in seeds if (curve := per_rollout(records, metric))]
    for curve in curves if len(curves) > 1 else []:
        (line,) = ax.plot(range(1, len(curve) + 1), curve, linewidth=0.8, alpha=0.45, **style)
        line.set_label("_one run")  # an underscore keeps it out of the legend
    if curves:
        shortest = min(map(len, curves))
        mean = np.mean([curve[:shortest] for curve in curves], axis=0)
        ax.plot(range(1, shortest + 1), mean, linewidth=2, **style)


def per_rollout(records: Records, metric: str) -> list[float]:
    """The metric's mean over the updates of each rollout; empty if it was not recorded."""
    if any(record.get(metric) is None for record in records):
        return []
    groups = by_rollout([dict(record) for record in records])
    return [float(np.mean([record[metric] for record in group])) for group in groups]


def save_run_figure(folder: Path) -> Path:
    """Draw the run in ``folder``; returns the path of the figure."""
    objective = read_config(folder).objective
    return save_figure(folder / FIGURE, {objective: [folder]})


def save_comparison_figure(out: Path, configs: Sequence[TrainConfig]) -> Path:
    """Draw the runs of a comparison side by side; returns the path of the figure."""
    folders: dict[str, list[Path]] = {}
    for config in configs:
        folders.setdefault(config.objective, []).append(folder_of(out, config))
    return save_figure(out / COMPARISON, folders)


def save_figure(path: Path, folders: Mapping[str, Sequence[Path]]) -> Path:
    """Draw the runs in ``folders`` into ``path``."""
    runs = {name: [read_lines(f / METRICS) for f in some] for name, some in folders.items()}
    starts = [load_card(f / INIT).held_out_reward for some in folders.values() for f in some]
    write_atomically(path, png(run_figure(runs, float(np.mean(starts)))))
    return path
