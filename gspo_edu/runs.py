"""Run folders: what a run leaves on disk, and how it goes on after any interruption.

config.json             every field of the config
init.safetensors        the policy that it started from, with its card
metrics.jsonl           one record per update; no times, so that equal runs are equal files
timings.jsonl           seconds per rollout
checkpoint.safetensors  policy, optimiser and random states after the last whole rollout
policy.safetensors      the trained policy, once the run is complete
summary.json            held-out reward before and after, once the run is complete
figure.png              reward, clip fraction and drift
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gspo_edu.checkpoint import (
    CheckpointError,
    load_policy,
    load_tensors,
    save_policy,
    save_tensors,
    write_atomically,
)
from gspo_edu.config import TrainConfig, config_from_mapping
from gspo_edu.initial import Watch, check_start, initial_policy
from gspo_edu.tasks import make_task
from gspo_edu.trainer import Record, Trainer

CONFIG, INIT, METRICS, TIMINGS = "config.json", "init.safetensors", "metrics.jsonl", "timings.jsonl"
CHECKPOINT, POLICY, SUMMARY = "checkpoint.safetensors", "policy.safetensors", "summary.json"


class RunFolderError(ValueError):
    """A folder that cannot be used as asked."""


def prepare_folder(folder: Path, config: TrainConfig, *, overwrite: bool) -> None:
    """Make ``folder`` ready for a new run and write its config.

    Raises:
        RunFolderError: if it holds a run and ``overwrite`` is false, or other files but no run.
        ValueError: if no run can start from ``config``.
    """
    if (folder / CONFIG).exists():
        if not overwrite:
            same = read_config(folder) == config
            raise RunFolderError(
                f"{folder} already holds this run. Go on with it by --resume {folder}, replace it "
                "with --overwrite, or choose another --out."
                if same
                else f"{folder} holds a run with other settings. Replace it with --overwrite, or "
                "choose another --out."
            )
    elif folder.is_dir() and any(folder.iterdir()):
        raise RunFolderError(
            f"{folder} holds files, but no run. Choose a new or empty folder for --out."
        )
    check_start(config)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (CHECKPOINT, METRICS, TIMINGS, INIT, POLICY, SUMMARY, "figure.png"):
        (folder / name).unlink(missing_ok=True)
    write_json(folder / CONFIG, dataclasses.asdict(config))


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
        CheckpointError: if a checkpoint is damaged.
    """
    trainer = trainer_of(folder, config, watch_cold_start)
    for records in by_rollout(cut_back(folder, trainer)):
        on_rollout(records)
    before = trainer.initial_held_out
    while trainer.rollout < config.rollouts:
        started = time.perf_counter()
        records = trainer.next_rollout()
        seconds = time.perf_counter() - started
        append_lines(folder / METRICS, records)
        append_lines(folder / TIMINGS, [{"rollout": trainer.rollout, "seconds": seconds}])
        tensors, meta = trainer.state()
        save_tensors(folder / CHECKPOINT, tensors, meta)
        on_rollout(records)
    after = trainer.held_out_metrics()
    summary = {
        "objective": config.objective,
        "seed": config.seed,
        "updates": trainer.update,
        **{f"{name}_before": value for name, value in before.items()},
        **{f"{name}_after": value for name, value in after.items()},
    }
    card = load_policy(folder / INIT)[1]
    reward = after["held_out_reward"]
    made_by = f"gspo-edu train, see {CONFIG}"
    card = dataclasses.replace(card, command=made_by, held_out_reward=reward)
    save_policy(folder / POLICY, trainer.model, card)
    write_json(folder / SUMMARY, summary)
    return summary


def trainer_of(folder: Path, config: TrainConfig, watch: Watch) -> Trainer:
    """The trainer in the state of the folder's last checkpoint, or at its start."""
    if (folder / INIT).exists():
        model, card = load_policy(folder / INIT)
        size = card.task_size if config.task_size is None else config.task_size
        trainer = Trainer(config, model, make_task(config.task, size))
    else:
        model, task, card = initial_policy(config, watch)
        trainer = Trainer(config, model, task)
        reward = trainer.initial_held_out["held_out_reward"]
        if math.isnan(card.held_out_reward):
            card = dataclasses.replace(card, held_out_reward=reward)
        save_policy(folder / INIT, model, card)
    if (folder / CHECKPOINT).exists():
        try:
            trainer.load_state(*load_tensors(folder / CHECKPOINT))
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"checkpoint {folder / CHECKPOINT} does not fit this run ({error}). Start it anew "
                "with --overwrite."
            ) from None
    return trainer


def cut_back(folder: Path, trainer: Trainer) -> list[Record]:
    """Cut metrics and timings back to the checkpoint; returns the records that stay."""
    kept = [r for r in read_lines(folder / METRICS) if r["update"] <= trainer.update]
    if len(kept) < trainer.update:
        raise RunFolderError(
            f"{folder / METRICS} holds {len(kept)} updates, but the checkpoint has made "
            f"{trainer.update}; the file was cut. Start anew with --overwrite."
        )
    timings = [t for t in read_lines(folder / TIMINGS) if t["rollout"] <= trainer.rollout]
    write_atomically(folder / METRICS, "".join(map(as_line, kept)).encode())
    write_atomically(folder / TIMINGS, "".join(map(as_line, timings)).encode())
    return kept


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
    with path.open("a", encoding="utf-8", newline="\n") as file:
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
