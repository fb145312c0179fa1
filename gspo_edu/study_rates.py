"""What a study file leaves open: learning rates and clip ranges, found on seeds of their own."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gspo_edu.batch import Rollout
from gspo_edu.clip_range import range_for_outside_share
from gspo_edu.compare import summary_of
from gspo_edu.config import TrainConfig
from gspo_edu.initial import policy_of_run
from gspo_edu.ratios import sequence_log_ratio
from gspo_edu.runs import INIT, METRICS, METRICS_NEED, by_rollout, read_numbered, write_json
from gspo_edu.sampler import answer_log_probs
from gspo_edu.study_file import MATCHED, TUNED, Cell, Study, Tuning, in_words, reference_group
from gspo_edu.study_runs import (
    DIVERGED,
    DIVERGENCE,
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
from gspo_edu.trainer import Record, Trainer

RANGE = "range.json"
MOST_TRIES = 6
DIGITS = 4  # of a rate or a range that was found: more would claim a precision it has not
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


def step_size(records: Sequence[Record]) -> float:
    """How far the policy moves within a rollout: the mean of KL(pi_old || pi) at its last update.

    Each record measures the KL per token before its own update, so the last of a rollout shows
    what the updates before it did; one update per rollout gives 0.
    """
    return float(np.mean([rollout[-1]["kl_from_old"] for rollout in by_rollout([*records])]))


def run_step_size(outcome: Outcome, folder: Path) -> float:
    """``step_size`` of a finished run; infinite if it diverged, NaN if it failed."""
    if outcome.status != FINISHED:
        return math.inf if outcome.status == DIVERGED else math.nan
    updates = summary_of(folder)["updates"]
    return step_size(read_numbered(folder / METRICS, METRICS_NEED, updates))


@dataclass(frozen=True)
class Matched:
    """The outcome of a search for the rate that gives a wanted step size.

    Attributes:
        lr: the rate that came closest.
        found: step size there.
        tried: (rate, step size) in the order of the tries.
    """

    lr: float
    found: float
    tried: tuple[tuple[float, float], ...]


def matched_rate(
    measure: Callable[[float], float],
    target: float,
    start: float,
    *,
    tolerance: float = 0.1,
    tries: int = MOST_TRIES,
) -> Matched:
    """The learning rate at which a policy moves by ``target`` per rollout.

    The first step takes the KL to grow with the square of the rate, as it does for small steps;
    later ones take the slope between the last two tries, and stay between the highest rate known to
    be too low and the lowest known to be too high.

    Args:
        measure: step size at a rate; infinite where training diverged.
        target: wanted step size, more than 0.
        start: rate to try first.
        tolerance: relative difference at which the search ends.
        tries: most calls of ``measure``.

    Raises:
        ValueError: if the target is no positive number, or no try gave a finite step size.
    """
    if not 0 < target < math.inf:
        raise ValueError(f"target is {target}; expected a positive step size.")
    tried: list[tuple[float, float]] = []
    lr, low, high, slope = start, 0.0, math.inf, 2.0
    while len(tried) < tries:
        found = measure(lr)
        tried.append((lr, found))
        if abs(found / target - 1) <= tolerance:
            break
        low, high = (lr, high) if found < target else (low, min(lr, high))
        slope = slope_of(tried, slope)
        usable = 0 < found < math.inf
        guess = lr * (target / found) ** (1 / slope) if usable else (lr / 2 if found else lr * 2)
        if not low < guess < high:
            guess = math.sqrt(low * high) if low and high < math.inf else (low * 2 or high / 2)
        lr = min(float(f"{guess:.{DIGITS}g}"), 1.0)
    usable_tries = [(rate, found) for rate, found in tried if 0 < found < math.inf]
    if not usable_tries:
        raise ValueError(f"no rate gave a finite step size; tried {[rate for rate, _ in tried]}.")
    lr, found = min(usable_tries, key=lambda one: abs(math.log(one[1] / target)))
    return Matched(lr, found, tuple(tried))


def slope_of(tried: Sequence[tuple[float, float]], otherwise: float) -> float:
    """d log(step size) / d log(rate) between the last two tries, within reason."""
    if len(tried) < 2 or not all(0 < found < math.inf for _, found in tried[-2:]):
        return otherwise
    (lr0, found0), (lr1, found1) = tried[-2:]
    if lr0 == lr1:
        return otherwise
    return float(np.clip(math.log(found1 / found0) / math.log(lr1 / lr0), 0.5, 4.0))


class Watching(Trainer):
    """The trainer, which keeps log s of every answer that an update after the first finds."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.log_s: list[torch.Tensor] = []
        self.first = True

    def next_rollout(self) -> list[Record]:
        """As the trainer's."""
        self.first = True
        return super().next_rollout()

    def one_update(self, batch: Rollout, advantages: torch.Tensor) -> Record:
        """As the trainer's; before a rollout's first update all ratios are 1."""
        if not self.first:
            replay = None if self.config.replay == "none" else batch.routes
            with torch.no_grad():
                logp = answer_log_probs(
                    self.model, batch, temperature=self.config.temperature, replay=replay
                ).logp
            self.log_s.append(sequence_log_ratio(logp, batch.logp_old, batch.mask))
        self.first = False
        return super().one_update(batch, advantages)


def measure_range(folder: Path, start: Path, config: TrainConfig, tuning: Tuning) -> None:
    """Write the clip range for ``config`` into ``folder``.

    It is read off the sequence ratios of ``tuning.rollouts`` rollouts on each tuning seed, trained
    from the starting policy with the objective's own range. Ratios spread differently later in a
    run: the range is right for its beginning.
    """
    seen = []
    for seed in tuning.seed:
        seeded = replace(config, seed=seed, rollouts=tuning.rollouts, eval_every=0)
        model, task, _ = policy_of_run(start, seeded)
        trainer = Watching(seeded, model, task)
        try:
            for _ in range(tuning.rollouts):
                trainer.next_rollout()
        except ValueError as error:
            if DIVERGENCE not in str(error):
                raise
        seen += trainer.log_s
    log_s = torch.cat(seen) if seen else torch.zeros(0)
    low, high = range_for_outside_share(log_s[log_s.isfinite()], tuning.outside)
    found = {"clip_low": float(f"{low:.{DIGITS}g}"), "clip_high": float(f"{high:.{DIGITS}g}")}
    write_json(folder / RANGE, {**found, "answers": len(log_s), "outside": tuning.outside})


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
        target = mean_of(self.tried(reference, given, "runs to match"), "step_size")
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
        ranges = self.measured([config for cell, config in plain if cell.clip_from])
        return [
            (cell, replace(config, **ranges[range_key(config)]) if cell.clip_from else config)
            for cell, config in plain
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


def range_key(config: TrainConfig) -> TrainConfig:
    """What a measured range depends on: everything but the seed and the length of the run."""
    return replace(config, seed=0, rollouts=TrainConfig.rollouts, eval_every=0)


def tuning_row(cell: Cell, config: TrainConfig, outcome: Outcome, folder: Path) -> Row:
    """What the table of tuning says about one run."""
    return {
        "rule": cell.lr_from or "reference",
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
