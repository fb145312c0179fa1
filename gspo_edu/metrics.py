"""What happened: numbers that say how far, how unevenly and for whom the policy moved.

A clip metric always says of what. ``clip_*`` counts where min() chose the clipped branch (gradient
exactly zero), ``outside_*`` where the ratio lies beyond the range. ``*_seq`` averages over answers,
``*_token_weighted`` over tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gspo_edu.ratios import at_least_float32


def token_weighted_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of ``x`` (B, T) over all response tokens, 0-dim; 0 without any."""
    inside = mask.bool()
    return x.double().where(inside, 0.0).sum() / inside.sum().clamp(min=1)


def answer_weighted_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean over answers with response tokens of each answer's mean of ``x`` (B, T), 0-dim."""
    inside = mask.bool()
    lengths = inside.sum(dim=1)
    per_answer = x.double().where(inside, 0.0).sum(dim=1) / lengths.clamp(min=1)
    return per_answer.sum() / (lengths > 0).sum().clamp(min=1)


def clip_metrics(clipped: Tensor, outside: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """The four clip metrics of boolean (B, T) tensors, each a 0-dim tensor in [0, 1]."""
    return {
        "clip_fraction_seq": answer_weighted_mean(clipped, mask),
        "clip_fraction_token_weighted": token_weighted_mean(clipped, mask),
        "outside_fraction_seq": answer_weighted_mean(outside, mask),
        "outside_fraction_token_weighted": token_weighted_mean(outside, mask),
    }


def k1(logp: Tensor, logp_other: Tensor) -> Tensor:
    """log(pi/pi_other), elementwise: unbiased for KL(pi || pi_other), but often negative."""
    return at_least_float32(logp) - at_least_float32(logp_other)


def k2(logp: Tensor, logp_other: Tensor) -> Tensor:
    """(log(pi/pi_other))^2 / 2, elementwise: biased, never negative."""
    return k1(logp, logp_other) ** 2 / 2


def k3(logp: Tensor, logp_other: Tensor) -> Tensor:
    """pi_other/pi - log(pi_other/pi) - 1, elementwise: estimates KL(pi || pi_other) and is >= 0.

    Always from token log-probs, whatever the level of the importance ratio (GRPO, arXiv
    2402.03300, eq. 4). Unbiased only for tokens that pi itself sampled.
    """
    log_ratio = -k1(logp, logp_other)
    return torch.expm1(log_ratio) - log_ratio


def entropy(logits: Tensor) -> Tensor:
    """Entropy of softmax(logits) in nats, (..., V) -> (...)."""
    return entropy_of(at_least_float32(logits).log_softmax(dim=-1))


def entropy_of(log_probs: Tensor) -> Tensor:
    """Entropy in nats of distributions given by their log-probs, (..., V) -> (...)."""
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def effective_sample_size(ratio: Tensor) -> Tensor:
    """(sum w)^2 / sum w^2 of importance ratios (B,), 0-dim, from 1 to B (Kong 1992).

    ``effective_sample_fraction`` serves ratios whose squares leave the number format.
    """
    return ratio.sum() ** 2 / (ratio**2).sum().clamp(min=torch.finfo(ratio.dtype).tiny)


def effective_sample_fraction(log_ratio: Tensor) -> Tensor:
    """Effective sample size over B, from log importance ratios (B,); 0-dim, from 1/B to 1.

    The largest ratio is divided out first: that changes nothing but keeps exp() in range.
    """
    relative = (log_ratio - log_ratio.max()).exp()
    return effective_sample_size(relative) / len(relative)


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """1 - Var(returns - values) / Var(returns) over response tokens, 0-dim, at most 1.

    1 for perfect guesses, 0 for one constant guess, below 0 for guesses that are worse than that;
    0 as well where the returns do not vary. All (B, T).
    """
    inside = mask.bool()
    kept, target = values[inside].double(), returns[inside].double()
    if len(target) == 0 or (target == target[0]).all():
        return values.new_zeros((), dtype=torch.float64)
    return 1 - (target - kept).var(correction=0) / target.var(correction=0)


def signalless_group_fraction(rewards: Tensor, group_ids: Tensor) -> Tensor:
    """Share of groups whose rewards are all equal, 0-dim: they contribute no gradient."""
    _, group = torch.unique(group_ids, return_inverse=True)
    groups = int(group.max()) + 1
    low = rewards.new_full((groups,), torch.inf).scatter_reduce(0, group, rewards, "amin")
    high = rewards.new_full((groups,), -torch.inf).scatter_reduce(0, group, rewards, "amax")
    return (low == high).float().mean()


def within_group_length_spread(lengths: Tensor, group_ids: Tensor) -> Tensor:
    """Std of answer length within a group over its mean length, averaged over groups, 0-dim."""
    _, group, size = torch.unique(group_ids, return_inverse=True, return_counts=True)
    length = lengths.float()
    mean = torch.zeros(len(size)).to(length).index_add(0, group, length) / size
    deviation = (length - mean[group]) ** 2
    variance = torch.zeros_like(mean).index_add(0, group, deviation) / size
    spread: Tensor = (variance.sqrt() / mean.clamp(min=1)).mean()
    return spread
