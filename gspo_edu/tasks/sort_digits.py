"""The simplest second task: sort digits. All right answers have one length."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gspo_edu.tasks.base import END, EQUALS


@dataclass(frozen=True)
class SortDigits:
    """Sort ``digits`` digits in ascending order.

    Raises:
        ValueError: if ``digits`` is below 2.
    """

    digits: int = 16

    def __post_init__(self) -> None:
        if self.digits < 2:
            raise ValueError(f"digits is {self.digits}; expected 2 or more.")

    @property
    def prompt_length(self) -> int:
        """The digits and ``=``."""
        return self.digits + 1

    @property
    def max_new_tokens(self) -> int:
        """The sorted digits, the end token, and room for a few mistakes."""
        return self.digits + 4

    def random_prompts(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, digits + 1) prompts: digits 0 to 9, then ``=``."""
        digits = torch.randint(0, 10, (count, self.digits), generator=generator)
        return torch.cat([digits, torch.full((count, 1), EQUALS)], dim=1)

    def demonstrations(
        self, prompts: Tensor, noise: float, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """The sorted digits, each replaced at random with probability ``noise``."""
        right = prompts[:, :-1].sort(dim=1).values
        spoil = torch.rand(right.shape, generator=generator) < noise
        random_digit = torch.randint(0, 10, right.shape, generator=generator)
        end = torch.full((len(prompts), 1), END)
        tokens = torch.cat([torch.where(spoil, random_digit, right), end], dim=1)
        return tokens, torch.ones_like(tokens, dtype=torch.bool)

    def exact(self, prompts: Tensor, tokens: Tensor, mask: Tensor, finished: Tensor) -> Tensor:
        """Every digit in its place, ended right after the last."""
        return self.rewards(prompts, tokens, mask, finished) == 1

    def rewards(self, prompts: Tensor, tokens: Tensor, mask: Tensor, finished: Tensor) -> Tensor:
        """Digits in the right place over the longer of the two lengths."""
        right = prompts[:, :-1].sort(dim=1).values
        body = mask & (tokens != END)
        width = min(tokens.shape[1], self.digits)
        hits = (body[:, :width] & (tokens[:, :width] == right[:, :width])).sum(dim=1)
        longer = body.sum(dim=1).clamp(min=self.digits)
        return (hits / longer).where(finished, 0.0)
