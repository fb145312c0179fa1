"""Two turns: the environment answers the first walk with a second task, and the policy walks on.

    prompt        3 8 2 7 =
    policy        5 7 4 6 8 end          the first walk, to the goal 8
    environment   8 5 2 7 =              from where a right walk ends, to a new goal
    policy        0 7 9 6 8 5 end        the second walk

What the environment wrote stands among the answer's tokens, because the policy has to see it; but
the policy did not choose it. So the mask is false there: no log-prob, no ratio, no length.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from gspo_edu.tasks.base import END, EQUALS, PAD, masked_after_end
from gspo_edu.tasks.clock_walk import HOURS, ClockWalk


@dataclass(frozen=True)
class TwoTurnWalk:
    """Two walks of ``ClockWalk(longest)``, the second from the first one's goal to another.

    Raises:
        ValueError: as ``ClockWalk``.
    """

    longest: int = 12
    prompt_length: int = 5
    walk: ClockWalk = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "walk", ClockWalk(self.longest))

    @property
    def max_new_tokens(self) -> int:
        """Most tokens that the policy writes in both turns; the environment's do not count."""
        return 2 * self.walk.max_new_tokens

    @property
    def turn_limit(self) -> int:
        """Most tokens that the policy writes in one turn, the end token included."""
        return self.walk.max_new_tokens

    def random_prompts(self, count: int, generator: torch.Generator) -> Tensor:
        """See ``ClockWalk.random_prompts``."""
        return self.walk.random_prompts(count, generator)

    def reply(self, prompts: Tensor) -> Tensor:
        """(B, 5) what the environment says after the first turn: the second task.

        Its goal lies two moves further, one of each step, so that it can be reached.
        """
        goal, smaller, larger = prompts[:, 1], prompts[:, 2], prompts[:, 3]
        further = (goal + smaller + larger) % HOURS
        equals = torch.full_like(goal, EQUALS)
        return torch.stack([goal, further, smaller, larger, equals], dim=1)

    def demonstrations(
        self, prompts: Tensor, noise: float, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Two walks with the environment's tokens between them, which the mask leaves out."""
        first = self.walk.demonstrations(prompts, noise, generator)
        second = self.walk.demonstrations(self.reply(prompts), noise, generator)
        return joined_turns(*first, self.reply(prompts), *second)

    def exact(self, prompts: Tensor, tokens: Tensor, mask: Tensor, finished: Tensor) -> Tensor:
        """Both walks are right."""
        return self.rewards(prompts, tokens, mask, finished) == 1

    def rewards(self, prompts: Tensor, tokens: Tensor, mask: Tensor, finished: Tensor) -> Tensor:
        """Mean of both walks' rewards; 0 for a dialogue that was cut."""
        found = torch.zeros(len(tokens), device=tokens.device)
        tasks = (prompts, self.reply(prompts))
        for task, turn in zip(tasks, both_turns(tokens, mask), strict=True):
            inside, ended = masked_after_end(turn)
            found = found + self.walk.rewards(task, turn, inside, ended) / 2
        return found.where(finished, 0.0)


def joined_turns(
    first: Tensor, first_mask: Tensor, reply: Tensor, second: Tensor, second_mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Each row's turns without gaps, the environment's tokens between them.

    Args:
        first, second: (B, T1) and (B, T2) tokens of the policy.
        first_mask, second_mask: true on them, without holes.
        reply: (B, R) of the environment; left out in rows without a second turn.

    Returns:
        (B, T) tokens, padded on the right, and a (B, T) mask that is true on the policy's.
    """
    answered = second_mask.any(dim=1, keepdim=True).expand_as(reply)
    parts = torch.cat([first, reply, second], dim=1)
    there = torch.cat([first_mask, answered, second_mask], dim=1)
    policy = torch.cat([first_mask, answered & False, second_mask], dim=1)
    # What is there moves to the left and keeps its order.
    order = (~there).long().argsort(dim=1, stable=True)
    width = int(there.sum(dim=1).max())
    tokens = parts.where(there, PAD).gather(1, order)[:, :width]
    return tokens, policy.gather(1, order)[:, :width]


def both_turns(tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The policy's first and second turn of each row, (B, T) each, padded on the right.

    The first one ends with the first end token.
    """
    written = mask.bool()
    ends = (tokens == END) & written
    in_first = written & (ends.long().cumsum(dim=1) - ends.long() == 0)
    turns = []
    for inside in (in_first, written & ~in_first):
        order = (~inside).long().argsort(dim=1, stable=True)
        turns.append(tokens.where(inside, PAD).gather(1, order))
    return turns[0], turns[1]
