"""From prompts to answers, and from answers back to log-probs.

Both directions use the same model at the same temperature and without truncation (no top-k, no
top-p): the importance ratio is 1 on-policy only for the distribution that really sampled.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gspo_edu.batch import Rollout
from gspo_edu.metrics import entropy_of
from gspo_edu.moe.contexts import AnswerCache, PromptsWithAnswers, Sequences
from gspo_edu.moe.model import ForwardResult, TinyMoE
from gspo_edu.moe.routes import RouteTrace
from gspo_edu.tasks.base import END, PAD, Task, masked_after_end


class DivergedError(ValueError):
    """The policy no longer gives finite log-probs: training went wrong, not the input."""


@torch.no_grad()
def sampled_rollout(
    model: TinyMoE,
    task: Task,
    prompts: Tensor,
    group_size: int,
    *,
    temperature: float = 1.0,
    generator: torch.Generator,
) -> Rollout:
    """Sample ``group_size`` answers to each prompt and reward them.

    Args:
        model: the policy.
        task: gives the length limit and the verifier.
        prompts: (P, T_prompt) ids; each is read once and shared by its group.
        group_size: answers per prompt, G.
        temperature: divides the logits, here and in ``answer_log_probs``.
        generator: source of the samples, on the model's device.

    Returns:
        Rollout of P * G answers, in which an answer that hit the length limit is not ``finished``.

    Raises:
        ValueError: if the temperature is not positive.
        DivergedError: if the policy's log-probs are not finite.
    """
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}; expected a positive number such as 1.")
    device = prompts.device
    group = torch.arange(len(prompts), device=device).repeat_interleave(group_size)
    rows, limit, config = len(group), task.max_new_tokens, model.config
    read = Sequences(len(prompts), prompts.shape[1] - 1)
    prompt_pass = model(prompts[:, :-1].flatten(), read)
    cache = AnswerCache(read, group_size, limit)

    layers = len(config.routed_layers)
    tokens = torch.full((rows, limit), PAD, device=device)
    logp = torch.zeros(rows, limit, device=device)
    routes = torch.full((rows, limit, layers, config.top_k), -1, dtype=torch.int16, device=device)
    current = prompts[group, -1]
    for position in range(limit):
        step, alive = model(current, cache), cache.alive
        log_probs = (step.logits / temperature).log_softmax(dim=-1)
        if not torch.isfinite(log_probs).all():
            raise DivergedError(
                "the policy's log-probs are not finite: training has diverged. Use a lower lr."
            )
        current = log_probs.exp().multinomial(1, generator=generator)[:, 0]
        tokens[alive, position] = current
        logp[alive, position] = log_probs.gather(1, current[:, None])[:, 0]
        routes[alive, position] = step.routes
        going_on = (current != END).nonzero()[:, 0]
        if len(going_on) == 0:
            break
        current = current[going_on]
        cache.next_step(going_on)
    mask, finished = masked_after_end(tokens)
    width = int(mask.sum(dim=1).max())
    tokens, mask = tokens[:, :width], mask[:, :width]
    trace = RouteTrace(
        prompt_pass.routes.unflatten(0, read.shape), routes[:, :width], config.routed_layers
    )
    return Rollout(
        prompts=prompts,
        tokens=tokens,
        mask=mask,
        logp_old=logp[:, :width],
        rewards=task.rewards(prompts[group], tokens, mask, finished),
        group=group,
        finished=finished,
        routes=None if config.dense else trace,
    )


@dataclass(frozen=True)
class AnswerScore:
    """What the policy says about answers that exist already; all zero or -1 in padding.

    Attributes:
        logp: (B, T) log-prob of each response token, with graph.
        entropy: (B, T) entropy of the distribution that it was drawn from, nats, detached.
        routes: experts that were active; None for dense models.
        router_logits: (B, T, N, E) of the answers' positions.
    """

    logp: Tensor
    entropy: Tensor
    routes: RouteTrace | None
    router_logits: Tensor


def answer_log_probs(
    model: TinyMoE,
    rollout: Rollout,
    *,
    temperature: float = 1.0,
    replay: RouteTrace | None = None,
) -> AnswerScore:
    """Log-probs of a rollout's answers under ``model``, each prompt read once.

    Args:
        model: the policy being trained.
        rollout: prompts and answers.
        temperature: the one that sampled.
        replay: experts to use instead of the router's choice, already checked.
    """
    prompts, mask = rollout.prompts, rollout.mask
    result, inside, silent = answer_pass(model, rollout, replay)
    log_probs = (result.logits / temperature).log_softmax(dim=-1)
    logp = log_probs.gather(-1, rollout.tokens[inside][:, None])[:, 0]
    routes = None
    if not model.config.dense:
        prompt_routes = result.routes[:silent].unflatten(0, (len(prompts), -1))
        answer_routes = padded(result.routes[silent:], inside, -1)
        routes = RouteTrace(
            prompt_routes,
            answer_routes.where(mask[..., None, None], -1),
            model.config.routed_layers,
        )
    return AnswerScore(
        logp=padded(logp, inside).where(mask, 0.0),
        entropy=padded(entropy_of(log_probs.detach()), inside).where(mask, 0.0),
        routes=routes,
        router_logits=padded(result.router_logits[silent:], inside),
    )


def answer_pass(
    model: TinyMoE, rollout: Rollout, replay: RouteTrace | None = None
) -> tuple[ForwardResult, Tensor, int]:
    """Read prompts and answers, each prompt once.

    Returns:
        The result of the pass, whose logits are those of the answers' tokens in order; (B, T)
        bool, true on these tokens; and how many tokens of prompts its routes have before them.
    """
    prompts = rollout.prompts
    # The last prompt token predicts the first answer token, so inputs and targets line up.
    last = prompts[rollout.group, -1]
    inputs = torch.cat([last[:, None], rollout.tokens[:, :-1]], dim=1)
    # What stands behind an answer's last token is not computed at all.
    inside = rollout.mask.flip(1).cumsum(dim=1).flip(1) > 0
    layout = PromptsWithAnswers(len(prompts), prompts.shape[1] - 1, rollout.group, inside)
    fixed = None
    if replay is not None:
        fixed = torch.cat([replay.prompt.flatten(0, 1), replay.answer[inside]])
    result = model(torch.cat([prompts[:, :-1].flatten(), inputs[inside]]), layout, replay=fixed)
    return result, inside, layout.silent


def padded(x: Tensor, inside: Tensor, fill: float = 0) -> Tensor:
    """Values of the true tokens of ``inside`` (B, T) as (B, T, ...), ``fill`` elsewhere."""
    if len(x) == inside.numel():
        return x.view(*inside.shape, *x.shape[1:])
    out = x.new_full((*inside.shape, *x.shape[1:]), fill)
    out[inside] = x
    return out
