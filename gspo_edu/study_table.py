"""A study's results as plain files that anything can read.

updates.csv.gz  one row per update: study, arm, settings, seed, rollout, update, then the metrics
runs.csv        one row per run: how it ended, held-out results before and after, means, cost
tuning.csv      one row per run that a rule tried (only where the study has rules)
study.json      the study file, the complete config of every arm and setting, command, machine

Numbers of updates.csv.gz have seven digits, as many as the float32 metrics behind them; rows and
bytes depend on the runs alone, not on how many ran at once. What was not measured is empty.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gspo_edu import __version__
from gspo_edu.compare import read_summary
from gspo_edu.config import TYPES, TrainConfig
from gspo_edu.files import write_atomically
from gspo_edu.run_files import METRICS, METRICS_NEED, SUMMARY, read_lines, read_numbered, write_json
from gspo_edu.study_cells import Cell, Study, in_words
from gspo_edu.study_match import step_size
from gspo_edu.study_runs import DIVERGED, FINISHED, Outcome, run_folder, run_name

UPDATES, RUN_TABLE, TUNING, STUDY = "updates.csv.gz", "runs.csv", "tuning.csv", "study.json"
# Columns of the run table that differ between two makings of the same runs.
COST = ("seconds", "cpu_seconds")
MEANS = (
    *("clip_fraction_seq", "clip_fraction_token_weighted", "outside_fraction_seq"),
    *("outside_fraction_token_weighted", "drift_per_update", "drift_per_rollout"),
    *("token_log_ratio_std", "sequence_log_ratio_std", "effective_sample_fraction"),
    *("grad_norm", "entropy", "kl_from_old", "length", "update_skipped"),
    "route_bytes",
)
DIGITS = 7
Row = dict[str, Any]
Resolved = Sequence[tuple[Cell, TrainConfig]]


def varied_fields(cells: Resolved) -> list[str]:
    """``lr`` and the fields that differ between runs, in TrainConfig's order; not the seed."""
    listed = {name for cell, _ in cells for name, _ in cell.setting}
    return [
        name
        for name in TYPES
        if name not in ("objective", "seed")
        and (
            name == "lr"
            or name in listed
            or (name != "init" and len({getattr(config, name) for _, config in cells}) > 1)
        )
    ]


def described(study: Study, cells: Resolved) -> list[Row]:
    """The columns that say which run a row belongs to, for each cell."""
    varied = varied_fields(cells)
    rules = {rule: [getattr(cell, rule) for cell, _ in cells] for rule in ("lr_from", "clip_from")}
    return [
        {
            "study": study.name,
            "arm": cell.arm,
            "setting": in_words(cell.setting),
            "objective": config.objective,
            **{name: getattr(config, name) for name in varied},
            **{rule: found[place] for rule, found in rules.items() if any(found)},
            "seed": config.seed,
        }
        for place, (cell, config) in enumerate(cells)
    ]


def update_rows(
    study: Study, out: Path, cells: Resolved, outcomes: Mapping[Any, Outcome]
) -> list[Row]:
    """One row per update of every run that is over, those that diverged up to their end."""
    rows = []
    for about, (_, config) in zip(described(study, cells), cells, strict=True):
        if outcomes[config].status in (FINISHED, DIVERGED):
            rows += [{**about, **record} for record in records_of(out, config, outcomes[config])]
    return rows


def records_of(out: Path, config: TrainConfig, outcome: Outcome) -> list[Row]:
    """The records of a run that is over."""
    folder = run_folder(out, config)
    if outcome.status == DIVERGED:
        return read_lines(folder / METRICS)
    return read_numbered(folder / METRICS, METRICS_NEED, read_summary(folder / SUMMARY)["updates"])


def run_rows(
    study: Study, out: Path, cells: Resolved, outcomes: Mapping[Any, Outcome]
) -> list[Row]:
    """One row per run, also for those that diverged or failed."""
    rows = []
    for about, (_, config) in zip(described(study, cells), cells, strict=True):
        outcome = outcomes[config]
        over = outcome.status in (FINISHED, DIVERGED)
        records = records_of(out, config, outcome) if over else []
        summary = {}
        if outcome.status == FINISHED:
            summary = read_summary(run_folder(out, config) / SUMMARY)
        rows.append(
            {
                **about,
                "status": outcome.status,
                "reason": outcome.reason,
                "updates": len(records),
                **{name: value for name, value in summary.items() if name.startswith("held_out")},
                **{name: mean_of_records(records, name) for name in MEANS},
                "step_size": step_size(records) if records else None,
                "seconds": round(outcome.seconds, 2),
                "cpu_seconds": round(outcome.cpu_seconds, 2),
                "run": run_name(config),
            }
        )
    return rows


def mean_of_records(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Mean over the updates in which ``name`` was measured; None if it never was."""
    values = [value for record in records if (value := record.get(name)) is not None]
    return float(np.mean(values)) if values else None


def csv_bytes(rows: Sequence[Row]) -> bytes:
    """``rows`` as CSV with a header, columns in order of appearance; None and NaN are empty."""
    text = io.StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: cell_text(value) for name, value in row.items()})
    return text.getvalue().encode()


def cell_text(value: Any) -> str:
    """A value as CSV holds it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    return str(value)


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write a table whole; a name that ends in .gz is compressed, without a date."""
    data = csv_bytes(rows)
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    write_atomically(path, data)


def read_table(path: Path) -> list[Row]:
    """The rows of a table that ``write_table`` wrote; numbers as numbers, empty as None."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    words = ("study", "arm", "setting", "objective", "status", "reason", "run", "rule")
    return [
        {name: value if name in words else parsed(value) for name, value in row.items()}
        for row in csv.DictReader(io.StringIO(text))
    ]


def parsed(word: str) -> Any:
    """A word of a CSV file as None, bool, int, float or itself."""
    if word in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[word]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def machine() -> Row:
    """What the runs were made on; nothing that names a person or a computer."""
    import torch

    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "gspo_edu": __version__,
    }


def cpu_model() -> str:
    """The processor's name, as well as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def write_description(
    path: Path, study: Study, cells: Resolved, *, command: str, ranges: Sequence[Row]
) -> None:
    """Write study.json."""
    groups: dict[Any, Row] = {}
    for cell, config in cells:
        group = groups.setdefault(
            cell.group,
            {
                "arm": cell.arm,
                "setting": dict(cell.setting),
                "seeds": [],
                "config": {k: v for k, v in dataclasses.asdict(config).items() if k != "seed"}
                | ({"init": f"the final policy of {cell.starts_from}"} if cell.starts_from else {}),
            },
        )
        group["seeds"].append(config.seed)
    write_json(
        path,
        {
            "study": study.name,
            "command": command,
            "machine": machine(),
            "file": study.text,
            "clip_ranges": list(ranges),
            "groups": list(groups.values()),
        },
    )


def read_description(path: Path) -> Row:
    """The content of study.json."""
    found: Row = json.loads(path.read_text(encoding="utf-8"))
    return found
