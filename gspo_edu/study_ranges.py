"""A clip range for sequence ratios, read off a few rollouts on tuning seeds."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gspo_edu.batch import Rollout
from gspo_edu.clip_range import range_for_outside_share
from gspo_edu.config import TrainConfig
from gspo_edu.initial import policy_of_run
from gspo_edu.ratios import sequence_log_ratio
from gspo_edu.records import Record
from gspo_edu.run_files import write_json
from gspo_edu.sampler import DivergedError, answer_log_probs
from gspo_edu.study_cells import Tuning
from gspo_edu.trainer import Trainer

RANGE = "range.json"
DIGITS = 4  # of a bound: more would claim a precision that it has not
# Rates far too large make ratios that leave the number format; their ranges must stay usable.
LARGEST, MOST_LOW = 80.0, 0.9999


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
        with contextlib.suppress(DivergedError):
            for _ in range(tuning.rollouts):
                trainer.next_rollout()
        seen += trainer.log_s
    log_s = torch.cat(seen) if seen else torch.zeros(0)
    usable = log_s[log_s.isfinite()].clamp(-LARGEST, LARGEST)
    low = high = None
    # Without any ratio training broke in its first update, and would so with every range.
    if len(usable):
        low, high = range_for_outside_share(usable, tuning.outside)
        low, high = min(rounded(low), MOST_LOW), rounded(high)
    found = {"clip_low": low, "clip_high": high}
    write_json(folder / RANGE, {**found, "answers": len(usable), "outside": tuning.outside})


def rounded(bound: float) -> float:
    """The bound with ``DIGITS`` digits."""
    return float(f"{bound:.{DIGITS}g}")


def range_key(config: TrainConfig) -> TrainConfig:
    """What a measured range depends on: everything but the seed and the length of the run."""
    return replace(config, seed=0, rollouts=TrainConfig.rollouts, eval_every=0)
