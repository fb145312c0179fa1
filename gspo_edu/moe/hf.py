"""The same weights as a Qwen3-MoE of transformers, there and back, with equal logits.

Two things differ. Qwen3 turns coordinates i and i + head_dim / 2 of a head together (RoPE), this
course neighbours, so rows of queries and keys change places; and experts are stored transposed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gspo_edu.moe.config import ModelConfig
from gspo_edu.moe.model import TinyMoE
from gspo_edu.tasks.base import END, PAD

try:
    from transformers import (
        Qwen3Config,
        Qwen3ForCausalLM,
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
    )
except ModuleNotFoundError as error:
    raise ImportError(
        "gspo_edu.moe.hf needs transformers. It comes with `python course.py install`, or with "
        "`pip install 'gspo-edu[real]'`."
    ) from error

Weights = dict[str, Tensor]


def to_qwen3_moe(model: TinyMoE) -> Any:
    """A ``Qwen3MoeForCausalLM`` with copies of the weights, in float32 and evaluation mode.

    Its configuration names the course's end and padding tokens. It has no auxiliary loss of its
    own in effect unless a trainer asks for one: transformers' default coefficient, 0.001, is kept.
    Dense blocks become dense layers, so that a dense twin fits too; ``to_qwen3`` makes it a Qwen3.
    """
    return filled(Qwen3MoeForCausalLM(qwen3_moe_config(model.config)), model)


def to_qwen3(model: TinyMoE) -> Any:
    """A ``Qwen3ForCausalLM`` with copies of the weights of a dense twin; see ``to_qwen3_moe``.

    Raises:
        ValueError: if the model has a router.
    """
    if model.config.routed_layers:
        raise ValueError(
            f"layers {model.config.routed_layers} have routers; Qwen3 has none. Use to_qwen3_moe."
        )
    inner = model.config.top_k * model.config.expert_width
    theirs = Qwen3Config(**shared_settings(model.config), intermediate_size=inner)
    return filled(Qwen3ForCausalLM(theirs), model)


def filled(theirs: Any, model: TinyMoE) -> Any:
    """``theirs`` with the weights of ``model``."""
    weights = {name: value.detach().float() for name, value in model.state_dict().items()}
    theirs = theirs.float().eval()
    theirs.load_state_dict(their_weights(weights, model.config))
    return theirs


def from_qwen3_moe(model: Any) -> TinyMoE:
    """A ``TinyMoE`` with copies of the weights of a ``Qwen3MoeForCausalLM``, in float32.

    Raises:
        TypeError: if it is another model.
        ValueError: naming the setting that ``TinyMoE`` cannot have, such as shared key heads.
    """
    return taken(model, Qwen3MoeForCausalLM)


def from_qwen3(model: Any) -> TinyMoE:
    """A dense ``TinyMoE`` with copies of the weights of a ``Qwen3ForCausalLM``.

    Its ``top_k`` is 1, whatever the dense twin had that it comes from: a Qwen3 knows the inner
    width only.

    Raises:
        TypeError, ValueError: as ``from_qwen3_moe``.
    """
    return taken(model, Qwen3ForCausalLM)


def taken(model: Any, kind: Any) -> TinyMoE:
    """A ``TinyMoE`` from a model of transformers that has to be a ``kind``."""
    if not isinstance(model, kind):
        raise TypeError(f"model is a {type(model).__name__}; expected a {kind.__name__}.")
    ours = TinyMoE(our_config(model.config))
    weights = {name: value.detach().float() for name, value in model.state_dict().items()}
    ours.load_state_dict(our_weights(weights, ours.config))
    return ours


def shared_settings(config: ModelConfig) -> dict[str, Any]:
    """What Qwen3Config and Qwen3MoeConfig call alike."""
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_heads,
        "head_dim": config.head_dim,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "rms_norm_eps": config.rms_eps,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": END,
        "pad_token_id": PAD,
    }


def qwen3_moe_config(config: ModelConfig) -> Any:
    """The Qwen3MoeConfig of the same shape."""
    return Qwen3MoeConfig(
        **shared_settings(config),
        num_experts=config.num_experts,
        num_experts_per_tok=config.top_k,
        moe_intermediate_size=config.expert_width,
        intermediate_size=config.top_k * config.expert_width,
        norm_topk_prob=config.norm_topk_prob,
        mlp_only_layers=sorted(set(range(config.num_layers)) - set(config.routed_layers)),
    )


def our_config(theirs: Any) -> ModelConfig:
    """The ModelConfig of the same shape as a Qwen3MoeConfig or Qwen3Config.

    Raises:
        ValueError: naming a setting that ``TinyMoE`` cannot have.
    """
    check_settings(theirs)
    layers = theirs.num_hidden_layers
    shape: dict[str, Any]
    if isinstance(theirs, Qwen3Config):
        shape = {"dense": True, "top_k": 1, "expert_width": theirs.intermediate_size}
    else:
        alone = tuple(sorted(set(theirs.mlp_only_layers)))
        shape = {
            "dense": len(alone) == layers,
            "mlp_only_layers": () if len(alone) == layers else alone,
            "num_experts": theirs.num_experts,
            "top_k": theirs.num_experts_per_tok,
            "expert_width": theirs.moe_intermediate_size,
            "norm_topk_prob": theirs.norm_topk_prob,
        }
    return ModelConfig(
        **shape,
        vocab_size=theirs.vocab_size,
        num_layers=layers,
        width=theirs.hidden_size,
        num_heads=theirs.num_attention_heads,
        head_dim=head_dim(theirs),
        rope_theta=theirs.rope_parameters["rope_theta"],
        rms_eps=theirs.rms_norm_eps,
    )


def head_dim(theirs: Any) -> int:
    """Size of a head; a Qwen3MoeConfig may leave it to the width."""
    given = getattr(theirs, "head_dim", None)
    return int(given or theirs.hidden_size // theirs.num_attention_heads)


def check_settings(theirs: Any) -> None:
    """Raise ValueError if a setting of ``theirs`` has no counterpart in ``TinyMoE``."""
    only = {
        "hidden_act": "silu",
        "num_key_value_heads": theirs.num_attention_heads,
        "attention_bias": False,
        "attention_dropout": 0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "rope_parameters": {**theirs.rope_parameters, "rope_type": "default"},
    }
    if isinstance(theirs, Qwen3MoeConfig):
        only["decoder_sparse_step"] = 1
        if theirs.mlp_only_layers:
            only["intermediate_size"] = theirs.num_experts_per_tok * theirs.moe_intermediate_size
    for name, expected in only.items():
        if getattr(theirs, name) != expected:
            raise ValueError(
                f"{name} is {getattr(theirs, name)!r}; TinyMoE cannot have that, only {expected!r}."
            )


def neighbours_apart(config: ModelConfig) -> Tensor:
    """(head_dim,) our coordinates in Qwen3's order: the even ones first, then the odd ones."""
    return torch.arange(config.head_dim).view(-1, 2).T.flatten()


def plain_names(config: ModelConfig) -> dict[str, str]:
    """Weights that move as they are, ours to theirs."""
    names = {
        "embed.weight": "model.embed_tokens.weight",
        "norm.weight": "model.norm.weight",
        "head.weight": "lm_head.weight",
    }
    for layer in range(config.num_layers):
        ours, theirs = f"blocks.{layer}.", f"model.layers.{layer}."
        names[ours + "attention_norm.weight"] = theirs + "input_layernorm.weight"
        names[ours + "ffn_norm.weight"] = theirs + "post_attention_layernorm.weight"
        names[ours + "attention.out.weight"] = theirs + "self_attn.o_proj.weight"
        if layer in config.routed_layers:
            names[ours + "moe.router.weight"] = theirs + "mlp.gate.weight"
        else:
            names[ours + "dense.down.weight"] = theirs + "mlp.down_proj.weight"
    return names


def their_weights(ours: Weights, config: ModelConfig) -> Weights:
    """Our state_dict under transformers' names."""
    moved = {theirs: ours[name] for name, theirs in plain_names(config).items()}
    order = neighbours_apart(config)
    turned = reordered_heads(config, order)
    for layer in range(config.num_layers):
        own, to = f"blocks.{layer}.", f"model.layers.{layer}."
        q, k, v = ours[own + "attention.qkv.weight"].chunk(3)
        moved[to + "self_attn.q_proj.weight"] = turned(q)
        moved[to + "self_attn.k_proj.weight"] = turned(k)
        moved[to + "self_attn.v_proj.weight"] = v
        for norm in ("q_norm", "k_norm"):
            moved[to + f"self_attn.{norm}.weight"] = ours[own + f"attention.{norm}.weight"][order]
        if layer in config.routed_layers:
            for part in ("gate_up", "down"):
                stack = ours[own + f"moe.{part}"].transpose(1, 2)
                moved[to + f"mlp.experts.{part}_proj"] = stack.contiguous()
        else:
            gate, up = ours[own + "dense.gate_up.weight"].chunk(2)
            moved |= {to + "mlp.gate_proj.weight": gate, to + "mlp.up_proj.weight": up}
    return moved


def our_weights(theirs: Weights, config: ModelConfig) -> Weights:
    """transformers' state_dict under our names."""
    moved = {name: theirs[their] for name, their in plain_names(config).items()}
    order = neighbours_apart(config).argsort()
    turned = reordered_heads(config, order)
    for layer in range(config.num_layers):
        own, to = f"blocks.{layer}.", f"model.layers.{layer}."
        q, k, v = (theirs[to + f"self_attn.{name}_proj.weight"] for name in "qkv")
        moved[own + "attention.qkv.weight"] = torch.cat([turned(q), turned(k), v])
        for norm in ("q_norm", "k_norm"):
            moved[own + f"attention.{norm}.weight"] = theirs[to + f"self_attn.{norm}.weight"][order]
        if layer in config.routed_layers:
            for part in ("gate_up", "down"):
                stack = theirs[to + f"mlp.experts.{part}_proj"].transpose(1, 2)
                moved[own + f"moe.{part}"] = stack.contiguous()
        else:
            both = [theirs[to + f"mlp.{name}_proj.weight"] for name in ("gate", "up")]
            moved[own + "dense.gate_up.weight"] = torch.cat(both)
    return moved


def reordered_heads(config: ModelConfig, order: Tensor) -> Callable[[Tensor], Tensor]:
    """A function that puts the rows of each head, (H * D, width), into ``order``."""

    def reordered(weight: Tensor) -> Tensor:
        heads = weight.view(config.num_heads, config.head_dim, -1)
        return heads[:, order].reshape(weight.shape)

    return reordered
