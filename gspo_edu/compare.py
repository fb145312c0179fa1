"""Objectives side by side, on the same seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, cpu_count, delayed
from tqdm.auto import tqdm

from gspo_edu.config import TrainConfig
from gspo_edu.files import write_atomically
from gspo_edu.intervals import mean_interval
from gspo_edu.progress import cold_start_bar
from gspo_edu.run_files import (
    CONFIG,
    INIT,
    METRICS,
    METRICS_NEED,
    SUMMARY,
    check_same_settings,
    read_numbered,
)
from gspo_edu.run_lock import RunFolderError, only_one

# What trains is imported in the functions below: torch is then loaded by the worker processes
# while this one loads it as well, and not only after that.
FEWEST_SEEDS = 5
REWARDS = ("held_out_reward_before", "held_out_reward_after", "held_out_exact_after")


def folder_of(out: Path, config: TrainConfig) -> Path:
    """The run folder of one cell of the comparison."""
    return out / f"{config.objective}-seed{config.seed}"


def claim_folder(folder: Path, config: TrainConfig, *, overwrite: bool) -> None:
    """Make ``folder`` that of this run, unless it is already.

    Raises:
        RunFolderError: if the folder holds a run with other settings.
    """
    from gspo_edu.runs import prepare_folder

    if overwrite or not (folder / CONFIG).exists():
        prepare_folder(folder, config, overwrite=overwrite)
    else:
        check_same_settings(folder, config)


def share_start(cells: Sequence[tuple[Path, TrainConfig]]) -> None:
    """Give every run the same policy to start from; a cold start is made once, not once a run."""
    from gspo_edu.runs import write_start

    (first, config), *others = cells
    if not (first / INIT).exists():
        with only_one(first):
            write_start(first, config, cold_start_bar)
    for folder, _ in others:
        if not (folder / INIT).exists():
            write_atomically(folder / INIT, (first / INIT).read_bytes())


def finished_run(folder: Path, config: TrainConfig) -> dict[str, Any]:
    """The summary of the run in ``folder``, after going on with it as needed."""
    from gspo_edu.runs import run

    if not (folder / SUMMARY).exists():
        run(folder, config)
    return summary_of(folder)


def summary_of(folder: Path) -> dict[str, Any]:
    """summary.json with the run's mean clip fractions and drift added.

    Raises:
        RunFolderError: if it is damaged, or the metrics are not those of all its updates.
    """
    summary = read_summary(folder / SUMMARY)
    records = read_numbered(folder / METRICS, METRICS_NEED, summary["updates"])
    for name in ("clip_fraction_seq", "drift_per_update", "drift_per_rollout"):
        values = [value for record in records if (value := record.get(name)) is not None]
        summary[name] = float(np.mean(values)) if values else float("nan")
    return summary


def read_summary(path: Path) -> dict[str, Any]:
    """The content of a summary.json; RunFolderError if it is none."""
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        summary = None
    if (
        not isinstance(summary, dict)
        or not isinstance(summary.get("objective"), str)
        or not all(type(summary.get(name)) is int for name in ("seed", "updates"))
        or not all(isinstance(summary.get(name), int | float) for name in REWARDS)
    ):
        raise RunFolderError(
            f"{path} is damaged; delete it, and the same command makes it again."
        ) from None
    return summary


def run_all(
    out: Path, configs: Sequence[TrainConfig], *, jobs: int | None, overwrite: bool
) -> list[dict[str, Any]]:
    """Summaries of all runs; finished ones are not run again, unless ``overwrite``.

    Args:
        out: each run gets a folder in here.
        configs: the runs, which differ in objective and seed alone.
        jobs: most processes at once; None takes as many as the cores have room for, each with
            ``threads`` of its own.
        overwrite: start all runs anew.

    Raises:
        RunFolderError: if a run's folder holds a run with other settings, or another process
            trains in ``out``.
    """
    cells = [(folder_of(out, config), config) for config in configs]
    left = sum(overwrite or not (folder / SUMMARY).exists() for folder, _ in cells)
    room = cpu_count() // max(config.threads for config in configs)
    processes = min(jobs or max(room, 1), max(left, 1))
    with ExitStack() as locked:
        with workers_loading(processes):
            from gspo_edu.initial import check_start

            if not out.exists():
                check_start(configs[0])
            locked.enter_context(only_one(out))
            for folder, config in cells:
                claim_folder(folder, config, overwrite=overwrite)
            share_start(cells)
        # One by one: joblib would hand out several at once after some that were finished already.
        parallel = Parallel(n_jobs=processes, return_as="generator", batch_size=1)
        done = parallel(delayed(finished_run)(folder, config) for folder, config in cells)
        return list(tqdm(done, total=len(cells), desc="runs", unit="run"))


@contextmanager
def workers_loading(processes: int) -> Iterator[None]:
    """Start joblib's worker processes, which load torch meanwhile; wait for them at the end."""
    loaded: Iterator[None] = iter(())
    if processes > 1:
        parallel = Parallel(n_jobs=processes, return_as="generator", batch_size=1)
        loaded = parallel(delayed(load_trainer)() for _ in range(processes))
    try:
        yield
    finally:
        for _ in loaded:
            pass


def load_trainer() -> None:
    """Import what trains."""
    import gspo_edu.runs  # noqa: F401


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
            f"{in_words(s['clip_fraction_seq'], '.4f'):>8} {drift_in_words(s):>13}"
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


def in_words(value: float, digits: str) -> str:
    """``value`` with its digits, or a dash where nothing was measured."""
    return "-" if math.isnan(value) else f"{value:{digits}}"


def drift_in_words(summary: Mapping[str, Any]) -> str:
    """The drift per update; a dense model has no experts that could change."""
    drift = summary["drift_per_update"]
    measured = not math.isnan(summary["clip_fraction_seq"])
    return "no experts" if measured and math.isnan(drift) else in_words(drift, ".2%")


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
