"""The whole model, arranged for RL: a prompt is read once, its group's answers share it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gspo_edu.moe.attention import Attention, KeyValue, KeyValueCache, rope_angles
from gspo_edu.moe.config import ModelConfig
from gspo_edu.moe.experts import DenseBlock, MixtureOfExperts


@dataclass(frozen=True)
class ForwardResult:
    """What a pass over B rows of T tokens gives.

    Attributes:
        logits: (B, T, V), of the token that follows each position.
        routes: (B, T, N, K) int16 experts of the N routed layers; N = 0 for dense models.
        router_logits: (B, T, N, E).
        key_values: per layer, keys and values (B, H, T, head_dim) of these tokens.
    """

    logits: Tensor
    routes: Tensor
    router_logits: Tensor
    key_values: list[KeyValue]


class Block(nn.Module):
    """Attention, then experts, each on a normalised copy that is added back."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=config.rms_eps)
        self.attention = Attention(config, layer)
        self.ffn_norm = nn.RMSNorm(config.width, eps=config.rms_eps)
        routed = layer in config.routed_layers
        self.dense = None if routed else DenseBlock(config)
        self.moe = MixtureOfExperts(config) if routed else None

    def forward(
        self,
        x: Tensor,
        angles: tuple[Tensor, Tensor],
        visible: Tensor | None,
        prefix: KeyValue | None,
        cache: KeyValueCache | None,
        replay: Tensor | None,
    ) -> tuple[Tensor, KeyValue, tuple[Tensor, Tensor] | None]:
        """(B, T, width) -> the same; see ``Attention`` and ``MixtureOfExperts`` for the rest.

        Returns:
            The new hidden state, the new keys and values, and (experts (B, T, K), router logits
            (B, T, E)), or None in a dense block.
        """
        mixed, key_value = self.attention(
            self.attention_norm(x), angles, visible, prefix=prefix, cache=cache
        )
        x = x + mixed
        flat = self.ffn_norm(x).flatten(0, 1)
        if self.moe is None:
            assert self.dense is not None
            return x + self.dense(flat).view_as(x), key_value, None
        served, experts, logits = self.moe(flat, None if replay is None else replay.flatten(0, 1))
        rows, width = x.shape[:2]
        routing = (experts.view(rows, width, -1), logits.view(rows, width, -1))
        return x + served.view_as(x), key_value, routing


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
        self.norm = nn.RMSNorm(config.width, eps=config.rms_eps)
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
        self,
        tokens: Tensor,
        *,
        prefix: list[KeyValue] | None = None,
        group: Tensor | None = None,
        cache: KeyValueCache | None = None,
        replay: Tensor | None = None,
    ) -> ForwardResult:
        """Read ``tokens``, after a prefix if there is one.

        Args:
            tokens: (B, T) ids.
            prefix: ``key_values`` of a pass over the prompts (P rows).
            group: (B,) the prefix row that each row of ``tokens`` continues; needed with prefix.
            cache: generation instead: T = 1, and the cache grows by these tokens.
            replay: (B, T, N, K) experts to use in the N routed layers; -1 means choose live.
        """
        rows, width = tokens.shape
        start = cache.length if cache else (prefix[0][0].shape[2] if prefix else 0)
        positions = torch.arange(start, start + width, device=tokens.device)
        config = self.config
        angles = rope_angles(positions, config.head_dim, config.rope_theta)
        keys = torch.arange(start + width, device=tokens.device)
        visible = None if cache else keys[None, :] <= positions[:, None]

        x = self.embed(tokens)
        key_values, routes, router_logits = [], [], []
        for layer, block in enumerate(self.blocks):
            before = None
            if prefix is not None:
                before = (prefix[layer][0][group], prefix[layer][1][group])
            fixed = None
            if replay is not None and layer in config.routed_layers:
                fixed = replay[:, :, config.routed_layers.index(layer)]
            x, key_value, routing = block(x, angles, visible, before, cache, fixed)
            key_values.append(key_value)
            if routing is not None:
                routes.append(routing[0])
                router_logits.append(routing[1])
        if cache:
            cache.length += width
        return ForwardResult(
            logits=self.head(self.norm(x)),
            routes=stacked(routes, (rows, width, 0, config.top_k), tokens.device).to(torch.int16),
            router_logits=stacked(router_logits, (rows, width, 0, 1), tokens.device),
            key_values=key_values,
        )


def stacked(per_layer: list[Tensor], empty: tuple[int, ...], device: torch.device) -> Tensor:
    """Tensors (B, T, X) of each routed layer as one (B, T, N, X); ``empty`` if there is none."""
    return torch.stack(per_layer, dim=2) if per_layer else torch.zeros(empty, device=device)
