"""Attention as in Qwen3: RoPE, per-head RMSNorm of queries and keys, no biases."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gspo_edu.moe.config import ModelConfig
from gspo_edu.moe.contexts import Context
from gspo_edu.moe.norm import RMSNorm


class Attention(nn.Module):
    """Self-attention; the context says who sees whom."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.heads, self.head_dim = config.num_heads, config.head_dim
        inner = config.num_heads * config.head_dim
        self.qkv = nn.Linear(config.width, 3 * inner, bias=False)
        self.out = nn.Linear(inner, config.width, bias=False)
        self.q_norm = RMSNorm(config.head_dim, eps=config.rms_eps)
        self.k_norm = RMSNorm(config.head_dim, eps=config.rms_eps)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(S, width) -> the same."""
        qkv = self.qkv(x).view(len(x), 3, self.heads, self.head_dim)
        query_scale = self.q_norm.weight * self.head_dim**-0.5
        scale = torch.stack([query_scale, self.k_norm.weight])[:, None, None]
        out: Tensor = self.out(context.attention(self.layer, qkv, scale, self.q_norm.eps))
        return out
