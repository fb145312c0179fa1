"""Many runs beside each other. How each one ended is on the disk, so nothing is made twice.

OUT/starts/NAME/   one initial policy, shared by all runs that start from it
OUT/ranges/NAME/   one measured clip range
OUT/runs/NAME/     one run folder (see ``gspo_edu.runs``)

NAME ends in a digest of the settings that differ from the defaults, so that runs with different
settings never share a folder and a study that grows finds its old runs again. Each folder holds
outcome.json: how the attempt ended, why, and what it cost.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from tqdm.auto import tqdm

from gspo_edu.checkpoint import save_policy
from gspo_edu.compare import claim_folder
from gspo_edu.config import TrainConfig
from gspo_edu.files import write_atomically
from gspo_edu.initial import SHAPE, initial_policy
from gspo_edu.run_files import INIT, write_json
from gspo_edu.run_lock import only_one
from gspo_edu.runs import run
from gspo_edu.sampler import DivergedError

OUTCOME = "outcome.json"
RUNS, STARTS, RANGES = "runs", "starts", "ranges"
FINISHED, DIVERGED, FAILED, RUNNING, WAITING = (
    "finished",
    "diverged",
    "failed",
    "running",
    "waiting",
)
# A run that diverged would diverge again; what failed for another reason is tried again.
FINAL = (FINISHED, DIVERGED)
MOST_KILLS = 3
OF_START = ("init", "task", "task_size", *SHAPE, "cold_start_steps", "cold_start_noise", "threads")


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended.

    Attributes:
        status: finished, diverged (for good), failed (will be tried again), running or waiting.
        reason: why it is not finished.
        seconds, cpu_seconds: of all attempts that came to an end; a killed one is not counted.
    """

    status: str = WAITING
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def outcome_of(folder: Path) -> Outcome:
    """The outcome in ``folder``; one that is not there or damaged is waiting."""
    try:
        return Outcome(**json.loads((folder / OUTCOME).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return Outcome()


def set_outcome(folder: Path, outcome: Outcome) -> None:
    """Write ``outcome`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / OUTCOME, dataclasses.asdict(outcome))


def digest(values: Mapping[str, Any]) -> str:
    """Ten hexadecimal digits that stand for ``values``; 1 and 1.0 are the same."""
    plain = {name: float(value) if type(value) is int else value for name, value in values.items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:10]


def told(config: TrainConfig) -> dict[str, Any]:
    """The settings that differ from their defaults, so that a new field changes no name."""
    values = {f.name: (getattr(config, f.name), f.default) for f in dataclasses.fields(config)}
    return {name: value for name, (value, default) in values.items() if value != default}


def run_name(config: TrainConfig) -> str:
    """Name of the run's folder; equal for equal configs only."""
    return f"{config.objective}-seed{config.seed}-{digest(told(config))}"


def start_name(config: TrainConfig) -> str:
    """Name of the initial policy's folder; runs with an equal one start from the same policy."""
    values = {name: value for name, value in told(config).items() if name in OF_START}
    return f"{config.task}-{digest(values)}"


def run_folder(out: Path, config: TrainConfig) -> Path:
    """The run folder of ``config`` in the study's folder ``out``."""
    return out / RUNS / run_name(config)


def start_folder(out: Path, config: TrainConfig) -> Path:
    """Where the initial policy of ``config`` lies."""
    return out / STARTS / start_name(config)


def attempt(folder: Path, work: Callable[[], object]) -> None:
    """Do ``work`` and write into ``folder`` how it ended."""
    before = outcome_of(folder)
    set_outcome(folder, replace(before, status=RUNNING, reason=""))
    wall, cpu = time.perf_counter(), time.process_time()
    status, reason = FINISHED, ""
    try:
        work()
    except Exception as error:
        status = DIVERGED if isinstance(error, DivergedError) else FAILED
        reason = f"{type(error).__name__}: {error}"
    seconds = before.seconds + time.perf_counter() - wall
    cpu_seconds = before.cpu_seconds + time.process_time() - cpu
    set_outcome(folder, Outcome(status, reason, seconds, cpu_seconds))


def in_parallel(
    tasks: Mapping[Path, Callable[[], object]], *, jobs: int | None, desc: str
) -> dict[Path, Outcome]:
    """Attempt everything that is not over yet; returns how each task ended.

    A killed worker costs what was in flight, nothing else: the pool is made anew, and what was in
    flight is tried last, one by one. What is in flight at three such deaths has failed.

    Args:
        tasks: by folder. The back end is joblib's; see ``gspo_edu.study``.
        jobs: most processes at once; None takes as many as the back end has.
        desc: what the progress bar counts.
    """
    left = [folder for folder in tasks if outcome_of(folder).status not in FINAL]
    for folder in left:
        set_outcome(folder, replace(outcome_of(folder), status=WAITING, reason=""))
    kills: Counter[Path] = Counter()
    over = len(tasks) - len(left)
    with tqdm(total=len(tasks), initial=over, desc=desc, unit="run", disable=not left) as bar:
        while left:
            # What may have killed a worker runs alone, so that it takes nothing with it; two
            # processes then, because a single one would be this process itself.
            batch = [folder for folder in left if not kills[folder]] or left[:1]
            processes = min(jobs or effective_n_jobs(-1), len(batch) + bool(kills[batch[0]]))
            work = [delayed(attempt)(folder, tasks[folder]) for folder in batch]
            try:
                # One by one: joblib hands out several at once after some that ended soon.
                for _ in Parallel(n_jobs=processes, return_as=as_they_end(), batch_size=1)(work):
                    bar.update()
            except BrokenExecutor:
                in_flight = [f for f in batch if outcome_of(f).status == RUNNING]
                kills.update(in_flight)
                for folder in in_flight:
                    set_outcome(folder, after_kill(outcome_of(folder), kills[folder]))
            left = [folder for folder in left if outcome_of(folder).status == WAITING]
            left.sort(key=lambda folder: kills[folder])
            bar.n = len(tasks) - len(left)
            bar.refresh()
    return {folder: outcome_of(folder) for folder in tasks}


def as_they_end() -> str:
    """``return_as`` for results as they come; some back ends give all at the end."""
    backend, _ = get_active_backend()
    return "generator_unordered" if backend.supports_return_generator else "list"


def after_kill(outcome: Outcome, kills: int) -> Outcome:
    """The outcome of something whose process was killed for the ``kills``-th time."""
    if kills < MOST_KILLS:
        return replace(outcome, status=WAITING)
    reason = f"its process was killed {kills} times; perhaps memory was short: try fewer jobs"
    return replace(outcome, status=FAILED, reason=reason)


def make_start(folder: Path, config: TrainConfig) -> None:
    """Put the initial policy of ``config`` into ``folder``."""
    with only_one(folder):
        if not (folder / INIT).exists():
            model, _, card = initial_policy(config)
            save_policy(folder / INIT, model, card)


def make_starts(
    out: Path, configs: Sequence[TrainConfig], *, jobs: int | None
) -> dict[Path, Outcome]:
    """One initial policy for all runs that share it: a cold start is made once, not once a run."""
    tasks = {start_folder(out, config): config for config in configs}
    work = {f: functools.partial(make_start, f, config) for f, config in tasks.items()}
    for folder in tasks:
        if not (folder / INIT).exists():
            set_outcome(folder, Outcome())
    return in_parallel(work, jobs=jobs, desc="starting policies")


def run_all(
    out: Path,
    configs: Sequence[TrainConfig],
    *,
    jobs: int | None,
    desc: str = "runs",
) -> dict[TrainConfig, Outcome]:
    """Train every config that is not trained yet; returns how each run ended.

    Args:
        out: the study's folder, whose lock the caller holds.
        configs: the runs; equal ones are one run.
        jobs: see ``in_parallel``.
        desc: what the progress bar counts.

    Raises:
        RunFolderError: if a run's folder holds something else.
    """
    folders = {config: run_folder(out, config) for config in configs}
    starts = make_starts(out, list(folders), jobs=jobs)
    tasks: dict[Path, Callable[[], object]] = {}
    for config, folder in folders.items():
        claim_folder(folder, config, overwrite=False)
        start = start_folder(out, config)
        if starts[start].status != FINISHED:
            reason = f"its start: {starts[start].reason}"
            set_outcome(folder, Outcome(FAILED, reason))
            continue
        if not (folder / INIT).exists():
            write_atomically(folder / INIT, (start / INIT).read_bytes())
        tasks[folder] = functools.partial(run, folder, config)
    in_parallel(tasks, jobs=jobs, desc=desc)
    return {config: outcome_of(folder) for config, folder in folders.items()}
