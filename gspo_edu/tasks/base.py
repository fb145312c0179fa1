"""What a task is: prompts, a verifier, and demonstrations for the cold start.

All tasks share one vocabulary of 13 tokens and prompts of one length per task.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

EQUALS, END, PAD = 10, 11, 12
SYMBOLS = [*"0123456789", "=", "end", "·"]
VOCAB_SIZE = len(SYMBOLS)
HELD_OUT_SHARE = 5
# A plain sum modulo 5 would hold out special walks, since the clock counts modulo 10.
HASH_BASE, HASH_PRIME = 57, 10_007


class Task(Protocol):
    """A toy problem with verifiable rewards.

    Attributes:
        prompt_length: tokens of every prompt, the closing ``=`` included.
        max_new_tokens: length limit of an answer, the end token included.
    """

    prompt_length: int
    max_new_tokens: int

    def random_prompts(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, prompt_length) int64 prompts, training and held-out ones mixed."""
        ...

    def demonstrations(
        self, prompts: Tensor, noise: float, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Right answers in which each digit is replaced at random with probability ``noise``.

        Returns:
            (B, T) tokens that end with the end token, and their (B, T) bool mask.
        """
        ...

    def exact(self, prompts: Tensor, tokens: Tensor, mask: Tensor, finished: Tensor) -> Tensor:
        """(B,) bool: the answer is right in every respect and ended by itself."""
        ...

    def rewards(self, prompts: Tensor, tokens: Tensor, mask: Tensor, finished: Tensor) -> Tensor:
        """(B,) float32 in [0, 1]: 1 for a right answer, less for a wrong one, 0 if unfinished."""
        ...


def is_held_out(prompts: Tensor) -> Tensor:
    """(B,) bool: whether a prompt is kept for evaluation (one in five, by a hash)."""
    weights = [pow(HASH_BASE, place, HASH_PRIME) for place in range(prompts.shape[1])]
    mixed = (prompts * torch.tensor(weights, device=prompts.device)).sum(dim=1) % HASH_PRIME
    return mixed % HELD_OUT_SHARE == 0


def prompts_of_split(
    task: Task, count: int, generator: torch.Generator, *, held_out: bool
) -> Tensor:
    """``count`` random prompts, all from the training or all from the held-out split.

    Returns:
        (count, prompt_length) int64.
    """
    found = torch.empty(0, task.prompt_length, dtype=torch.int64)
    while len(found) < count:
        more = task.random_prompts(2 * HELD_OUT_SHARE * count, generator)
        found = torch.cat([found, more[is_held_out(more) == held_out]])
    return found[:count]


def distinct_held_out_prompts(task: Task, count: int, generator: torch.Generator) -> Tensor:
    """``count`` different held-out prompts in random order, or all that a few draws find.

    Returns:
        (count or fewer, prompt_length) int64.
    """
    found = torch.empty(0, task.prompt_length, dtype=torch.int64)
    for _ in range(10):
        more = prompts_of_split(task, 2 * count, generator, held_out=True)
        found = torch.unique(torch.cat([found, more]), dim=0)
        if len(found) >= count:
            break
    return found[torch.randperm(len(found), generator=generator)[:count]]


def text(tokens: Tensor) -> str:
    """Token ids (T,) as a readable line."""
    return " ".join(SYMBOLS[int(token)] for token in tokens)


def masked_after_end(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """(B, T) mask up to and including the first end token, and (B,) whether there is one."""
    ended = tokens == END
    before = ended.cumsum(dim=1) - ended.long() == 0
    return before, ended.any(dim=1)
