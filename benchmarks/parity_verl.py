"""verl's policy losses, stated anew from their mathematics, for the comparison in parity.py.

verl needs a GPU stack to install, so its formulas stand here as facts, in this project's words:
verl 0.8.0.dev, commit b178a3cd56f5, verl/trainer/ppo/core_algos.py; each docstring names the
function there. Left out are its guards against overflow, which cut log-ratios at 20 (GSPO's at 10)
in either direction where they are meant and change nothing below.

All tensors are (B, T), ``mask`` holds 0 and 1; every function returns a loss to be minimised.
"""

from __future__ import annotations

import torch
from torch import Tensor

TINY = 1e-8  # added to an answer's length, in "seq-mean-token-mean" and in geo_mean


def aggregate(term: Tensor, mask: Tensor, mode: str, scale: float | None = None) -> Tensor:
    """agg_loss: the four ways to make one number of (B, T) terms.

    Answers without any token do not count among the answers; with "-norm" none are counted.
    """
    total = (term * mask).sum(dim=1)
    lengths = mask.sum(dim=1)
    answers = (lengths > 0).sum()
    if mode == "token-mean":
        return total.sum() / lengths.sum()
    if mode == "seq-mean-token-mean":
        return (total / (lengths + TINY)).sum() / answers
    if mode == "seq-mean-token-sum":
        return total.sum() / answers
    if mode == "seq-mean-token-sum-norm":
        return total.sum() / (mask.shape[1] if scale is None else scale)
    raise ValueError(f"mode is {mode!r}; expected one of agg_loss's four.")


def worse(ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """The larger of the two losses, with and without the clip."""
    plain = -advantage * ratio
    bounded = -advantage * ratio.clip(1 - low, 1 + high)
    return torch.where(bounded > plain, bounded, plain)


def vanilla(
    logp: Tensor,
    logp_old: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    low: float,
    high: float,
    c: float = 3.0,
    mode: str = "token-mean",
    scale: float | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """compute_policy_loss_vanilla: for A < 0 a token costs at most -c A (dual clip, always on)."""
    term = worse((logp - logp_old).exp(), advantage, low, high)
    ceiling = -c * advantage
    term = torch.where((advantage < 0) & (term > ceiling), ceiling, term)
    return aggregate(term if weights is None else term * weights, mask, mode, scale)


def gspo(
    logp: Tensor, logp_old: Tensor, advantage: Tensor, mask: Tensor, *, low: float, high: float
) -> Tensor:
    """compute_policy_loss_gspo: value of the answer's ratio, gradient of each token's own log-prob.

    It always averages by answers, whatever loss_agg_mode says.
    """
    lengths = mask.sum(dim=1, keepdim=True).clip(min=1)
    answer = ((logp - logp_old) * mask).sum(dim=1, keepdim=True) / lengths
    ratio = (answer.detach() + (logp - logp.detach())).exp()
    return aggregate(worse(ratio, advantage, low, high), mask, "seq-mean-token-mean")


def sapo(
    logp: Tensor, logp_old: Tensor, advantage: Tensor, mask: Tensor, *, pos: float, neg: float
) -> Tensor:
    """compute_policy_loss_sapo; averages by answers."""
    tau = torch.full_like(advantage, neg)
    tau[advantage > 0] = pos
    gate = 4 / tau / (1 + (-tau * ((logp - logp_old).exp() - 1)).exp())
    return aggregate(-gate * advantage, mask, "seq-mean-token-mean")


def cispo(
    logp: Tensor, logp_old: Tensor, advantage: Tensor, mask: Tensor, *, low: float, high: float
) -> Tensor:
    """compute_policy_loss_cispo with "token-mean": both bounds, relative to 1."""
    weight = (logp - logp_old).exp().clip(1 - low, 1 + high).detach()
    return aggregate(-weight * advantage * logp, mask, "token-mean")


def geo_mean(
    logp: Tensor, logp_old: Tensor, advantage: Tensor, mask: Tensor, *, low: float, high: float
) -> Tensor:
    """compute_policy_loss_geo_mean (GMPO): bounds on the log-ratio; all answers are counted."""
    log_ratio = logp - logp_old
    cut = torch.where(advantage > 0, log_ratio.clip(max=high), log_ratio.clip(min=-low))
    lengths = mask.sum(dim=1) + TINY
    ratio = ((cut * mask).sum(dim=1) / lengths).exp()
    return -(ratio * (advantage * mask).sum(dim=1) / lengths).mean()


def gpg(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """compute_policy_loss_gpg with "token-mean": no ratio."""
    return aggregate(-logp * advantage, mask, "token-mean")


def kl_loss(logp: Tensor, logp_ref: Tensor, mask: Tensor, mode: str) -> Tensor:
    """kl_penalty "low_var_kl" under agg_loss, as the actor adds it (kl_loss_coef times this)."""
    apart = logp_ref - logp
    return aggregate(apart.exp() - apart - 1, mask, mode)


def group_advantage(rewards: Tensor, group: Tensor, *, divide: bool = True) -> Tensor:
    """compute_grpo_outcome_advantage, (B,): n - 1 in the standard deviation, 1e-6 beside it."""
    found = torch.zeros_like(rewards)
    for one in group.unique():
        rows = group == one
        centred = rewards[rows] - rewards[rows].mean()
        found[rows] = centred / (rewards[rows].std() + 1e-6) if divide else centred
    return found
