"""Attention as in Qwen3: RoPE, per-head RMSNorm of queries and keys, no biases."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gspo_edu.moe.config import ModelConfig

KeyValue = tuple[Tensor, Tensor]


def rope_angles(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin (T, head_dim) of the rotation at ``positions`` (T,) (RoFormer, 2104.09864)."""
    frequency = theta ** (-torch.arange(0, head_dim, 2, device=positions.device) / head_dim)
    angle = torch.outer(positions.float(), frequency)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``x`` (B, H, T, head_dim), each pair (i, i + head_dim/2) turned by its position's angle."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class KeyValueCache:
    """Keys and values of what has been read, one preallocated block per layer.

    Rows are answers; the prompt's keys and values are copied in once per answer.
    """

    def __init__(self, prefix: list[KeyValue], group: Tensor, new_tokens: int) -> None:
        self.length = prefix[0][0].shape[2]
        self.blocks = []
        for key, value in prefix:
            heads, head_dim = key.shape[1], key.shape[3]
            shape = (2, len(group), heads, self.length + new_tokens, head_dim)
            block = key.new_empty(shape)
            block[0, :, :, : self.length] = key[group]
            block[1, :, :, : self.length] = value[group]
            self.blocks.append(block)

    def extended(self, layer: int, key: Tensor, value: Tensor) -> KeyValue:
        """All keys and values of ``layer``, the new ones (B, H, 1, head_dim) included."""
        block = self.blocks[layer]
        block[0, :, :, self.length : self.length + 1] = key
        block[1, :, :, self.length : self.length + 1] = value
        return block[0, :, :, : self.length + 1], block[1, :, :, : self.length + 1]

    def keep(self, rows: Tensor) -> None:
        """Forget all answers but ``rows``."""
        self.blocks = [block[:, rows] for block in self.blocks]


class Attention(nn.Module):
    """Causal self-attention over [prompt | answer]; the prompt is read once for a whole group."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.heads, self.head_dim = config.num_heads, config.head_dim
        inner = config.num_heads * config.head_dim
        self.qkv = nn.Linear(config.width, 3 * inner, bias=False)
        self.out = nn.Linear(inner, config.width, bias=False)
        self.q_norm = nn.RMSNorm(config.head_dim, eps=config.rms_eps)
        self.k_norm = nn.RMSNorm(config.head_dim, eps=config.rms_eps)

    def forward(
        self,
        x: Tensor,
        angles: tuple[Tensor, Tensor],
        visible: Tensor | None,
        prefix: KeyValue | None = None,
        cache: KeyValueCache | None = None,
    ) -> tuple[Tensor, KeyValue]:
        """Attend from ``x`` to everything before it.

        Args:
            x: (B, T, width).
            angles: RoPE cos and sin of the T positions.
            visible: (T, S) bool, which of the S keys each position sees; None means all.
            prefix: keys and values (B, H, T_prompt, head_dim) that stand before ``x``.
            cache: the same while generating; takes T = 1.

        Returns:
            (B, T, width), and the new keys and values (B, H, T, head_dim).
        """
        rows, width = x.shape[:2]
        qkv = self.qkv(x).view(rows, width, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        query = rotated(self.q_norm(query), *angles)
        key = rotated(self.k_norm(key), *angles)
        keys, values = key, value
        if cache is not None:
            keys, values = cache.extended(self.layer, key, value)
        elif prefix is not None:
            keys = torch.cat([prefix[0], key], dim=2)
            values = torch.cat([prefix[1], value], dim=2)
        mixed = F.scaled_dot_product_attention(query, keys, values, attn_mask=visible)
        return self.out(mixed.transpose(1, 2).reshape(rows, width, -1)), (key, value)
