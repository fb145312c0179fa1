"""The cold start: imitate noisy demonstrations, so that RL begins with sometimes right answers."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gspo_edu.adamw import AdamW
from gspo_edu.batch import Rollout
from gspo_edu.moe.experts import load_balancing_loss
from gspo_edu.moe.model import TinyMoE
from gspo_edu.sampler import answer_log_probs
from gspo_edu.tasks.base import Task, prompts_of_split


def cold_start_losses(
    model: TinyMoE,
    task: Task,
    *,
    steps: int,
    noise: float,
    batch_size: int = 128,
    lr: float = 3e-3,
    balance: float = 0.01,
    generator: torch.Generator,
) -> Iterator[float]:
    """Train ``model`` in place on demonstrations; yields the loss per token of each step.

    The learning rate falls linearly to zero. ``balance`` weighs the load-balancing loss, which
    keeps all experts in use here and is off during RL.
    """
    optimizer = AdamW(model.parameters(), lr=lr)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 - step / steps)
        prompts = prompts_of_split(task, batch_size, generator, held_out=False)
        tokens, mask = task.demonstrations(prompts, noise, generator)
        rows = len(tokens)
        shown = Rollout(
            prompts=prompts,
            tokens=tokens,
            mask=mask,
            logp_old=torch.zeros(tokens.shape),
            rewards=torch.zeros(rows),
            group=torch.arange(rows),
            finished=torch.ones(rows, dtype=torch.bool),
        )
        score = answer_log_probs(model, shown)
        loss = -score.logp.sum() / mask.sum()
        total = loss
        if score.routes is not None and balance:
            total = loss + balance * load_balancing_loss(
                score.router_logits, score.routes.answer, mask
            )
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield float(loss.detach())
