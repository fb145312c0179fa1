"""Run folders: what a run leaves on disk, and how it goes on after any interruption.

config.json             every field of the config
init.safetensors        the policy that it started from, with its card
metrics.jsonl           one record per update; no times, so that equal runs are equal files
timings.jsonl           seconds per rollout
checkpoint.safetensors  policy, optimiser and random states after the last whole rollout
policy.safetensors      the trained policy, once the run is complete
summary.json            held-out reward before and after, once the run is complete
figure.png              reward, clip fraction and drift
run.lock                empty; locked while a process trains in the folder
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gspo_edu.checkpoint import (
    CheckpointError,
    load_card,
    load_tensors,
    save_policy,
    save_tensors,
)
from gspo_edu.config import TrainConfig, config_from_mapping
from gspo_edu.files import write_atomically
from gspo_edu.initial import Watch, check_start, initial_policy, policy_of_run
from gspo_edu.moe.model import TinyMoE
from gspo_edu.run_files import (
    CHECKPOINT,
    CONFIG,
    INIT,
    MADE_BY_RUN,
    METRICS,
    METRICS_NEED,
    POLICY,
    SUMMARY,
    TIMINGS,
    TIMINGS_NEED,
    Record,
    append_lines,
    as_line,
    by_rollout,
    check_free,
    leftovers,
    read_config,
    read_lines,
    read_numbered,
    write_json,
)
from gspo_edu.run_lock import RunFolderError, only_one
from gspo_edu.tasks import Task
from gspo_edu.trainer import Trainer

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "INIT",
    "METRICS",
    "METRICS_NEED",
    "POLICY",
    "SUMMARY",
    "TIMINGS",
    "RunFolderError",
    "by_rollout",
    "prepare_folder",
    "read_config",
    "read_lines",
    "read_numbered",
    "run",
    "write_json",
    "write_start",
]


def prepare_folder(folder: Path, config: TrainConfig, *, overwrite: bool) -> None:
    """Make ``folder`` ready for a new run and write its config.

    Raises:
        RunFolderError: if it holds a run and ``overwrite`` is false, or other files but no run, or
            if another process trains in it.
        ValueError: if no run can start from ``config``.
    """
    check_free(folder, config, overwrite)  # before the lock's file is made in there
    check_start(config)
    with only_one(folder):
        check_free(folder, config, overwrite)
        for path in [*(folder / name for name in MADE_BY_RUN), *leftovers(folder)]:
            path.unlink(missing_ok=True)
        write_json(folder / CONFIG, dataclasses.asdict(config))


def run(
    folder: Path,
    config: TrainConfig,
    *,
    watch_cold_start: Watch = lambda losses, steps: losses,
    on_rollout: Callable[[list[Record]], None] = lambda records: None,
) -> dict[str, Any]:
    """Train in a prepared folder, from the last checkpoint if there is one, to the end.

    Args:
        folder: holds config.json; see the module's docstring for what is added.
        config: as in config.json.
        watch_cold_start: wraps the losses of a cold start, for a progress bar.
        on_rollout: called with each rollout's records, those of earlier sessions included.

    Returns:
        The content of summary.json.

    Raises:
        CheckpointError: if a checkpoint is damaged, or of a run with other settings.
        RunFolderError: if another process trains in the folder, or what it holds does not fit.
    """
    with only_one(folder):
        if read_config(folder) != config:
            raise RunFolderError(f"{folder} was given to a run with other settings meanwhile.")
        for path in leftovers(folder):
            path.unlink(missing_ok=True)
        trainer = trainer_of(folder, config, watch_cold_start)
        records: list[Record] = []
        for records in by_rollout(cut_back(folder, trainer)):
            on_rollout(records)
        while trainer.rollout < config.rollouts:
            records = one_rollout(folder, trainer)
            on_rollout(records)
        return finish(folder, trainer, records)


def one_rollout(folder: Path, trainer: Trainer) -> list[Record]:
    """Train on one rollout and write down what it did; returns its records."""
    started = time.perf_counter()
    records = trainer.next_rollout()
    seconds = time.perf_counter() - started
    append_lines(folder / METRICS, records)
    append_lines(folder / TIMINGS, [{"rollout": trainer.rollout, "seconds": seconds}])
    tensors, meta = trainer.state()
    meta["config"] = dataclasses.asdict(trainer.config)
    save_tensors(folder / CHECKPOINT, tensors, meta)
    return records


def finish(folder: Path, trainer: Trainer, last: list[Record]) -> dict[str, Any]:
    """Write the trained policy and summary.json; returns the latter's content.

    Args:
        folder: the run's.
        trainer: after its last rollout.
        last: the records of that rollout, whose evaluation need not be made again; empty if the
            run has no rollouts.
    """
    config, before = trainer.config, trainer.initial_held_out
    found = last[-1] if last else before
    evaluated = all(type(found.get(name)) is float for name in before)
    after = {name: found[name] for name in before} if evaluated else trainer.held_out_metrics()
    summary = {
        "objective": config.objective,
        "seed": config.seed,
        "updates": trainer.update,
        **{f"{name}_before": value for name, value in before.items()},
        **{f"{name}_after": value for name, value in after.items()},
    }
    made_by, reward = f"gspo-edu train, see {CONFIG}", after["held_out_reward"]
    card = load_card(folder / INIT)
    card = dataclasses.replace(card, command=made_by, held_out_reward=reward)
    save_policy(folder / POLICY, trainer.model, card)
    write_json(folder / SUMMARY, summary)
    return summary


def trainer_of(folder: Path, config: TrainConfig, watch: Watch) -> Trainer:
    """The trainer in the state of the folder's last checkpoint, or at its start."""
    if (folder / INIT).exists():
        model, task, _ = policy_of_run(folder / INIT, config)
    else:
        model, task = write_start(folder, config, watch)
    trainer = Trainer(config, model, task)
    if (folder / CHECKPOINT).exists():
        load_checkpoint(folder / CHECKPOINT, trainer)
    return trainer


def write_start(folder: Path, config: TrainConfig, watch: Watch) -> tuple[TinyMoE, Task]:
    """Write the policy that the run in ``folder`` starts from; returns it with its task."""
    model, task, card = initial_policy(config, watch)
    if math.isnan(card.held_out_reward):  # cold-started just now
        reward = Trainer(config, model, task).initial_held_out["held_out_reward"]
        card = dataclasses.replace(card, held_out_reward=reward)
    save_policy(folder / INIT, model, card)
    return model, task


def load_checkpoint(path: Path, trainer: Trainer) -> None:
    """Put ``trainer`` into the state of a checkpoint of the same run; only ``rollouts`` may differ.

    Raises:
        CheckpointError: if the checkpoint is damaged or of another run.
    """
    tensors, meta = load_tensors(path)
    config = trainer.config
    try:
        made_with = config_from_mapping({**meta["config"], "rollouts": config.rollouts}, "settings")
        for name, value in dataclasses.asdict(made_with).items():
            if value != getattr(config, name):
                given = getattr(config, name)
                raise ValueError(f"it was made with {name}={value}, the config has {given}")
        trainer.load_state(tensors, meta)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint {path} does not fit this run ({error}). Start it anew with --overwrite."
        ) from None


def cut_back(folder: Path, trainer: Trainer) -> list[Record]:
    """Cut metrics and timings back to the checkpoint; returns the records that stay."""
    kept = read_numbered(folder / METRICS, METRICS_NEED, trainer.update)
    timings = read_numbered(folder / TIMINGS, TIMINGS_NEED, trainer.rollout)
    per_rollout = trainer.config.mini_batches * trainer.config.epochs
    for record in kept:
        if record["rollout"] != (record["update"] - 1) // per_rollout + 1:
            raise RunFolderError(
                f"{folder / METRICS} is of another run: its update {record['update']} lies in "
                f"rollout {record['rollout']}. Start anew with --overwrite."
            )
    write_atomically(folder / METRICS, "".join(map(as_line, kept)).encode())
    write_atomically(folder / TIMINGS, "".join(map(as_line, timings)).encode())
    return kept
