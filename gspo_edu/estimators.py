"""Bias and variance of gradient estimators, exactly: every possible answer is listed.

The language is so small that this works: V tokens, answers of exactly L tokens, V^L of them. A
policy is a table of logits (V + 1, V): row p holds the logits of the token that follows token p,
the last row those of the first token. There is one prompt and no end token. The P = (V + 1) V
logits are the parameters that gradients are taken with respect to.

What each objective puts on each token comes from its own ``token_weight``. Left out: groups (the
baseline is a number that the caller gives), the division by the group's std, answers of different
lengths.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gspo_edu.objectives import OBJECTIVES
from gspo_edu.objectives.gspo import RangeWarning

MOST_TOKENS = 2**24
# A clip range that no ratio of these little policies leaves.
NO_CLIP = {"clip_low": 1 - 2.0**-52, "clip_high": math.inf}


def all_answers(vocab: int, length: int) -> Tensor:
    """(V^L, L) every answer of ``length`` tokens once, int64.

    Raises:
        ValueError: if one of the two is below 1, or the answers have too many tokens to list.
    """
    if vocab < 1 or length < 1:
        raise ValueError(f"vocab is {vocab} and length is {length}; expected 1 or more of each.")
    if length * vocab**length > MOST_TOKENS:
        raise ValueError(
            f"vocab {vocab} and length {length} give {vocab}^{length} answers; expected at most "
            f"{MOST_TOKENS} tokens in all. Take a shorter length."
        )
    digits = [torch.arange(vocab)] * length
    return torch.cartesian_prod(*digits).view(-1, length)


def sampled_answers(logits: Tensor, length: int, count: int, generator: torch.Generator) -> Tensor:
    """(count, L) answers that the policy writes, token by token."""
    table = checked_policy(logits).softmax(dim=1)
    state = torch.full((count,), logits.shape[1])
    tokens = []
    for _ in range(length):
        state = table[state].multinomial(1, generator=generator)[:, 0]
        tokens.append(state)
    return torch.stack(tokens, dim=1)


def log_probs(logits: Tensor, answers: Tensor) -> Tensor:
    """(N, L) log-prob of each token after the token before it."""
    return checked_policy(logits).log_softmax(dim=1)[before(logits, answers), answers]


def exact_gradient(logits: Tensor, answers: Tensor, rewards: Tensor) -> Tensor:
    """(P,) gradient of J = sum over all answers of pi(y) R(y), by autograd.

    Args:
        logits: the policy at which the gradient is wanted.
        answers: every answer, as ``all_answers`` lists them.
        rewards: (N,) reward of each.
    """
    leaf = logits.detach().clone().requires_grad_()
    (log_probs(leaf, answers).sum(dim=1).exp() * rewards).sum().backward()
    assert leaf.grad is not None
    return leaf.grad.flatten()


def answer_weights(
    objective: str | None,
    logits: Tensor,
    logits_old: Tensor,
    answers: Tensor,
    advantages: Tensor,
    **settings: Any,
) -> Tensor:
    """(N, L) what the objective puts on each token's score, in units of its weight on-policy.

    The unit makes objectives that divide by the length and those that do not comparable: at
    ``logits == logits_old`` every objective's weight is the advantage.

    Args:
        objective: one of ``OBJECTIVES``; None corrects nothing and takes the answers for the
            policy's own.
        logits, logits_old: the policy being trained and the one that wrote the answers.
        answers: (N, L).
        advantages: (N,).
        settings: the objective's own, such as ``NO_CLIP``.
    """
    logp, logp_old = log_probs(logits, answers), log_probs(logits_old, answers)
    if objective is None:
        objective, logp_old = "grpo", logp

    def token_weight(new: Tensor, advantage: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RangeWarning)  # ranges that never bind are meant here
            mask = torch.ones_like(new)
            result = OBJECTIVES[objective](
                new, logp_old, advantage, mask, denominator=1, **settings
            )
        return result.token_weight

    return token_weight(logp, advantages) / token_weight(logp_old, torch.ones_like(advantages))


def answer_gradients(logits: Tensor, answers: Tensor, weights: Tensor) -> Tensor:
    """(N, P) each answer's estimate: the sum of weight x score over its tokens.

    The score of a token is the gradient of its log-prob; for a softmax that is the chosen token
    minus the probabilities, in the row of the token before.

    Args:
        logits: the policy being trained.
        answers, weights: (N, L).
    """
    rows, vocab = checked_policy(logits).shape
    context = before(logits, answers)
    zeros = torch.zeros(len(answers), rows * vocab, dtype=weights.dtype)
    chosen = zeros.scatter_add(1, context * vocab + answers, weights)
    of_context = chosen.view(-1, rows, vocab).sum(dim=2, keepdim=True)
    return chosen - (of_context * logits.softmax(dim=1)).flatten(start_dim=1)


@dataclass(frozen=True)
class Moments:
    """Mean (P,) and covariance (P, P) of one answer's gradient estimate.

    A batch of N independent answers has the same mean and an N-th of the covariance.
    """

    mean: Tensor
    covariance: Tensor

    @property
    def variance(self) -> float:
        """Expected squared distance from the mean: the covariance's trace."""
        return float(self.covariance.trace())

    @property
    def noise(self) -> float:
        """Noise per signal: standard deviation over the length of the mean; inf without signal."""
        signal = float(self.mean.norm())
        return math.sqrt(self.variance) / signal if signal else math.inf

    def bias(self, gradient: Tensor) -> float:
        """Distance of the mean from ``gradient``, in lengths of ``gradient``."""
        return float((self.mean - gradient).norm() / gradient.norm())

    def cosine(self, gradient: Tensor) -> float:
        """Cosine of the angle between the mean and ``gradient``: 1 is the right direction."""
        return float(torch.cosine_similarity(self.mean, gradient, dim=0))

    def error(self, gradient: Tensor, batch: int) -> float:
        """Root mean squared error of a batch's mean, in lengths of ``gradient``.

        Bias and variance in one number: sqrt(|bias|^2 + variance / N) / |gradient|.
        """
        spread = self.variance / batch / float(gradient.norm()) ** 2
        return math.sqrt(self.bias(gradient) ** 2 + spread)


def moments(gradients: Tensor, probabilities: Tensor) -> Moments:
    """Exact moments of estimates (N, P) that occur with ``probabilities`` (N,).

    Raises:
        ValueError: if the probabilities do not sum to 1, so that some answer is missing.
    """
    total = float(probabilities.sum())
    if not math.isclose(total, 1, rel_tol=1e-6):
        raise ValueError(
            f"probabilities sum to {total:g}; expected 1: list every answer exactly once."
        )
    mean = probabilities @ gradients
    centred = gradients - mean
    return Moments(mean, centred.T @ (probabilities[:, None] * centred))


def token_spread(logits: Tensor, logits_old: Tensor, length: int) -> float:
    """Root mean square of the token log-ratios in answers that the old policy writes."""
    probability, log_ratio = old_and_log_ratio(logits, logits_old)
    state = torch.zeros(len(logits), dtype=logits.dtype)
    state[-1] = 1.0
    total = 0.0
    for _ in range(length):
        joint = state[:, None] * probability
        total += float((joint * log_ratio**2).sum())
        state = torch.cat([joint.sum(dim=0), torch.zeros(1, dtype=logits.dtype)])
    return math.sqrt(total / length)


def policy_at_spread(logits_old: Tensor, direction: Tensor, length: int, spread: float) -> Tensor:
    """The policy in ``direction`` whose ``token_spread`` from the old one is ``spread``.

    Raises:
        ValueError: if the direction does not lead that far.
    """

    def there(distance: float) -> Tensor:
        return logits_old + distance * direction

    def excess(distance: float) -> float:
        return token_spread(there(distance), logits_old, length) - spread

    low, high = 0.0, 1e-3
    while excess(high) < 0:
        low, high = high, 2 * high
        if high > 1e9:
            raise ValueError(
                f"spread is {spread}, which no step in this direction reaches; expected less."
            )
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    return there(high)


def log_ratio_moment(logits: Tensor, logits_old: Tensor, length: int, power: float) -> float:
    """log E_old[(pi(y) / pi_old(y))^power], exact at any length without listing answers.

    Power 2 is the product's second moment, power 1/L the sequence ratio's mean, 2/L its second
    moment. The answers' probabilities multiply up token by token, so a matrix is applied L times.
    """
    probability, log_ratio = old_and_log_ratio(logits, logits_old)
    matrix = probability * (power * log_ratio).exp()
    state = matrix[-1]
    scale = 0.0
    for _ in range(length - 1):
        state = state @ matrix[:-1]
        total = float(state.sum())
        state, scale = state / total, scale + math.log(total)
    return scale + math.log(float(state.sum()))


def expected(reward: Callable[[Tensor], Tensor], logits: Tensor, answers: Tensor) -> float:
    """Expected reward of the policy; ``answers`` are all that there are."""
    return float(log_probs(logits, answers).sum(dim=1).exp() @ reward(answers))


def old_and_log_ratio(logits: Tensor, logits_old: Tensor) -> tuple[Tensor, Tensor]:
    """Two tables (V + 1, V): the old policy's probabilities and the log-ratios."""
    old = checked_policy(logits_old).log_softmax(dim=1)
    return old.exp(), checked_policy(logits).log_softmax(dim=1) - old


def before(logits: Tensor, answers: Tensor) -> Tensor:
    """(N, L) row of the table for each token: the token before it, V at the start."""
    start = torch.full((len(answers), 1), logits.shape[1])
    return torch.cat([start, answers[:, :-1]], dim=1)


def checked_policy(logits: Tensor) -> Tensor:
    """``logits``, after checking that they are a table (V + 1, V).

    Raises:
        ValueError: if they are not.
    """
    if logits.dim() != 2 or logits.shape[0] != logits.shape[1] + 1:
        raise ValueError(
            f"logits has shape {tuple(logits.shape)}; expected (V + 1, V): one row for each token "
            "that came before and a last one for the start."
        )
    return logits
