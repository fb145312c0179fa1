"""Routes of transformers' mixtures of experts: recorded, replayed, each one built tiny."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

transformers = pytest.importorskip("transformers", reason="the extra 'real' is not installed")

from gspo_edu.moe.config import ModelConfig  # noqa: E402
from gspo_edu.moe.hf import to_qwen3_moe  # noqa: E402
from gspo_edu.moe.hf_routers import GATES, routed_model  # noqa: E402
from gspo_edu.moe.hf_routes import (  # noqa: E402
    SequenceRoutes,
    recorded_routes,
    replayed_routes,
)
from gspo_edu.moe.model import TinyMoE  # noqa: E402
from gspo_edu.moe.routes import replay_gates  # noqa: E402

EXPERTS, TOP_K, VOCAB = 8, 2, 40
SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "num_experts_per_tok": TOP_K,
    "intermediate_size": 8,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
WITHOUT_LAYER_1 = {"num_experts": EXPERTS, "moe_intermediate_size": 8, "mlp_only_layers": [1]}
LATENT = {
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
}
GROUPED = {"n_routed_experts": EXPERTS, "n_group": 2, "topk_group": 1, "head_dim": 4, **LATENT}
# Name -> (the start of its classes' names, its settings, its routed layers).
MODELS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "qwen2_moe": ("Qwen2Moe", WITHOUT_LAYER_1 | {"shared_expert_intermediate_size": 8}, (0, 2)),
    "qwen2_moe normalised": (
        "Qwen2Moe",
        WITHOUT_LAYER_1 | {"shared_expert_intermediate_size": 8, "norm_topk_prob": True},
        (0, 2),
    ),
    "qwen3_moe": ("Qwen3Moe", WITHOUT_LAYER_1 | {"norm_topk_prob": True}, (0, 2)),
    "mixtral": ("Mixtral", {"num_local_experts": EXPERTS}, (0, 1, 2)),
    "olmoe": ("Olmoe", {"num_experts": EXPERTS}, (0, 1, 2)),
    "deepseek_v3": (
        "DeepseekV3",
        GROUPED | {"moe_intermediate_size": 8, "n_shared_experts": 1, "first_k_dense_replace": 1},
        (1, 2),
    ),
    "gpt_oss": (
        "GptOss",
        {
            "num_local_experts": EXPERTS,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        },
        (0, 1, 2),
    ),
}
every_model = pytest.mark.parametrize("name", MODELS)


def built(name: str) -> Any:
    """The model ``name`` with random weights, in evaluation mode."""
    start, settings, _ = MODELS[name]
    model = getattr(transformers, f"{start}ForCausalLM")(
        getattr(transformers, f"{start}Config")(**{**SMALL, **settings})
    )
    dice = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.4, generator=dice)
    return model.eval()


def batch() -> tuple[Tensor, Tensor]:
    """(3, 9) tokens, the first row with padding on the left, the second with it on the right."""
    tokens = torch.randint(1, VOCAB, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens)
    mask[0, :3] = 0
    mask[1, 7:] = 0
    return tokens, mask


def routes_of(model: Any, tokens: Tensor, mask: Tensor | None = None) -> SequenceRoutes:
    with torch.no_grad(), recorded_routes(model) as recorder:
        model(tokens, attention_mask=mask)
    return recorder.routes


def others(routes: SequenceRoutes) -> SequenceRoutes:
    """Every expert replaced by the next one."""
    experts = routes.experts
    moved = ((experts + 1) % EXPERTS).where(experts >= 0, -1)
    return SequenceRoutes(moved, routes.layers)


# --- Every architecture --------------------------------------------------------------------


def test_every_known_router_is_tested() -> None:
    used = {type(r).__name__ for name in MODELS for r in routed_model(built(name)).routers.values()}
    assert used == set(GATES)


@every_model
def test_what_is_recorded(name: str) -> None:
    model, (tokens, mask) = built(name), batch()
    routes = routes_of(model, tokens, mask)
    assert routes.layers == MODELS[name][2]
    assert routes.experts.shape == (3, 9, len(routes.layers), TOP_K)
    assert routes.experts.dtype == torch.int16
    inside = mask.bool()
    assert (routes.experts[~inside] == -1).all()
    assert (routes.experts[inside] >= 0).all()
    assert len(routes.experts[inside].unique()) > TOP_K


@every_model
@torch.no_grad()
def test_recorded_experts_are_those_of_the_largest_logits(name: str) -> None:
    model, (tokens, mask) = built(name), batch()
    routed, logits = routed_model(model), {}
    for layer, router in routed.routers.items():
        router.register_forward_hook(
            lambda _, __, out, layer=layer: logits.__setitem__(layer, out[0])
        )
    routes = routes_of(model, tokens, mask)
    for place, layer in enumerate(routes.layers):
        scores = logits[layer].view(3, 9, EXPERTS)
        if name == "deepseek_v3":  # it first chooses the group whose two best have the larger sum
            halves = scores.sigmoid().unflatten(-1, (2, -1))
            best = halves.topk(2).values.sum(-1).argmax(-1, keepdim=True)
            keep = torch.zeros(3, 9, 2).scatter(-1, best, 1.0).repeat_interleave(4, dim=-1)
            scores = scores.masked_fill(keep == 0, -torch.inf)
        wanted = scores.topk(TOP_K).indices.sort().values[mask.bool()]
        found = routes.experts[:, :, place].sort().values[mask.bool()]
        assert torch.equal(found.long(), wanted)


@every_model
@torch.no_grad()
def test_replaying_own_routes_changes_no_bit(name: str) -> None:
    model, (tokens, mask) = built(name), batch()
    for kind in (torch.float32, torch.bfloat16):
        model = model.to(kind)
        routes = routes_of(model, tokens, mask)
        live = model(tokens, attention_mask=mask).logits
        with replayed_routes(model, routes):
            replayed = model(tokens, attention_mask=mask).logits
        assert torch.equal(replayed[mask.bool()], live[mask.bool()])


@every_model
@torch.no_grad()
def test_given_experts_are_used(name: str) -> None:
    model, (tokens, mask) = built(name), batch()
    inside = mask.bool()
    given = others(routes_of(model, tokens, mask))
    with recorded_routes(model) as recorder, replayed_routes(model, given):
        replayed = model(tokens, attention_mask=mask).logits
    assert torch.equal(recorder.routes.experts, given.experts)
    live = model(tokens, attention_mask=mask).logits
    assert (replayed - live)[inside].abs().max() > 1e-3


def by_hand(name: str, logits: Tensor, experts: Tensor) -> Tensor:
    """Gates as the architecture's paper has them."""
    if name == "deepseek_v3":  # its routed_scaling_factor is 2.5
        gates = logits.sigmoid().gather(-1, experts)
        return 2.5 * gates / gates.sum(-1, keepdim=True)
    return replay_gates(logits, experts, normalize=name not in ("qwen2_moe", "olmoe"))


@every_model
@torch.no_grad()
def test_gates_come_from_the_live_logits(name: str) -> None:
    model, (tokens, mask) = built(name), batch()
    given, seen = others(routes_of(model, tokens, mask)), {}
    with replayed_routes(model, given):
        for layer, router in routed_model(model).routers.items():
            router.register_forward_hook(lambda _, __, out, n=layer: seen.__setitem__(n, out))
        model(tokens, attention_mask=mask)
    for logits, gates, experts in seen.values():
        torch.testing.assert_close(gates, by_hand(name, logits, experts), rtol=0, atol=1e-6)


@every_model
def test_the_router_still_learns(name: str) -> None:
    model, (tokens, mask) = built(name), batch()
    routes = routes_of(model, tokens, mask)
    model(tokens, attention_mask=mask).logits[mask.bool()].square().mean().backward()
    wanted = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    with replayed_routes(model, routes):
        model(tokens, attention_mask=mask).logits[mask.bool()].square().mean().backward()
    for parameter, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, wanted[parameter], rtol=1e-5, atol=1e-7)
    model.zero_grad()
    with replayed_routes(model, others(routes)):
        model(tokens, attention_mask=mask).logits[mask.bool()].square().mean().backward()
    for router in routed_model(model).routers.values():
        assert router.weight.grad.abs().max() > 1e-4


@torch.no_grad()
def test_deepseeks_bias_chooses_and_is_no_gate() -> None:
    model, (tokens, mask) = built("deepseek_v3"), batch()
    live = routes_of(model, tokens, mask)
    routers = routed_model(model).routers.values()
    for router in routers:
        router.e_score_correction_bias[[5, 6]] = 100.0
    chosen = model(tokens, attention_mask=mask).logits
    forced = routes_of(model, tokens, mask)
    with replayed_routes(model, forced):
        again = model(tokens, attention_mask=mask).logits
    assert torch.equal(again[mask.bool()], chosen[mask.bool()])
    for router in routers:
        router.e_score_correction_bias.zero_()
    assert set(forced.experts[mask.bool()].flatten().tolist()) == {5, 6}
    assert not torch.equal(live.experts, forced.experts)
    with replayed_routes(model, forced):
        replayed = model(tokens, attention_mask=mask).logits
    assert torch.equal(replayed[mask.bool()], chosen[mask.bool()])


@every_model
@torch.no_grad()
def test_generation_is_one_pass_without_its_last_token(name: str) -> None:
    model, (tokens, mask) = built(name), batch()
    mask[1, 7:] = 1  # generation needs its padding on the left
    with recorded_routes(model) as recorder:
        texts = model.generate(tokens, attention_mask=mask, max_new_tokens=5, do_sample=False)
    routes = recorder.routes
    assert texts.shape == (3, 14)
    assert routes.experts.shape[:2] == (3, 13)
    whole = torch.cat([mask, torch.ones(3, 5, dtype=mask.dtype)], dim=1)
    places = (whole.cumsum(dim=1) - 1).clamp(min=0)
    with recorded_routes(model) as again, replayed_routes(model, routes):
        logits = model(texts, attention_mask=whole, position_ids=places).logits
    assert torch.equal(again.routes.experts[:, :13], routes.experts)
    assert (again.routes.experts[:, 13] >= 0).all()
    assert torch.equal(logits[:, 8:13].argmax(dim=-1), texts[:, 9:])


# --- Together with this course's model -----------------------------------------------------


@torch.no_grad()
def test_routes_and_replay_are_those_of_the_course() -> None:
    config = ModelConfig(13, num_layers=3, mlp_only_layers=(1,))
    ours = TinyMoE(config, torch.Generator().manual_seed(2))
    theirs = to_qwen3_moe(ours)
    tokens = torch.randint(0, 13, (4, 11), generator=torch.Generator().manual_seed(3))
    result, routes = ours(tokens), routes_of(theirs, tokens)
    assert routes.layers == config.routed_layers
    assert torch.equal(routes.experts.sort().values, result.routes.sort().values)
    given = others(routes)
    with replayed_routes(theirs, given):
        replayed = theirs(tokens).logits
    wanted = ours(tokens, replay=given.experts).logits
    torch.testing.assert_close(replayed, wanted, rtol=0, atol=1e-5)


# --- Activation checkpointing --------------------------------------------------------------


def checkpointed(name: str, reentrant: bool, every: int = 1) -> Any:
    model = built(name).train()
    model.activation_checkpointing_enable({"use_reentrant": reentrant}, every_n_layers=every)
    if reentrant:  # it needs an input with a gradient
        model.enable_input_require_grads()
    return model


both_kinds = pytest.mark.parametrize("reentrant", [False, True])


@both_kinds
def test_layers_computed_again_are_recorded_once(reentrant: bool) -> None:
    tokens, mask = batch()
    model = checkpointed("qwen3_moe", reentrant)
    with recorded_routes(model) as recorder:
        model(tokens, attention_mask=mask, use_cache=False).logits.sum().backward()
    assert len(recorder.passes) == 1
    assert torch.equal(recorder.routes.experts, routes_of(built("qwen3_moe"), tokens, mask).experts)


@both_kinds
def test_layers_computed_again_replay_too(reentrant: bool) -> None:
    tokens, mask = batch()
    given = others(routes_of(built("qwen3_moe"), tokens, mask))
    gradients = []
    models = [checkpointed("qwen3_moe", reentrant, every) for every in (1, 2)]
    for model in (built("qwen3_moe"), *models):
        with replayed_routes(model, given):
            logits = model(tokens, attention_mask=mask, use_cache=False).logits
            logits[mask.bool()].square().mean().backward()
        gradients.append([weight.grad for weight in model.parameters()])
    for plain, *again in zip(*gradients, strict=True):
        for gradient in again:
            torch.testing.assert_close(gradient, plain, rtol=1e-5, atol=1e-7)


@both_kinds
def test_a_backward_pass_left_for_later_is_refused(reentrant: bool) -> None:
    tokens, mask = batch()
    model = checkpointed("qwen3_moe", reentrant)
    routes = routes_of(model, tokens, mask)
    with (
        pytest.raises(RuntimeError, match=r"backward inside .*activation_checkpointing_disable"),
        replayed_routes(model, routes),
    ):
        model(tokens, attention_mask=mask, use_cache=False)
    with torch.no_grad(), replayed_routes(model, routes):  # none will follow
        model(tokens, attention_mask=mask, use_cache=False)
    with replayed_routes(model.eval(), routes):  # nothing will be computed again
        model(tokens, attention_mask=mask, use_cache=False)


def test_checkpointed_passes_need_one_mask() -> None:
    tokens, mask = batch()
    model = checkpointed("qwen3_moe", False)
    routes = routes_of(model, tokens)
    with replayed_routes(model, routes):
        model(tokens, use_cache=False).logits.sum().backward()
        with pytest.raises(ValueError, match="need the same attention_mask"):
            model(tokens, attention_mask=mask, use_cache=False)


# --- What does not fit ---------------------------------------------------------------------


def broken(change: Callable[[Tensor], Tensor]) -> tuple[Any, Tensor, SequenceRoutes]:
    """Model, tokens, and routes after ``change``, which returns new ones or a part it has set."""
    model, (tokens, _) = built("qwen3_moe"), batch()
    routes = routes_of(model, tokens)
    experts = routes.experts.clone()
    changed = change(experts)
    return model, tokens, SequenceRoutes(changed if changed.dim() == 4 else experts, routes.layers)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda e: e[1, 4, 1].fill_(3), "an expert twice at row 1, position 4, layer 2: .3, 3."),
        (
            lambda e: e[2, 0, 0].copy_(torch.tensor([1, 8])),
            "outside 0 to 7 at row 2, posi",
        ),
        (lambda e: e[0, 5, 1].fill_(-1), "no expert at row 0, position 5, layer 2; only a row's"),
        (lambda e: e[0, 5, 1, 0:1].fill_(-1), "fewer experts than .* row 0, position 5, layer 2"),
        (lambda e: e[:, :-2], "routes cover 7 positions; expected 9, or 8"),
        (lambda e: e[:2], r"shape \(2, 9, 2, 2\); expected \(3, 9, 2, 2\): rows, positions"),
        (lambda e: e[..., :1], "routes name 1 experts per token; the model uses 2"),
        (lambda e: e.float(), "routes of the rows are of torch.float32; expected integers"),
    ],
)
def test_routes_that_do_not_fit(change: Callable[[Tensor], Tensor], said: str) -> None:
    model, tokens, routes = broken(change)
    with pytest.raises(ValueError, match=said), replayed_routes(model, routes):
        model(tokens)


def test_routes_of_other_layers() -> None:
    model, tokens, routes = broken(lambda experts: experts)
    shifted = SequenceRoutes(routes.experts, (0, 1))
    said = r"layers \(0, 1\); the model routes in \(0, 2\)"
    with pytest.raises(ValueError, match=said), replayed_routes(model, shifted):
        model(tokens)


def test_the_last_position_may_be_missing() -> None:
    model, tokens, routes = broken(lambda experts: experts[:, :-1])
    live = routes_of(model, tokens)
    with recorded_routes(model) as recorder, replayed_routes(model, routes):
        model(tokens)
    assert torch.equal(recorder.routes.experts, live.experts)


def test_an_unknown_router_is_named() -> None:
    settings = {"n_routed_experts": 4, "moe_intermediate_size": 8, "first_k_dense_replace": 1}
    config = transformers.Glm4MoeConfig(**SMALL, **settings)
    model = transformers.Glm4MoeForCausalLM(config)
    said = r"model.layers.1.mlp is a Glm4MoeMoE with the unknown router Glm4MoeTopkRouter; known"
    with pytest.raises(ValueError, match=said) as caught, recorded_routes(model):
        pass
    assert all(known in str(caught.value) for known in GATES)


def test_a_dense_model_has_no_router() -> None:
    model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SMALL))
    with pytest.raises(ValueError, match="Qwen3ForCausalLM has no router"), recorded_routes(model):
        pass


def test_a_router_alone_has_no_layer() -> None:
    (first, *_) = routed_model(built("qwen3_moe")).routers.values()
    with pytest.raises(ValueError, match="give the whole model"), recorded_routes(first):
        pass


def test_two_models_in_one_have_two_stacks() -> None:
    both = torch.nn.ModuleDict({"policy": built("qwen3_moe"), "reference": built("qwen3_moe")})
    said = "several stacks of layers: policy.model, reference.model"
    with pytest.raises(ValueError, match=said), recorded_routes(both):
        pass


def test_a_router_that_did_not_run() -> None:
    model, (tokens, _) = built("qwen3_moe"), batch()
    model.model.layers[2].mlp.forward = lambda hidden: hidden  # as a fused kernel would
    with pytest.raises(RuntimeError, match="router of layer 2 did not run"), recorded_routes(model):
        model(tokens)


def test_a_mask_that_hides_the_padding() -> None:
    model, (tokens, _) = built("qwen3_moe"), batch()
    said = r"attention_mask is \(3, 1, 9, 9\); expected"
    with pytest.raises(ValueError, match=said), recorded_routes(model):
        model(tokens, attention_mask=torch.zeros(3, 1, 9, 9))


def test_one_replay_at_a_time() -> None:
    model, _, routes = broken(lambda experts: experts)
    with (
        replayed_routes(model, routes),
        pytest.raises(ValueError, match="replays already"),
        replayed_routes(model, routes),
    ):
        pass
    with replayed_routes(model, routes):
        pass


@torch.no_grad()
def test_a_cache_that_was_not_recorded() -> None:
    model, (tokens, _) = built("qwen3_moe"), batch()
    cache = model(tokens[:, :5], use_cache=True).cache
    said = "went on from 5 cached positions of 3 rows, but 0 positions"
    with pytest.raises(ValueError, match=said), recorded_routes(model):
        model(tokens[:, 5:], cache=cache)
    routes = routes_of(model, tokens)
    cache = model(tokens[:, :5], use_cache=True).cache
    with pytest.raises(ValueError, match="from 5 cached"), replayed_routes(model, routes):
        model(tokens[:, 5:], cache=cache)


# --- Around the block ----------------------------------------------------------------------


@torch.no_grad()
def test_several_passes_and_none() -> None:
    model, (tokens, _) = built("mixtral"), batch()
    with recorded_routes(model) as recorder:
        with pytest.raises(ValueError, match="0 forward passes were recorded; expected one"):
            _ = recorder.routes
        model(tokens)
        model(tokens[:2, :4])
    assert [routes.experts.shape[:2] for routes in recorder.passes] == [(3, 9), (2, 4)]
    with pytest.raises(ValueError, match="2 forward passes"):
        _ = recorder.routes


@torch.no_grad()
def test_a_pass_that_failed_is_not_recorded() -> None:
    model, (tokens, _) = built("mixtral"), batch()
    with recorded_routes(model) as recorder:
        with pytest.raises(IndexError):
            model(tokens + VOCAB)
        model(tokens)
    assert len(recorder.passes) == 1


@torch.no_grad()
def test_rows_of_routes_for_a_mini_batch() -> None:
    model, (tokens, mask) = built("mixtral"), batch()
    given, index = others(routes_of(model, tokens, mask)), torch.tensor([2, 0])
    with replayed_routes(model, given):
        whole = model(tokens, attention_mask=mask).logits
    with replayed_routes(model, given.rows(index)):
        part = model(tokens[index], attention_mask=mask[index]).logits
    inside = mask[index].bool()
    torch.testing.assert_close(part[inside], whole[index][inside], rtol=0, atol=1e-5)


@torch.no_grad()
def test_wrapped_models_bare_decoders_and_embeddings() -> None:
    model, (tokens, mask) = built("qwen3_moe"), batch()
    wanted = routes_of(model, tokens, mask).experts
    wrapped = torch.nn.ModuleDict({"module": model})
    with recorded_routes(wrapped) as recorder:
        model.model(tokens, mask)  # as trainers do that take the hidden states
        model(inputs_embeds=model.get_input_embeddings()(tokens), attention_mask=mask)
    assert all(torch.equal(routes.experts, wanted) for routes in recorder.passes)
    assert len(recorder.passes) == 2


@torch.no_grad()
def test_no_hook_stays() -> None:
    model, tokens, routes = broken(lambda experts: experts[:, :3])
    before = model(tokens).logits
    with pytest.raises(ValueError, match="cover 3"), replayed_routes(model, routes):
        model(tokens)
    with recorded_routes(model):
        pass
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch.equal(model(tokens).logits, before)
