"""The files of a run folder: names, checks, JSON and JSON lines (torch is not needed for these).

See ``gspo_edu.runs`` for what each file holds.
"""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

from gspo_edu.config import TrainConfig, config_from_mapping
from gspo_edu.files import naming, write_atomically
from gspo_edu.run_lock import LOCK, RunFolderError

Record = dict[str, Any]
CONFIG, INIT, METRICS, TIMINGS = "config.json", "init.safetensors", "metrics.jsonl", "timings.jsonl"
CHECKPOINT, POLICY, SUMMARY = "checkpoint.safetensors", "policy.safetensors", "summary.json"
MADE_BY_RUN = (CHECKPOINT, METRICS, TIMINGS, INIT, POLICY, SUMMARY, "figure.png")
# Values that each line needs, with the one that counts 1, 2, 3 ... first.
METRICS_NEED = ("update", "rollout", "reward", "clip_fraction_seq")
TIMINGS_NEED = ("rollout", "seconds")


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
