"""How wide a clip range has to be for sequence ratios, and what a given range clips.

The sequence ratio s is a geometric mean, so its spread shrinks with the answer's length while a
range written as 0.2 or 3e-4 does not. The distribution of s itself is
``widgets.length_spread.sequence_ratio_spread``; here is what follows from it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def equal_spread_range(clip_token: float, length: float) -> float:
    """The range for s that is as wide, in standard deviations, as ``clip_token`` is for a token.

    log s of ``length`` independent tokens has 1 / sqrt(length) of a token's standard deviation.

    Raises:
        ValueError: if the range is not positive or the length is below 1.
    """
    check_positive("clip_token", clip_token)
    check_length(length)
    return clip_token / math.sqrt(length)


def length_where_mean_outweighs_spread(sigma: float) -> float:
    """Length at which the mean of log s is as far from 0 as its standard deviation: 4 / sigma^2.

    Under the policy that sampled, the mean is -KL per token, about -sigma^2 / 2 at every length;
    the standard deviation is sigma / sqrt(length).

    Raises:
        ValueError: if ``sigma``, the standard deviation of token log-ratios, is not positive.
    """
    check_positive("sigma", sigma)
    return 4 / sigma**2


def variance_inflation(correlation: float, length: int) -> float:
    """Factor by which correlated tokens widen the variance of log s, from 0 to ``length``.

    For log-ratios whose correlation falls as ``correlation ** distance`` (an AR(1) process) it is
    1 + 2 sum_k (1 - k / length) correlation^k; about (1 + c) / (1 - c) for long answers. Then s
    scatters like that of ``length / factor`` independent tokens; its mean is not affected.

    Raises:
        ValueError: if the correlation is not between -1 and 1, or the length is below 1.
    """
    if not -1 < correlation < 1:
        raise ValueError(f"correlation is {correlation}; expected a number between -1 and 1.")
    check_length(length)
    return 1 + 2 * sum((1 - k / length) * correlation**k for k in range(1, length))


def active_share(below: float, above: float, positive_share: float = 0.5) -> float:
    """Share of answers that are clipped if s and the advantage's sign are independent.

    An answer loses its gradient with s above the range and A > 0, or below it and A < 0.

    Args:
        below, above: shares of answers with s under and over the range.
        positive_share: share of answers with A > 0; the others have A < 0.

    Raises:
        ValueError: if something that should be a share is not in [0, 1].
    """
    shares = {"below": below, "above": above, "positive_share": positive_share}
    for name, value in (shares | {"below + above": below + above}).items():
        if not 0 <= value <= 1 + 1e-9:
            raise ValueError(f"{name} is {value}; expected a share between 0 and 1.")
    return positive_share * above + (1 - positive_share) * below


def range_for_outside_share(log_s: Tensor, share: float) -> tuple[float, float]:
    """The range that leaves ``share`` of measured sequence ratios outside, half on each side.

    Args:
        log_s: (B,) log sequence ratios of your own run, from updates after each rollout's first
            (before it every ratio is 1).
        share: wanted share outside, between 0 and 1. About half of it is clipped.

    Returns:
        (clip_low, clip_high); a bound that would lie on the far side of 1 is 0.

    Raises:
        ValueError: if there is nothing to measure, or the share is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise ValueError(f"share is {share}; expected a number between 0 and 1.")
    if log_s.numel() == 0 or not bool(torch.isfinite(log_s).all()):
        raise ValueError("log_s is empty or not finite; expected one number for each answer.")
    ends = torch.tensor([share / 2, 1 - share / 2], dtype=torch.float64)
    low, high = torch.quantile(log_s.double().flatten(), ends).tolist()
    return max(0.0, -math.expm1(low)), max(0.0, math.expm1(high))


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is a positive number."""
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} is {value}; expected a positive number.")


def check_length(length: float) -> None:
    """Raise ValueError unless an answer can have ``length`` tokens."""
    if not length >= 1:
        raise ValueError(f"length is {length}; expected 1 or more tokens.")
