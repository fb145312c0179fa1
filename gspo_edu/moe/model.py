"""The whole model, arranged for RL: a prompt is read once, its group's answers share it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gspo_edu.moe.attention import Attention
from gspo_edu.moe.config import ModelConfig
from gspo_edu.moe.contexts import Context, Sequences
from gspo_edu.moe.experts import DenseBlock, MixtureOfExperts
from gspo_edu.moe.norm import RMSNorm


@dataclass(frozen=True)
class ForwardResult:
    """What a pass over S tokens gives; the shape (S,) is (B, T) for rows of tokens.

    Attributes:
        logits: (S, V), of the token that follows each position, without the context's silent ones.
        routes: (S, N, K) int16 experts of the N routed layers; N = 0 for dense models.
        router_logits: (S, N, E).
    """

    logits: Tensor
    routes: Tensor
    router_logits: Tensor


class Block(nn.Module):
    """Attention, then experts, each on a normalised copy that is added back."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width, eps=config.rms_eps)
        self.attention = Attention(config, layer)
        self.ffn_norm = RMSNorm(config.width, eps=config.rms_eps)
        routed = layer in config.routed_layers
        self.dense = None if routed else DenseBlock(config)
        self.moe = MixtureOfExperts(config) if routed else None

    def forward(
        self, x: Tensor, context: Context, replay: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """(S, width) -> the same; see ``Attention`` and ``MixtureOfExperts`` for the rest.

        Returns:
            The new hidden state, and (experts (S, K), router logits (S, E)), or None in a dense
            block.
        """
        by_hand = not context.fixed_shapes
        x = x + self.attention(self.attention_norm(x, by_hand=by_hand), context)
        normed = self.ffn_norm(x, by_hand=by_hand)
        if self.moe is None:
            assert self.dense is not None
            return x + self.dense(normed), None
        served, experts, logits = self.moe(normed, replay, fixed_shapes=context.fixed_shapes)
        return x + served, (experts, logits)


class TinyMoE(nn.Module):
    """A decoder like Qwen3-MoE: RMSNorm, RoPE, per-head q/k norm, SwiGLU experts, no biases.

    There is no dropout, so training and evaluation mode are the same function.
    """

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        """Build the model; ``generator`` seeds the weights (default: seed 0)."""
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.num_layers))
        self.norm = RMSNorm(config.width, eps=config.rms_eps)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.reset_parameters(generator or torch.Generator().manual_seed(0))

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw all weights anew: matrices with std 1/sqrt(inputs), norms 1."""
        for name, weight in self.named_parameters():
            if weight.dim() == 1:
                weight.fill_(1.0)
            elif name == "embed.weight":
                weight.normal_(std=1.0, generator=generator)
            else:
                # nn.Linear stores (out, in), the expert stacks (E, in, out).
                inputs = weight.shape[1]
                weight.normal_(std=1 / math.sqrt(inputs), generator=generator)

    def forward(
        self, tokens: Tensor, context: Context | None = None, *, replay: Tensor | None = None
    ) -> ForwardResult:
        """Read ``tokens``.

        Args:
            tokens: (S,) ids, laid out as ``context`` says; or (B, T) without one, rows that are
                read causally.
            replay: (S, N, K) or (B, T, N, K) experts to use in the N routed layers; -1 means
                choose live.
        """
        if context is None:
            context = Sequences(*tokens.shape)
            replay = None if replay is None else replay.flatten(0, 1)
            flat = self(tokens.flatten(), context, replay=replay)
            parts = (flat.logits, flat.routes, flat.router_logits)
            return ForwardResult(*(part.unflatten(0, tokens.shape) for part in parts))
        config = self.config
        x = self.embed(tokens)
        context.begin(config, x)
        routes, router_logits = [], []
        for layer, block in enumerate(self.blocks):
            fixed = None
            if replay is not None and layer in config.routed_layers:
                fixed = replay[:, config.routed_layers.index(layer)]
            x, routing = block(x, context, fixed)
            if routing is not None:
                routes.append(routing[0].to(torch.int16))
                router_logits.append(routing[1])
        told = self.norm(x[context.silent :], by_hand=not context.fixed_shapes)
        return ForwardResult(
            logits=self.head(told),
            routes=stacked(routes, x.new_zeros(len(x), 0, config.top_k, dtype=torch.int16)),
            router_logits=stacked(router_logits, x.new_zeros(len(x), 0, 1)),
        )


def stacked(per_layer: list[Tensor], empty: Tensor) -> Tensor:
    """Tensors (S, X) of each routed layer as one (S, N, X); ``empty`` if there is none."""
    return torch.stack(per_layer, dim=1) if per_layer else empty
