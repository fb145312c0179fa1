"""The weights as a Qwen3-MoE of transformers: equal logits, there, back, and through files."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gspo_edu.checkpoint import load_policy, shipped_policies
from gspo_edu.moe.config import ModelConfig
from gspo_edu.moe.model import TinyMoE
from gspo_edu.tasks.base import VOCAB_SIZE

transformers = pytest.importorskip("transformers", reason="the extra 'real' is not installed")

from gspo_edu.moe.hf import (  # noqa: E402
    from_qwen3,
    from_qwen3_moe,
    to_qwen3,
    to_qwen3_moe,
)

SHAPES = {
    "as shipped": {},
    "top 1, gates not normalised": {"top_k": 1, "norm_topk_prob": False},
    "one dense layer": {"num_layers": 3, "mlp_only_layers": (1,)},
    "dense": {"dense": True},
    "other sizes": {"width": 32, "num_heads": 2, "head_dim": 8, "num_experts": 5, "top_k": 3},
    "another theta": {"rope_theta": 50_000.0},
}


def tokens() -> torch.Tensor:
    return torch.randint(0, VOCAB_SIZE, (4, 25), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def with_uneven_norms(model: TinyMoE) -> TinyMoE:
    """``model``, whose norms of 1 would hide a wrong order."""
    for name, weight in model.named_parameters():
        if name.endswith("norm.weight"):
            weight.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(len(name)))
    return model


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.no_grad()
def test_logits_are_equal_there_and_back(shape: dict[str, object], tmp_path: Path) -> None:
    ours = TinyMoE(ModelConfig(VOCAB_SIZE, **shape), torch.Generator().manual_seed(3))
    with_uneven_norms(ours)
    theirs = to_qwen3_moe(ours)
    wanted = ours(tokens()).logits
    torch.testing.assert_close(theirs(tokens()).logits, wanted, rtol=0, atol=1e-5)

    theirs.save_pretrained(tmp_path)
    loaded = transformers.Qwen3MoeForCausalLM.from_pretrained(tmp_path)
    back = from_qwen3_moe(loaded)
    assert back.config == ours.config
    for name, weight in ours.state_dict().items():
        assert torch.equal(back.state_dict()[name], weight), name


@torch.no_grad()
def test_a_shipped_policy_gives_the_same_logits() -> None:
    ours, _ = load_policy(shipped_policies()["stormy"])
    apart = to_qwen3_moe(ours)(tokens()).logits - ours(tokens()).logits
    assert apart.abs().max() < 1e-5


def test_a_copy_is_a_copy() -> None:
    ours = TinyMoE(ModelConfig(VOCAB_SIZE))
    before = ours.embed.weight.clone()
    with torch.no_grad():
        to_qwen3_moe(ours).model.embed_tokens.weight.zero_()
    assert torch.equal(ours.embed.weight, before)


@torch.no_grad()
def test_a_dense_twin_is_a_qwen3(tmp_path: Path) -> None:
    ours = with_uneven_norms(TinyMoE(ModelConfig(VOCAB_SIZE, dense=True)))
    to_qwen3(ours).save_pretrained(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(theirs).__name__ == "Qwen3ForCausalLM"
    wanted = ours(tokens()).logits
    torch.testing.assert_close(theirs(tokens()).logits, wanted, rtol=0, atol=1e-5)
    back = from_qwen3(theirs)
    assert back.config == replace(ours.config, top_k=1, expert_width=96)
    assert torch.equal(back(tokens()).logits, wanted)


def test_a_router_has_no_place_in_a_qwen3() -> None:
    with pytest.raises(ValueError, match=r"layers \(0, 1\) have routers; Qwen3 has none"):
        to_qwen3(TinyMoE(ModelConfig(VOCAB_SIZE)))


SMALL = {
    "vocab_size": 13,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
}


@torch.no_grad()
def test_a_model_that_was_made_there(tmp_path: Path) -> None:
    theirs = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**SMALL)).eval()
    for weight in theirs.parameters():
        weight.normal_(std=0.3, generator=torch.Generator().manual_seed(weight.numel()))
    ours = from_qwen3_moe(theirs)
    assert (ours.config.head_dim, ours.config.norm_topk_prob) == (4, False)
    wanted = theirs(tokens()).logits
    torch.testing.assert_close(ours(tokens()).logits, wanted, rtol=0, atol=1e-5)
    back = to_qwen3_moe(ours).state_dict()
    for name, weight in theirs.state_dict().items():
        assert torch.equal(back[name], weight), name


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("hidden_act", "gelu"),
        ("num_key_value_heads", 2),
        ("attention_bias", True),
        ("attention_dropout", 0.1),
        ("tie_word_embeddings", True),
        ("decoder_sparse_step", 2),
        ("rope_parameters", {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}),
        ("sliding_window", 4),
        ("intermediate_size", 40),
    ],
)
def test_what_the_course_cannot_have_is_named(setting: str, value: object) -> None:
    changes: dict[str, object] = {setting: value}
    changes |= {"sliding_window": {"use_sliding_window": True}}.get(setting, {})
    changes |= {"intermediate_size": {"mlp_only_layers": [1]}}.get(setting, {})
    config = transformers.Qwen3MoeConfig(**{**SMALL, **changes})
    model = transformers.Qwen3MoeForCausalLM(config)
    with pytest.raises(ValueError, match=rf"^{setting} is .*; TinyMoE cannot have that, only"):
        from_qwen3_moe(model)


def test_another_model_is_refused() -> None:
    config = transformers.Qwen3Config(**SMALL, head_dim=4, intermediate_size=16)
    model = transformers.Qwen3ForCausalLM(config)
    said = "model is a Qwen3ForCausalLM; expected a Qwen3MoeForCausalLM"
    with pytest.raises(TypeError, match=said):
        from_qwen3_moe(model)


def test_without_transformers_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['transformers'] = None\nimport gspo_edu.moe.hf"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: gspo_edu.moe.hf needs transformers. It comes with" in done.stderr


def test_the_package_loads_no_transformers() -> None:
    code = "import sys, gspo_edu, gspo_edu.cli, gspo_edu.trainer, gspo_edu.moe.hf_routes\n"
    code += "print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
