"""GRPO and its relatives: one ratio per token, one advantage per answer."""

from __future__ import annotations

import math
from functools import partial
from typing import Unpack

from torch import Tensor

from gspo_edu.metrics import token_weighted_mean
from gspo_edu.objectives.ppo import ppo
from gspo_edu.objectives.surrogate import (
    Common,
    ObjectiveResult,
    checked_inputs,
    clipped_surrogate,
    finite_ratio,
    mean_per_answer,
    mean_per_length,
    mean_per_token,
)
from gspo_edu.ratios import at_least_float32, token_log_ratio, token_ratio


def grpo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.27,
    **common: Unpack[Common],
) -> ObjectiveResult:
    """GRPO: one clipped ratio per token, mean over each answer, then over answers.

    Source: DeepSeekMath, arXiv 2402.03300, eq. 3. The default range is the one that the GSPO paper
    (arXiv 2507.18071, section 5.1) used for its GRPO baseline.
    """
    given = checked_inputs(logp, logp_old, advantages, mask, mean_per_answer, **common)
    ratio = finite_ratio(token_log_ratio(logp, logp_old, mask), given.advantage < 0)
    surrogate, clipped, outside = clipped_surrogate(ratio, given.advantage, clip_low, clip_high)
    weight = (ratio * given.advantage).where(~clipped, 0.0)
    return given.result(surrogate, weight, clipped, outside)


def dr_grpo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    max_len: int,
    clip_low: float = 0.2,
    clip_high: float = 0.27,
    **common: Unpack[Common],
) -> ObjectiveResult:
    """GRPO whose answers are all divided by one constant, ``max_len``, instead of their length.

    Source: Dr. GRPO, arXiv 2503.20783. Its advantages are not divided by the standard deviation
    either: ``group_advantages(..., normalize=False)``.

    Raises:
        ValueError: if ``max_len`` is below 1.
    """
    if not 1 <= max_len < math.inf:
        raise ValueError(f"max_len is {max_len}; expected the length limit of answers, 1 or more.")
    mean = partial(mean_per_length, max_len=max_len)
    given = checked_inputs(logp, logp_old, advantages, mask, mean, **common)
    ratio = finite_ratio(token_log_ratio(logp, logp_old, mask), given.advantage < 0)
    surrogate, clipped, outside = clipped_surrogate(ratio, given.advantage, clip_low, clip_high)
    weight = (ratio * given.advantage).where(~clipped, 0.0)
    return given.result(surrogate, weight, clipped, outside)


def dapo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    **common: Unpack[Common],
) -> ObjectiveResult:
    """DAPO: PPO's token mean with a higher upper bound ("clip-higher").

    Source: arXiv 2503.14476, eq. 8. Its dynamic sampling and overlong shaping belong to a trainer.
    """
    return ppo(logp, logp_old, advantages, mask, clip_low=clip_low, clip_high=clip_high, **common)


def cispo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    cap: float = 5.0,
    **common: Unpack[Common],
) -> ObjectiveResult:
    """CISPO: the ratio is capped and detached, so every token keeps a gradient through log pi.

    Source: MiniMax-M1, arXiv 2506.13585, eq. 4. ``cap`` is absolute, as in TRL and ScaleRL; the
    paper writes it 1 + eps_high. There is no lower bound and no min(), hence no clip fraction:
    ``cap_fraction`` is the share of capped tokens, ``cap_fraction_trl`` of those with A > 0.

    Raises:
        ValueError: if ``cap`` is not positive.
    """
    if not cap > 0:
        raise ValueError(f"cap is {cap}; expected a positive bound on the ratio, such as 5.")
    given = checked_inputs(logp, logp_old, advantages, mask, mean_per_token, **common)
    ratio = token_ratio(logp, logp_old, mask).detach()
    weight = ratio.clamp(max=cap) * given.advantage
    surrogate = weight * at_least_float32(logp).where(given.mask, 0.0)
    capped = ratio > cap
    return given.result(
        surrogate,
        weight,
        clipped=capped & False,
        outside=capped,
        cap_fraction=token_weighted_mean(capped, given.mask),
        cap_fraction_trl=token_weighted_mean(capped & (given.advantage > 0), given.mask),
    )
