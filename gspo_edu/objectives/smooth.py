"""Objectives that soften the clip: GMPO clips inside the geometric mean, SAPO not at all."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from gspo_edu.objectives.surrogate import (
    Common,
    ObjectiveResult,
    checked_inputs,
    finite_ratio,
    mean_per_answer,
)
from gspo_edu.ratios import token_log_ratio


def gmpo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    log_clip_low: float = 0.4,
    log_clip_high: float = 0.4,
    **common: Unpack[Common],
) -> ObjectiveResult:
    """GMPO: each token's log-ratio is clipped, then the geometric mean is taken.

    Source: arXiv 2507.20673, eq. 4; range exp(+-0.4). Where A > 0 only the upper bound acts, where
    A < 0 only the lower. ``geo_mean_ratio`` (B,) is the clipped geometric mean.

    Raises:
        ValueError: if a bound is negative.
    """
    if not (log_clip_low >= 0 and log_clip_high >= 0):
        raise ValueError(
            f"log_clip_low, log_clip_high are {log_clip_low}, {log_clip_high}; expected 0 or more."
        )
    given = checked_inputs(
        logp, logp_old, advantages, mask, mean_per_answer, level="answer", **common
    )
    advantage = given.answer_advantage
    log_ratio = token_log_ratio(logp, logp_old, mask)
    above, below = log_ratio > log_clip_high, log_ratio < -log_clip_low
    clipped = (above & (advantage > 0)) | (below & (advantage < 0))
    bounded = torch.where(clipped, log_ratio.clamp(-log_clip_low, log_clip_high), log_ratio)
    lengths = given.mask.sum(dim=1, keepdim=True).clamp(min=1)
    ratio = finite_ratio(bounded.sum(dim=1, keepdim=True) / lengths, advantage < 0)
    weight = (ratio * advantage).where(~clipped, 0.0)
    return given.result(
        ratio * advantage, weight, clipped, above | below, geo_mean_ratio=ratio.squeeze(1)
    )


def sapo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    tau_pos: float = 1.0,
    tau_neg: float = 1.05,
    **common: Unpack[Common],
) -> ObjectiveResult:
    """SAPO: a sigmoid gate instead of a clip; the pull fades as the ratio leaves 1.

    Source: arXiv 2511.20347. The factor 4 / tau makes the objective's gradient at ratio 1 equal to
    the advantage. There is no range, so clip and outside fractions are 0.

    Raises:
        ValueError: if a temperature is not positive.
    """
    if not (0 < tau_pos < math.inf and 0 < tau_neg < math.inf):
        raise ValueError(f"tau_pos, tau_neg are {tau_pos}, {tau_neg}; expected positive numbers.")
    given = checked_inputs(logp, logp_old, advantages, mask, mean_per_answer, **common)
    # The gate is shut long before exp() overflows, whatever the sign.
    nowhere = torch.zeros_like(given.mask)
    ratio = finite_ratio(token_log_ratio(logp, logp_old, mask), nowhere)
    tau = torch.full_like(ratio, tau_neg).masked_fill(given.advantage > 0, tau_pos)
    gate = torch.sigmoid(tau * (ratio - 1))
    weight = 4 * gate * (1 - gate) * ratio * given.advantage
    return given.result(4 / tau * gate * given.advantage, weight, nowhere, nowhere)
