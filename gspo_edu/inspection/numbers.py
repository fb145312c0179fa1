"""What a recorded run says in numbers.

The formulas are those of ``ratios``, ``metrics``, ``clip_range`` and ``objectives``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gspo_edu import metrics
from gspo_edu.clip_range import range_for_outside_share
from gspo_edu.inspection import SHARES
from gspo_edu.inspection.about import about_advantages, about_lengths, rounding
from gspo_edu.inspection.columns import Array, RecordedRun
from gspo_edu.inspection.rules import default_rules, rules_at
from gspo_edu.inspection.sums import (
    Sums,
    add_engine,
    add_ratios,
    add_rules,
    chunks,
    mean_and_std,
)
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.objectives.gspo import RangeWarning
from gspo_edu.ratios import sequence_log_ratio, token_log_ratio

LOWEST_LOG_S = -30.0
SEARCH_STEPS = 16  # halvings of the share outside
ON_POLICY = 1e-5  # log-ratios below this are rounding
SAMPLE = 200_000  # token log-ratios kept for the histogram
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """A run in numbers, and what the figure draws.

    Attributes:
        numbers: what ``--json`` prints.
        log_s: (B,) log sequence ratios; NaN for an answer without response tokens.
        lengths: (B,).
        advantages: (B,), or None.
        some_log_ratios: token log-ratios, evenly spaced over the file.
        off_policy: (B,) bool, true where a ratio of the answer is not 1.
    """

    numbers: Numbers
    log_s: Array
    lengths: Array
    advantages: Array | None
    some_log_ratios: Array
    off_policy: Array


@torch.no_grad()
def measure(
    run: RecordedRun,
    ranges: Sequence[tuple[float, float]] = (),
    shares: Sequence[float] = SHARES,
) -> Measured:
    """Everything that ``gspo-edu inspect`` reports.

    Args:
        run: what was read.
        ranges: (clip_low, clip_high) at which clip fractions are wanted beside the default ones.
        shares: clip fractions of GSPO for which a range is wanted, each above 0 and below 1/2.

    Raises:
        ValueError: if a range or share is not usable.
    """
    for share in shares:
        if not 0 < share < 0.5:
            raise ValueError(
                f"share is {share}; expected a number above 0 and below 0.5: of the answers that "
                "a range leaves outside, about half are clipped."
            )
    rules = [*default_rules(run.settings), *rules_at(ranges)]
    sums = Sums(rules=[{} for _ in rules])
    log_s, engine_log_s = np.full(len(run), np.nan), np.full(len(run), np.nan)
    farthest = np.zeros(len(run))
    advantages = about_advantages(run)
    for chunk in chunks(run):
        log_r = token_log_ratio(chunk.logp, chunk.logp_old, chunk.mask)
        log_s[chunk.rows] = sequence_log_ratio(chunk.logp, chunk.logp_old, chunk.mask).numpy()
        farthest[chunk.rows] = log_r.abs().amax(dim=1).numpy()
        add_ratios(sums, chunk, log_r)
        add_rules(sums, rules, chunk, advantages)
        if chunk.logp_rollout is not None:
            engine_log_s[chunk.rows] = add_engine(sums, chunk, chunk.logp_rollout)
    off_policy = farthest > ON_POLICY
    lengths = run.lengths
    numbers: Numbers = {
        "answers": len(run),
        "tokens": run.tokens,
        "updates": None if run.update is None else len(np.unique(run.update)),
        "length": about_lengths(run),
        "rewards": about_rewards(run),
        "advantages": None if advantages is None else share_of_signs(advantages),
        "token_log_ratio": about_tokens(sums, run.tokens),
        "sequence_log_ratio": about_sequences(sums, log_s, lengths, off_policy),
        "clip": [
            {**rule.named(), **clip_numbers(found, run, advantages is not None)}
            for rule, found in zip(rules, sums.rules, strict=True)
        ],
        "ranges": [
            about_share(
                share, log_s[off_policy], None if advantages is None else advantages[off_policy]
            )
            for share in shares
            if off_policy.any()
        ],
        "engine": None if run.logp_rollout is None else about_engine(sums, engine_log_s),
        "routes": about_routes(run),
        "rounding": {
            name: rounding(values)
            for name in ("logp", "logp_old", "logp_rollout")
            if (values := getattr(run, name)) is not None
        },
        "settings": run.settings,
    }
    step = max(1, run.tokens // SAMPLE)
    some = run.logp[::step].astype(np.float64) - run.logp_old[::step]
    return Measured(numbers, log_s, lengths, advantages, some, off_policy)


def about_tokens(sums: Sums, tokens: int) -> Numbers:
    """Moments of token log-ratios, their autocorrelation, and how they follow the log-probs."""
    total = sums.total
    mean, std = mean_and_std(total["x"], total["xx"], tokens)
    found: dict[str, float | None] = {}
    for lag, (products, first, later, count) in sums.pairs.items():
        covariance = products - mean * (first + later) + count * mean**2
        found[str(lag)] = covariance / count / std**2 if std > 0 and count else None
    old_mean, old_std = mean_and_std(total["old"], total["old_old"], tokens)
    covariance = total["old_x"] / tokens - old_mean * mean
    moves = old_std > 0 and std > 0
    return {
        "mean": mean,
        "std": std,
        "max_abs": total["max_abs"],
        "kl_from_old": total["k3"] / tokens,
        "autocorrelation": found,
        "slope_on_logp_old": covariance / old_std**2 if moves else 0.0,
        "correlation_with_logp_old": covariance / old_std / std if moves else 0.0,
    }


def about_sequences(sums: Sums, log_s: Array, lengths: Array, off_policy: Array) -> Numbers:
    """log s as it is, and as independent tokens of one normal distribution would have it."""
    there = lengths > 0
    values = log_s[there]
    _, sigma = mean_and_std(sums.total["x"], sums.total["xx"], int(lengths.sum()))
    expected = sigma * math.sqrt(float(np.mean(1 / lengths[there])))
    std = float(values.std())
    return {
        "mean": float(values.mean()),
        "expected_mean": -(sigma**2) / 2,
        "std": std,
        "expected_std": expected,
        "std_over_expected": std / expected if expected > 0 else None,
        "min": float(values.min()),
        "max": float(values.max()),
        "effective_sample_fraction": metrics.effective_sample_fraction(
            torch.from_numpy(values)
        ).item(),
        "on_policy_fraction": float(1 - off_policy[there].mean()),
    }


def clip_numbers(found: dict[str, float], run: RecordedRun, signed: bool) -> Numbers:
    """Weighted sums as shares; without advantages nobody knows which side of the range clips."""
    answers = int((run.lengths > 0).sum())
    return {
        name: value / (answers if name.endswith("_seq") else run.tokens)
        if signed or name.startswith(("outside_", "cap_"))
        else None
        for name, value in found.items()
        if name != "cap_fraction_trl" or signed
    }


def answer_clipping(
    log_s: Array, advantages: Array | None, clip_low: float, clip_high: float
) -> dict[str, float]:
    """GSPO's clip and outside fractions of answers whose log sequence ratios are known.

    An answer of one token with the log-ratio log s has the sequence ratio s, so that the objective
    itself says what it clips.
    """
    ratio = torch.from_numpy(np.asarray(log_s, np.float64))[:, None]
    advantage = (
        torch.ones(len(ratio)) if advantages is None else torch.from_numpy(np.sign(advantages))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RangeWarning)
        result = OBJECTIVES["gspo"](
            ratio,
            torch.zeros_like(ratio),
            advantage,
            torch.ones_like(ratio, dtype=torch.bool),
            clip_low=clip_low,
            clip_high=clip_high,
        )
    return {name: value.item() for name, value in result.metrics.items() if name.endswith("_seq")}


def about_share(share: float, log_s: Array, advantages: Array | None) -> Numbers:
    """The range that clips ``share`` of these answers, with as many outside on either side.

    How many of those outside are clipped depends on their advantages. About half are; where a good
    answer's ratio rises, as it should, it is more. So the share outside is searched for.
    """
    # A ratio that rounds to 0 would ask for a lower bound of 0, which is none.
    ratios = torch.from_numpy(log_s.clip(min=LOWEST_LOG_S))
    low, high = 0.0, 1.0
    outside = 2 * share
    for _ in range(SEARCH_STEPS if advantages is not None else 0):
        outside = (low + high) / 2
        clipped = answer_clipping(log_s, advantages, *range_for_outside_share(ratios, outside))
        if clipped["clip_fraction_seq"] < share:
            low = outside
        else:
            high = outside
    clip_low, clip_high = range_for_outside_share(ratios, outside)
    found = answer_clipping(log_s, advantages, clip_low, clip_high)
    return {
        "clip_fraction_wanted": share,
        "clip_low": clip_low,
        "clip_high": clip_high,
        "outside_fraction_seq": found["outside_fraction_seq"],
        "clip_fraction_seq": None if advantages is None else found["clip_fraction_seq"],
    }


def about_engine(sums: Sums, log_s: Array) -> Numbers:
    """How far the engine's log-probs are from the trainer's, for tokens and answers."""
    total, values = sums.total, log_s[~np.isnan(log_s)]
    mean, std = mean_and_std(total["engine_x"], total["engine_xx"], total["engine_tokens"])
    gspo = default_rules({}, only="gspo")[0].settings
    outside = answer_clipping(values, None, **gspo) if len(values) else None
    return {
        "token_log_ratio_mean": mean,
        "token_log_ratio_std": std,
        "token_log_ratio_max": total["engine_max_abs"],
        "sequence_log_ratio_mean": float(values.mean()) if len(values) else None,
        "sequence_log_ratio_std": float(values.std()) if len(values) else None,
        "sequence_log_ratio_max": float(np.abs(values).max()) if len(values) else None,
        "outside_fraction_seq": outside and outside["outside_fraction_seq"],
        "missing_tokens": int(total["engine_missing"]),
    }


def about_routes(run: RecordedRun) -> Numbers | None:
    """Drift between the two kinds of routes."""
    if run.routes is None:
        return None
    return {
        "drift_per_rollout": run.routes.share(),
        "changed_tokens": run.routes.changed_tokens / max(run.routes.tokens, 1),
        "tokens": run.routes.tokens,
    }


def about_rewards(run: RecordedRun) -> Numbers | None:
    """Rewards, and the share of groups in which they do not differ."""
    if run.rewards is None:
        return None
    there = ~np.isnan(run.rewards)
    values = run.rewards[there]
    dead = None
    if run.group is not None and len(values):
        groups = torch.tensor(run.group[there])
        dead = metrics.signalless_group_fraction(torch.from_numpy(values), groups).item()
    return {
        "mean": float(values.mean()) if len(values) else None,
        "std": float(values.std()) if len(values) else None,
        "missing": int((~there).sum()),
        "groups": None if run.group is None else len(np.unique(run.group)),
        "signalless_group_fraction": dead,
    }


def share_of_signs(advantages: Array) -> Numbers:
    """Shares of answers that are to become likelier, and of those without any signal."""
    return {
        "positive_fraction": float((advantages > 0).mean()),
        "zero_fraction": float((advantages == 0).mean()),
    }
