"""From prompts to answers, and from answers back to log-probs.

Both directions use the same model at the same temperature and without truncation (no top-k, no
top-p): the importance ratio is 1 on-policy only for the distribution that really sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from gspo_edu.batch import Rollout
from gspo_edu.metrics import entropy_of
from gspo_edu.moe.config import ModelConfig
from gspo_edu.moe.contexts import AnswerCache, Context, PromptsWithAnswers, Sequences
from gspo_edu.moe.model import ForwardResult, TinyMoE
from gspo_edu.moe.routes import RouteTrace
from gspo_edu.ratios import at_least_float32
from gspo_edu.tasks.base import END, PAD, Task, masked_after_end
from gspo_edu.tasks.two_turn import TwoTurnWalk

DIVERGED = "the policy's log-probs are not finite: training has diverged. Use a lower lr."


class DivergedError(ValueError):
    """The policy no longer gives finite log-probs: training went wrong, not the input."""


class Policy(Protocol):
    """What gives answers their log-probs: a ``TinyMoE``, or a batch of them."""

    @property
    def config(self) -> ModelConfig:
        """The shape of the model."""
        ...

    def __call__(
        self, tokens: Tensor, context: PromptsWithAnswers, *, replay: Tensor | None = None
    ) -> ForwardResult:
        """See ``TinyMoE.forward``."""
        ...


@torch.no_grad()
def sampled_rollout(
    model: TinyMoE,
    task: Task,
    prompts: Tensor,
    group_size: int,
    *,
    temperature: float = 1.0,
    generator: torch.Generator,
    fixed_shapes: bool | None = None,
) -> Rollout:
    """Sample ``group_size`` answers to each prompt and reward them.

    Args:
        model: the policy.
        task: gives the length limit and the verifier.
        prompts: (P, T_prompt) ids; each is read once and shared by its group.
        group_size: answers per prompt, G.
        temperature: divides the logits, here and in ``answer_log_probs``.
        generator: source of the samples, on the model's device.
        fixed_shapes: see ``wants_fixed_shapes``. The answers are then other draws from the same
            distribution, with as many columns as the length limit.

    Returns:
        Rollout of P * G answers, in which an answer that hit the length limit is not ``finished``.

    Raises:
        ValueError: if the temperature is not positive.
        DivergedError: if the policy's log-probs are not finite.
    """
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}; expected a positive number such as 1.")
    if isinstance(task, TwoTurnWalk):
        from gspo_edu.turns import sampled_dialogues  # which builds on this module

        return sampled_dialogues(
            model, task, prompts, group_size, temperature=temperature, generator=generator
        )
    if wants_fixed_shapes(fixed_shapes, prompts.device):
        shape = (task.max_new_tokens, len(prompts) * group_size, model.config.vocab_size)
        noise = sampling_noise(shape, generator)
        sampled = fixed_answers(model, prompts, group_size, noise, temperature)
    else:
        limit = task.max_new_tokens
        sampled = sampled_answers(model, prompts, group_size, limit, temperature, generator)
    return rollout_of(task, prompts, sampled, model.config)


@torch.no_grad()
def sampled_answers(
    model: TinyMoE,
    prompts: Tensor,
    group_size: int,
    limit: int,
    temperature: float,
    generator: torch.Generator,
) -> Sampled:
    """Let answers grow, each to its end token or to ``limit`` tokens; see ``sampled_rollout``.

    The columns of the result end with the longest answer.
    """
    device, config = prompts.device, model.config
    group = torch.arange(len(prompts), device=device).repeat_interleave(group_size)
    read = Sequences(len(prompts), prompts.shape[1] - 1)
    prompt_pass = model(prompts[:, :-1].flatten(), read)
    cache = AnswerCache(read, group_size, limit)

    rows, layers = len(group), len(config.routed_layers)
    tokens = torch.full((rows, limit), PAD, device=device)
    logp = torch.zeros(rows, limit, device=device)
    routes = torch.full((rows, limit, layers, config.top_k), -1, dtype=torch.int16, device=device)
    current = prompts[group, -1]
    for position in range(limit):
        step, alive = model(current, cache), cache.alive
        log_probs = (at_least_float32(step.logits) / temperature).log_softmax(dim=-1)
        if not torch.isfinite(log_probs).all():
            raise DivergedError(DIVERGED)
        current = log_probs.exp().multinomial(1, generator=generator)[:, 0]
        tokens[alive, position] = current
        logp[alive, position] = log_probs.gather(1, current[:, None])[:, 0]
        routes[alive, position] = step.routes
        going_on = (current != END).nonzero()[:, 0]
        if len(going_on) == 0:
            break
        current = current[going_on]
        cache.next_step(going_on)
    width = int(masked_after_end(tokens)[0].sum(dim=1).max())
    answers = (tokens[:, :width], logp[:, :width], routes[:, :width])
    return Sampled(*answers, prompt_pass.routes, torch.ones(1, dtype=torch.bool))


class Sampled(NamedTuple):
    """B answers as they were drawn; what follows an end token does not count.

    Attributes:
        tokens, logp: (B, T).
        routes: (B, T, N, K).
        prompt_routes: (P (T_prompt - 1), N, K).
        finite: (1,) whether all log-probs were.
    """

    tokens: Tensor
    logp: Tensor
    routes: Tensor
    prompt_routes: Tensor
    finite: Tensor


def wants_fixed_shapes(given: bool | None, device: torch.device) -> bool:
    """Whether shapes must not depend on values: as ``given``, or None: everywhere but on a CPU.

    A GPU would wait at every step for the number of answers that still grow and of tokens that each
    expert serves. On a CPU computing only what is needed is several times as fast.
    """
    return device.type != "cpu" if given is None else given


def sampling_noise(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Exponential random numbers (T, B, V) for ``fixed_answers``, all that a rollout needs."""
    return torch.empty(shape, device=generator.device).exponential_(generator=generator)


def fixed_answers(
    policy: Callable[[Tensor, Context], ForwardResult],
    prompts: Tensor,
    group_size: int,
    noise: Tensor,
    temperature: float,
) -> Sampled:
    """Let all answers grow to the limit, also those that have ended: no shape depends on a value.

    Args:
        policy: reads tokens in a context, as ``TinyMoE`` does.
        prompts, group_size, temperature: as in ``sampled_rollout``.
        noise: (T, B, V) from ``sampling_noise``.
    """
    read = Sequences(len(prompts), prompts.shape[1] - 1, fixed_shapes=True)
    prompt_pass = policy(prompts[:, :-1].flatten(), read)
    cache = AnswerCache(read, group_size, len(noise))
    current = prompts[:, -1].repeat_interleave(group_size)
    finite = torch.ones(1, dtype=torch.bool, device=prompts.device)
    columns = []
    for of_step in noise:
        step = policy(current, cache)
        log_probs = (at_least_float32(step.logits) / temperature).log_softmax(dim=-1)
        finite = finite & torch.isfinite(log_probs).all()
        # Clocks that ring after Exp(1) / p: token i is first with probability p_i.
        current = (log_probs.exp() / of_step).argmax(dim=-1)
        columns.append((current, log_probs.gather(1, current[:, None])[:, 0], step.routes))
        cache.next_step(cache.alive)
    tokens, logp, routes = (torch.stack(parts, dim=1) for parts in zip(*columns, strict=True))
    return Sampled(tokens, logp, routes, prompt_pass.routes, finite)


def rollout_of(task: Task, prompts: Tensor, sampled: Sampled, config: ModelConfig) -> Rollout:
    """Mask and reward sampled answers, equally many to each prompt, in order.

    Raises:
        DivergedError: if the policy's log-probs were not finite.
    """
    if not sampled.finite.all():
        raise DivergedError(DIVERGED)
    mask, finished = masked_after_end(sampled.tokens)
    tokens = sampled.tokens.where(mask, PAD)
    group = torch.arange(len(prompts), device=prompts.device)
    group = group.repeat_interleave(len(tokens) // len(prompts))
    trace = RouteTrace(
        sampled.prompt_routes.unflatten(0, (len(prompts), prompts.shape[1] - 1)),
        sampled.routes.where(mask[..., None, None], -1),
        config.routed_layers,
    )
    return Rollout(
        prompts=prompts,
        tokens=tokens,
        mask=mask,
        logp_old=sampled.logp.where(mask, 0.0),
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
    model: Policy,
    rollout: Rollout,
    *,
    temperature: float = 1.0,
    replay: RouteTrace | None = None,
    layout: PromptsWithAnswers | None = None,
) -> AnswerScore:
    """Log-probs of a rollout's answers under ``model``, each prompt read once.

    Args:
        model: the policy being trained.
        rollout: prompts and answers.
        temperature: the one that sampled.
        replay: experts to use instead of the router's choice, already checked.
        layout: from ``layout_of`` or ``fixed_layout``; None: the former.
    """
    layout = layout or layout_of(rollout)
    mask, inside = rollout.mask, layout.inside
    result, _, silent = answer_pass(model, rollout, replay, layout)
    log_probs = (at_least_float32(result.logits) / temperature).log_softmax(dim=-1)
    logp = log_probs.gather(-1, taken(rollout.tokens, layout)[:, None])[:, 0]
    routes = None
    if not model.config.dense:
        prompt_routes = result.routes[:silent].unflatten(0, (layout.prompts, layout.width))
        if layout.fixed_shapes:
            unknown = prompt_routes.new_full((len(rollout.prompts), *prompt_routes.shape[1:]), -1)
            first = rollout.group[:: layout.answers]
            prompt_routes = unknown.index_copy(0, first, prompt_routes)
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
    model: Policy,
    rollout: Rollout,
    replay: RouteTrace | None = None,
    layout: PromptsWithAnswers | None = None,
) -> tuple[ForwardResult, Tensor, int]:
    """Read prompts and answers, each prompt once.

    Returns:
        The result of the pass, whose logits are those of the answers' tokens in order; (B, T)
        bool, true on these tokens; and how many tokens of prompts its routes have before them.
    """
    layout = layout or layout_of(rollout)
    prompts = rollout.prompts
    # The last prompt token predicts the first answer token, so inputs and targets line up.
    last = prompts[rollout.group, -1]
    inputs = taken(torch.cat([last[:, None], rollout.tokens[:, :-1]], dim=1), layout)
    shown = prompts[:, :-1]
    of_prompts = None if replay is None else replay.prompt
    if layout.fixed_shapes:
        first = rollout.group[:: layout.answers]
        shown, of_prompts = shown[first], None if of_prompts is None else of_prompts[first]
    fixed = None
    if replay is not None and of_prompts is not None:
        fixed = torch.cat([of_prompts.flatten(0, 1), taken(replay.answer, layout)])
    result = model(torch.cat([shown.flatten(), inputs]), layout, replay=fixed)
    return result, layout.inside, layout.silent


def layout_of(rollout: Rollout, fixed_shapes: bool | None = None) -> PromptsWithAnswers:
    """How ``answer_pass`` lays a rollout's tokens out; see ``wants_fixed_shapes``."""
    prompts, group = rollout.prompts, rollout.group
    if wants_fixed_shapes(fixed_shapes, group.device):
        answers = len(group) // max(len(prompts), 1)
        whole = answers > 0 and answers * len(prompts) == len(group)
        # The only question to a GPU here; where groups were cut, each answer gets its own prompt.
        whole = whole and bool((group.view(-1, answers) == group[::answers, None]).all())
        return fixed_layout(rollout, answers if whole else 1)
    # What stands behind an answer's last token is not computed at all.
    inside = rollout.mask.flip(1).cumsum(dim=1).flip(1) > 0
    return PromptsWithAnswers(len(prompts), prompts.shape[1] - 1, group, inside)


def fixed_layout(rollout: Rollout, answers: int) -> PromptsWithAnswers:
    """All tokens, padding too, of a rollout in which ``answers`` rows in turn share a prompt.

    Its prompts stand in the order of the answers, once per ``answers`` rows.
    """
    group, inside = rollout.group, torch.ones_like(rollout.mask)
    width = rollout.prompts.shape[1] - 1
    return PromptsWithAnswers(len(group) // answers, width, group, inside, fixed_shapes=True)


def taken(x: Tensor, layout: PromptsWithAnswers) -> Tensor:
    """Values (B, T, ...) of the tokens that ``layout`` holds, in order, (S, ...)."""
    return x.flatten(0, 1) if layout.fixed_shapes else x[layout.inside]


def padded(x: Tensor, inside: Tensor, fill: float = 0) -> Tensor:
    """Values of the true tokens of ``inside`` (B, T) as (B, T, ...), ``fill`` elsewhere."""
    if len(x) == inside.numel():
        return x.view(*inside.shape, *x.shape[1:])
    out = x.new_full((*inside.shape, *x.shape[1:]), fill)
    out[inside] = x
    return out
