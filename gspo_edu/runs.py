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
import json
import math
import os
import re
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
from gspo_edu.files import naming, write_atomically
from gspo_edu.initial import Watch, check_start, initial_policy, policy_of_run
from gspo_edu.run_lock import LOCK, RunFolderError, only_one
from gspo_edu.trainer import Record, Trainer

CONFIG, INIT, METRICS, TIMINGS = "config.json", "init.safetensors", "metrics.jsonl", "timings.jsonl"
CHECKPOINT, POLICY, SUMMARY = "checkpoint.safetensors", "policy.safetensors", "summary.json"
MADE_BY_RUN = (CHECKPOINT, METRICS, TIMINGS, INIT, POLICY, SUMMARY, "figure.png")
# Values that each line needs, with the one that counts 1, 2, 3 ... first.
METRICS_NEED = ("update", "rollout", "reward", "clip_fraction_seq")
TIMINGS_NEED = ("rollout", "seconds")


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


def check_free(folder: Path, config: TrainConfig, overwrite: bool) -> None:
    """Raise RunFolderError if ``folder`` holds what a new run must not replace."""
    if (folder / CONFIG).exists():
        if not overwrite:
            check_same_settings(folder, config)
            raise RunFolderError(
                f"{folder} already holds this run. Go on with it by --resume {folder}, replace it "
                "with --overwrite, or choose another --out."
            )
    elif folder.is_dir() and {*folder.iterdir()} - {*leftovers(folder), folder / LOCK}:
        raise RunFolderError(
            f"{folder} holds files, but no run. Choose a new or empty folder for --out."
        )


def check_same_settings(folder: Path, config: TrainConfig) -> None:
    """Raise RunFolderError if the run in ``folder`` is not that of ``config``."""
    if read_config(folder) != config:
        raise RunFolderError(
            f"{folder} holds a run with other settings. Replace it with --overwrite, or choose "
            "another --out."
        )


def leftovers(folder: Path) -> list[Path]:
    """Half-written files of our own that a killed process left behind."""
    names = "|".join(map(re.escape, (CONFIG, *MADE_BY_RUN)))
    unfinished = re.compile(rf"\.({names})\.\d+")
    return [path for path in folder.iterdir() if unfinished.fullmatch(path.name)]


def read_config(folder: Path) -> TrainConfig:
    """The config of the run in ``folder``.

    Raises:
        RunFolderError: if there is no run, or its config cannot be read.
    """
    path = folder / CONFIG
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunFolderError(f"{folder} holds no run: {path.name} is missing.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RunFolderError(f"{path} is damaged ({error}).") from None
    if not isinstance(values, dict):
        raise RunFolderError(f"{path} is damaged (it holds no settings).")
    return config_from_mapping(values, str(path))


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
        trainer = Trainer(config, model, task)
    else:
        model, task, card = initial_policy(config, watch)
        trainer = Trainer(config, model, task)
        reward = trainer.initial_held_out["held_out_reward"]
        if math.isnan(card.held_out_reward):
            card = dataclasses.replace(card, held_out_reward=reward)
        save_policy(folder / INIT, model, card)
    if (folder / CHECKPOINT).exists():
        load_checkpoint(folder / CHECKPOINT, trainer)
    return trainer


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


def read_numbered(path: Path, needed: tuple[str, ...], count: int) -> list[Record]:
    """The first ``count`` records of a JSON-lines file, whose lines are numbered from 1 on.

    Args:
        path: the file; lines after ``count`` come from work that a crash undid.
        needed: numbers that each line has; the first one counts the lines.
        count: how many the run has finished.

    Raises:
        RunFolderError: if a line is not such a record, or one is missing, repeated or foreign.
    """
    records, counter = read_lines(path), needed[0]
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict) or not all(
            type(record.get(name)) in (int, float) for name in needed
        ):
            raise RunFolderError(
                f"{path} is damaged: line {number} lacks one of {', '.join(needed)}. Start anew "
                "with --overwrite."
            )
        if record[counter] != number:
            raise RunFolderError(
                f"{path} is damaged: line {number} is of {counter} {record[counter]}. Start anew "
                "with --overwrite."
            )
    if len(records) < count:
        raise RunFolderError(
            f"{path} holds {len(records)} {counter}s, but the run has made {count}; the file was "
            "cut. Start anew with --overwrite."
        )
    return records[:count]


def read_lines(path: Path) -> list[Record]:
    """The records of a JSON-lines file; a torn last line, as a crash leaves it, is left out.

    Raises:
        RunFolderError: if any other line is not JSON.
    """
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RunFolderError(f"{path} is damaged ({error}).") from None


def append_lines(path: Path, records: list[Record]) -> None:
    """Append records and make sure that they are on the disk."""
    with naming(path), path.open("a", encoding="utf-8", newline="\n") as file:
        file.writelines(map(as_line, records))
        file.flush()
        os.fsync(file.fileno())


def as_line(record: Record) -> str:
    """One JSON line; what is not finite becomes null, which every reader understands."""
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in record.items()
    }
    return json.dumps(finite, allow_nan=False) + "\n"


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write ``values`` readably, or leave what was there."""
    write_atomically(path, (json.dumps(values, indent=2, allow_nan=False) + "\n").encode())


def by_rollout(records: list[Record]) -> list[list[Record]]:
    """Records grouped by the rollout that they belong to."""
    groups: dict[int, list[Record]] = {}
    for record in records:
        groups.setdefault(record["rollout"], []).append(record)
    return list(groups.values())
