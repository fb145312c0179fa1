"""PPO's clipped objective (arXiv 1707.06347, eq. 7) and its dual-clip variant."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from gspo_edu.metrics import token_weighted_mean
from gspo_edu.objectives.surrogate import (
    Common,
    ObjectiveResult,
    checked_inputs,
    clipped_surrogate,
    finite_ratio,
    mean_per_token,
)
from gspo_edu.ratios import token_log_ratio


def ppo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    **common: Unpack[Common],
) -> ObjectiveResult:
    """PPO: one clipped ratio per token, mean over all tokens.

    With a critic the advantages differ from token to token; with a group baseline they are one
    per answer. The formula is the same.
    """
    given = checked_inputs(logp, logp_old, advantages, mask, mean_per_token, **common)
    ratio = finite_ratio(token_log_ratio(logp, logp_old, mask), given.advantage < 0)
    surrogate, clipped, outside = clipped_surrogate(ratio, given.advantage, clip_low, clip_high)
    weight = (ratio * given.advantage).where(~clipped, 0.0)
    return given.result(surrogate, weight, clipped, outside)


def ppo_dual_clip(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float = 3.0,
    **common: Unpack[Common],
) -> ObjectiveResult:
    """PPO with a floor of dual_clip * A where A < 0 (Ye 2020, arXiv 1912.09729, eq. 5).

    ``dual_clip_fraction`` is the share of tokens that the floor catches.

    Raises:
        ValueError: if ``dual_clip`` is not above 1 + clip_high.
    """
    if not dual_clip > 1 + clip_high:
        raise ValueError(f"dual_clip is {dual_clip}; expected more than 1 + {clip_high}.")
    given = checked_inputs(logp, logp_old, advantages, mask, mean_per_token, **common)
    log_ratio = token_log_ratio(logp, logp_old, mask)
    flows = (given.advantage < 0) & (log_ratio <= math.log(dual_clip))
    ratio = finite_ratio(log_ratio, flows)
    surrogate, clipped, outside = clipped_surrogate(ratio, given.advantage, clip_low, clip_high)
    floored = (given.advantage < 0) & (ratio > dual_clip)
    surrogate = torch.where(floored, dual_clip * given.advantage, surrogate)
    weight = (ratio * given.advantage).where(~(clipped | floored), 0.0)
    share = token_weighted_mean(floored, given.mask)
    return given.result(surrogate, weight, clipped, outside, dual_clip_fraction=share)
