"""Who sees whom: the three ways in which this course lays tokens out.

A pass of the model is a flat list of S tokens, and all layers but attention treat each alone. A
context tells attention which tokens belong together.

- ``Sequences``: rows of one length, read causally.
- ``PromptsWithAnswers``: training. Each prompt is computed once and its answers see it.
- ``AnswerCache``: generation. One new token per answer; prompts are kept once per group.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from gspo_edu.moe.config import ModelConfig
from gspo_edu.moe.heads import ready_heads, rotations
from gspo_edu.moe.shared_prompt import SharedPromptAttention, Slots, shared_prompt_attention

MOST_IN_BLOCK = 16


class Context(Protocol):
    """What a pass needs to know about its S tokens.

    Attributes:
        silent: how many tokens at the front need no logits.
        fixed_shapes: shapes must not depend on values, as on a GPU and in a batch of models;
            autograd finds all derivatives then.
    """

    silent: int
    fixed_shapes: bool

    def begin(self, config: ModelConfig, x: Tensor) -> None:
        """Get ready for a pass of a model of ``config`` over embeddings ``x`` (S, width)."""
        ...

    def attention(self, layer: int, qkv: Tensor, scale: Tensor, eps: float) -> Tensor:
        """What the S tokens see in ``layer``; see ``shared_prompt.shared_prompt_attention``."""
        ...


class Sequences:
    """``rows`` texts of ``width`` tokens, each token seeing itself and what stands before it.

    Attributes:
        key_values: turned keys and values of each layer, (H, rows, width, head_dim).
    """

    silent = 0

    def __init__(self, rows: int, width: int, *, fixed_shapes: bool = False) -> None:
        self.shape, self.fixed_shapes = (rows, width), fixed_shapes
        self.key_values: list[tuple[Tensor, Tensor]] = []

    def begin(self, config: ModelConfig, x: Tensor) -> None:
        """See ``Context``."""
        places = torch.arange(self.shape[1], device=x.device).repeat(self.shape[0])
        self.rotation = rotations(places, config.head_dim, config.rope_theta)

    def attention(self, layer: int, qkv: Tensor, scale: Tensor, eps: float) -> Tensor:
        """See ``Context``."""
        turned, raw, _ = ready_heads(qkv, scale, self.rotation, eps)
        query, key, value = (x.unflatten(1, self.shape) for x in (turned[0], turned[1], raw[2]))
        self.key_values.append((key, value))
        mixed: Tensor
        if self.fixed_shapes:  # torch's kernel would run once per model of a batch
            later = query.new_full((self.shape[1], self.shape[1]), -torch.inf).triu(1)
            mixed = (query @ key.mT + later).softmax(dim=-1) @ value
        else:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=1.0)
        return mixed.permute(1, 2, 0, 3).flatten(0, 1).flatten(1)


class PromptsWithAnswers:
    """P prompts of one length, then the tokens of their answers, without padding.

    Attributes:
        answers: most answers that a prompt has; all prompts have as many where shapes are fixed.
        inside: (B, T) bool, true on the answers' tokens.
    """

    def __init__(
        self,
        prompts: int,
        width: int,
        group: Tensor,
        inside: Tensor,
        *,
        fixed_shapes: bool = False,
    ) -> None:
        """Lay out the tokens.

        Args:
            prompts, width: P prompts of ``width`` tokens.
            group: (B,) prompt of each answer.
            inside: (B, T) bool, true on the tokens that are there.
            fixed_shapes: see ``Context``; every prompt then has equally many answers, in order,
                and ``inside`` is all true: padding is computed and masked later.
        """
        self.prompts, self.width, self.fixed_shapes = prompts, width, fixed_shapes
        self.silent = prompts * width
        self.inside = inside
        self.length, device = inside.shape[1], inside.device
        steps = torch.arange(self.length, device=device)
        if fixed_shapes:
            self.answers, self.place = len(group) // prompts, None
            own = steps.repeat(len(group))
        else:
            sizes = torch.bincount(group, minlength=prompts)
            self.answers = int(sizes.max())
            order = group.argsort(stable=True)
            rank = torch.arange(len(group), device=device) - (sizes.cumsum(0) - sizes)[group[order]]
            slot = torch.empty_like(group)
            slot[order] = group[order] * self.answers + rank
            place = (slot[:, None] * self.length + steps)[inside]
            all_taken = len(place) == prompts * self.answers * self.length
            in_order = all_taken and bool((place[1:] > place[:-1]).all())
            self.place = None if in_order else place
            own = steps.expand_as(inside)[inside]
        read = torch.arange(width, device=device).repeat(prompts)
        self.positions = torch.cat([read, own + width])

    def begin(self, config: ModelConfig, x: Tensor) -> None:
        """See ``Context``."""
        self.slots = Slots(
            prompts=self.prompts,
            width=self.width,
            answers=self.answers,
            length=self.length,
            place=self.place,
            rotation=rotations(self.positions, config.head_dim, config.rope_theta),
            later_prompt=x.new_full((self.width, self.width), -torch.inf).triu(1),
            later_answer=x.new_full((self.length, self.length), -torch.inf).triu(1),
        )

    def attention(self, layer: int, qkv: Tensor, scale: Tensor, eps: float) -> Tensor:
        """See ``Context``."""
        if self.fixed_shapes:
            return shared_prompt_attention(qkv, scale, self.slots, eps)[0]
        mixed: Tensor = SharedPromptAttention.apply(  # type: ignore[no-untyped-call]
            qkv, scale, self.slots, eps
        )
        return mixed


class AnswerCache:
    """Keys and values while G answers to each of P prompts grow, one token per pass.

    A block of answers to one prompt keeps the prompt once and its answers' tokens behind it, step
    after step; a mask lets an answer see the prompt and itself only.

    Attributes:
        alive: (S,) the answers, numbered from 0 to P * G - 1, that still grow.
    """

    silent = 0

    def __init__(self, prompt: Sequences, answers: int, new_tokens: int) -> None:
        """Continue ``prompt``, which a pass has just read."""
        # In a block of n answers every query meets n times as many keys as it may see, so a large
        # group becomes several blocks, each with its own copy of the prompt.
        self.answers = max(n for n in range(1, MOST_IN_BLOCK + 1) if answers % n == 0)
        copies = answers // self.answers
        self.prompts, self.width = prompt.shape[0] * copies, prompt.shape[1]
        self.step, self.fixed_shapes = 0, prompt.fixed_shapes
        first = prompt.key_values[0][0]
        self.alive = torch.arange(self.prompts * self.answers, device=first.device)
        room = self.answers * new_tokens
        # Keys lie transposed, as the products with the queries want them.
        self.keys, self.values = [], []
        for key, value in prompt.key_values:
            key, value = (x.repeat_interleave(copies, dim=1).flatten(0, 1) for x in (key, value))
            self.keys.append(F.pad(key.mT, (0, room)))
            self.values.append(F.pad(value, (0, 0, 0, room)))
        own = torch.eye(self.answers, dtype=torch.bool, device=first.device).repeat(1, new_tokens)
        sees = torch.cat([own.new_ones(self.answers, self.width), own], dim=1)
        self.hidden = first.new_zeros(sees.shape).masked_fill(~sees, -torch.inf)

    def begin(self, config: ModelConfig, x: Tensor) -> None:
        """See ``Context``."""
        place = torch.full((1,), self.width + self.step, device=x.device)
        self.rotation = rotations(place, config.head_dim, config.rope_theta)

    def attention(self, layer: int, qkv: Tensor, scale: Tensor, eps: float) -> Tensor:
        """See ``Context``."""
        rows = self.prompts * self.answers
        some_left = len(qkv) < rows
        if some_left:
            qkv = qkv.new_zeros(rows, *qkv.shape[1:]).index_copy(0, self.alive, qkv)
        turned, raw, _ = ready_heads(qkv, scale, self.rotation, eps)
        query, key, value = (
            x.unflatten(1, (-1, self.answers)).flatten(0, 1) for x in (turned[0], turned[1], raw[2])
        )
        start = self.width + self.step * self.answers
        end = start + self.answers
        keys, values = self.keys[layer], self.values[layer]
        keys[:, :, start:end] = key.mT
        values[:, start:end] = value
        scores = torch.baddbmm(self.hidden[:, :end], query, keys[:, :, :end])
        mixed = torch.bmm(scores.softmax(dim=-1), values[:, :end])
        mixed = mixed.view(-1, rows, mixed.shape[-1]).transpose(0, 1).flatten(1)
        return mixed.index_select(0, self.alive) if some_left else mixed

    def next_step(self, going_on: Tensor) -> None:
        """After a pass: only the rows ``going_on`` of ``alive`` get another token."""
        self.step += 1
        if len(going_on) < len(self.alive):
            self.alive = self.alive[going_on]
