"""Sums over the answers of a recorded run, some answers at a time.

Answers are taken in the order of their length, so that little is padded and little memory needed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gspo_edu import metrics
from gspo_edu.inspection.columns import Array, RecordedRun
from gspo_edu.inspection.rules import Rule
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.objectives.gspo import RangeWarning
from gspo_edu.ratios import sequence_log_ratio, token_log_ratio

CELLS = 2**18  # padded positions at once: what a processor's cache holds
LAGS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Chunk:
    """Some answers, padded to the longest of them."""

    rows: Array
    logp: Tensor
    logp_old: Tensor
    mask: Tensor
    logp_rollout: Tensor | None


@dataclass
class Sums:
    """What is added up over the chunks."""

    total: dict[str, float] = field(default_factory=dict)
    pairs: dict[int, Array] = field(default_factory=dict)
    rules: list[dict[str, float]] = field(default_factory=list)

    def add(self, name: str, value: Tensor | float) -> None:
        """Add to the sum called ``name``."""
        self.total[name] = self.total.get(name, 0.0) + float(value)

    def largest(self, name: str, value: Tensor | float) -> None:
        """Keep the larger one."""
        self.total[name] = max(self.total.get(name, 0.0), float(value))


def chunks(run: RecordedRun) -> Iterator[Chunk]:
    """All answers with response tokens, neighbours in length together."""
    order = np.argsort(run.lengths, kind="stable")
    order = order[run.lengths[order] > 0]
    starts, first = run.starts, 0
    while first < len(order):
        last = first + 1
        while last < len(order) and (last + 1 - first) * run.lengths[order[last]] <= CELLS:
            last += 1
        rows = order[first:last]
        inside = np.arange(run.lengths[rows[-1]]) < run.lengths[rows, None]
        places = starts[rows, None] + np.arange(inside.shape[1])
        np.minimum(places, run.tokens - 1, out=places)
        engine = run.logp_rollout
        yield Chunk(
            rows,
            torch.from_numpy(run.logp[places]),
            torch.from_numpy(run.logp_old[places]),
            torch.from_numpy(inside),
            None if engine is None else torch.from_numpy(engine[places]),
        )
        first = last


def add_ratios(sums: Sums, chunk: Chunk, log_r: Tensor) -> None:
    """Add the moments of token log-ratios, their products at every lag and their KL."""
    double = torch.float64
    old = chunk.logp_old.where(chunk.mask, 0.0)
    for name, values in (
        ("x", log_r),
        ("xx", log_r * log_r),
        ("old", old),
        ("old_old", old * old),
        ("old_x", old * log_r),
    ):
        sums.add(name, values.sum(dtype=double))
    sums.largest("max_abs", log_r.abs().max())
    kl = metrics.token_weighted_mean(metrics.k3(chunk.logp_old, chunk.logp), chunk.mask)
    sums.add("k3", kl * chunk.mask.sum())
    for lag in LAGS:
        if lag < log_r.shape[1]:
            # An answer's tokens lie at its start, so the later token says whether both are there.
            both = chunk.mask[:, lag:]
            first, later = log_r[:, :-lag] * both, log_r[:, lag:]
            found = [first.mul(later).sum(dtype=double), first.sum(dtype=double)]
            found += [later.sum(dtype=double), both.sum()]
            sums.pairs[lag] = sums.pairs.get(lag, np.zeros(4)) + np.array([float(v) for v in found])


def add_rules(sums: Sums, rules: Sequence[Rule], chunk: Chunk, advantages: Array | None) -> None:
    """Add what every objective would clip."""
    given = np.ones(len(chunk.rows)) if advantages is None else advantages[chunk.rows]
    # What clips depends on the sign alone, and float32 might lose a tiny one.
    advantage = torch.from_numpy(np.sign(given)).float()
    for rule, found in zip(rules, sums.rules, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RangeWarning)
            result = OBJECTIVES[rule.objective](
                chunk.logp, chunk.logp_old, advantage, chunk.mask, **rule.settings
            )
        for name, value in result.metrics.items():
            if name.startswith(("clip_", "outside_", "cap_")):
                weight = len(chunk.rows) if name.endswith("_seq") else int(chunk.mask.sum())
                found[name] = found.get(name, 0.0) + value.item() * weight


def add_engine(sums: Sums, chunk: Chunk, logp_rollout: Tensor) -> Array:
    """Add how far pi_old of trainer and engine differ; returns log s between them, (b,)."""
    known = chunk.mask & torch.isfinite(logp_rollout)
    log_r = token_log_ratio(chunk.logp_old, logp_rollout, known)
    sums.add("engine_tokens", known.sum())
    sums.add("engine_missing", (chunk.mask & ~known).sum())
    sums.add("engine_x", log_r.sum(dtype=torch.float64))
    sums.add("engine_xx", (log_r * log_r).sum(dtype=torch.float64))
    sums.largest("engine_max_abs", log_r.abs().max())
    log_s: Array = sequence_log_ratio(chunk.logp_old, logp_rollout, known).double().numpy()
    return np.where(known.any(dim=1).numpy(), log_s, np.nan)


def mean_and_std(total: float, squares: float, count: float) -> tuple[float, float]:
    """Mean and population standard deviation from sums."""
    mean = total / max(count, 1)
    return mean, math.sqrt(max(0.0, squares / max(count, 1) - mean**2))
