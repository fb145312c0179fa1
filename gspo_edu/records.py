"""What a run writes down about its rollouts and updates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gspo_edu import metrics
from gspo_edu.batch import Rollout
from gspo_edu.moe.routes import RouteTrace
from gspo_edu.ratios import sequence_log_ratio, token_log_ratio
from gspo_edu.tasks.base import Task

Record = dict[str, Any]


def rollout_metrics(task: Task, rollout: Rollout) -> Record:
    """What is true of the whole rollout, the same in each of its records."""
    prompts = rollout.prompts[rollout.group]
    exact = task.exact(prompts, rollout.tokens, rollout.mask, rollout.finished)
    found = {
        "reward": rollout.rewards.mean(),
        "exact": exact.float().mean(),
        "length": rollout.lengths.float().mean(),
        "length_spread": metrics.within_group_length_spread(rollout.lengths, rollout.group),
        "finished": rollout.finished.float().mean(),
    }
    return {name: plain(value) for name, value in found.items()}


def about_held_out(task: Task, rollout: Rollout) -> Record:
    """``rollout_metrics`` of answers to held-out prompts."""
    return {f"held_out_{name}": value for name, value in rollout_metrics(task, rollout).items()}


def ratio_metrics(logp: Tensor, logp_old: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """How far and how unevenly the ratios of a mini-batch have moved."""
    log_r, log_s = counted_log_ratios(logp, logp_old, mask)
    effective = metrics.effective_sample_fraction(log_s) if len(log_s) else log_s.sum()
    return {
        "token_log_ratio_std": spread(log_r),
        "sequence_log_ratio_mean": log_s.sum() / max(len(log_s), 1),
        "sequence_log_ratio_std": spread(log_s),
        "effective_sample_fraction": effective,
        # The answers come from pi_old, so this estimates KL(pi_old || pi) per token.
        "kl_from_old": metrics.token_weighted_mean(metrics.k3(logp_old, logp), mask),
    }


def counted_log_ratios(logp: Tensor, logp_old: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Log-ratios of the tokens that count, and log s of the answers that have such tokens."""
    inside = mask.bool()
    log_r = token_log_ratio(logp, logp_old, mask)[inside]
    # An answer without tokens, as a masked one is, has no ratio that could count.
    return log_r, sequence_log_ratio(logp, logp_old, mask)[inside.any(dim=1)]


def spread(x: Tensor) -> Tensor:
    """Population standard deviation, 0 for nothing."""
    return x.std(correction=0) if len(x) else x.new_zeros(())


def live_routes(
    used: RouteTrace | None, router_logits: Tensor, replay: RouteTrace | None
) -> Tensor | None:
    """(B, T, N, K) experts that the router itself would choose; differs from ``used`` in replay."""
    if used is None or replay is None:
        return None if used is None else used.answer
    top_k = used.answer.shape[-1]
    live = router_logits.detach().topk(top_k, dim=-1).indices.to(torch.int16)
    return live.where(used.answer >= 0, -1)


def plain(value: Tensor | float | int) -> float | int:
    """A tensor of one element as a Python number, for JSON."""
    return value.item() if isinstance(value, Tensor) else value
