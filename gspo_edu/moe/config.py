"""The shape of the model: a Qwen3-MoE small enough to train while you watch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a ``TinyMoE``. Names follow transformers' Qwen3MoeConfig where it has one.

    Attributes:
        vocab_size: number of token ids, V.
        num_layers: transformer blocks, N.
        width: size of the hidden state (hidden_size there).
        num_heads, head_dim: attention heads and the size of each; head_dim is even, for RoPE.
        num_experts: experts per layer, E (1 with ``dense``).
        top_k: experts per token, K (num_experts_per_tok there).
        expert_width: inner size of one expert (moe_intermediate_size there).
        norm_topk_prob: gates of the chosen experts sum to 1.
        dense: one feed-forward block of ``top_k * expert_width`` instead of experts: the dense
            twin with the same active width and no router.
        mlp_only_layers: numbers of layers that have such a block although the others are routed.
        rope_theta, rms_eps: constants of RoPE and RMSNorm.

    Raises:
        ValueError: if a size is unusable, or top-1 gates would be normalised.
    """

    vocab_size: int
    num_layers: int = 2
    width: int = 48
    num_heads: int = 4
    head_dim: int = 12
    num_experts: int = 8
    top_k: int = 2
    expert_width: int = 48
    norm_topk_prob: bool = True
    dense: bool = False
    mlp_only_layers: tuple[int, ...] = ()
    rope_theta: float = 10_000.0
    rms_eps: float = 1e-6

    def __post_init__(self) -> None:
        # JSON has lists only, and equal configs must compare equal.
        object.__setattr__(self, "mlp_only_layers", tuple(self.mlp_only_layers))
        for name in ("vocab_size", "num_layers", "width", "num_heads", "head_dim", "expert_width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more.")
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; RoPE turns pairs: it must be even.")
        for name in () if self.dense else ("width", "expert_width"):
            if getattr(self, name) % 4:
                raise ValueError(
                    f"{name} is {getattr(self, name)}; expected a multiple of 4: the experts' "
                    "matrix products need rows of whole 16 bytes."
                )
        if not 1 <= self.top_k <= self.num_experts and not self.dense:
            raise ValueError(
                f"top_k is {self.top_k}; expected 1 to num_experts ({self.num_experts})."
            )
        if self.top_k == 1 and self.norm_topk_prob and not self.dense:
            raise ValueError(
                "top_k=1 with norm_topk_prob=True: a single normalised gate is always 1, so the "
                "router would get no gradient. Set norm_topk_prob=False."
            )

    @property
    def routed_layers(self) -> tuple[int, ...]:
        """Numbers of the layers that have a router."""
        layers = () if self.dense else range(self.num_layers)
        return tuple(layer for layer in layers if layer not in self.mlp_only_layers)
