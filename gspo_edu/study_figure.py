"""The picture of a study: every seed's line and the mean, then the final rewards side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import to_rgb

from gspo_edu.figures import per_rollout
from gspo_edu.files import write_atomically
from gspo_edu.intervals import mean_interval
from gspo_edu.plots import Line, new_figure, objective_style, png
from gspo_edu.study_summary import NAN, GroupSummary, number, span, summarise
from gspo_edu.study_table import RUN_TABLE, UPDATES, read_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]
# Arms of one objective share its colour; the second and further ones get these.
OTHER_LINES: tuple[Line, ...] = ((0, (1, 1)), (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (7, 3)))
COLOURS = 256  # for plots.png and plots.show: fewer would lose those of some arms
MOST_BANDS = 3  # more would hide each other
MARKERS = "osD^vPX*<>"
TITLES = {
    "reward": "reward of the rollout",
    "clip_fraction_seq": "clip fraction (share of each answer)",
    "drift_per_update": "drift per update (share of expert slots)",
    "kl_from_old": "KL(pi_old || pi) per token",
}


def study_figure(
    updates: Rows,
    runs: Rows,
    *,
    setting: str | None = None,
    arms: Sequence[str] | None = None,
    metric: str = "reward",
) -> Figure:
    """One metric over the rollouts, and the held-out reward at the end.

    A thin line or a dot is one seed; the thick line is the mean over the seeds still running, the
    bar is the 95 % t interval of the mean, and so is the band, with three arms or fewer. A run that
    diverged ends where it broke, and counts as 0 at the end (a cross).

    Args:
        updates, runs: rows of updates.csv.gz and runs.csv, from ``study_table.read_table``.
        setting: one of the setting column; None takes the first.
        arms: which arms, in this order; None takes all of that setting.
        metric: a column of ``updates`` for the left panel.

    Raises:
        ValueError: if there is no such setting, arm or metric.
    """
    groups = chosen_groups(runs, setting, arms)
    if not any(row.get(metric) is not None for row in updates):
        raise ValueError(f"metric is {metric!r}; expected a column of the table of updates.")
    styles = arm_styles(groups, runs)
    figure, (curves, ends) = new_figure(columns=2, width=5.0, height=3.6)
    for group in groups:
        draw_curves(
            curves, group, updates, metric, styles[group.arm], band=len(groups) <= MOST_BANDS
        )
    curves.set(xlabel="rollout", ylabel="mean over its updates")
    curves.locator_params(axis="x", integer=True)
    curves.set_title(TITLES.get(metric, metric), fontsize=10)
    for place, group in enumerate(groups):
        draw_end(ends, place, group, styles[group.arm])
    ends.set_yticks(range(len(groups)), [group.arm for group in groups])
    ends.set(xlabel="held-out reward at the end", ylim=(len(groups) - 0.5, -0.5))
    ends.set_title(f"every seed, mean and 95 % interval ({groups[0].setting})", fontsize=10)
    return figure


def save_study_figures(out: Path) -> list[Path]:
    """Draw the study in ``out``, one picture per setting; returns their paths."""
    updates, runs = read_table(out / UPDATES), read_table(out / RUN_TABLE)
    if not updates:
        return []
    paths = []
    for place, setting in enumerate(dict.fromkeys(row["setting"] for row in runs), 1):
        paths.append(out / f"figure-{place}.png")
        figure = study_figure(updates, runs, setting=setting)
        write_atomically(paths[-1], png(figure, colours=COLOURS))
    return paths


def study_alt(runs: Rows, *, setting: str | None = None, arms: Sequence[str] | None = None) -> str:
    """What ``study_figure`` shows, in words, from the same rows."""
    parts = []
    for group in chosen_groups(runs, setting, arms):
        broken = f", {len(group.diverged)} diverged and counted as 0" if group.diverged else ""
        missing = f", {len(group.missing)} failed and left out" if group.missing else ""
        parts.append(
            f"{group.arm} {number(group.mean)} (interval {span(group.t_interval)}, "
            f"{len(group.values)} seeds{broken}{missing})"
        )
    where = chosen_groups(runs, setting, arms)[0].setting
    return f"Mean held-out reward at the end, {where}: {'; '.join(parts)}."


def chosen_groups(
    runs: Rows, setting: str | None, arms: Sequence[str] | None
) -> list[GroupSummary]:
    """The groups of one setting, in the order of ``arms``."""
    groups = summarise(runs)
    settings = list(dict.fromkeys(group.setting for group in groups))
    if setting is not None and setting not in settings:
        raise ValueError(f"setting is {setting!r}; expected one of {'; '.join(settings)}.")
    here = {g.arm: g for g in groups if g.setting == (settings[0] if setting is None else setting)}
    for arm in arms or ():
        if arm not in here:
            raise ValueError(f"arms names {arm!r}; expected some of {'; '.join(here)}.")
    return [here[arm] for arm in arms or here]


def arm_styles(groups: Sequence[GroupSummary], runs: Rows) -> dict[str, dict[str, Any]]:
    """Colour of the arm's objective; its line for the first arm of it, another one for the rest."""
    objectives = {row["arm"]: row["objective"] for row in runs}
    styles: dict[str, dict[str, Any]] = {}
    used: dict[str, int] = {}
    for place, group in enumerate(groups):
        objective = objectives[group.arm]
        style: dict[str, Any] = {**objective_style(objective), "label": group.arm}
        earlier = used.get(objective, 0)
        if earlier:
            style["linestyle"] = OTHER_LINES[(earlier - 1) % len(OTHER_LINES)]
        used[objective] = earlier + 1
        styles[group.arm] = {**style, "marker": MARKERS[place % len(MARKERS)]}
    return styles


def draw_curves(
    ax: Axes,
    group: GroupSummary,
    updates: Rows,
    metric: str,
    style: Mapping[str, Any],
    *,
    band: bool,
) -> None:
    """One thin line per seed, their mean and, with ``band``, its interval."""
    by_seed: dict[int, list[Mapping[str, Any]]] = {}
    for row in updates:
        if (row["arm"], row["setting"]) == (group.arm, group.setting):
            by_seed.setdefault(row["seed"], []).append(row)
    curves = [curve for rows in by_seed.values() if (curve := per_rollout(rows, metric))]
    if not curves:
        return
    line = {"color": paler(style["color"]), "linestyle": style["linestyle"]}
    for curve in curves:
        ax.plot(range(1, len(curve) + 1), curve, linewidth=0.7, zorder=1, **line)
    longest = max(map(len, curves))
    columns = [[c[place] for c in curves if len(c) > place] for place in range(longest)]
    rollouts, means = range(1, longest + 1), [float(np.mean(column)) for column in columns]
    ax.plot(
        *(rollouts, means),
        **{**style, "linewidth": 2, "markersize": 4, "markevery": max(1, longest // 6)},
    )
    if not band:
        return
    bounds = [mean_interval(c) if len(c) > 1 else NAN for c in columns]
    low, high = zip(*bounds, strict=True)
    ax.fill_between(rollouts, low, high, color=style["color"], alpha=0.12, linewidth=0)


def paler(colour: str) -> tuple[float, ...]:
    """The colour mixed with white. A transparent one would make many colours where lines cross,
    and a picture of few colours (``plots.png``) could not keep those of the arms.
    """
    return tuple(0.45 * part + 0.55 for part in to_rgb(colour))


def draw_end(ax: Axes, place: int, group: GroupSummary, style: Mapping[str, Any]) -> None:
    """A dot per seed, a cross where training diverged, the mean and its interval."""
    colour, marker = style["color"], style["marker"]
    for seed, value in group.values.items():
        broke = seed in group.diverged
        ax.plot(value, place + 0.18, marker="x" if broke else ".", color=colour)
    ax.plot(group.mean, place - 0.1, marker=marker, color=colour, markersize=6)
    if group.t_interval is not NAN:
        ax.plot(group.t_interval, (place - 0.1,) * 2, color=colour, linestyle=style["linestyle"])
