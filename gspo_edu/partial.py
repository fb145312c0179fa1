"""Partial rollout: long answers are cut after a budget of tokens and go on under the next policy.

Whoever waits for the longest answer lets the machine idle. So each round grants every open answer
``budget`` more tokens; groups whose answers have all ended are trained on, the others wait for the
next round, whose policy has moved on (Kimi k1.5, arXiv 2501.12599). An answer may
then have several authors, and pi_old of a token is the policy that wrote this token.

    open_answers = PartialRollouts(task, budget=6, group_size=8)
    while ...:
        found = open_answers.next_round(trainer.model, trainer.training_prompts(), dice)
        if found is not None:
            trainer.train_on(found.rollout)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gspo_edu.batch import Rollout
from gspo_edu.moe.model import TinyMoE
from gspo_edu.sampler import Sampled, rollout_of, sampled_answers
from gspo_edu.tasks.base import END, PAD, Task, masked_after_end


@dataclass(frozen=True)
class PartialRollout:
    """Groups whose answers have all ended.

    Attributes:
        rollout: their log-probs and routes are each token's author's.
        author: (B, T) number of the round in which each token was written; -1 in padding.
    """

    rollout: Rollout
    author: Tensor


@dataclass(frozen=True)
class OpenGroups:
    """Groups that were started in the same round: P prompts with G answers each, L tokens so far.

    Attributes:
        prompts: (P, T_prompt).
        prompt_routes: (P, T_prompt - 1, N, K) of the first author.
        tokens, logp, author: (P G, L).
        routes: (P G, L, N, K).
    """

    prompts: Tensor
    prompt_routes: Tensor
    tokens: Tensor
    logp: Tensor
    author: Tensor
    routes: Tensor

    def rows(self, groups: Tensor, group_size: int) -> OpenGroups:
        """The groups ``groups`` (P,) bool."""
        answers = groups.repeat_interleave(group_size)
        return OpenGroups(
            *(self.prompts[groups], self.prompt_routes[groups], self.tokens[answers]),
            *(self.logp[answers], self.author[answers], self.routes[answers]),
        )


class PartialRollouts:
    """Samples answers in rounds and hands out the groups that are complete.

    Attributes:
        round: rounds made so far.
        waiting: the groups that are not complete, oldest first.
    """

    def __init__(
        self, task: Task, budget: int, group_size: int, *, temperature: float = 1.0
    ) -> None:
        """Start without any open answer.

        Args:
            task: gives the length limit and the verifier.
            budget: most tokens that an answer grows by in one round.
            group_size: answers per prompt.
            temperature: as in ``sampler.sampled_rollout``.

        Raises:
            ValueError: if a setting is not positive.
        """
        for name, value in (("budget", budget), ("group_size", group_size)):
            if value < 1:
                raise ValueError(f"{name} is {value}; expected 1 or more.")
        if temperature <= 0:
            raise ValueError(f"temperature is {temperature}; expected a positive number.")
        self.task, self.budget, self.group_size = task, budget, group_size
        self.temperature = temperature
        self.round = 0
        self.waiting: list[OpenGroups] = []

    def next_round(
        self, model: TinyMoE, prompts: Tensor, generator: torch.Generator
    ) -> PartialRollout | None:
        """Let all open answers and those to new ``prompts`` grow; returns what is complete.

        Args:
            model: the present policy.
            prompts: (P, T_prompt) to start on; P may be 0.
            generator: source of the samples.

        Raises:
            DivergedError: if the policy's log-probs are not finite.
        """
        started = [self.started(model, prompts, generator)] if len(prompts) else []
        grown = [self.continued(model, groups, generator) for groups in self.waiting] + started
        self.round += 1
        complete: list[OpenGroups] = []
        self.waiting = []
        for groups in grown:
            over = self.is_over(groups).view(-1, self.group_size).all(dim=1)
            if over.any():
                complete.append(groups.rows(over, self.group_size))
            if not over.all():
                self.waiting.append(groups.rows(~over, self.group_size))
        return self.joined(complete, model) if complete else None

    def is_over(self, groups: OpenGroups) -> Tensor:
        """(P G,) bool: the answer has ended or reached the length limit."""
        at_limit = groups.tokens.shape[1] >= self.task.max_new_tokens
        return (groups.tokens == END).any(dim=1) | at_limit

    def started(self, model: TinyMoE, prompts: Tensor, dice: torch.Generator) -> OpenGroups:
        """New groups after their first round."""
        limit = min(self.budget, self.task.max_new_tokens)
        found = sampled_answers(model, prompts, self.group_size, limit, self.temperature, dice)
        return OpenGroups(
            prompts=prompts,
            prompt_routes=found.prompt_routes.unflatten(0, (len(prompts), -1)),
            tokens=found.tokens,
            logp=found.logp,
            author=torch.full_like(found.tokens, self.round),
            routes=found.routes,
        )

    def continued(self, model: TinyMoE, groups: OpenGroups, dice: torch.Generator) -> OpenGroups:
        """The groups with what ``model`` has added to their open answers.

        What the earlier authors wrote is read anew, as a prompt: their keys and values are of no
        use to other weights.
        """
        is_open = ~self.is_over(groups)
        limit = min(self.budget, self.task.max_new_tokens - groups.tokens.shape[1])
        written = torch.cat(
            [groups.prompts.repeat_interleave(self.group_size, 0), groups.tokens], 1
        )
        found = sampled_answers(model, written[is_open], 1, limit, self.temperature, dice)
        width = groups.tokens.shape[1] + found.tokens.shape[1]
        wider = widened(groups, width)
        new = slice(groups.tokens.shape[1], width)
        for mine, theirs in (
            (wider.tokens, found.tokens),
            (wider.logp, found.logp),
            (wider.routes, found.routes),
            (wider.author, torch.full_like(found.tokens, self.round)),
        ):
            mine[is_open, new] = theirs
        return wider

    def joined(self, complete: list[OpenGroups], model: TinyMoE) -> PartialRollout:
        """Complete groups of all ages as one rollout."""
        width = max(groups.tokens.shape[1] for groups in complete)
        parts = [widened(groups, width) for groups in complete]
        prompts, prompt_routes, tokens, logp, author, routes = (
            torch.cat([getattr(groups, name) for groups in parts])
            for name in ("prompts", "prompt_routes", "tokens", "logp", "author", "routes")
        )
        finite = torch.ones(1, dtype=torch.bool)
        sampled = Sampled(tokens, logp, routes, prompt_routes.flatten(0, 1), finite)
        rollout = rollout_of(self.task, prompts, sampled, model.config)
        return PartialRollout(rollout, author.where(masked_after_end(tokens)[0], -1))


def widened(groups: OpenGroups, width: int) -> OpenGroups:
    """``groups`` with room for ``width`` tokens per answer."""
    more = width - groups.tokens.shape[1]
    fills = {"tokens": PAD, "logp": 0.0, "author": -1, "routes": -1}
    parts = {name: getattr(groups, name) for name in fills}
    room = {
        name: part.new_full((len(part), more, *part.shape[2:]), fills[name])
        for name, part in parts.items()
    }
    return replace(
        groups, **{name: torch.cat([part, room[name]], dim=1) for name, part in parts.items()}
    )
