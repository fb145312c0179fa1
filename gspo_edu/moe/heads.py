"""Queries, keys and values of all heads, made ready to meet: normed, scaled and turned (RoPE)."""

from __future__ import annotations

import torch
from torch import Tensor

from gspo_edu.moe.norm import inverse_rms, norm_gradient
from gspo_edu.ratios import at_least_float32


def rotations(positions: Tensor, head_dim: int, theta: float) -> Tensor:
    """(S, head_dim / 2) complex numbers of length 1, whose angles grow with the position.

    Source: RoFormer, arXiv 2104.09864, eq. 34.
    """
    frequency = theta ** (-torch.arange(0, head_dim, 2, device=positions.device) / head_dim)
    angle = torch.outer(positions.float(), frequency)
    return torch.polar(torch.ones_like(angle), angle)


def rotated(x: Tensor, rotation: Tensor) -> Tensor:
    """``x`` (..., S, head_dim), each pair of neighbours (2i, 2i + 1) turned as a complex number.

    Qwen3 pairs i with i + head_dim / 2; the same function of the same weights in another order.
    """
    pairs = torch.view_as_complex(at_least_float32(x).unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotation).flatten(-2).to(x.dtype)


def ready_heads(
    qkv: Tensor, scale: Tensor, rotation: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Heads first, and queries and keys normed per head, scaled and turned.

    Args:
        qkv: (S, 3, H, D).
        scale: (2, 1, 1, D) what normed queries and keys are multiplied with.
        rotation: (S, D / 2) from ``rotations``.
        eps: of the norm.

    Returns:
        (2, H, S, D) queries and keys; (3, H, S, D) all three as they came; and the inverse RMS.
    """
    raw = qkv.permute(1, 2, 0, 3).contiguous()
    inverse = inverse_rms(raw[:2], eps)
    return rotated(raw[:2] * inverse * scale, rotation), raw, inverse


def ready_heads_gradient(
    grad: Tensor, raw: Tensor, inverse: Tensor, scale: Tensor, rotation: Tensor
) -> tuple[Tensor, Tensor]:
    """Derivative of ``ready_heads``.

    Args:
        grad: (3, H, S, D), with respect to turned queries, turned keys and values; overwritten.
        raw, inverse, scale, rotation: as there.

    Returns:
        Gradients of ``qkv`` (S, 3, H, D) and of ``scale``.
    """
    turned_back = rotated(grad[:2], rotation.conj())
    grad[:2], by_scale = norm_gradient(turned_back, raw[:2], inverse, scale)
    return grad.permute(2, 0, 1, 3).contiguous(), by_scale.sum(dim=(1, 2), keepdim=True)
