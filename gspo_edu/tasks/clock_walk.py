"""The course's task: walk on a clock of ten digits, with two allowed steps, and stop at the goal.

The prompt ``3 8 2 7 =`` says: start at 3, stop at 8, each move adds 2 or 7 (after 9 comes 0). One
right answer is ``5 7 4 6 8 end``. Right answers are many and of very different lengths, which is
what length normalisation needs to show itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gspo_edu.tasks.base import END, EQUALS, PAD

HOURS = 10


@dataclass(frozen=True)
class ClockWalk:
    """Walks of any length; demonstrations make ``shortest`` to ``longest`` moves.

    Raises:
        ValueError: if ``longest`` leaves no choice of length.
    """

    longest: int = 12
    shortest: int = 2
    prompt_length: int = 5

    def __post_init__(self) -> None:
        if self.longest < self.shortest + 2:
            raise ValueError(
                f"longest is {self.longest}; expected {self.shortest + 2} or more, so that walks "
                "of different lengths exist."
            )

    @property
    def max_new_tokens(self) -> int:
        """Half as many moves again as the longest demonstration, and the end token."""
        return self.longest + self.longest // 2

    def random_prompts(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, 5) prompts: start, goal, smaller step, larger step, ``=``; all can be solved."""

        def digits(low: int, high: int) -> Tensor:
            return torch.randint(low, high, (count,), generator=generator)

        start, smaller = digits(0, HOURS), digits(1, HOURS - 1)
        larger = smaller + 1 + digits(0, HOURS) % (HOURS - 1 - smaller)
        # The goal is where some walk of at least `shortest` moves ends.
        moves = self.shortest + digits(0, 2)
        of_larger = digits(0, HOURS) % (moves + 1)
        goal = (start + smaller * (moves - of_larger) + larger * of_larger) % HOURS
        equals = torch.full((count,), EQUALS)
        return torch.stack([start, goal, smaller, larger, equals], dim=1)

    def demonstrations(
        self, prompts: Tensor, noise: float, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Random right walks of random lengths, then spoilt digit by digit.

        The number of moves is uniform over those with which the goal can be reached.
        """
        rows = len(prompts)
        place = torch.arange(rows)
        start, goal = prompts[:, 0], prompts[:, 1]
        steps = prompts[:, 2:4]
        # ways[n][row, hour]: number of walks of n moves from hour to the goal.
        ways = [torch.zeros(rows, HOURS, dtype=torch.float64)]
        ways[0][place, goal] = 1.0
        hours = torch.arange(HOURS)
        for _ in range(self.longest):
            after = (hours[None, :, None] + steps[:, None, :]) % HOURS
            ways.append(ways[-1][place[:, None, None], after].sum(dim=-1))
        possible = torch.stack([w[place, start] > 0 for w in ways], dim=1)
        possible[:, : self.shortest] = False
        moves = possible.double().multinomial(1, generator=generator)[:, 0]

        table, current = torch.stack(ways), start
        tokens = torch.full((rows, self.longest + 1), PAD)
        for done in range(self.longest):
            choices = (current[:, None] + steps) % HOURS
            left = (moves - done - 1).clamp(min=0)
            weight = table[left[:, None], place[:, None], choices]
            weight[moves <= done] = 1.0
            chosen = weight.multinomial(1, generator=generator)
            current = choices.gather(1, chosen)[:, 0]
            tokens[:, done] = current.where(moves > done, PAD)
        tokens[place, moves] = END
        mask = tokens != PAD
        spoil = (torch.rand(tokens.shape, generator=generator) < noise) & (tokens < HOURS)
        random_digit = torch.randint(0, HOURS, tokens.shape, generator=generator)
        width = int(moves.max()) + 1
        return torch.where(spoil, random_digit, tokens)[:, :width], mask[:, :width]

    def exact(self, prompts: Tensor, tokens: Tensor, mask: Tensor, finished: Tensor) -> Tensor:
        """Every move is allowed and the walk stopped at the goal."""
        return self.rewards(prompts, tokens, mask, finished) == 1

    def rewards(self, prompts: Tensor, tokens: Tensor, mask: Tensor, finished: Tensor) -> Tensor:
        """1 for a right walk; otherwise half the share of moves that are allowed.

        0 for a walk without moves or without an end. A goal reached by a forbidden move is worth
        nothing extra, or one jump at the end of a long allowed walk would pay almost fully.
        """
        body = mask & (tokens != END)
        before = torch.cat([prompts[:, :1], tokens[:, :-1]], dim=1)
        step = (tokens - before) % HOURS
        allowed = body & (step[..., None] == prompts[:, None, 2:4]).any(dim=-1)
        allowed &= (tokens < HOURS) & (before < HOURS)
        share = allowed.sum(dim=1) / body.sum(dim=1).clamp(min=1)
        at_goal = (mask & (tokens == END) & (before == prompts[:, 1:2])).any(dim=1)
        right = at_goal & (share == 1)
        return torch.where(right, 1.0, share / 2).where(finished, 0.0)
