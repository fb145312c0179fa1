"""The critic: PPO's second trained model, which guesses the reward still to come.

It starts as a copy of the policy with one number per token in place of the vocabulary's logits, and
has weights and an optimiser of its own. That is what GRPO does without: weights, gradients and
AdamW's two means twice, and a second forward and backward pass per update. Since nothing is shared
with the policy, the two losses need no weight against each other.

Left out on purpose: clipping of the value loss (PPO's paper does not have it) and a learning rate
that starts later than the policy's.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from gspo_edu.adamw import AdamW
from gspo_edu.advantages import gae, standardized
from gspo_edu.batch import Rollout
from gspo_edu.config import TrainConfig
from gspo_edu.metrics import explained_variance, token_weighted_mean
from gspo_edu.moe.model import TinyMoE
from gspo_edu.sampler import DivergedError, answer_pass, padded


class Critic:
    """A value model and its optimiser.

    Attributes:
        model: the policy's layers with a head of one output, which starts at 0.
        optimizer: its AdamW, with ``critic_lr`` and the policy's ``weight_decay``.
    """

    def __init__(self, config: TrainConfig, policy: TinyMoE) -> None:
        """Start from ``policy``'s weights, on its device; ``policy`` is left as it is."""
        self.config = config
        self.model = copy.deepcopy(policy)
        head = nn.Linear(policy.config.width, 1)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        self.model.head = head.to(policy.head.weight)
        lr = config.lr if config.critic_lr is None else config.critic_lr
        self.optimizer = AdamW(self.model.parameters(), lr=lr, weight_decay=config.weight_decay)

    def values(self, rollout: Rollout) -> Tensor:
        """(B, T) guess before each response token of the reward still to come, with graph.

        0 outside the mask. The critic's routers choose for the critic's own hidden states: the
        rollout's routes are the policy's and are never replayed here.
        """
        result, inside, _ = answer_pass(self.model, rollout)
        return padded(result.logits[:, 0], inside).where(rollout.mask, 0.0)

    @torch.no_grad()
    def judged(
        self, rollout: Rollout, rewards: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Advantages and value targets of a rollout, by the critic as it is before its updates.

        Args:
            rollout: all of it, so that every mini-batch is judged by the same critic.
            rewards: (B,) what its answers have earned.
            mask: (B, T), 1 on the response tokens that count.

        Returns:
            (B, T) advantages from ``gae``, standardized unless the config says otherwise; (B, T)
            targets; and ``explained_variance``, of the returns (``lam=1``: no value is in them) of
            answers that the critic has not been trained on.

        Raises:
            DivergedError: if a value is not finite.
        """
        config, values = self.config, self.values(rollout)
        if not torch.isfinite(values).all():
            raise DivergedError(
                "the critic's values are not finite: training has diverged. Use a lower critic_lr."
            )
        advantages, targets = gae(rewards, values, mask, gamma=config.gamma, lam=config.lam)
        if config.normalizes_advantages():
            eps = config.advantage_eps
            advantages = standardized(advantages, mask, ddof=config.ddof, eps=eps)
        _, returns = gae(rewards, values, mask, gamma=config.gamma, lam=1.0)
        return (
            advantages,
            targets,
            {"explained_variance": explained_variance(values, returns, mask)},
        )

    def one_update(
        self, batch: Rollout, targets: Tensor, mask: Tensor
    ) -> dict[str, Tensor | float | int]:
        """One step on the mean squared error of the values over the tokens of ``mask`` (B, T).

        Returns:
            ``value_loss`` before the step, ``critic_grad_norm`` before it was bounded by
            ``max_grad_norm``, and ``critic_update_skipped``: 1 if that norm was not finite.
        """
        # Selecting before squaring keeps NaN in padding out of the gradient.
        error = (self.values(batch) - targets).where(mask, 0.0)
        loss = token_weighted_mean(error**2, mask)
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        usable = bool(torch.isfinite(norm))
        if usable:
            self.optimizer.step()
        return {
            "value_loss": loss.detach(),
            "critic_grad_norm": norm,
            "critic_update_skipped": int(not usable),
        }
