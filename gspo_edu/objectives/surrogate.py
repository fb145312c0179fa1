"""What all objectives share: checked inputs, finite ratios, the clipped surrogate, averages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import torch
from torch import Tensor

from gspo_edu.metrics import clip_metrics, k3, token_weighted_mean
from gspo_edu.objectives.corrections import correction_weight
from gspo_edu.ratios import at_least_float32, checked_mask


@dataclass(frozen=True)
class ObjectiveResult:
    """What an objective returns.

    Attributes:
        loss: 0-dim tensor with graph, to be minimised.
        token_weight: (B, T) detached: -d(policy term of loss)/d logp, normalisation included and
            the KL term excluded. It says who gets the gradient.
        metrics: detached 0-dim tensors by name.
    """

    loss: Tensor
    token_weight: Tensor
    metrics: dict[str, Tensor]


class Common(TypedDict, total=False):
    """Keywords that every objective takes.

    Attributes:
        denominator: what the mean divides by. None: what this batch holds. Give the whole
            mini-batch's number of answers (or of tokens, for the token means) to make the
            gradients of its parts add up exactly.
        beta: weight of the KL term to the reference policy; 0 leaves it out.
        logp_ref: (B, T) log-probs under the reference policy, needed when beta > 0.
        logp_rollout: (B, T) log-probs that the sampler itself reported, for ``correction``.
        correction: see ``corrections.correction_weight``.
    """

    denominator: float | None
    beta: float
    logp_ref: Tensor | None
    logp_rollout: Tensor | None
    correction: Mapping[str, Any] | None


@dataclass(frozen=True)
class Inputs:
    """Checked inputs of an objective, everything (B, T) and zero where the mask is false.

    Attributes:
        mask: bool, true on response tokens.
        advantage: one per token.
        share: weight of each token in the mean that the objective takes; sums to 1 over a
            mini-batch in which every answer has tokens.
        correction: factor on the policy term.
        kl: k3 estimate to the reference policy, or None.
        beta: weight of ``kl``.
    """

    mask: Tensor
    advantage: Tensor
    share: Tensor
    correction: Tensor
    kl: Tensor | None
    beta: float

    @property
    def answer_advantage(self) -> Tensor:
        """(B, 1) mean of ``advantage`` over each answer's tokens."""
        lengths = self.mask.sum(dim=1, keepdim=True).clamp(min=1)
        return self.advantage.sum(dim=1, keepdim=True) / lengths

    def result(
        self, surrogate: Tensor, weight: Tensor, clipped: Tensor, outside: Tensor, **metrics: Tensor
    ) -> ObjectiveResult:
        """Loss, gradient weights and metrics.

        Args:
            surrogate: (B, T) or (B, 1) with graph, to be maximised.
            weight: d surrogate / d logp, without the share, (B, T) or (B, 1).
            clipped, outside: bool, see ``clipped_surrogate``.
        """
        policy_term = self.share * self.correction
        loss = -(policy_term * surrogate).sum()
        found = clip_metrics(clipped.expand_as(self.mask), outside.expand_as(self.mask), self.mask)
        if self.kl is not None:
            if self.beta:
                loss = loss + self.beta * (self.share * self.kl).sum()
            found["k3_token_mean"] = token_weighted_mean(self.kl, self.mask)
        found |= metrics
        return ObjectiveResult(
            loss=loss,
            token_weight=(policy_term * weight).detach(),
            metrics={name: value.detach() for name, value in found.items()},
        )


def checked_inputs(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    mean: Callable[[Tensor, float | None], Tensor],
    *,
    level: str = "token",
    denominator: float | None = None,
    beta: float = 0.0,
    logp_ref: Tensor | None = None,
    logp_rollout: Tensor | None = None,
    correction: Mapping[str, Any] | None = None,
) -> Inputs:
    """Check shapes, mask everything and detach everything but ``logp``, once for all objectives.

    ``level`` is "answer" for objectives with one ratio per answer, whose correction is then one
    factor per answer as well.

    Raises:
        ValueError: if a shape or the mask does not fit, the denominator is no count, ``beta`` is
            negative, or a setting lacks the log-probs it needs.
    """
    log_probs = {"logp": logp, "logp_old": logp_old}
    optional = {"logp_ref": logp_ref, "logp_rollout": logp_rollout}
    log_probs |= {name: given for name, given in optional.items() if given is not None}
    inside = checked_mask(mask, **log_probs)
    rows, width = logp.shape
    given = at_least_float32(advantages).detach()
    if given.shape not in {(rows,), (rows, 1), (rows, width)}:
        raise ValueError(
            f"advantages has shape {tuple(given.shape)}; expected ({rows},), ({rows}, 1) "
            f"or ({rows}, {width}), because logp has shape {(rows, width)}."
        )
    if denominator is not None and not (denominator == 0 or denominator >= 1):
        raise ValueError(
            f"denominator is {denominator}; expected the number of answers (or of tokens) of the "
            "whole mini-batch."
        )
    if not 0 <= beta < math.inf:
        raise ValueError(f"beta is {beta}; expected the weight of the KL term, 0 or more.")
    if beta and logp_ref is None:
        raise ValueError(f"beta is {beta}, so logp_ref (B, T) is needed; given None.")
    kl = None
    if logp_ref is not None:
        kl = k3(logp.where(inside, 0.0), logp_ref.detach().where(inside, 0.0))
    given = given.unsqueeze(1) if given.dim() == 1 else given
    return Inputs(
        mask=inside,
        advantage=given.expand(rows, width).where(inside, 0.0),
        share=mean(inside.to(at_least_float32(logp).dtype), denominator),
        correction=correction_weight(correction, logp_old, logp_rollout, inside, level),
        kl=kl,
        beta=beta,
    )


def mean_per_answer(mask: Tensor, denominator: float | None) -> Tensor:
    """Share (B, T): mean over each answer's tokens, then over answers, so answers weigh equally.

    Answers without response tokens count among the answers and contribute 0.
    """
    answers = len(mask) if denominator is None else denominator
    return mask / mask.sum(dim=1, keepdim=True).clamp(min=1) / max(answers, 1)


def mean_per_token(mask: Tensor, denominator: float | None) -> Tensor:
    """Share (B, T): mean over all response tokens, so long answers weigh more."""
    tokens = mask.sum() if denominator is None else torch.as_tensor(denominator)
    return mask / tokens.clamp(min=1)


def mean_per_length(mask: Tensor, denominator: float | None, max_len: int) -> Tensor:
    """Share (B, T): sum over each answer's tokens over one constant, then mean over answers."""
    answers = len(mask) if denominator is None else denominator
    return mask / max_len / max(answers, 1)


def finite_ratio(log_ratio: Tensor, flows: Tensor) -> Tensor:
    """exp(log_ratio), but never infinite where ``flows`` is false.

    In float32 exp() overflows above 88.7. Where the objective has a zero gradient there, infinity
    times zero would make it NaN; so the exponent stops just below, beyond every clip range.

    Args:
        log_ratio: any shape.
        flows: bool, true where the objective keeps its gradient however large the ratio is. There,
            a ratio beyond the number format is infinite, and so is the loss.
    """
    largest = math.log(torch.finfo(log_ratio.dtype).max) - 1
    return log_ratio.where(flows, log_ratio.clamp(max=largest)).exp()


def clipped_surrogate(
    ratio: Tensor, advantage: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor, Tensor]:
    """min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), the same for tokens and for answers.

    Source: PPO, arXiv 1707.06347, eq. 7, with the two-sided range of DAPO and GSPO.

    Returns:
        (surrogate, clipped, outside), each of ``ratio``'s shape. ``clipped`` is true where min()
        chose the clipped branch, so the gradient is zero; ``outside`` where the ratio lies beyond
        the range, which for half of the quadrants leaves the gradient untouched.

    Raises:
        ValueError: if a clip bound is negative or the lower bound is 1 or more.
    """
    if not (0 <= clip_low < 1 and clip_high >= 0):
        raise ValueError(
            f"clip range [1 - {clip_low}, 1 + {clip_high}] is not usable: "
            "expected 0 <= clip_low < 1 and clip_high >= 0."
        )
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high)
    surrogate = torch.minimum(ratio * advantage, bounded * advantage)
    above, below = ratio > 1 + clip_high, ratio < 1 - clip_low
    clipped = (above & (advantage > 0)) | (below & (advantage < 0))
    return surrogate, clipped, above | below
