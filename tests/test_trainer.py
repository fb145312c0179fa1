"""One rollout after the other: what each update sees, and what each setting does to it."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

from gspo_edu import metrics
from gspo_edu.advantages import group_advantages
from gspo_edu.checkpoint import load_policy, shipped_policies
from gspo_edu.moe.routes import RouteTrace
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.objectives.gspo import RangeWarning
from gspo_edu.ratios import sequence_ratio, token_ratio
from gspo_edu.sampler import answer_log_probs, sampled_rollout
from gspo_edu.tasks import ClockWalk
from gspo_edu.tasks.base import prompts_of_split
from gspo_edu.trainer import Trainer, ratio_metrics, torch_device


@pytest.fixture
def trainer(quick):
    """Builds a trainer of the shipped policy; keywords change the config."""

    def build(model=None, task=None, **changes):
        model = model or load_policy(shipped_policies()["calm"])[0]
        return Trainer(quick(**changes), model, task or ClockWalk())

    return build


def weights_of(trainer):
    return [weight.detach().clone() for weight in trainer.model.parameters()]


def same_weights(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def advantages_of(rollout):
    return group_advantages(rollout.rewards, rollout.group)


def with_other_routes(rollout):
    """The rollout as if the engine had used other experts in every layer."""
    routes = rollout.routes
    prompt, answer = (routes.prompt + 1) % 8, (routes.answer + 1) % 8
    return dataclasses.replace(rollout, routes=RouteTrace(prompt, answer, routes.layers))


def test_on_policy_every_ratio_is_exactly_1(sampled, calm):
    rollout = sampled()
    old = answer_log_probs(calm, rollout).logp.detach()
    logp = answer_log_probs(calm, rollout).logp
    assert (token_ratio(logp, old, rollout.mask)[rollout.mask] == 1).all()
    assert (sequence_ratio(logp, old, rollout.mask) == 1).all()
    result = OBJECTIVES["gspo"](logp, old, advantages_of(rollout), rollout.mask)
    assert result.metrics["clip_fraction_seq"] == 0
    result.loss.backward()
    assert calm.head.weight.grad.abs().max() > 0, "no clipping does not mean no gradient"


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("objective", ["grpo", "gspo"])
def test_the_first_mini_batch_is_on_policy_and_the_next_is_not(trainer, objective, recompute):
    first, second = trainer(objective=objective, recompute_old=recompute).next_rollout()
    assert first["clip_fraction_seq"] == first["outside_fraction_seq"] == 0
    assert first["token_log_ratio_std"] < 1e-5
    assert abs(first["sequence_log_ratio_mean"]) < 1e-6
    assert first["loss"] == pytest.approx(0, abs=1e-6)
    assert first["grad_norm"] > 0.01
    assert first["effective_sample_fraction"] == pytest.approx(1)
    assert first["drift_per_rollout"] == pytest.approx(0, abs=0.01)
    assert first["drift_per_update"] > 0
    assert second["token_log_ratio_std"] > 1e-3
    assert second["kl_from_old"] > 1e-6


def test_one_update_per_rollout_never_clips(trainer):
    records = list(trainer(mini_batches=1).records())
    assert [record["clip_fraction_seq"] for record in records] == [0, 0, 0]


def test_ten_answers_in_four_mini_batches(trainer):
    records = trainer(prompts=5, group_size=2, mini_batches=4, epochs=2).next_rollout()
    assert [record["answers"] for record in records] == [3, 3, 2, 2, 3, 3, 2, 2]
    assert [record["update"] for record in records] == list(range(1, 9))
    for epoch in (records[:4], records[4:]):
        total = sum(record["tokens"] for record in epoch)
        assert total == pytest.approx(records[0]["length"] * 10)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_trains(trainer, objective):
    one = trainer(objective=objective, rollouts=2)
    before = weights_of(one)
    for record in one.records():
        assert record["update_skipped"] == 0
        assert all(value == value for value in record.values()), "no NaN"
    assert not same_weights(before, weights_of(one))
    assert {"held_out_reward", "held_out_exact", "reward", "entropy"} <= set(record)


def test_recomputed_log_probs_and_routes_equal_the_samplers(trainer, sampled):
    rollout = sampled()
    other_engine = dataclasses.replace(rollout, logp_old=rollout.logp_old - 1)
    r2 = trainer(recompute_old=True, replay="r2").as_old_policy(other_engine)
    assert_close(r2.logp_old, rollout.logp_old, rtol=0, atol=1e-5)
    assert torch.equal(r2.routes.answer, rollout.routes.answer)
    r3 = trainer(recompute_old=True, replay="r3").as_old_policy(rollout)
    assert torch.equal(r3.logp_old, r2.logp_old)
    assert r3.routes is rollout.routes
    kept = trainer(replay="r2").as_old_policy(other_engine)
    assert torch.equal(kept.logp_old, other_engine.logp_old)
    assert trainer().as_old_policy(rollout) is rollout


def test_replay_changes_nothing_on_policy_when_one_engine_does_both(trainer):
    """Later mini-batches may differ: there the live routes have moved and the replayed have not."""
    one, r2, r3 = (trainer(replay=mode, mini_batches=1) for mode in ("none", "r2", "r3"))
    record = one.next_rollout()[0]
    for other in (r2, r3):
        assert other.next_rollout()[0] == pytest.approx(record, rel=1e-4, abs=1e-5)
        for mine, its in zip(weights_of(one), weights_of(other), strict=True):
            # Adam turns the rounding of a zero gradient into a full step: compare almost all.
            assert ((mine - its).abs() < 1e-5).float().mean() > 0.95


def test_r3_replays_what_the_engine_used_and_r2_what_the_trainer_would(trainer, sampled):
    rollout = with_other_routes(sampled())
    modes = {}
    for mode in ("none", "r2", "r3"):
        one = trainer(replay=mode)
        old = one.as_old_policy(rollout)
        modes[mode] = one.one_update(old, advantages_of(old))
    assert modes["r3"]["token_log_ratio_std"] > 0.1, "other experts give other log-probs"
    assert modes["none"]["token_log_ratio_std"] < 1e-5
    assert modes["r2"]["token_log_ratio_std"] < 1e-5
    assert modes["r2"]["drift_per_rollout"] == pytest.approx(0, abs=0.01)
    assert modes["none"]["drift_per_rollout"] > 0.3


@pytest.mark.parametrize("mode", ["none", "r2", "r3"])
def test_a_policy_that_does_not_move_does_not_drift(trainer, sampled, mode):
    one = trainer(replay=mode, lr=0)
    rollout = with_other_routes(sampled())
    record = one.one_update(one.as_old_policy(rollout), advantages_of(rollout))
    assert record["drift_per_update"] == 0


def test_replay_checks_the_trace(trainer, sampled):
    rollout = sampled()
    rollout.routes.answer[2, 0, 1] = 5
    with pytest.raises(ValueError, match="an expert twice at answer 2, position 0, layer 1"):
        trainer(replay="r3").one_update(rollout, advantages_of(rollout))


def test_the_kl_term_pulls_towards_the_initial_policy(trainer):
    free, held = trainer(rollouts=4), trainer(rollouts=4, beta=20.0)
    records = list(held.records())
    assert records[0]["k3_token_mean"] == pytest.approx(0, abs=1e-9)
    assert records[-1]["k3_token_mean"] > 0
    assert len(list(free.records())) == len(records)
    start = [weight.detach() for weight in held.reference.parameters()]
    assert same_weights(start, load_policy(shipped_policies()["calm"])[0].parameters())
    prompts_and_answers = held_out_rollout(held)

    def distance(one):
        logp = answer_log_probs(one.model, prompts_and_answers).logp
        return (logp - one.reference_log_probs(prompts_and_answers)).pow(2).mean()

    assert distance(held) < distance(free) / 2


def held_out_rollout(one):
    dice = torch.Generator().manual_seed(0)
    prompts = prompts_of_split(one.task, 8, dice, held_out=True)
    return sampled_rollout(one.reference, one.task, prompts, 4, generator=dice)


def test_the_reference_uses_routes_of_its_own(trainer, sampled):
    one = trainer(replay="r3", beta=0.1)
    rollout = sampled()
    initial = answer_log_probs(load_policy(shipped_policies()["calm"])[0], rollout).logp
    other = with_other_routes(rollout)
    one.one_update(other, advantages_of(other))
    assert_close(one.reference_log_probs(other), initial.detach(), rtol=0, atol=1e-5)


class BrokenVerifier(ClockWalk):
    def rewards(self, prompts, tokens, mask, finished):
        rewards = super().rewards(prompts, tokens, mask, finished)
        rewards[6] = float("nan")
        return rewards


def test_nan_rewards_are_refused_before_any_update(trainer):
    one = trainer(task=BrokenVerifier())
    before = weights_of(one)
    with pytest.raises(ValueError, match=r"prompt 1, answer 2 \(row 6\) is nan"):
        one.next_rollout()
    assert same_weights(before, weights_of(one))
    assert one.update == 0


def test_unfinished_answers_are_kept_or_masked(trainer, sampled):
    rollout = sampled()
    cut = torch.arange(len(rollout)) % 4 == 0
    rollout = dataclasses.replace(rollout, finished=~cut)
    advantages = torch.where(cut, 1.0, 0.0)  # only the cut answers have something to say
    kept, masked = trainer(), trainer(mask_unfinished=True)
    before = weights_of(kept)
    record = kept.one_update(rollout, advantages)
    assert record["tokens"] == rollout.mask.sum()
    assert record["grad_norm"] > 0
    assert not same_weights(before, weights_of(kept))
    record = masked.one_update(rollout, advantages)
    assert record["tokens"] == rollout.mask[~cut].sum()
    assert record["grad_norm"] == 0
    assert same_weights(before, weights_of(masked))


def test_masked_answers_do_not_count_in_the_metrics_of_ratios():
    logp = torch.tensor([[0.5, 0.0], [-0.5, 0.0], [0.3, 0.3], [0.7, 0.1]])
    old, mask = torch.zeros(4, 2), torch.tensor([[1, 0], [1, 0], [0, 0], [0, 0]])
    found = ratio_metrics(logp, old, mask)
    two = ratio_metrics(logp[:2], old[:2], mask[:2])
    assert found["sequence_log_ratio_std"] == 0.5
    for name, value in two.items():
        assert found[name] == value, name
    nothing = ratio_metrics(logp, old, torch.zeros(4, 2))
    assert all(value == 0 for value in nothing.values())
    far = ratio_metrics(logp - 120, old, mask)
    assert far["effective_sample_fraction"] == pytest.approx(two["effective_sample_fraction"])


def test_answers_without_signal_do_not_move_the_policy(trainer, sampled):
    one = trainer()
    rollout = dataclasses.replace(sampled(), rewards=torch.full((16,), 0.3))
    before = weights_of(one)
    record = one.one_update(rollout, advantages_of(rollout))
    assert record["grad_norm"] == 0
    assert same_weights(before, weights_of(one))


def test_an_update_that_is_not_finite_is_skipped_and_counted(trainer, sampled):
    one, rollout = trainer(), sampled()
    before = weights_of(one)
    assert one.one_update(rollout, torch.full((16,), 1e38))["update_skipped"] == 1
    assert same_weights(before, weights_of(one))
    assert one.one_update(rollout, advantages_of(rollout))["update_skipped"] == 0


def test_the_gradient_norm_is_bounded(trainer, sampled):
    moved = {}
    for bound in (1e-9, 1.0):
        one = trainer(max_grad_norm=bound, weight_decay=0.0)
        before = weights_of(one)
        rollout = sampled()
        one.one_update(rollout, advantages_of(rollout) * 1e3)
        total = sum(w.grad.pow(2).sum() for w in one.model.parameters() if w.grad is not None)
        moved[bound] = total.sqrt().item()
        assert not same_weights(before, weights_of(one))
    assert moved[1e-9] == pytest.approx(1e-9, rel=1e-2)
    assert moved[1.0] == pytest.approx(1.0, rel=1e-2)


def test_load_balancing_only_when_asked_for(trainer, sampled):
    rollout, moved = sampled(), {}
    silent = torch.zeros(len(rollout))
    for weight in (0.0, 0.1):
        one = trainer(balance=weight)
        before = weights_of(one)
        one.one_update(rollout, silent)
        moved[weight] = not same_weights(before, weights_of(one))
    assert moved == {0.0: False, 0.1: True}


@pytest.mark.parametrize("shape", [{"dense": True}, {"top_k": 1, "norm_topk_prob": False}])
def test_other_shapes_train(trainer, tiny, shape):
    records = list(trainer(model=tiny(**shape), replay="r3", rollouts=2).records())
    assert len(records) == 4
    assert ("drift_per_update" in records[0]) == ("dense" not in shape)


def test_dr_grpo_divides_by_the_length_limit_and_not_by_the_std(trainer, sampled):
    rollout = sampled()
    one = trainer(objective="dr_grpo")
    assert not one.config.normalizes_advantages()
    assert trainer(objective="dr_grpo", normalize_advantages=True).config.normalizes_advantages()
    assert trainer(objective="grpo").config.normalizes_advantages()
    logp = answer_log_probs(one.model, rollout).logp.detach()
    wanted = OBJECTIVES["dr_grpo"](
        logp, rollout.logp_old, advantages_of(rollout), rollout.mask, max_len=18
    )
    record = one.one_update(rollout, advantages_of(rollout))
    assert record["loss"] == pytest.approx(wanted.loss.item(), abs=1e-7)
    assert abs(record["loss"]) > 1e-4


@pytest.mark.filterwarnings("ignore::gspo_edu.objectives.gspo.RangeWarning")
def test_settings_of_the_objective_reach_it(trainer):
    wide = trainer(objective="gspo", clip_low=0.2, clip_high=0.27, rollouts=1)
    narrow = trainer(objective="gspo", rollouts=1)
    assert sum(r["clip_fraction_seq"] for r in wide.records()) == 0
    assert sum(r["clip_fraction_seq"] for r in narrow.records()) > 0


def test_a_range_that_cannot_bind_is_said_once_a_run(trainer):
    wide = trainer(objective="gspo", clip_low=0.2, clip_high=0.27, rollouts=2)
    with pytest.warns(RangeWarning, match="cannot bind for GSPO here") as said:
        list(wide.records())
    assert len(said) == 1


def test_the_seed_decides_prompts_and_samples(trainer):
    def drawn(seed):
        one = trainer(seed=seed)
        prompts = prompts_of_split(one.task, 4, one.order, held_out=False)
        return prompts.tolist(), torch.rand(3, generator=one.dice).tolist()

    one, same, other = drawn(1), drawn(1), drawn(2)
    assert one == same
    assert one[0] != other[0]
    assert one[1] != other[1]


def test_shuffled_rewards_are_dealt_out_at_random(trainer, monkeypatch):
    seen = []
    real = group_advantages

    def watching(rewards, group, **rest):
        seen.append(rewards.clone())
        return real(rewards, group, **rest)

    monkeypatch.setattr("gspo_edu.trainer.group_advantages", watching)
    trainer().next_rollout()
    record = trainer(shuffle_rewards=True).next_rollout()[0]
    honest, shuffled = seen
    assert torch.equal(honest.sort().values, shuffled.sort().values)
    assert not torch.equal(honest, shuffled)
    # What is reported is what was trained on.
    groups = torch.arange(len(shuffled)) // (len(shuffled) // 4)
    signalless = metrics.signalless_group_fraction(shuffled, groups)
    assert record["signalless_group_fraction"] == signalless.item()
    assert record["reward"] == pytest.approx(honest.mean().item())


def test_evaluations_do_not_disturb_training(trainer):
    often, never = trainer(eval_every=1), trainer(eval_every=0)
    for one, other in zip(often.records(), never.records(), strict=True):
        kept = {name: value for name, value in one.items() if not name.startswith("held_out")}
        assert kept == {n: v for n, v in other.items() if not n.startswith("held_out")}
    assert same_weights(weights_of(often), weights_of(never))


def test_evaluations_come_when_asked_for(trainer):
    def places(every):
        records = list(trainer(rollouts=5, eval_every=every).records())
        return [r["update"] for r in records if "held_out_reward" in r]

    assert places(2) == [4, 8, 10]
    assert places(0) == [10]


def test_unknown_devices_are_refused():
    with pytest.raises(ValueError, match="device is 'tpu'; expected auto, cpu or cuda"):
        torch_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA GPU here"):
            torch_device("cuda")
        assert torch_device("auto").type == "cpu"


def test_a_pool_of_prompts_is_fixed_by_the_seed(trainer):
    def prompts(seed, rollouts=6):
        one = trainer(prompt_pool=5, seed=seed)
        return [one.training_prompts() for _ in range(rollouts)]

    first, again, other = prompts(0), prompts(0), prompts(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert all(len(torch.unique(shown, dim=0)) == 4 for shown in first)
    assert len(torch.unique(torch.cat(first), dim=0)) == 5
    assert len({tuple(shown.flatten().tolist()) for shown in first}) > 1
    assert len(torch.unique(torch.cat([*first, *other]), dim=0)) > 5


def test_a_pool_smaller_than_a_rollout_is_refused(quick):
    with pytest.raises(ValueError, match="prompt_pool is 3; expected at least prompts = 4"):
        quick(prompt_pool=3)
