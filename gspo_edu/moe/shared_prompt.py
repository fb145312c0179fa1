"""Attention of prompts and their answers in one pass, each prompt computed once for its group.

A token of an answer sees its prompt and the answer up to itself. All queries of a group look at
their prompt in one matrix product; only the answers' own tokens need a product per answer. The
derivative is written out below: autograd would cut, pad and copy for every part of every sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gspo_edu.moe.heads import ready_heads, ready_heads_gradient


@dataclass(frozen=True)
class Slots:
    """Where prompts and answers sit in the flat list of tokens.

    P prompts of W tokens come first, then the answers' tokens without padding. In the slots, every
    prompt has G answers of T tokens, so that they form rectangles.

    Attributes:
        prompts, width, answers, length: P, W, G, T.
        place: (S - P W,) slot of each token of the answers; None if all slots are taken in order.
        rotation: (S, D / 2), see ``heads.rotations``.
        later_prompt, later_answer: (W, W) and (T, T), minus infinity where a key comes later.
    """

    prompts: int
    width: int
    answers: int
    length: int
    place: Tensor | None
    rotation: Tensor
    later_prompt: Tensor
    later_answer: Tensor

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(H, S, D) -> prompts (H P, W, D) and answers in their slots (H P G, T, D)."""
        heads, dim = x.shape[0], x.shape[-1]
        silent = self.prompts * self.width
        prompt, answer = x[:, :silent], x[:, silent:]
        if self.place is not None:
            slots = self.prompts * self.answers * self.length
            answer = x.new_zeros(heads, slots, dim).index_copy(1, self.place, answer)
        return prompt.reshape(-1, self.width, dim), answer.reshape(-1, self.length, dim)

    def joined(self, prompt: Tensor, answer: Tensor, heads: int) -> Tensor:
        """The way back, (H, S, D); ``heads`` may also count queries, keys and values."""
        dim = prompt.shape[-1]
        answer = answer.view(heads, -1, dim)
        if self.place is not None:
            answer = answer.index_select(1, self.place)
        return torch.cat([prompt.view(heads, -1, dim), answer], dim=1)

    def by_group(self, x: Tensor) -> Tensor:
        """(H P G, T, X) -> (H P, G T, X), a view: all tokens of a group as one block."""
        return x.view(-1, self.answers * self.length, x.shape[-1])

    def by_answer(self, x: Tensor) -> Tensor:
        """The way back."""
        return x.view(-1, self.length, x.shape[-1])


def shared_prompt_attention(
    qkv: Tensor, scale: Tensor, slots: Slots, eps: float
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Attention of all S tokens.

    Args:
        qkv: (S, 3, H, D).
        scale: (2, 1, 1, D) of queries and keys; 1/sqrt(D) is in it.
        slots: where the tokens sit.
        eps: of the norm.

    Returns:
        (S, H D), and what the derivative needs.
    """
    turned, raw, inverse = ready_heads(qkv, scale, slots.rotation, eps)
    (query, own_query), (key, own_key), (value, own_value) = (
        slots.split(x) for x in (turned[0], turned[1], raw[2])
    )
    weight = torch.baddbmm(slots.later_prompt, query, key.mT).softmax(dim=-1)
    to_prompt = slots.by_answer(torch.bmm(slots.by_group(own_query), key.mT))
    to_own = torch.baddbmm(slots.later_answer, own_query, own_key.mT)
    own_weight = torch.cat([to_prompt, to_own], dim=-1).softmax(dim=-1)
    on_prompt, on_own = (
        slots.by_group(own_weight)[..., : slots.width],
        own_weight[..., slots.width :],
    )
    mixed = torch.bmm(weight, value)
    own_mixed = torch.baddbmm(slots.by_answer(torch.bmm(on_prompt, value)), on_own, own_value)
    out = slots.joined(mixed, own_mixed, qkv.shape[2]).transpose(0, 1).flatten(1)
    needed = (raw, inverse, scale, weight, own_weight)
    return out, (*needed, query, key, value, own_query, own_key, own_value)


class SharedPromptAttention(torch.autograd.Function):
    """``shared_prompt_attention`` with its derivative by hand."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, scale: Tensor, slots: Slots, eps: float) -> Tensor:
        """See ``shared_prompt_attention``."""
        out, needed = shared_prompt_attention(qkv, scale, slots, eps)
        ctx.slots = slots
        ctx.save_for_backward(*needed)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Gradients of ``qkv`` and ``scale``."""
        slots: Slots = ctx.slots
        raw, inverse, scale, weight, own_weight, query, key, value, *own = ctx.saved_tensors
        own_query, own_key, own_value = own
        heads, width = raw.shape[1], slots.width
        grad_mixed, grad_own = slots.split(grad.unflatten(1, (heads, -1)).transpose(0, 1))
        grad_group, query_group = slots.by_group(grad_own), slots.by_group(own_query)

        to_prompt = slots.by_answer(torch.bmm(grad_group, value.mT))
        of_weight = torch.cat([to_prompt, torch.bmm(grad_own, own_value.mT)], dim=-1)
        of_score = softmax_gradient(torch.bmm(grad_mixed, value.mT), weight)
        of_own_score = softmax_gradient(of_weight, own_weight)
        on_prompt, on_own = slots.by_group(own_weight)[..., :width], own_weight[..., width:]
        of_prompt, of_own = slots.by_group(of_own_score)[..., :width], of_own_score[..., width:]

        # A prompt's keys and values serve the prompt itself and all of its answers.
        prompt, answer = query.new_empty(3, *query.shape), query.new_empty(3, *own_query.shape)
        torch.bmm(of_score, key, out=prompt[0])
        torch.bmm(of_score.mT, query, out=prompt[1]).baddbmm_(of_prompt.mT, query_group)
        torch.bmm(weight.mT, grad_mixed, out=prompt[2]).baddbmm_(on_prompt.mT, grad_group)
        torch.bmm(of_prompt, key, out=slots.by_group(answer[0]))
        answer[0].baddbmm_(of_own, own_key)
        torch.bmm(of_own.mT, own_query, out=answer[1])
        torch.bmm(on_own.mT, grad_own, out=answer[2])
        both = slots.joined(prompt, answer, 3 * heads).unflatten(0, (3, heads))
        grad_qkv, grad_scale = ready_heads_gradient(both, raw, inverse, scale, slots.rotation)
        return grad_qkv, grad_scale, None, None


def softmax_gradient(grad: Tensor, weight: Tensor) -> Tensor:
    """Derivative of a softmax over the last dimension, from its result ``weight``."""
    found: Tensor = torch.ops.aten._softmax_backward_data(grad, weight, -1, weight.dtype)
    return found
