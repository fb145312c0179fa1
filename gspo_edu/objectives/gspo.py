"""GSPO: one importance ratio per answer."""

from __future__ import annotations

import math
import warnings
from typing import Unpack

import torch
from torch import Tensor

from gspo_edu.objectives.surrogate import (
    Common,
    ObjectiveResult,
    checked_inputs,
    clipped_surrogate,
    finite_ratio,
    mean_per_answer,
)
from gspo_edu.ratios import (
    at_least_float32,
    product_log_ratio,
    sequence_log_ratio,
    token_log_ratio,
)


def gspo(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    **common: Unpack[Common],
) -> ObjectiveResult:
    """GSPO: the geometric mean of an answer's ratios is clipped, and the answer with it.

    Source: arXiv 2507.18071, eq. 5 and 7; range from section 5.1. Advantages given per token are
    averaged over each answer.
    """
    given = checked_inputs(
        logp, logp_old, advantages, mask, mean_per_answer, level="answer", **common
    )
    log_ratio = sequence_log_ratio(logp, logp_old, mask).unsqueeze(1)
    advantage = given.answer_advantage
    ratio = finite_ratio(log_ratio, advantage < 0)
    surrogate, clipped, outside = clipped_surrogate(ratio, advantage, clip_low, clip_high)
    weight = (ratio * advantage).where(~clipped, 0.0)
    warn_if_range_cannot_bind(logp, logp_old, mask, clip_low, clip_high)
    return given.result(surrogate, weight, clipped, outside)


def gspo_token(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    **common: Unpack[Common],
) -> ObjectiveResult:
    """GSPO-token: the answer's ratio, but an advantage and a gradient of its own for each token.

    Source: arXiv 2507.18071, eq. 13 and 14. Equal to ``gspo`` in value and gradient when an
    answer's tokens share one advantage. verl's GSPO is this form.
    """
    given = checked_inputs(
        logp, logp_old, advantages, mask, mean_per_answer, level="answer", **common
    )
    log_ratio = sequence_log_ratio(logp, logp_old, mask).unsqueeze(1).detach()
    answer_ratio = finite_ratio(log_ratio, given.advantage < 0)
    logp = at_least_float32(logp).where(given.mask, 0.0)
    # Value: the answer's ratio. Gradient: that ratio times the token's own score.
    ratio = answer_ratio * (logp - logp.detach()).exp()
    surrogate, clipped, outside = clipped_surrogate(ratio, given.advantage, clip_low, clip_high)
    weight = (answer_ratio * given.advantage).where(~clipped, 0.0)
    warn_if_range_cannot_bind(logp, logp_old, mask, clip_low, clip_high)
    return given.result(surrogate, weight, clipped, outside)


def seq_unnormalised(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    **common: Unpack[Common],
) -> ObjectiveResult:
    """The product of an answer's ratios, clipped: GSPO without the root, for comparison only.

    Its gradient per token is length times larger and one range cannot fit answers of different
    lengths.
    """
    given = checked_inputs(
        logp, logp_old, advantages, mask, mean_per_answer, level="answer", **common
    )
    log_ratio = product_log_ratio(logp, logp_old, mask).unsqueeze(1)
    advantage = given.answer_advantage
    ratio = finite_ratio(log_ratio, advantage < 0)
    surrogate, clipped, outside = clipped_surrogate(ratio, advantage, clip_low, clip_high)
    lengths = given.mask.sum(dim=1, keepdim=True)
    weight = (ratio * advantage * lengths).where(~clipped, 0.0)
    return given.result(surrogate, weight, clipped, outside)


class RangeWarning(UserWarning):
    """The clip range does not fit the unit that the objective clips."""


def length_at_which_range_binds(sigma: float, clip_low: float, clip_high: float) -> float:
    """Longest answer whose sequence ratio leaves the range at two standard deviations.

    log s has a standard deviation of about sigma / sqrt(L) when tokens are independent, so the
    nearer bound is two of them away at L = (2 sigma / log(1 + clip_high))^2.

    Args:
        sigma: standard deviation of the token log-ratios.
        clip_low, clip_high: the range [1 - clip_low, 1 + clip_high].
    """
    nearer = min(-math.log1p(-clip_low), math.log1p(clip_high))
    return (2 * sigma / nearer) ** 2 if nearer > 0 else math.inf


def warn_if_range_cannot_bind(
    logp: Tensor, logp_old: Tensor, mask: Tensor, clip_low: float, clip_high: float
) -> None:
    """Warn when a range meant for token ratios is put on sequence ratios.

    A range of 0.2 clips tokens, but the geometric mean over an answer hardly ever gets there.
    """
    inside = mask.bool()
    # Values of a batch of models (torch.vmap) cannot be looked at.
    unseen = torch._C._functorch.is_batchedtensor(mask)
    if min(clip_low, clip_high) < 0.05 or unseen or not inside.any():
        return
    sigma = float(token_log_ratio(logp.detach(), logp_old, mask)[inside].std(correction=0))
    shortest = inside.sum(dim=1)[inside.any(dim=1)].min()
    binds = length_at_which_range_binds(sigma, clip_low, clip_high)
    # On-policy, only rounding is left of the log-ratios, and no range says anything yet.
    if sigma > 1e-5 and binds < int(shortest):
        needed = (
            "no answer is short enough for it to bind"
            if binds < 1
            else f"it would need answers of at most {binds:.2g} tokens"
        )
        warnings.warn(
            f"The range [1 - {clip_low:g}, 1 + {clip_high:g}] cannot bind for GSPO here: with "
            f"token log-ratios of standard deviation {sigma:.3g} {needed}; the shortest here has "
            f"{int(shortest)}. GSPO's authors use 3e-4 and 4e-4.",
            RangeWarning,
            stacklevel=3,
        )
