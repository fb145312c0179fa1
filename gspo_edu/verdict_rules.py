"""How a statement gets its verdict from the tables of a stored study.

A statement holds in miniature if the 95 % interval of the paired difference, adjusted for all
comparisons of its study, lies on its side of zero; it does not hold if the interval lies on the
other side; otherwise it cannot be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gspo_edu.intervals import adjusted_interval
from gspo_edu.stored_studies import StoredStudy
from gspo_edu.study_summary import GroupSummary, PairSummary, pair_summary, span

HOLDS = "holds in miniature"
FAILS = "does not hold in miniature"
OPEN = "cannot be told at this scale"
LARGE_RATE = "lr 0.004"


@dataclass(frozen=True)
class Finding:
    """One statement and what the tiny model says about it.

    Attributes:
        key: a short name.
        statement: what was said, in this course's words.
        said_by: who said it, and where.
        verdict: HOLDS, FAILS or OPEN.
        numbers: what was measured, in sentences.
        limits: what the numbers do not say.
        studies: names of the studies that they come from.
    """

    key: str
    statement: str
    said_by: str
    verdict: str
    numbers: str
    limits: str
    studies: tuple[str, ...] = ()


def verdict_of(pairs: Sequence[PairSummary]) -> str:
    """The verdict on "the first is better", which all of ``pairs`` have to bear out."""
    if all(pair.adjusted[0] > 0 for pair in pairs):
        return HOLDS
    return FAILS if any(pair.adjusted[1] < 0 for pair in pairs) else OPEN


def in_words(pair: PairSummary, *, of: str = "") -> str:
    """``GSPO minus GRPO -0.056 (-0.091 to -0.021), above 0 on 0 of 8 seeds``."""
    settings = pair.settings
    where = of or (settings[0] if settings[0] == settings[1] else " against ".join(settings))
    return (
        f"{pair.first} minus {pair.second}, {where}: {pair.mean:+.3f} "
        f"({span(pair.adjusted, '+.3f')}), above 0 on {pair.above} of "
        f"{len(pair.differences)} seeds"
    )


def held_out_rewards(study: StoredStudy, group: GroupSummary) -> dict[int, dict[int, float]]:
    """{seed: {rollout: held-out reward}}, wherever it was measured during the group's runs."""
    seen: dict[int, dict[int, float]] = {seed: {} for seed in group.values}
    for row in study.updates:
        own = (row["arm"], row["setting"]) == (group.arm, group.setting)
        if own and row["held_out_reward"] is not None:
            seen[row["seed"]][row["rollout"]] = row["held_out_reward"]
    return seen


def drops(study: StoredStudy, arm: str, setting: str) -> dict[int, float]:
    """By seed, how far the last held-out reward lies below the highest of the run (at least 0)."""
    group = study.group(arm, setting)
    seen = held_out_rewards(study, group)
    return {s: max([*at.values(), group.values[s]]) - group.values[s] for s, at in seen.items()}


def ratio_of_means(study: StoredStudy, setting: str, arms: tuple[str, str], metric: str) -> float:
    """The mean of a metric under the first arm, divided by that under the second."""
    first, second = (np.mean(study.means(arm, setting, metric)) for arm in arms)
    return float(first / second)


def another_pair(study: StoredStudy, first: str, second: str, setting: str) -> PairSummary:
    """A difference that the study file does not ask for, adjusted for one comparison more."""
    groups = study.group(first, setting), study.group(second, setting)
    return pair_summary(*groups, len(study.pairs) + 1)


def difference_of(
    first: PairSummary, second: PairSummary, comparisons: int = 1
) -> tuple[float, tuple[float, float]]:
    """How much larger the first difference is than the second, seed by seed, with its interval.

    The interval is adjusted for that many ``comparisons``, as those of ``pair_summary`` are.
    """
    seeds = sorted(first.differences.keys() & second.differences.keys())
    gaps = [first.differences[seed] - second.differences[seed] for seed in seeds]
    return float(np.mean(gaps)), adjusted_interval(gaps, comparisons)


def side(interval: tuple[float, float]) -> str:
    """The verdict on "it is above zero"."""
    return HOLDS if interval[0] > 0 else FAILS if interval[1] < 0 else OPEN
