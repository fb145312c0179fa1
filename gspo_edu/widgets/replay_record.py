"""What the widget ``TrainingReplay`` shows: two arms of a stored study, rollout by rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# What is replayed, {metric of the records: its name on the page}.
METRICS = {
    "reward": "reward",
    "clip_fraction_seq": "clip fraction",
    "drift_per_update": "drift per update",
}
DIGITS = 4


def replay_record(
    study: str, arms: Sequence[str] = ("GRPO", "GSPO"), setting: str | None = None
) -> dict[str, Any]:
    """Two arms of a stored study as a record for ``TrainingReplay``, ready for JSON.

    Args:
        study: a name from ``stored_studies.stored_names()``.
        arms: two of its arms.
        setting: one of its settings; None takes the first.

    Returns:
        ``study`` and ``setting``; ``arms``, their two names; ``seeds``; and ``values``,
        {metric: [arm][seed][rollout]}, the mean over the updates of the rollout, rounded to
        ``DIGITS`` digits after the point; None where a run had ended.

    Raises:
        ValueError: if there is no such study, arm or setting, or not two arms.
    """
    from gspo_edu.stored_studies import stored_study

    if len(arms) != 2:
        raise ValueError(f"arms is {tuple(arms)}; expected two arms to compare.")
    stored = stored_study(study)
    groups = [stored.group(arm, setting) for arm in arms]
    seeds = sorted(set(groups[0].values) & set(groups[1].values))
    rows = [
        [row for row in stored.updates if (row["arm"], row["setting"]) == (g.arm, g.setting)]
        for g in groups
    ]
    last = max(int(row["rollout"]) for of_arm in rows for row in of_arm)
    values = {
        metric: [[per_rollout(of_arm, seed, metric, last) for seed in seeds] for of_arm in rows]
        for metric in METRICS
    }
    names = {"study": study, "setting": groups[0].setting, "arms": [group.arm for group in groups]}
    return {**names, "seeds": seeds, "values": values}


def per_rollout(
    rows: Sequence[Mapping[str, Any]], seed: int, metric: str, last: int
) -> list[float | None]:
    """Mean over the updates of each rollout from 1 to ``last``; None after the end of the run."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row["seed"] == seed and row[metric] is not None:
            found.setdefault(int(row["rollout"]), []).append(float(row[metric]))
    means = {rollout: sum(values) / len(values) for rollout, values in found.items()}
    return [
        round(means[rollout], DIGITS) if rollout in means else None
        for rollout in range(1, last + 1)
    ]
