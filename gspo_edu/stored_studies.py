"""The studies whose results ship with the package, as small tables in ``studies/results/NAME``.

    study = stored_study("calm")
    print(study.text)                                   # the summary, every seed in it
    print(study.group("GSPO", "lr 0.001").mean)
    print(study.pair("GSPO", "GRPO", "lr 0.001").adjusted)

Each was made by ``gspo-edu study NAME``, which takes minutes to hours; study.json holds the study
file, the complete config of every arm, the command and the machine. The same command makes the
tables anew. ``python -m gspo_edu.stored_studies OUT ...`` stores what such a command has left in
its folder OUT.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gspo_edu.files import write_atomically
from gspo_edu.run_files import write_json
from gspo_edu.run_lock import RunFolderError
from gspo_edu.study_file import STUDIES, read_pairs
from gspo_edu.study_summary import GroupSummary, PairSummary, paired, summarise
from gspo_edu.study_table import (
    MEANS,
    RUN_TABLE,
    STUDY,
    TUNING,
    UPDATES,
    read_description,
    read_table,
    write_table,
)

SUMMARY_TEXT = "summary.txt"
RESULTS = STUDIES / "results"
DIGITS = 5  # of a metric in the stored table of updates
# An update belongs to a run; what describes the run stands once, in the table of runs.
OF_UPDATE = ("rollout", "update")

Row = dict[str, Any]


@dataclass(frozen=True)
class StoredStudy:
    """The results of one study.

    Attributes:
        name: the study's name.
        folder: where its tables are.
        description: the content of study.json.
        runs: one row per run, as in runs.csv.
        tuning: one row per run that a rule tried; empty if the study has no rules.
        groups: the summary of every arm at every setting.
        pairs: the differences that the study file asks for.
        text: the summary, as ``gspo-edu study`` printed it.
    """

    name: str
    folder: Path
    description: Mapping[str, Any]
    runs: Sequence[Row]
    tuning: Sequence[Row]
    groups: Sequence[GroupSummary]
    pairs: Sequence[PairSummary]
    text: str

    @property
    def updates(self) -> Sequence[Row]:
        """One row per update of every run, as ``study_figure`` takes them."""
        return stored_updates(self.folder)

    @property
    def settings(self) -> list[str]:
        """The settings in the study's order."""
        return list(dict.fromkeys(group.setting for group in self.groups))

    @property
    def command(self) -> str:
        """The command that made the results, and makes them anew."""
        return str(self.description["command"])

    def group(self, arm: str, setting: str | None = None) -> GroupSummary:
        """The runs of ``arm`` at ``setting`` (None: the first that the arm has).

        Raises:
            ValueError: if the study has no such arm or setting.
        """
        of_arm = {group.setting: group for group in self.groups if group.arm == arm}
        if not of_arm:
            arms = "; ".join(dict.fromkeys(group.arm for group in self.groups))
            raise ValueError(f"arm is {arm!r}; expected one of {arms}.")
        if setting is not None and setting not in of_arm:
            raise ValueError(f"setting is {setting!r}; expected one of {'; '.join(of_arm)}.")
        return of_arm[setting] if setting is not None else next(iter(of_arm.values()))

    def pair(self, first: str, second: str, setting: str | None = None) -> PairSummary:
        """The difference ``first`` minus ``second`` at ``setting`` (None: the first they have).

        Raises:
            ValueError: if the study file asks for no such difference.
        """
        found = [
            pair
            for pair in self.pairs
            if (pair.first, pair.second) == (first, second)
            and (setting is None or setting in pair.settings)
        ]
        if not found:
            asked = "; ".join(dict.fromkeys(f"{p.first} minus {p.second}" for p in self.pairs))
            raise ValueError(
                f"the difference {first!r} minus {second!r} at {setting or 'any setting'} is not "
                f"in study {self.name}; it has {asked}, at {'; '.join(self.settings)}."
            )
        return found[0]

    def means(self, arm: str, setting: str | None, metric: str) -> list[float]:
        """The mean of a metric over the updates of each run, from runs.csv, seed by seed.

        Raises:
            ValueError: if there is no such arm, setting or metric.
        """
        group = self.group(arm, setting)
        rows = [r for r in self.runs if (r["arm"], r["setting"]) == (group.arm, group.setting)]
        values = [row[metric] for row in rows if row.get(metric) is not None]
        if not values:
            raise ValueError(f"metric is {metric!r}; expected a column of {RUN_TABLE}.")
        return [float(value) for value in values]


def stored_names() -> list[str]:
    """Names of the studies whose results are stored."""
    return sorted(path.parent.name for path in RESULTS.glob(f"*/{STUDY}"))


def stored_study(name: str) -> StoredStudy:
    """The stored results of a study.

    Raises:
        ValueError: if no results are stored under that name.
    """
    if name not in stored_names():
        raise ValueError(f"name is {name!r}; results are stored of {', '.join(stored_names())}.")
    return read_results(RESULTS / name)


@cache
def read_results(folder: Path) -> StoredStudy:
    """The results in a folder that ``store_study`` wrote."""
    description = read_description(folder / STUDY)
    runs = read_table(folder / RUN_TABLE)
    groups = summarise(runs)
    arms = list(dict.fromkeys(group.arm for group in groups))
    pairs = read_pairs(tomllib.loads(description["file"]).get("pairs"), arms)
    return StoredStudy(
        name=description["study"],
        folder=folder,
        description=description,
        runs=runs,
        tuning=read_table(folder / TUNING) if (folder / TUNING).exists() else [],
        groups=groups,
        pairs=paired(groups, pairs),
        text=(folder / SUMMARY_TEXT).read_text(encoding="utf-8"),
    )


@cache
def stored_updates(folder: Path) -> list[Row]:
    """The rows of the stored table of updates, each with what the table of runs says about it."""
    runs = read_table(folder / RUN_TABLE)
    columns = [*runs[0]]
    about = [*columns[: columns.index("status")], "run"]  # what describes a run stands first
    constant = read_description(folder / STUDY)["constant"]
    records: dict[str, list[Row]] = {}
    for row in read_table(folder / UPDATES):
        records.setdefault(row["run"], []).append({**constant, **row})
    return [
        {**record, **{name: run[name] for name in about}}
        for run in runs
        for record in records.get(run["records"], [])
    ]


def store_study(out: Path, target: Path | None = None) -> Path:
    """Put the results of the finished study in ``out`` into a small folder, and return it.

    Runs whose records agree in everything (a tuned rate that is also the common one, two kinds of
    replay that are one) have their records stored once: the column ``records`` of runs.csv names
    the run under which they stand. Metrics keep ``DIGITS`` digits; what never varies stands in
    study.json.

    Args:
        out: a folder of ``gspo-edu study``.
        target: the new folder; None: the study's name among the stored results.

    Raises:
        RunFolderError: if there is no finished study in ``out``.
    """
    missing = [n for n in (STUDY, RUN_TABLE, UPDATES, SUMMARY_TEXT) if not (out / n).exists()]
    if missing:
        raise RunFolderError(f"{out} holds no finished study: {missing[0]} is missing.")
    description = read_description(out / STUDY)
    target = target or RESULTS / description["study"]
    target.mkdir(parents=True, exist_ok=True)
    runs, updates = read_table(out / RUN_TABLE), read_table(out / UPDATES)
    stored, same, constant = small_records(runs, updates)
    write_json(
        target / STUDY,
        {**description, "command": command_of(description), "constant": constant},
    )
    write_table(target / RUN_TABLE, [{**run, "records": same.get(run["run"], "")} for run in runs])
    write_table(target / UPDATES, stored)
    for name in (TUNING, SUMMARY_TEXT):
        if (out / name).exists():
            write_atomically(target / name, (out / name).read_bytes())
    return target


def command_of(description: Mapping[str, Any]) -> str:
    """The command that makes the study from a shipped file, wherever the file lay before."""
    shipped = STUDIES / f"{description['study']}.toml"
    if shipped.exists() and shipped.read_text(encoding="utf-8") == description["file"]:
        return f"gspo-edu study {description['study']}"
    return f"gspo-edu study {description['study']}.toml"


def small_records(
    runs: Sequence[Row], updates: Sequence[Row]
) -> tuple[list[Row], dict[str, str], Row]:
    """Rows for the stored table of updates, the run that holds each run's records, constants."""
    of_run = {(run["arm"], run["setting"], run["seed"]): run["run"] for run in runs}
    described = set(runs[0]) | {"study"}  # columns about the run, but for those of an update
    metrics = [
        name
        for name in dict.fromkeys(name for row in updates for name in row)
        if name in OF_UPDATE or name in MEANS or name not in described
    ]
    records: dict[str, dict[tuple[Any, ...], None]] = {}
    for row in updates:
        run = of_run[row["arm"], row["setting"], row["seed"]]
        values = tuple(rounded(row.get(name)) for name in metrics)
        records.setdefault(run, {})[values] = None
    first: dict[tuple[Any, ...], str] = {}
    same = {run: first.setdefault(tuple(rows), run) for run, rows in records.items()}
    kept = [(run, values) for rows, run in first.items() for values in rows]
    constant = {
        name: kept[0][1][place]
        for place, name in enumerate(metrics)
        if name not in OF_UPDATE and len({values[place] for _, values in kept}) == 1
    }
    stored = [
        {"run": run, **{n: v for n, v in zip(metrics, values, strict=True) if n not in constant}}
        for run, values in kept
    ]
    return stored, same, constant


def rounded(value: Any) -> Any:
    """A measured number with ``DIGITS`` digits; anything else as it is."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def main() -> None:
    """Store the studies whose folders the command line names."""
    parser = argparse.ArgumentParser(description=(store_study.__doc__ or "").split("\n\n")[0])
    parser.add_argument("out", nargs="+", type=Path, help="folder of a finished study")
    for out in parser.parse_args().out:
        target = store_study(out)
        size = sum(path.stat().st_size for path in target.iterdir()) / 1000
        print(f"{target.name}: {size:.0f} kB")


if __name__ == "__main__":
    main()
