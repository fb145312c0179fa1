"""Two reasons why a token's probability changes: other experts, and other weights of the same ones.

log r = (log pi with its own routes - log pi with the old routes)    the route part
      + (log pi with the old routes - log pi_old)                    the weights part

Routing Replay is the instrument: it computes the term in the middle. The sum is exact; the order is
a choice. Changing the routes first and the weights second would give other parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gspo_edu.batch import Rollout
from gspo_edu.metrics import token_weighted_mean
from gspo_edu.moe.model import TinyMoE
from gspo_edu.moe.routes import RouteTrace
from gspo_edu.sampler import answer_log_probs


@dataclass(frozen=True)
class LogRatioSplit:
    """The parts of log r for every token of a rollout; 0 or false in padding.

    Attributes:
        route: (B, T) what the change of experts did.
        weights: (B, T) what the change of weights did, with the experts of the rollout.
        changed: (B, T) bool, whether the token itself has another expert in any layer. A token
            whose own experts stayed can have a route part, through what it attends to.
        routes: the experts that the policy chooses now.
    """

    route: Tensor
    weights: Tensor
    changed: Tensor
    routes: RouteTrace

    @property
    def total(self) -> Tensor:
        """(B, T) log r."""
        return self.route + self.weights


@torch.no_grad()
def split_log_ratio(
    policy: TinyMoE, rollout: Rollout, *, temperature: float = 1.0
) -> LogRatioSplit:
    """Split log r = log pi - log pi_old of every token into its route part and its weights part.

    Args:
        policy: pi, after some updates.
        rollout: sampled by pi_old, with the routes it took.
        temperature: the one that sampled.

    Raises:
        ValueError: if the rollout has no routes, or they do not fit the policy.
    """
    if rollout.routes is None:
        raise ValueError("rollout.routes is None; expected the routes that pi_old took.")
    replay = rollout.routes.check(policy.config, rollout.mask, rollout.prompts)
    live = answer_log_probs(policy, rollout, temperature=temperature)
    fixed = answer_log_probs(policy, rollout, temperature=temperature, replay=replay)
    assert live.routes is not None
    return LogRatioSplit(
        route=live.logp - fixed.logp,
        weights=(fixed.logp - rollout.logp_old).where(rollout.mask, 0.0),
        changed=changed_tokens(live.routes.answer, replay.answer),
        routes=live.routes,
    )


def changed_tokens(routes: Tensor, reference: Tensor) -> Tensor:
    """Whether a token has an expert that the reference has not, in any layer.

    Args:
        routes, reference: (..., N, K) expert ids, -1 in padding, which does not count.

    Returns:
        (...) bool.

    Raises:
        ValueError: if the shapes differ.
    """
    if routes.shape != reference.shape:
        raise ValueError(
            f"routes has shape {tuple(routes.shape)} and reference {tuple(reference.shape)}; "
            "expected the same tokens, layers and number of experts."
        )
    kept = (routes.unsqueeze(-1) == reference.unsqueeze(-2)).any(dim=-1)
    counts = (routes >= 0) & (reference[..., :1] >= 0)
    return (counts & ~kept).flatten(-2).any(dim=-1)


def router_margin(router_logits: Tensor, top_k: int) -> Tensor:
    """How far the last chosen expert leads the first one that was not, (..., E) -> (...).

    Raises:
        ValueError: if every expert is chosen.
    """
    if not 1 <= top_k < router_logits.shape[-1]:
        raise ValueError(
            f"top_k is {top_k}; expected 1 to {router_logits.shape[-1] - 1}, so that an expert is "
            "left out."
        )
    best = router_logits.topk(top_k + 1, dim=-1).values
    return best[..., top_k - 1] - best[..., top_k]


def mean_pull(part: Tensor, advantages: Tensor, mask: Tensor) -> tuple[float, float]:
    """Mean over answers of A times the answer's mean of ``part``, and its standard error.

    Positive: good answers have become likelier and bad ones less likely, as they should.

    Args:
        part: (B, T) such as a part of log r.
        advantages: (B,).
        mask: (B, T), 1 on response tokens.
    """
    inside = mask.bool()
    lengths = inside.sum(dim=1).clamp(min=1)
    pull = (part.double().where(inside, 0.0).sum(dim=1) / lengths) * advantages.double()
    return pull.mean().item(), (pull.std() / len(pull) ** 0.5).item()


def rms(x: Tensor, mask: Tensor) -> float:
    """Root of the mean square of ``x`` (B, T) over the true tokens of ``mask``; 0 without any."""
    return token_weighted_mean(x**2, mask).sqrt().item()
