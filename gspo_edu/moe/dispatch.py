"""How S tokens reach their K experts each: sorted by expert, or every expert for every token."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def swiglu(gate_up: Tensor) -> Tensor:
    """SiLU(gate) * up, (..., 2 F) -> (..., F) (GLU variants, arXiv 2002.05202)."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def swiglu_gradient(grad: Tensor, gate_up: Tensor) -> Tensor:
    """Derivative of ``swiglu``, (..., F) -> (..., 2 F)."""
    gate, up = gate_up.chunk(2, dim=-1)
    out = torch.empty_like(gate_up)
    by_gate, by_up = out.chunk(2, dim=-1)
    torch.mul(grad, F.silu(gate), out=by_up)
    torch.ops.aten.silu_backward.grad_input(grad * up, gate, grad_input=by_gate)
    return out


def dense_dispatch(
    x: Tensor, gates: Tensor, experts: Tensor, gate_up: Tensor, down: Tensor
) -> Tensor:
    """Every expert computes every token, with gate 0 for those that were not chosen.

    E / K times the work of ``SortedDispatch`` for the same result, but no shape depends on the
    routes: right for a GPU, which would wait for the counts, and for a batch of models.

    Args:
        x: (S, width).
        gates, experts: (S, K).
        gate_up, down: (E, width, 2 F) and (E, F, width).

    Returns:
        (S, width).
    """
    weight = gates.new_zeros(len(x), len(down)).scatter(1, experts, gates)
    served = swiglu(x @ gate_up) @ down
    return torch.einsum("esw,se->sw", served, weight)


class SortedDispatch(torch.autograd.Function):
    """Tokens sorted by expert, so that each expert multiplies one block; derivative by hand.

    Sorting is a permutation: its derivative is to sort back. Autograd would add row by row.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gates: Tensor, experts: Tensor, gate_up: Tensor, down: Tensor
    ) -> Tensor:
        """See ``dense_dispatch``."""
        by_expert, order = experts.flatten().sort()
        numbers = torch.arange(max(len(order), len(down)), device=x.device)
        ends = torch.searchsorted(by_expert, numbers[: len(down)], right=True, out_int32=True)
        slots = numbers[: len(order)]
        place = torch.empty_like(order).scatter_(0, order, slots).view_as(experts)
        token = order // experts.shape[1]
        hidden = F.grouped_mm(x.index_select(0, token), gate_up, offs=ends)
        active = swiglu(hidden)
        served = F.grouped_mm(active, down, offs=ends)
        ctx.save_for_backward(x, gates, order, token, place, ends, gate_up, down)
        ctx.steps = hidden, active, served
        return row_sums(served, place, gates)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, Tensor, Tensor]:
        """Gradients of ``x``, ``gates``, ``gate_up`` and ``down``."""
        x, gates, order, token, place, ends, gate_up, down = ctx.saved_tensors
        hidden, active, served = ctx.steps
        grad_served = grad.index_select(0, token)
        grad_gates = torch.linalg.vecdot(grad_served, served).take(place)
        grad_served.mul_(gates.flatten().index_select(0, order)[:, None])
        grad_active = F.grouped_mm(grad_served, down.mT, offs=ends)
        grad_hidden = swiglu_gradient(grad_active, hidden)
        return (
            row_sums(F.grouped_mm(grad_hidden, gate_up.mT, offs=ends), place),
            grad_gates,
            None,
            F.grouped_mm(x.index_select(0, token).T, grad_hidden, offs=ends),
            F.grouped_mm(active.T, grad_served, offs=ends),
        )


def row_sums(x: Tensor, rows: Tensor, weights: Tensor | None = None) -> Tensor:
    """For each s the sum over k of ``weights[s, k] * x[rows[s, k]]``, (S, width)."""
    starts = torch.arange(0, rows.numel(), rows.shape[1], device=x.device)
    weights = None if weights is None else weights.flatten()
    found: Tensor = torch.embedding_bag(x, rows.flatten(), starts, False, 0, False, weights)[0]
    return found
