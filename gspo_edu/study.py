"""A study: many runs from one file, in parallel, with intervals and every seed's own line.

    study = read_study("quick")                  # or the path of your own file, see study_file
    result = run_study(study, Path("runs/study-quick"), jobs=2)
    print(result.text)

The same call goes on after any interruption: what is finished is not run again, and a run that was
under way goes on from its last rollout. A run that diverges is a result: it stays in the table
with its reason, and counts as reward 0 in the means. A run that fails for another reason (a killed
process, a full disk) is listed as failed, is in no mean, and is tried again by the next call.

The runs go through joblib, so that another back end is one line around the call. With Ray, tried
on one machine (``pip install ray``), the tables are the same byte for byte::

    ray.init()
    ray.util.joblib.register_ray()  # once
    with joblib.parallel_config(backend="ray"):
        run_study(study, out)

For Dask (not tried) it is ``backend="dask"`` while a ``dask.distributed.Client`` is open. On
several machines the folder must lie on a disk that all of them see under the same path, and
gspo_edu must be installed on each. joblib's own back end replaces a killed worker at once; with
another one the call may end with that back end's error, and the same call then goes on. Ray gives
its results all at the end, so that the progress bar moves only then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gspo_edu.config import COMMAND, TrainConfig
from gspo_edu.files import write_atomically
from gspo_edu.initial import check_start
from gspo_edu.run_lock import LOCK, RunFolderError, only_one
from gspo_edu.study_cells import Cell, Study
from gspo_edu.study_file import read_study, study_names
from gspo_edu.study_rates import Search
from gspo_edu.study_runs import OUTCOME, run_all
from gspo_edu.study_summary import Row, summary_text
from gspo_edu.study_table import (
    RUN_TABLE,
    STUDY,
    TUNING,
    UPDATES,
    read_description,
    run_rows,
    update_rows,
    write_description,
    write_table,
)

SUMMARY_TEXT = "summary.txt"

__all__ = ["Study", "StudyResult", "read_study", "run_study", "study_names"]


@dataclass(frozen=True)
class StudyResult:
    """What a study leaves.

    Attributes:
        out: its folder; the tables in it are described in ``gspo_edu.study_table``.
        rows: one per run, as in runs.csv.
        text: the summary, as in summary.txt.
    """

    out: Path
    rows: Sequence[Row]
    text: str


def run_study(
    study: Study, out: Path, *, jobs: int | None = None, overwrite: bool = False
) -> StudyResult:
    """Make what is missing of the study's runs, then its tables and its summary.

    Args:
        study: from ``read_study``.
        out: the study's folder; made if needed.
        jobs: most processes at once; None takes as many as joblib's back end has.
        overwrite: make all runs anew.

    Raises:
        ValueError: if a run could not start, or a rule found no value.
        RunFolderError: if ``out`` holds something else, or another process works in it.
    """
    for config in dict.fromkeys(any_config(cell, study) for cell in study.cells):
        check_start(config)
    check_folder(study, out)
    with only_one(out):
        if overwrite:
            forget(out)
        command = f"{COMMAND} study {study.source}"
        if not (out / STUDY).exists():  # from here on the folder is a study's
            write_description(out / STUDY, study, [], command=command, ranges=[])
        search = Search(study, out, jobs=jobs)
        cells = search.configs()
        configs = [config for _, config in cells]
        outcomes = run_all(out, configs, jobs=jobs)
        rows = run_rows(study, out, cells, outcomes)
        write_description(out / STUDY, study, cells, command=command, ranges=search.ranges)
        write_table(out / UPDATES, update_rows(study, out, cells, outcomes))
        write_table(out / RUN_TABLE, rows)
        if search.rows:
            write_table(out / TUNING, search.rows)
        text = summary_text(study.name, rows, study.pairs, search.notes())
        write_atomically(out / SUMMARY_TEXT, (text + "\n").encode())
    return StudyResult(out, rows, text)


def any_config(cell: Cell, study: Study) -> TrainConfig:
    """A config of the cell as far as it is known before rules have found their values."""
    return cell.config(**({"lr": TrainConfig.lr} if cell.lr_from else {}), seed=0)


def check_folder(study: Study, out: Path) -> None:
    """Raise RunFolderError if ``out`` holds another study, or files but no study."""
    if (out / STUDY).exists():
        name = read_description(out / STUDY).get("study")
        if name != study.name:
            raise RunFolderError(f"{out} holds the study {name!r}; choose another --out.")
    elif out.is_dir():
        foreign = sorted(path.name for path in out.iterdir() if path.name != LOCK)
        if foreign:
            raise RunFolderError(
                f"{out} holds {foreign[0]}, but no study. Choose a new or empty folder for --out."
            )


def forget(out: Path) -> None:
    """Delete what the study made in the folders of its runs, starts and ranges."""
    for outcome in out.glob(f"*/*/{OUTCOME}"):
        for path in outcome.parent.iterdir():
            if path.is_file() and path != outcome:
                path.unlink()
        outcome.unlink()  # last, so that an interrupted deletion can go on
