"""What a study file leaves open: learning rates and clip ranges, found on seeds of their own."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gspo_edu.compare import summary_of
from gspo_edu.config import TrainConfig
from gspo_edu.run_files import INIT, METRICS, METRICS_NEED, POLICY, read_numbered
from gspo_edu.study_cells import (
    MATCHED,
    SAME_AS,
    TUNED,
    Cell,
    Study,
    earlier_cell,
    in_words,
    reference_group,
    same_rate_group,
)
from gspo_edu.study_match import matched_rate, step_size
from gspo_edu.study_ranges import RANGE, measure_range, range_key
from gspo_edu.study_runs import (
    DIVERGED,
    FINISHED,
    RANGES,
    Outcome,
    digest,
    in_parallel,
    make_starts,
    outcome_of,
    run_all,
    run_folder,
    run_name,
    start_folder,
)

Row = dict[str, Any]


def final_reward(outcome: Outcome, folder: Path) -> float:
    """Held-out reward at the end of a run; NaN if it failed for a reason of its surroundings.

    0 for a run that diverged: such a policy gives no answer, and the verifier pays nothing for
    none. To leave it out would reward the arm that breaks most often.
    """
    if outcome.status == DIVERGED:
        return 0.0
    if outcome.status != FINISHED:
        return math.nan
    return float(summary_of(folder)["held_out_reward_after"])


def run_step_size(outcome: Outcome, folder: Path) -> float:
    """``step_size`` of a finished run; infinite if it diverged, NaN if it failed."""
    if outcome.status != FINISHED:
        return math.inf if outcome.status == DIVERGED else math.nan
    updates = summary_of(folder)["updates"]
    return step_size(read_numbered(folder / METRICS, METRICS_NEED, updates))


class Search:
    """Finds what the cells of a study leave open.

    Attributes:
        rows: one for each run tried, for the table of tuning.
        ranges: one for each clip range measured.
        tuned: groups whose rate was chosen from the grid.
        unmatched: sentences about rates for which the step size missed its target.
    """

    def __init__(self, study: Study, out: Path, *, jobs: int | None) -> None:
        self.study, self.out, self.jobs = study, out, jobs
        self.rates: dict[Any, float] = {}
        self.rows: list[Row] = []
        self.ranges: list[Row] = []
        self.unmatched: list[str] = []
        self.tuned: list[Any] = []

    def configs(self) -> list[tuple[Cell, TrainConfig]]:
        """Every cell with its complete config."""
        groups = {cell.group: cell for cell in self.study.cells}
        self.tune([cell for cell in groups.values() if cell.lr_from == TUNED])
        for cell in groups.values():
            if cell.lr_from == MATCHED:
                self.match(cell)
        for cell in groups.values():
            if cell.lr_from.startswith(SAME_AS):
                self.rates[cell.group] = self.rates[same_rate_group(self.study, cell)]
        return self.resolved((cell, self.rates.get(cell.group)) for cell in self.study.cells)

    def notes(self) -> list[str]:
        """What the reader of the summary must know about the rates."""
        rates = sorted(self.study.tuning.lr)
        ends = [
            f"{arm} ({in_words(setting)}): lr {self.rates[arm, setting]:g}"
            for arm, setting in self.tuned
            if self.rates[arm, setting] in (rates[0], rates[-1])
        ]
        notes = list(self.unmatched)
        if ends:
            notes.append(
                f"Chosen at an end of tuning.lr, so a wider grid might choose otherwise: "
                f"{'; '.join(ends)}."
            )
        return notes

    def tune(self, cells: Sequence[Cell]) -> None:
        """Choose the rate with the highest mean reward on the tuning seeds, the lower if equal."""
        rates = sorted(self.study.tuning.lr)
        wanted = [(cell, lr) for cell in cells for lr in rates]
        tried = self.on_tuning_seeds(wanted, "tuning runs")
        for cell in cells:
            # A run that failed for want of memory or the like leaves its rate out of the choice.
            means = {lr: float(np.mean([r["reward"] for r in tried[cell, lr]])) for lr in rates}
            usable = {lr: mean for lr, mean in means.items() if not math.isnan(mean)}
            if not usable:
                raise ValueError(
                    f"no rate of arm {cell.arm!r} could be tried to the end; the first run failed "
                    f"by: {tried[cell, rates[0]][0]['reason']}."
                )
            self.tuned.append(cell.group)
            best = self.rates[cell.group] = max(usable, key=lambda lr: usable[lr])
            for lr in rates:
                self.rows += [{**row, "chosen": int(lr == best)} for row in tried[cell, lr]]

    def match(self, cell: Cell) -> None:
        """Find the rate at which ``cell`` moves as far per rollout as the arm to match."""
        tuning, reference = self.study.tuning, reference_group(self.study, cell)[0]
        rate = self.rates.get(reference.group)
        given = float(reference.values.get("lr", TrainConfig.lr)) if rate is None else rate
        shown = self.tried(reference, given, "runs to match")
        target = mean_of(shown, "step_size")
        if not 0 < target < math.inf:
            raise ValueError(
                f"arm {cell.arm!r} cannot be matched: the step size of {reference.arm!r} on the "
                f"tuning seeds is {target}. {'; '.join(row['reason'] for row in shown)}"
            )
        self.rows += [{**row, "rule": "to match", "chosen": 1} for row in shown]
        rows: list[Row] = []

        def measure(lr: float) -> float:
            rows.extend(self.tried(cell, lr, "matching runs"))
            return mean_of(rows[-len(tuning.seed) :], "step_size")

        found = matched_rate(measure, target, given, tolerance=tuning.tolerance)
        self.rates[cell.group] = found.lr
        self.rows += [{**row, "chosen": int(row["lr"] == found.lr)} for row in rows]
        if abs(found.found / target - 1) > tuning.tolerance:
            self.unmatched.append(
                f"{cell.arm}: no rate within {len(found.tried)} tries moved as far as "
                f"{reference.arm}; at lr {found.lr:g} it moves {found.found / target:.2f} times "
                "as far."
            )

    def tried(self, cell: Cell, lr: float, desc: str) -> list[Row]:
        """The runs of ``cell`` at ``lr`` on the tuning seeds."""
        return self.on_tuning_seeds([(cell, lr)], desc)[cell, lr]

    def on_tuning_seeds(
        self, wanted: Sequence[tuple[Cell, float]], desc: str
    ) -> dict[tuple[Cell, float], list[Row]]:
        """Train cells at rates; returns one row per tuning seed for each."""
        seeded = [
            (replace(cell, seed=seed), lr) for cell, lr in wanted for seed in self.study.tuning.seed
        ]
        configs = [config for _, config in self.resolved(seeded)]
        outcomes = run_all(self.out, configs, jobs=self.jobs, desc=desc)
        rows = [
            tuning_row(cell, config, outcomes[config], run_folder(self.out, config))
            for (cell, _), config in zip(seeded, configs, strict=True)
        ]
        each = len(self.study.tuning.seed)
        return {one: rows[n * each : (n + 1) * each] for n, one in enumerate(wanted)}

    def resolved(
        self, cells: Iterable[tuple[Cell, float | None]]
    ) -> list[tuple[Cell, TrainConfig]]:
        """Complete configs of cells at rates (None: the cell's own), clip ranges measured."""
        plain = [(cell, cell.config(**({} if lr is None else {"lr": lr}))) for cell, lr in cells]
        plain = self.started(plain)
        ranges = self.measured([config for cell, config in plain if cell.clip_from])
        return [
            (cell, replace(config, **ranges[range_key(config)]) if cell.clip_from else config)
            for cell, config in plain
        ]

    def started(self, cells: Sequence[tuple[Cell, TrainConfig]]) -> list[tuple[Cell, TrainConfig]]:
        """Configs that start where another arm's run of the same seed ended, that run made first.

        Where that run has no final policy, the file is missing and the later run fails for it.
        """
        earlier = {
            cell: earlier_cell(self.study, cell).config() for cell, _ in cells if cell.starts_from
        }
        if earlier:
            run_all(self.out, list(earlier.values()), jobs=self.jobs, desc="runs to start from")
        return [
            (cell, replace(config, init=str(run_folder(self.out, earlier[cell]) / POLICY)))
            if cell in earlier
            else (cell, config)
            for cell, config in cells
        ]

    def measured(self, configs: Sequence[TrainConfig]) -> dict[TrainConfig, Row]:
        """The clip range for each config, whatever its seed."""
        tuning = self.study.tuning
        keys = list(dict.fromkeys(map(range_key, configs)))
        if not keys:
            return {}
        make_starts(self.out, keys, jobs=self.jobs)
        asked = digest({"seed": tuning.seed, "share": tuning.outside, "of": tuning.rollouts})
        folders = {key: self.out / RANGES / f"{run_name(key)}-{asked}" for key in keys}
        tasks = {
            folder: functools.partial(
                measure_range, folder, start_folder(self.out, key) / INIT, key, tuning
            )
            for key, folder in folders.items()
        }
        in_parallel(tasks, jobs=self.jobs, desc="clip ranges")
        return {key: self.read_range(key, folder) for key, folder in folders.items()}

    def read_range(self, key: TrainConfig, folder: Path) -> Row:
        """The clip range in ``folder``, noted among ``ranges``."""
        outcome = outcome_of(folder)
        if outcome.status != FINISHED:
            raise ValueError(
                f"no clip range could be measured for {key.objective} at lr {key.lr:g}: "
                f"{outcome.reason}."
            )
        found = json.loads((folder / RANGE).read_text(encoding="utf-8"))
        row = {"run": run_name(key), "objective": key.objective, "lr": key.lr, **found}
        if row not in self.ranges:
            self.ranges.append(row)
        return {name: found[name] for name in ("clip_low", "clip_high")}


def tuning_row(cell: Cell, config: TrainConfig, outcome: Outcome, folder: Path) -> Row:
    """What the table of tuning says about one run."""
    return {
        "rule": cell.lr_from,
        "arm": cell.arm,
        "setting": in_words(cell.setting),
        "lr": config.lr,
        "seed": config.seed,
        "status": outcome.status,
        "reason": outcome.reason,
        "reward": final_reward(outcome, folder),
        "step_size": run_step_size(outcome, folder),
    }


def mean_of(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """Mean of a column."""
    return float(np.mean([row[name] for row in rows]))
