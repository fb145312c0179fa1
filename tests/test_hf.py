"""The weights as a Qwen3-MoE of transformers: equal logits, there, back, and through files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gspo_edu.checkpoint import load_policy, shipped_policies
from gspo_edu.moe.config import ModelConfig
from gspo_edu.moe.model import TinyMoE
from gspo_edu.tasks.base import VOCAB_SIZE

transformers = pytest.importorskip("transformers", reason="the extra 'real' is not installed")

from gspo_edu.moe.hf import from_qwen3_moe, to_qwen3_moe  # noqa: E402

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


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.no_grad()
def test_logits_are_equal_there_and_back(shape: dict[str, object], tmp_path: Path) -> None:
    ours = TinyMoE(ModelConfig(VOCAB_SIZE, **shape), torch.Generator().manual_seed(3))
    for name, weight in ours.named_parameters():  # norms of 1 would hide a wrong order
        if name.endswith("norm.weight"):
            weight.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(len(name)))
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


def test_shared_key_heads_are_refused() -> None:
    small = {"vocab_size": 13, "hidden_size": 16, "num_hidden_layers": 1, "head_dim": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.Qwen3MoeConfig(**small, **heads, num_experts=2, moe_intermediate_size=8)
    with pytest.raises(ValueError, match="num_key_value_heads is 2"):
        from_qwen3_moe(transformers.Qwen3MoeForCausalLM(config))
