"""Router, top-k choice, and the experts themselves; how tokens reach them is in ``dispatch``."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gspo_edu.moe.config import ModelConfig
from gspo_edu.moe.dispatch import SortedDispatch, dense_dispatch, swiglu
from gspo_edu.moe.routes import replay_gates


class DenseBlock(nn.Module):
    """One SwiGLU feed-forward block: what a layer has instead of experts in the dense twin."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        inner = config.top_k * config.expert_width
        self.gate_up = nn.Linear(config.width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(S, width) -> (S, width)."""
        out: Tensor = self.down(swiglu(self.gate_up(x)))
        return out


class MixtureOfExperts(nn.Module):
    """Each token is served by the K experts that its router scores highest."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.top_k, self.normalize = config.top_k, config.norm_topk_prob
        experts, width, inner = config.num_experts, config.width, config.expert_width
        self.router = nn.Linear(width, experts, bias=False)
        self.gate_up = nn.Parameter(torch.empty(experts, width, 2 * inner))
        self.down = nn.Parameter(torch.empty(experts, inner, width))
        nn.init.normal_(self.gate_up, std=1 / math.sqrt(width))
        nn.init.normal_(self.down, std=1 / math.sqrt(inner))

    def forward(
        self, x: Tensor, replay: Tensor | None = None, *, fixed_shapes: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Route and compute S tokens.

        Args:
            x: (S, width).
            replay: (S, K) experts to use instead of the live top-k; rows of -1 choose live.
            fixed_shapes: let every expert compute every token, see ``dispatch``.

        Returns:
            (S, width) output, (S, K) experts, (S, E) router logits.
        """
        logits = self.router(x)
        experts = logits.detach().topk(self.top_k, dim=-1).indices
        if replay is not None:
            replay = replay.long()
            experts = torch.where(replay >= 0, replay, experts)
        gates = replay_gates(logits, experts, normalize=self.normalize)
        dispatch = dense_dispatch if fixed_shapes else SortedDispatch.apply
        return dispatch(x, gates, experts, self.gate_up, self.down), experts, logits


def load_balancing_loss(router_logits: Tensor, experts: Tensor, mask: Tensor) -> Tensor:
    """E * sum_e (share of slots that went to e) * (mean router probability of e), 0-dim.

    Source: Switch Transformer, arXiv 2101.03961, eq. 4, for top-k; K when perfectly balanced, as in
    transformers' Qwen3-MoE. Averaged over layers.

    Args:
        router_logits: (B, T, N, E).
        experts: (B, T, N, K).
        mask: (B, T), 1 on tokens that count.
    """
    inside = mask.bool()
    probability = router_logits[inside].softmax(dim=-1).mean(dim=0)
    chosen = F.one_hot(experts[inside].long(), router_logits.shape[-1]).float()
    share = chosen.sum(dim=2).mean(dim=0)
    return router_logits.shape[-1] * (share * probability).sum(dim=-1).mean()
