"""The model: shapes, router, dispatch, and the three ways to read a sequence."""

import math

import pytest
import torch
from torch.testing import assert_close

from gspo_edu.moe import ModelConfig
from gspo_edu.moe.contexts import MOST_IN_BLOCK, AnswerCache, PromptsWithAnswers, Sequences
from gspo_edu.moe.dispatch import SortedDispatch, dense_dispatch, swiglu
from gspo_edu.moe.experts import DenseBlock, MixtureOfExperts, load_balancing_loss
from gspo_edu.moe.heads import rotated, rotations
from gspo_edu.moe.norm import NormFunction, RMSNorm
from gspo_edu.moe.shared_prompt import SharedPromptAttention, shared_prompt_attention


def tokens_of(rows, width, seed=0):
    return torch.randint(0, 10, (rows, width), generator=torch.Generator().manual_seed(seed))


def experts_of(config, seed=0):
    layer = MixtureOfExperts(config)
    dice = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.normal_(std=0.3, generator=dice)
    return layer, torch.randn(20, config.width, generator=dice)


def test_shapes(tiny):
    result = tiny(num_layers=3)(tokens_of(2, 5))
    assert result.logits.shape == (2, 5, 13)
    assert result.routes.shape == (2, 5, 3, 2)
    assert result.routes.dtype == torch.int16
    assert result.router_logits.shape == (2, 5, 3, 4)


def test_weights_depend_on_the_generator_only(tiny):
    one, same, other = tiny(seed=1), tiny(seed=1), tiny(seed=2)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.head.weight, other.head.weight)


def test_later_tokens_do_not_change_earlier_logits(tiny):
    model, tokens = tiny(), tokens_of(2, 6)
    changed = tokens.clone()
    changed[:, 4] = (changed[:, 4] + 1) % 10
    before, after = model(tokens).logits, model(changed).logits
    assert_close(before[:, :4], after[:, :4], rtol=0, atol=1e-6)
    assert not torch.allclose(before[:, 4], after[:, 4])


def test_rope_turns_pairs_by_their_position():
    """Elements 2i and 2i + 1 of 4 turn together, by position * theta^(-i / 2)."""
    rotation = rotations(torch.tensor([3]), head_dim=4, theta=100.0)
    turned = rotated(torch.tensor([[1.0, 0.0, 0.0, 1.0]]), rotation)
    wanted = [math.cos(3), math.sin(3), -math.sin(0.3), math.cos(0.3)]
    assert_close(turned, torch.tensor([wanted]))


def test_rope_makes_attention_depend_on_distance_only():
    dice = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 8, generator=dice)

    def score(at, before):
        turns = [rotations(torch.tensor([place]), 8, 10_000.0) for place in (at, before)]
        return (rotated(query, turns[0]) * rotated(key, turns[1])).sum()

    assert_close(score(7, 3), score(14, 10))
    assert abs(score(7, 3) - score(7, 4)) > 0.01


def test_the_order_of_earlier_tokens_matters(tiny):
    model, tokens = tiny(), torch.tensor([[1, 2, 3, 4], [2, 1, 3, 4]])
    logits = model(tokens).logits[:, -1]
    assert not torch.allclose(logits[0], logits[1], atol=1e-3)


def test_routes_are_the_best_scored_experts(tiny):
    result = tiny()(tokens_of(3, 5))
    best = result.router_logits.topk(2, dim=-1).indices
    assert torch.equal(result.routes.long(), best)


@pytest.mark.parametrize("top_k", [2, 3])
def test_sorted_dispatch_equals_a_loop_over_tokens_and_experts(top_k):
    config = ModelConfig(13, width=16, num_experts=5, top_k=top_k, expert_width=8)
    layer, x = experts_of(config)
    out, experts, logits = layer(x)
    for token in range(len(x)):
        chosen = logits[token].topk(top_k).indices
        assert set(experts[token].tolist()) == set(chosen.tolist())
        gates = logits[token, chosen].softmax(dim=0)
        wanted = sum(
            gate * (swiglu(x[token] @ layer.gate_up[expert]) @ layer.down[expert])
            for gate, expert in zip(gates, chosen.tolist(), strict=True)
        )
        assert_close(out[token], wanted, rtol=1e-5, atol=1e-5)


def test_experts_that_serve_no_token_are_no_problem():
    layer, x = experts_of(ModelConfig(13, width=16, num_experts=6, top_k=2, expert_width=8))
    replay = torch.tensor([1, 4]).expand(20, 2)
    out, experts, _ = layer(x, replay)
    assert torch.equal(experts, replay)
    out.sum().backward()
    served = layer.down.grad.abs().sum(dim=(1, 2)) > 0
    assert served.tolist() == [False, True, False, False, True, False]


def test_top_1_with_normalised_gates_is_refused():
    with pytest.raises(ValueError, match="norm_topk_prob=False"):
        ModelConfig(13, top_k=1)
    assert ModelConfig(13, top_k=1, norm_topk_prob=False).top_k == 1


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *[("num_layers", 0), ("width", 0), ("head_dim", 7), ("top_k", 0), ("top_k", 9)],
        *[("width", 18), ("expert_width", 10)],
    ],
)
def test_unusable_sizes_are_named(setting, value):
    with pytest.raises(ValueError, match=f"{setting} is {value}"):
        ModelConfig(13, **{setting: value})


@pytest.mark.parametrize(("top_k", "normalised"), [(2, True), (2, False), (1, False)])
def test_the_router_learns_also_under_replay(tiny, top_k, normalised):
    model, tokens = tiny(top_k=top_k, norm_topk_prob=normalised), tokens_of(3, 5)
    replay = (model(tokens).routes + 1) % 4
    result = model(tokens, replay=replay)
    assert torch.equal(result.routes, replay)
    result.logits.log_softmax(dim=-1)[..., 0].sum().backward()
    for block in model.blocks:
        assert block.moe.router.weight.grad.abs().max() > 1e-4


def test_replaying_its_own_routes_changes_nothing(tiny):
    model, tokens = tiny(), tokens_of(3, 5)
    live = model(tokens)
    again = model(tokens, replay=live.routes)
    assert torch.equal(again.logits, live.logits)


def test_minus_one_in_replay_chooses_live(tiny):
    model, tokens = tiny(), tokens_of(2, 4)
    live = model(tokens)
    replay = torch.full_like(live.routes, -1)
    replay[0, 1] = (live.routes[0, 1] + 1) % 4
    result = model(tokens, replay=replay)
    assert torch.equal(result.routes[0, 1], replay[0, 1])
    assert torch.equal(result.routes[1], live.routes[1])


def test_load_balancing_loss_by_hand():
    mask = torch.ones(1, 4)
    even = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0]]).view(1, 4, 1, 2)
    assert load_balancing_loss(torch.zeros(1, 4, 1, 4), even, mask).item() == pytest.approx(2)
    # All four tokens on expert 0 of 4, the router certain of it: 4 * 1 * 1.
    certain = torch.tensor([40.0, 0, 0, 0]).expand(1, 4, 1, 4)
    alone = torch.zeros(1, 4, 1, 1, dtype=torch.int64)
    assert load_balancing_loss(certain, alone, mask).item() == pytest.approx(4)


def test_load_balancing_loss_ignores_padding_and_spreads_the_router():
    dice = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 1, 4, generator=dice)
    logits[..., 0] += 2
    logits.requires_grad_()
    experts = logits.topk(2, dim=-1).indices
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    loss = load_balancing_loss(logits, experts.where(mask[..., None, None] > 0, -1), mask)
    assert_close(
        loss,
        load_balancing_loss(logits[mask > 0][None], experts[mask > 0][None], mask[mask > 0][None]),
    )
    loss.backward()
    assert (logits.grad[mask == 0] == 0).all()
    assert (logits.grad[mask > 0][..., 0] > 0).all()


def test_the_dense_twin_is_as_wide_as_the_experts_that_serve_a_token():
    config = ModelConfig(13, width=16, num_experts=4, top_k=2, expert_width=8)
    layer, x = experts_of(config)
    twin = DenseBlock(config)
    gate, up = layer.gate_up[:2].chunk(2, dim=-1)
    with torch.no_grad():
        twin.gate_up.weight.copy_(torch.cat([*gate, *up], dim=1).T)
        twin.down.weight.copy_(torch.cat([*layer.down[:2]]).T)
    both = sum(swiglu(x @ layer.gate_up[e]) @ layer.down[e] for e in (0, 1))
    assert_close(twin(x), both, rtol=1e-5, atol=1e-5)


def test_the_dense_model_has_no_routes(tiny):
    model = tiny(dense=True)
    result = model(tokens_of(2, 3))
    assert result.routes.shape == (2, 3, 0, 2)
    assert not any("router" in name for name, _ in model.named_parameters())


def weights_gradients(model, logits):
    model.zero_grad()
    logits.log_softmax(dim=-1)[..., 3].sum().backward()
    return [weight.grad.clone() for weight in model.parameters()]


GROUPS = {
    "even": torch.tensor([0, 0, 0, 1, 1, 1]),
    "mixed up": torch.tensor([0, 1, 1, 0, 1, 0]),
    "ragged": torch.tensor([1, 1, 0, 1, 1, 2]),
}


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS.keys())
@pytest.mark.parametrize("cut", [False, True], ids=["full", "cut"])
def test_prompts_read_once_equal_prompts_read_with_each_answer(tiny, group, cut):
    """The flat pass with shared prompts and derivatives by hand, against plain rows."""
    model = tiny()
    prompts, answers = tokens_of(int(group.max()) + 1, 4), tokens_of(6, 5, seed=1)
    lengths = torch.tensor([5, 3, 1, 4, 5, 2]) if cut else torch.full((6,), 5)
    inside = torch.arange(5) < lengths[:, None]
    context = PromptsWithAnswers(len(prompts), 4, group, inside)
    shared = model(torch.cat([prompts.flatten(), answers[inside]]), context)
    whole = model(torch.cat([prompts[group], answers], dim=1))
    assert torch.equal(shared.routes[context.silent :], whole.routes[:, 4:][inside])
    assert_close(shared.logits, whole.logits[:, 4:][inside], rtol=0, atol=1e-5)
    pairs = zip(
        weights_gradients(model, shared.logits),
        weights_gradients(model, whole.logits[:, 4:][inside]),
        strict=True,
    )
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in pairs)


def test_fixed_shapes_compute_the_same(tiny):
    """What a GPU and a batch of models compute: every expert, no packing, autograd throughout."""
    model, group = tiny(), GROUPS["even"]
    prompts, answers = tokens_of(2, 4), tokens_of(6, 5, seed=1)
    tokens, inside = torch.cat([prompts.flatten(), answers.flatten()]), torch.ones(6, 5).bool()
    packed, fixed = (
        model(tokens, PromptsWithAnswers(2, 4, group, inside, fixed_shapes=fixed))
        for fixed in (False, True)
    )
    assert torch.equal(packed.routes, fixed.routes)
    assert_close(packed.logits, fixed.logits, rtol=0, atol=1e-5)
    pairs = zip(
        weights_gradients(model, packed.logits),
        weights_gradients(model, fixed.logits),
        strict=True,
    )
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in pairs)


def doubles(*shapes, seed=0):
    dice = torch.Generator().manual_seed(seed)
    made = (torch.randn(shape, generator=dice, dtype=torch.float64) for shape in shapes)
    return [x.requires_grad_() for x in made]


def test_the_derivative_of_the_norm():
    x, weight = doubles((3, 2, 5), (5,))
    assert torch.autograd.gradcheck(lambda x, w: NormFunction.apply(x, w, 1e-6), (x, weight))
    norm = RMSNorm(5, 1e-6).double()
    assert_close(norm(x), norm(x, by_hand=False), rtol=0, atol=1e-12)


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("tokens", [1, 40])
def test_sorted_dispatch_equals_every_expert_for_every_token(top_k, tokens):
    """Result and gradients; the dense form leaves its derivative to autograd."""
    shapes = (tokens, 4), (tokens, top_k), (5, 4, 16), (5, 8, 4), (tokens, 4)
    *given, grad = (x.detach().float() for x in doubles(*shapes))
    experts = torch.rand(tokens, 5, generator=torch.Generator().manual_seed(0)).topk(top_k).indices

    def result_and_gradients(dispatch):
        x, gates, gate_up, down = inputs = [one.clone().requires_grad_() for one in given]
        out = dispatch(x, gates, experts, gate_up, down)
        out.backward(grad)
        return [out.detach(), *(one.grad for one in inputs)]

    found, wanted = map(result_and_gradients, (SortedDispatch.apply, dense_dispatch))
    for a, b in zip(found, wanted, strict=True):
        assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS.keys())
@pytest.mark.parametrize("cut", [False, True], ids=["full", "cut"])
def test_the_derivative_of_the_shared_prompt_attention(group, cut):
    config = ModelConfig(13, num_heads=2, head_dim=4)
    inside = torch.arange(2) < torch.tensor([2, 1, 2, 2, 1, 2])[:, None]
    inside = inside if cut else torch.ones_like(inside)
    context = PromptsWithAnswers(int(group.max()) + 1, 3, group, inside)
    qkv, scale = doubles((context.silent + int(inside.sum()), 3, 2, 4), (2, 1, 1, 4))
    context.begin(config, qkv)
    # RoPE is float32 by nature: its tables must not be what the check measures.
    assert torch.autograd.gradcheck(
        lambda qkv, scale: SharedPromptAttention.apply(qkv, scale, context.slots, 1e-6),
        (qkv, scale),
        atol=1e-6,
    )
    by_hand = SharedPromptAttention.apply(qkv, scale, context.slots, 1e-6)
    plain = shared_prompt_attention(qkv, scale, context.slots, 1e-6)[0]
    assert torch.equal(by_hand, plain)


def cached_logits(model, prompts, answers, leave=None):
    """Logits of ``answers`` (P G, T), one token after the other; NaN after ``leave`` (P G,)."""
    read = Sequences(*prompts.shape)
    model(prompts.flatten(), read)
    cache = AnswerCache(read, len(answers) // len(prompts), answers.shape[1])
    found = torch.full((*answers.shape, 13), torch.nan)
    for step in range(answers.shape[1]):
        alive = cache.alive
        found[alive, step] = model(answers[alive, step], cache).logits
        stay = torch.arange(len(alive)) if leave is None else (leave[alive] > step).nonzero()[:, 0]
        cache.next_step(stay)
    return found


@torch.no_grad()
@pytest.mark.parametrize("group_size", [1, 3, MOST_IN_BLOCK + 1, 2 * MOST_IN_BLOCK])
def test_one_token_at_a_time_equals_all_at_once(tiny, group_size):
    model = tiny(num_layers=3)
    prompts, answers = tokens_of(2, 4), tokens_of(2 * group_size, 6, seed=1)
    stepwise = cached_logits(model, prompts, answers)
    read = prompts.repeat_interleave(group_size, dim=0)
    whole = model(torch.cat([read, answers], dim=1)).logits[:, 4:]
    assert_close(stepwise, whole, rtol=0, atol=1e-5)


def test_memory_grows_in_proportion_to_the_group(tiny):
    def numbers(group_size):
        read = Sequences(2, 4)
        tiny()(tokens_of(2, 4).flatten(), read)
        cache = AnswerCache(read, group_size, 10)
        return sum(x.numel() for x in cache.keys) + cache.hidden.numel()

    assert numbers(8 * MOST_IN_BLOCK) < 9 * numbers(MOST_IN_BLOCK)


@torch.no_grad()
def test_answers_that_leave_the_cache_do_not_change_the_others(tiny):
    model, prompts, answers = tiny(), tokens_of(2, 4), tokens_of(4, 6, seed=1)
    all_stay = cached_logits(model, prompts, answers)
    leave = torch.tensor([0, 6, 2, 4])
    some = cached_logits(model, prompts, answers, leave)
    for row, last in enumerate(leave.tolist()):
        assert_close(some[row, : last + 1], all_stay[row, : last + 1], rtol=0, atol=1e-5)
        assert some[row, last + 1 :].isnan().all()
