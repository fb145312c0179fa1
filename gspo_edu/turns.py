"""Sampling of dialogues: the policy writes, the environment replies, the policy writes again."""

from __future__ import annotations

import torch
from torch import Tensor

from gspo_edu.batch import Rollout
from gspo_edu.moe.model import TinyMoE
from gspo_edu.moe.routes import RouteTrace
from gspo_edu.sampler import sampled_answers
from gspo_edu.tasks.base import END, PAD, masked_after_end
from gspo_edu.tasks.two_turn import TwoTurnWalk, joined_turns


@torch.no_grad()
def sampled_dialogues(
    model: TinyMoE,
    task: TwoTurnWalk,
    prompts: Tensor,
    group_size: int,
    *,
    temperature: float,
    generator: torch.Generator,
) -> Rollout:
    """``group_size`` dialogues of two turns for each prompt, rewarded.

    A dialogue whose first turn hits its limit gets no second one and is not ``finished``. Log-probs
    and routes are those of the pass that wrote the token; environment tokens have neither.

    Args:
        model, prompts, group_size, temperature, generator: as in ``sampler.sampled_rollout``.
        task: gives the environment's reply, the limit of a turn, and the verifier.

    Raises:
        DivergedError: if the policy's log-probs are not finite.
    """
    limit = task.turn_limit
    group = torch.arange(len(prompts), device=prompts.device).repeat_interleave(group_size)
    first = sampled_answers(model, prompts, group_size, limit, temperature, generator)
    first_mask, first_ended = masked_after_end(first.tokens)
    reply = task.reply(prompts)[group]

    rows, top_k = len(group), model.config.top_k
    second = torch.full((rows, limit), PAD, device=prompts.device)
    logp = first.logp.new_zeros(rows, limit)
    routes = first.routes.new_full((rows, limit, len(model.config.routed_layers), top_k), -1)
    lengths = first_mask.sum(dim=1)
    # Dialogues with an equally long first turn have one width and are read together.
    for length in lengths[first_ended].unique().tolist():
        own = (first_ended & (lengths == length)).nonzero()[:, 0]
        shown = torch.cat([prompts[group[own]], first.tokens[own, :length], reply[own]], dim=1)
        found = sampled_answers(model, shown, 1, limit, temperature, generator)
        width = found.tokens.shape[1]
        second[own, :width], logp[own, :width] = found.tokens, found.logp
        routes[own, :width] = found.routes
    second_mask = masked_after_end(second)[0] & first_ended[:, None]

    tokens, mask = joined_turns(first.tokens, first_mask, reply, second, second_mask)
    finished = first_ended & (second == END).any(dim=1)
    answer = laid_out(first.routes, routes, first_mask, second_mask, mask, -1)
    trace = RouteTrace(
        first.prompt_routes.unflatten(0, (len(prompts), -1)), answer, model.config.routed_layers
    )
    return Rollout(
        prompts=prompts,
        tokens=tokens,
        mask=mask,
        logp_old=laid_out(first.logp, logp, first_mask, second_mask, mask, 0.0),
        rewards=task.rewards(prompts[group], tokens, mask, finished),
        group=group,
        finished=finished,
        routes=None if model.config.dense else trace,
    )


def laid_out(
    first: Tensor,
    second: Tensor,
    first_mask: Tensor,
    second_mask: Tensor,
    mask: Tensor,
    fill: float,
) -> Tensor:
    """Values of both turns (B, T1, ...) and (B, T2, ...) where ``mask`` (B, T) has their tokens."""
    out = first.new_full((*mask.shape, *first.shape[2:]), fill)
    both = torch.cat([first, second], dim=1)
    out[mask] = both[torch.cat([first_mask, second_mask], dim=1)]
    return out
