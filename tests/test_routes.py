"""Route traces: what may be replayed, what drift means, what padding and dense layers do."""

import pytest
import torch
from torch.testing import assert_close

from gspo_edu.moe import ModelConfig, RouteTrace, drift, replay_gates
from gspo_edu.sampler import answer_log_probs

CONFIG = ModelConfig(13, num_layers=2, num_experts=4, top_k=2)
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()


def trace_of(width=4, layers=(0, 1)):
    """A valid trace: position t takes experts t and t + 1 (mod 4), layer 1 one further."""
    first = torch.arange(width)[:, None, None] + torch.arange(len(layers))[None, :, None]
    one_row = ((first + torch.arange(2)) % 4).to(torch.int16)
    return RouteTrace(one_row[None, :3], one_row.expand(2, -1, -1, -1).clone(), layers)


def test_gates_of_the_chosen_experts_by_hand():
    logits = torch.tensor([0.0, 1.0, 2.0, 3.0]).log1p()  # full softmax: .1 .2 .3 .4
    experts = torch.tensor([3, 0])
    assert_close(replay_gates(logits, experts), torch.tensor([0.8, 0.2]))
    assert_close(replay_gates(logits, experts, normalize=False), torch.tensor([0.4, 0.1]))


def test_normalised_gates_sum_to_one_and_others_do_not():
    logits = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    experts = logits.topk(3).indices
    assert_close(replay_gates(logits, experts).sum(dim=-1), torch.ones(5))
    assert (replay_gates(logits, experts, normalize=False).sum(dim=-1) < 1).all()


def test_replayed_gates_pass_the_gradient_to_the_live_logits():
    logits = torch.randn(6, 4, requires_grad=True, generator=torch.Generator().manual_seed(0))
    replay_gates(logits, torch.tensor([[0, 2]]).expand(6, 2))[:, 0].sum().backward()
    assert (logits.grad[:, [0, 2]].abs() > 1e-3).all()
    assert (logits.grad[:, [1, 3]] == 0).all()


def test_drift_by_hand():
    before = torch.tensor([[[0, 1]], [[2, 3]], [[-1, -1]]])
    assert drift(before, before) == 0
    assert drift(before.flip(-1), before) == 0, "the order of the experts does not matter"
    after = torch.tensor([[[0, 2]], [[0, 1]], [[5, 6]]])
    assert drift(after, before) == 0.75, "one of two and two of two slots; padding is left out"
    assert drift(before, after) == 0.75
    assert drift(before[2:], before[2:]) == 0, "nothing to compare"


def test_drift_refuses_traces_of_other_shapes():
    with pytest.raises(ValueError, match=r"\(3, 1, 2\).*\(2, 1, 2\)"):
        drift(torch.zeros(3, 1, 2), torch.zeros(2, 1, 2))


def test_a_valid_trace_is_accepted_and_padding_becomes_minus_one():
    checked = trace_of().check(CONFIG, MASK)
    assert torch.equal(checked.answer[0], trace_of().answer[0])
    assert torch.equal(checked.answer[1, :2], trace_of().answer[1, :2])
    assert (checked.answer[1, 2:] == -1).all()


def test_what_lies_in_padding_cannot_hurt():
    trace = trace_of()
    trace.answer[1, 2:] = 99
    assert (trace.check(CONFIG, MASK).answer[1, 2:] == -1).all()


def test_one_position_short_is_accepted_and_two_are_not():
    short = trace_of(width=3).check(CONFIG, MASK)
    assert short.answer.shape == (2, 4, 2, 2)
    assert (short.answer[0, 3] == -1).all()
    assert torch.equal(short.answer[0, :3], trace_of().answer[0, :3])
    with pytest.raises(ValueError, match="cover 2 positions; expected 4, or 3"):
        trace_of(width=2).check(CONFIG, MASK)


def test_each_answer_may_lack_its_last_token_and_no_other():
    trace = trace_of()
    trace.answer[0, 3] = trace.answer[1, 1] = -1
    assert (trace.check(CONFIG, MASK).answer[1, 1] == -1).all()
    trace.answer[0, 2] = -1
    with pytest.raises(ValueError, match="no expert at answer 0, position 2, layer 0"):
        trace.check(CONFIG, MASK)


def test_faults_are_named_with_their_place():
    trace = trace_of()
    trace.answer[1, 1, 0] = 3
    with pytest.raises(ValueError, match=r"twice at answer 1, position 1, layer 0: \[3, 3\]"):
        trace.check(CONFIG, MASK)
    trace = trace_of()
    trace.answer[0, 2, 1, 0] = 4
    with pytest.raises(ValueError, match=r"0 to 3 at answer 0, position 2, layer 1"):
        trace.check(CONFIG, MASK)
    trace = trace_of()
    trace.answer[0, 3, 1, 0] = -1
    with pytest.raises(ValueError, match=r"fewer experts .* at answer 0, position 3, layer 1"):
        trace.check(CONFIG, MASK)
    trace = trace_of()
    trace.prompt[0, 2, 1] = 0
    with pytest.raises(ValueError, match="twice at prompt 0, position 2, layer 1"):
        trace.check(CONFIG, MASK)


def test_traces_of_another_model_are_refused():
    with pytest.raises(ValueError, match=r"layers \(0, 2\)"):
        trace_of(layers=(0, 2)).check(CONFIG, MASK)
    with pytest.raises(ValueError, match="2 experts per token; the model uses 3"):
        trace_of().check(ModelConfig(13, num_experts=4, top_k=3), MASK)
    with pytest.raises(ValueError, match="shape"):
        trace_of().check(CONFIG, MASK[:1])


def test_dense_layers_in_between_do_not_shift_routes(tiny, walk, dice):
    model = tiny(num_layers=4, mlp_only_layers=(0, 2))
    assert model.config.routed_layers == (1, 3)
    tokens = torch.randint(0, 10, (3, 5), generator=dice)
    live = model(tokens)
    assert live.routes.shape == (3, 5, 2, 2)
    assert torch.equal(model(tokens, replay=live.routes).logits, live.logits)
    replay = live.routes.clone()
    replay[:, :, 1] = (replay[:, :, 1] + 1) % 4
    changed = model(tokens, replay=replay)
    assert torch.equal(changed.routes, replay)
    assert torch.equal(changed.router_logits[:, :, 0], live.router_logits[:, :, 0]), "layer 1 first"
    assert not torch.allclose(changed.logits, live.logits)


def test_a_trace_names_its_layers(tiny, sampled):
    rollout = sampled(tiny(num_layers=4, mlp_only_layers=(0, 2)))
    assert rollout.routes.layers == (1, 3)
    with pytest.raises(ValueError, match=r"layers \(1, 3\); the model routes in \(0, 1\)"):
        rollout.routes.check(CONFIG, rollout.mask)


def test_one_record_per_forward(sampled, calm):
    rollout = sampled()
    for _ in range(2):
        routes = answer_log_probs(calm, rollout).routes
        assert routes.answer.shape == rollout.routes.answer.shape
        assert routes.prompt.shape == (4, rollout.prompts.shape[1] - 1, 2, 2)
        assert routes.nbytes == rollout.routes.nbytes


def test_padding_of_every_trace_is_minus_one(sampled, calm):
    rollout = sampled()
    assert not rollout.mask.all(), "answers of different lengths, or this test shows nothing"
    for routes in (rollout.routes, answer_log_probs(calm, rollout).routes):
        assert (routes.answer[~rollout.mask] == -1).all()
        assert (routes.answer[rollout.mask] >= 0).all()


def test_rows_keep_each_answer_with_its_prompt(sampled, calm):
    rollout = sampled(prompts=3, group_size=2)
    part = rollout.rows(torch.tensor([5, 1]))
    whole, alone = answer_log_probs(calm, rollout), answer_log_probs(calm, part)
    assert_close(alone.logp, whole.logp[[5, 1]], rtol=0, atol=1e-5)
    assert torch.equal(part.routes.answer, rollout.routes.answer[[5, 1]])
    assert torch.equal(part.routes.prompt[part.group], rollout.routes.prompt[rollout.group[[5, 1]]])


PROMPTS = torch.zeros(1, 4, dtype=torch.int64)


def test_the_prompts_part_has_the_shape_of_the_prompts():
    trace = trace_of()
    assert torch.equal(trace.check(CONFIG, MASK, PROMPTS).prompt, trace.prompt)
    for prompt, given in (
        (trace.prompt.expand(2, -1, -1, -1), r"\(2, 3, 2, 2\)"),
        (trace.prompt[:, :2], r"\(1, 2, 2, 2\)"),
        (trace.prompt[:, :, :1], r"\(1, 3, 1, 2\)"),
        (trace.prompt[..., :1], r"\(1, 3, 2, 1\)"),
        (trace.prompt[0], r"\(3, 2, 2\)"),
    ):
        wrong = RouteTrace(prompt, trace.answer, trace.layers)
        with pytest.raises(ValueError, match=rf"have shape {given}; expected \(1, 3, 2, 2\)"):
            wrong.check(CONFIG, MASK, PROMPTS)
    with pytest.raises(ValueError, match=r"expected \(prompts, positions, 2, 2\)"):
        wrong.check(CONFIG, MASK)


def test_prompts_name_all_their_experts():
    trace = trace_of()
    trace.prompt[0, 2, 1] = -1
    with pytest.raises(ValueError, match="no expert at prompt 0, position 2, layer 1"):
        trace.check(CONFIG, MASK, PROMPTS)


@pytest.mark.parametrize("kind", [torch.float32, torch.bool, torch.complex64])
def test_routes_are_integers(kind):
    trace = trace_of()
    for prompt, answer, part in (
        (trace.prompt.to(kind), trace.answer, "prompt"),
        (trace.prompt, trace.answer.to(kind), "answer"),
    ):
        with pytest.raises(ValueError, match=rf"routes of the {part}s are of torch\.\w+; expected"):
            RouteTrace(prompt, answer, trace.layers).check(CONFIG, MASK, PROMPTS)
