"""What a study shows: every seed, means with intervals, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gspo_edu.compare import FEWEST_SEEDS
from gspo_edu.intervals import adjusted_interval, bootstrap_interval, mean_interval
from gspo_edu.study_runs import DIVERGED, FINISHED

Row = Mapping[str, Any]
REWARD, RIGHT = "held_out_reward_after", "held_out_exact_after"
NAN = (math.nan, math.nan)


@dataclass(frozen=True)
class GroupSummary:
    """The runs of one arm at one setting.

    Attributes:
        arm, setting: what they have in common.
        values: final value of each seed; 0 where training diverged.
        diverged, missing: seeds whose training diverged, and seeds whose run failed for another
            reason, which have no value.
        mean, median: over ``values``.
        t_interval: 95 % interval of the mean by Student's t, as ``gspo-edu compare`` gives it.
        bootstrap: 95 % percentile bootstrap, too narrow for few seeds (``bootstrap_interval``).
        skipped: seeds on which updates were skipped, with the share of all updates; where it nears
            1, training stood still.
        finished_mean: mean over the finished runs alone, to be read with ``diverged``.
        means: of the columns start, right, clip, drift, step_size, lr over the finished runs.
    """

    arm: str
    setting: str
    values: dict[int, float]
    diverged: tuple[int, ...]
    missing: tuple[int, ...]
    skipped: dict[int, float]
    mean: float
    median: float
    t_interval: tuple[float, float]
    bootstrap: tuple[float, float]
    finished_mean: float
    means: dict[str, float]


@dataclass(frozen=True)
class PairSummary:
    """Differences of two arms over the seeds that both have.

    Attributes:
        first, second: names of the arms; differences are first minus second.
        settings: settings of the two, in that order.
        differences: by seed.
        above: number of seeds on which the difference is above 0.
        interval: 95 % t interval of the mean difference by itself.
        adjusted: t interval whose level is raised so that all of the study's ``comparisons``
            hold at once in 95 % of studies (Bonferroni).
        verdict: what ``adjusted`` allows to say.
    """

    first: str
    second: str
    settings: tuple[str, str]
    differences: dict[int, float]
    above: int
    mean: float
    interval: tuple[float, float]
    adjusted: tuple[float, float]
    verdict: str


def final_value(row: Row, metric: str = REWARD) -> float:
    """The run's value; 0 if training diverged, NaN if the run failed for another reason.

    A policy whose log-probs are not finite gives no answer, and no answer earns nothing. Leaving
    such runs out of the mean would favour the arm that breaks most often.
    """
    if row["status"] == DIVERGED:
        return 0.0
    return float(row[metric]) if row["status"] == FINISHED else math.nan


def summarise(rows: Sequence[Row], metric: str = REWARD) -> list[GroupSummary]:
    """One summary per arm and setting, in the order of the rows of runs.csv.

    Args:
        rows: of runs.csv.
        metric: a held-out column of it.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["arm"], row["setting"]), []).append(row)
    return [group_summary(arm, setting, of, metric) for (arm, setting), of in groups.items()]


def group_summary(arm: str, setting: str, rows: Sequence[Row], metric: str) -> GroupSummary:
    """The summary of the runs of one arm at one setting."""
    by_seed = {row["seed"]: final_value(row, metric) for row in rows}
    values = {seed: value for seed, value in by_seed.items() if not math.isnan(value)}
    sample = list(values.values())
    finished = [row for row in rows if row["status"] == FINISHED]
    columns = {
        "start": metric.replace("_after", "_before"),
        "right": RIGHT,
        "clip": "clip_fraction_seq",
        "drift": "drift_per_update",
        "step_size": "step_size",
        "lr": "lr",
    }
    return GroupSummary(
        arm=arm,
        setting=setting,
        values=values,
        diverged=tuple(row["seed"] for row in rows if row["status"] == DIVERGED),
        missing=tuple(seed for seed, value in by_seed.items() if math.isnan(value)),
        skipped={row["seed"]: share for row in finished if (share := row.get("update_skipped"))},
        mean=mean_or_nan(sample),
        median=float(np.median(sample)) if sample else math.nan,
        t_interval=mean_interval(sample) if len(sample) > 1 else NAN,
        bootstrap=bootstrap_interval(sample) if len(sample) > 1 else NAN,
        finished_mean=mean_or_nan([float(row[metric]) for row in finished]),
        means={
            name: mean_or_nan([row[c] for row in finished if row.get(c) is not None])
            for name, c in columns.items()
        },
    )


def mean_or_nan(values: Sequence[float]) -> float:
    """The mean, NaN of nothing."""
    return float(np.mean(values)) if len(values) else math.nan


def paired(groups: Sequence[GroupSummary], pairs: Sequence[tuple[str, str]]) -> list[PairSummary]:
    """Differences over the same seeds, for each pair of arms at each setting that both have.

    Settings pair if they are equal, or if one of the arms has a single setting.
    """
    matches = [
        (first, second)
        for names in pairs
        for first in groups
        for second in groups
        if (first.arm, second.arm) == tuple(names) and comparable(first, second, groups)
    ]
    return [pair_summary(first, second, len(matches)) for first, second in matches]


def comparable(first: GroupSummary, second: GroupSummary, groups: Sequence[GroupSummary]) -> bool:
    """Whether two groups of different arms belong beside each other."""
    if first.setting == second.setting:
        return True
    settings = [{g.setting for g in groups if g.arm == one.arm} for one in (first, second)]
    return not settings[0] & settings[1] and 1 in map(len, settings)


def pair_summary(first: GroupSummary, second: GroupSummary, comparisons: int) -> PairSummary:
    """First minus second, seed by seed."""
    both = sorted(first.values.keys() & second.values.keys())
    differences = {seed: first.values[seed] - second.values[seed] for seed in both}
    sample = list(differences.values())
    interval = mean_interval(sample) if len(sample) > 1 else NAN
    adjusted = adjusted_interval(sample, comparisons) if len(sample) > 1 else NAN
    verdict = "no clear difference"
    if len(sample) < FEWEST_SEEDS:
        verdict = f"too few seeds to tell (at least {FEWEST_SEEDS})"
    elif not adjusted[0] <= 0 <= adjusted[1]:
        verdict = "a difference"
    elif not interval[0] <= 0 <= interval[1]:
        verdict = "no clear difference among so many comparisons"
    return PairSummary(
        first=first.arm,
        second=second.arm,
        settings=(first.setting, second.setting),
        differences=differences,
        above=sum(d > 0 for d in sample),
        mean=mean_or_nan(sample),
        interval=interval,
        adjusted=adjusted,
        verdict=verdict,
    )


def summary_text(
    name: str,
    rows: Sequence[Row],
    pairs: Sequence[tuple[str, str]],
    notes: Sequence[str] = (),
) -> str:
    """The summary as ``gspo-edu study`` prints it."""
    groups = summarise(rows)
    width = max(len(group.arm) for group in groups)
    lines = [
        f"Study {name}: held-out reward at the end of {len(rows)} runs. The second line of an arm "
        "has means: rate,",
        "reward at the start, right answers at the end, clipped share of each answer, drift, and "
        "KL(pi_old || pi) per",
        "token at the last update of each rollout. Intervals are of 95 %; the bootstrap is too "
        "narrow for few seeds.",
    ]
    for setting in dict.fromkeys(group.setting for group in groups):
        lines += ["", setting.capitalize() if setting.startswith("the ") else setting]
        for group in groups:
            if group.setting == setting:
                lines += group_lines(group, width)
    differences = paired(groups, pairs)
    if differences:
        lines += ["", *pair_lines(differences)]
    for note in notes:
        lines += ["", note]
    return "\n".join(lines)


def group_lines(group: GroupSummary, width: int) -> list[str]:
    """A group's mean, median and intervals, then its seeds, then what went wrong."""
    means = group.means
    lines = [
        f"  {group.arm:<{width}}  mean {number(group.mean)}  median {number(group.median)}  "
        f"t interval {span(group.t_interval)}  bootstrap {span(group.bootstrap)}",
        f"  {'':<{width}}  lr {number(means['lr'], 'g')}  start {number(means['start'])}  right "
        f"answers {number(means['right'], '.1%')}  clipped {number(means['clip'], '.4f')}  drift "
        f"per update {number(means['drift'], '.2%')}  KL {number(means['step_size'], '.2g')}",
        f"  {'':<{width}}  "
        + "  ".join(f"seed {seed}: {value:.3f}" for seed, value in group.values.items()),
    ]
    if group.diverged:
        lines.append(
            f"  {'':<{width}}  DIVERGED on {len(group.diverged)} seeds ({listed(group.diverged)}), "
            f"counted as 0; mean of the others {number(group.finished_mean)}"
        )
    if group.skipped:
        lines.append(
            f"  {'':<{width}}  UPDATES SKIPPED, since the gradient was not finite: "
            + ", ".join(f"{share:.0%} on seed {seed}" for seed, share in group.skipped.items())
        )
    if group.missing:
        lines.append(
            f"  {'':<{width}}  FAILED, so in no mean: seeds {listed(group.missing)}; the same "
            "command tries them again"
        )
    return lines


def pair_lines(differences: Sequence[PairSummary]) -> list[str]:
    """One line per difference, and what to mind with many of them."""
    lines = ["Paired differences, same seeds; 95 % t intervals alone and adjusted:"]
    for pair in differences:
        first, second = pair.settings
        where = first if first == second else f"{first} against {second}"
        lines.append(
            f"  {pair.first} minus {pair.second} ({where}): {number(pair.mean, '+.3f')}, alone "
            f"{span(pair.interval, '+.3f')}, adjusted {span(pair.adjusted, '+.3f')}, above 0 on "
            f"{pair.above} of {len(pair.differences)} seeds: {pair.verdict}"
        )
    if len(differences) > 1:
        lines.append(
            f"  There are {len(differences)} comparisons. Of 20 true nothings one looks like a "
            "difference by its own interval; the adjusted ones hold all at once (Bonferroni)."
        )
    return lines


def number(value: float, digits: str = ".3f") -> str:
    """``value``, or a dash where nothing was measured."""
    return "-" if math.isnan(value) else format(value, digits)


def span(interval: tuple[float, float], digits: str = ".3f") -> str:
    """``0.512 to 0.534``."""
    if math.isnan(interval[0]):
        return "-"
    return f"{interval[0]:{digits}} to {interval[1]:{digits}}"


def listed(seeds: Sequence[int]) -> str:
    """``0, 3``."""
    return ", ".join(map(str, seeds))
