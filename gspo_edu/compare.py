"""Objectives side by side, on the same seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, cpu_count, delayed
from tqdm.auto import tqdm

from gspo_edu.checkpoint import write_atomically
from gspo_edu.config import TrainConfig
from gspo_edu.intervals import mean_interval
from gspo_edu.progress import cold_start_bar
from gspo_edu.runs import (
    CONFIG,
    INIT,
    METRICS,
    SUMMARY,
    RunFolderError,
    prepare_folder,
    read_config,
    read_lines,
    run,
    trainer_of,
)

FEWEST_SEEDS = 5


def folder_of(out: Path, config: TrainConfig) -> Path:
    """The run folder of one cell of the comparison."""
    return out / f"{config.objective}-seed{config.seed}"


def claim_folder(folder: Path, config: TrainConfig, *, overwrite: bool) -> None:
    """Make ``folder`` that of this run, unless it is already.

    Raises:
        RunFolderError: if the folder holds a run with other settings.
    """
    if overwrite or not (folder / CONFIG).exists():
        prepare_folder(folder, config, overwrite=overwrite)
    elif read_config(folder) != config:
        raise RunFolderError(
            f"{folder} holds a run with other settings; use --overwrite or another --out."
        )


def share_start(cells: Sequence[tuple[Path, TrainConfig]]) -> None:
    """Give every run the same policy to start from; a cold start is made once, not once a run."""
    (first, config), *others = cells
    if not (first / INIT).exists():
        trainer_of(first, config, cold_start_bar)
    for folder, _ in others:
        if not (folder / INIT).exists():
            write_atomically(folder / INIT, (first / INIT).read_bytes())


def finished_run(folder: Path, config: TrainConfig) -> dict[str, Any]:
    """The summary of the run in ``folder``, after going on with it as needed."""
    if not (folder / SUMMARY).exists():
        run(folder, config)
    return summary_of(folder)


def summary_of(folder: Path) -> dict[str, Any]:
    """summary.json with the run's mean clip fractions and drift added."""
    summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    records = read_lines(folder / METRICS)
    for name in ("clip_fraction_seq", "drift_per_update", "drift_per_rollout"):
        values = [record[name] for record in records if name in record]
        summary[name] = float(np.mean(values)) if values else float("nan")
    return summary


def run_all(
    out: Path, configs: Sequence[TrainConfig], *, jobs: int | None, overwrite: bool
) -> list[dict[str, Any]]:
    """Summaries of all runs; finished ones are not run again, unless ``overwrite``.

    Args:
        out: each run gets a folder in here.
        configs: the runs, which differ in objective and seed alone.
        jobs: processes at once; None takes one per core.
        overwrite: start all runs anew.

    Raises:
        RunFolderError: if a run's folder holds a run with other settings.
    """
    cells = [(folder_of(out, config), config) for config in configs]
    for folder, config in cells:
        claim_folder(folder, config, overwrite=overwrite)
    share_start(cells)
    parallel = Parallel(n_jobs=jobs or cpu_count(), return_as="generator")
    done = parallel(delayed(finished_run)(folder, config) for folder, config in cells)
    return list(tqdm(done, total=len(cells), desc="runs", unit="run"))


def comparison_table(summaries: Sequence[dict[str, Any]]) -> str:
    """Every run, the mean gain of each objective with its interval, and paired differences."""
    lines = [
        f"{'objective':<16} {'seed':>4} {'before':>7} {'after':>7} {'gain':>7} "
        f"{'right':>7} {'clipped':>8} {'drift/update':>13}"
    ]
    gains: dict[str, dict[int, float]] = {}
    for s in summaries:
        gain = s["held_out_reward_after"] - s["held_out_reward_before"]
        gains.setdefault(s["objective"], {})[s["seed"]] = gain
        lines.append(
            f"{s['objective']:<16} {s['seed']:>4} {s['held_out_reward_before']:>7.3f} "
            f"{s['held_out_reward_after']:>7.3f} {gain:>+7.3f} {s['held_out_exact_after']:>7.1%} "
            f"{s['clip_fraction_seq']:>8.4f} {drift_in_words(s['drift_per_update']):>13}"
        )
    before = summaries[0]["held_out_reward_before"]
    lines += ["", f"All runs start from one policy, of held-out reward {before:.3f}."]
    for objective, by_seed in gains.items():
        lines.append(f"{objective}: mean gain {mean_with_interval(list(by_seed.values()))}")
    names = list(gains)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            both = sorted(gains[first].keys() & gains[second].keys())
            difference = [gains[second][seed] - gains[first][seed] for seed in both]
            lines.append(
                f"{second} minus {first}, same seeds: {mean_with_interval(difference)}, above 0 "
                f"on {sum(d > 0 for d in difference)}: {verdict(difference)}"
            )
    return "\n".join(lines)


def drift_in_words(drift: float) -> str:
    """A dense model has no experts that could change."""
    return "no experts" if math.isnan(drift) else f"{drift:.2%}"


def verdict(differences: Sequence[float]) -> str:
    """What paired differences allow to say."""
    if len(differences) < FEWEST_SEEDS:
        return f"too few seeds to tell (at least {FEWEST_SEEDS})"
    low, high = mean_interval(differences)
    return "no clear difference" if low <= 0 <= high else "a difference"


def mean_with_interval(values: Sequence[float]) -> str:
    """``+0.281 (95% interval +0.262 to +0.299, 5 seeds)``."""
    if len(values) == 1:
        return f"{values[0]:+.3f} (one seed)"
    low, high = mean_interval(values)
    return f"{np.mean(values):+.3f} (95% interval {low:+.3f} to {high:+.3f}, {len(values)} seeds)"
