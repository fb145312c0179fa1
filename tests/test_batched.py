"""A batch of seeds against separate runs."""

import copy
import dataclasses

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from gspo_edu.batched import SeedBatch
from gspo_edu.intervals import mean_interval
from gspo_edu.moe.contexts import PromptsWithAnswers
from gspo_edu.trainer import Trainer

SEEDS = (3, 5, 8)


def batch_of(quick, calm, walk, seeds=SEEDS, **changes):
    return SeedBatch(quick(**changes), seeds, calm, walk)


def prepared(together):
    """A rollout for each seed, with its advantages."""
    rollouts = together.sampled_rollouts([one.training_prompts() for one in together.trainers])
    pairs = zip(together.trainers, rollouts, strict=True)
    return rollouts, [one.judged(own)[0] for one, own in pairs]


@pytest.mark.parametrize("objective", ["grpo", "gspo", "cispo"])
def test_an_update_from_a_fixed_rollout_equals_that_of_separate_runs(quick, calm, walk, objective):
    together = batch_of(quick, calm, walk, objective=objective)
    rollouts, advantages = prepared(together)
    updates = together.one_update(rollouts, advantages)
    for index, own in enumerate(together.trainers):
        alone = Trainer(own.config, copy.deepcopy(calm), walk)
        wanted = alone.one_update(rollouts[index], advantages[index])
        assert updates[index] == pytest.approx(wanted, rel=1e-5, abs=1e-5)
        for name, weight in alone.model.named_parameters():
            found = together.weights[name][index]
            assert_close(together.weights[name].grad[index], weight.grad, rtol=0, atol=1e-5)
            # AdamW's first step is lr times the gradient's sign: where that is 0, rounding decides.
            clear = weight.grad.abs() > 1e-5
            assert clear.any()
            assert_close(found[clear], weight[clear], rtol=0, atol=1e-5)
    assert updates[0]["loss"] != updates[1]["loss"]


def test_later_updates_go_on_like_those_of_separate_runs(quick, calm, walk):
    """AdamW's means and ratios other than 1 come in; where a gradient is 0, rounding decides."""
    together = batch_of(quick, calm, walk, lr=3e-3)
    rollouts, advantages = prepared(together)
    alone = Trainer(together.trainers[1].config, copy.deepcopy(calm), walk)
    for _ in range(4):
        update = together.one_update(rollouts, advantages)[1]
        wanted = alone.one_update(rollouts[1], advantages[1])
        assert update == pytest.approx(wanted, rel=1e-3, abs=1e-4)
    assert update["token_log_ratio_std"] > 0.01


def test_a_seed_does_not_depend_on_the_others(quick, calm, walk):
    many, few = batch_of(quick, calm, walk), batch_of(quick, calm, walk, seeds=SEEDS[1:2])
    for _ in range(2):
        one, other = many.next_rollout()[1], few.next_rollout()[0]
        for a, b in zip(one, other, strict=True):
            assert a.keys() == b.keys()
            assert all(a[name] == pytest.approx(b[name], rel=1e-4, abs=1e-5) for name in a)


def test_records_are_those_of_a_trainer(quick, calm, walk):
    config = quick(rollouts=2)
    wanted = list(Trainer(config, copy.deepcopy(calm), walk).records())
    found = list(SeedBatch(config, SEEDS, calm, walk).records())
    assert len(found) == len(wanted)
    for records, own in zip(found, wanted, strict=True):
        assert len(records) == len(SEEDS)
        assert all(record.keys() == own.keys() for record in records)


def test_rewards_at_the_end_are_distributed_as_in_separate_runs(quick, calm, walk):
    """Paired by the order of prompts only, so the difference of means is judged by its interval."""
    config = quick(rollouts=5, prompts=16, group_size=8, eval_every=0, eval_prompts=48, lr=2e-3)
    seeds = range(6)
    together = SeedBatch(config, seeds, calm, walk)
    last = list(together.records())[-1]
    batched = [record["held_out_reward"] for record in last]
    separate = []
    for seed in seeds:
        one = Trainer(dataclasses.replace(config, seed=seed), copy.deepcopy(calm), walk)
        separate.append(list(one.records())[-1]["held_out_reward"])
    low, high = mean_interval([a - b for a, b in zip(batched, separate, strict=True)], level=0.999)
    assert low < 0 < high
    start = together.trainers[0].initial_held_out["held_out_reward"]
    assert all(sum(found) / 6 > start + 0.02 for found in (batched, separate))


def test_a_gradient_that_is_not_finite_stops_its_own_model_only(quick, calm, walk):
    together = batch_of(quick, calm, walk)
    together.next_rollout()
    before = {name: weight.detach().clone() for name, weight in together.weights.items()}
    means = copy.deepcopy(together.optimizer.state)
    for weight in together.weights.values():
        weight.grad = torch.ones_like(weight)
        weight.grad[1] = torch.nan
    norms = together.step()
    assert torch.isfinite(norms).tolist() == [True, False, True]
    for index, (name, weight) in enumerate(together.weights.items()):
        assert torch.equal(weight[1], before[name][1])
        assert not torch.equal(weight[0], before[name][0])
        state = together.optimizer.state[index]
        assert torch.equal(state["exp_avg"][1], means[index]["exp_avg"][1])
        assert not torch.equal(state["exp_avg"][2], means[index]["exp_avg"][2])


@pytest.mark.parametrize(
    ("seeds", "changes", "message"),
    [
        ([], {}, "seeds is"),
        ([1, 1], {}, "all different"),
        ([1, 2], {"replay": "r2"}, "replay is r2"),
        ([1, 2], {"recompute_old": True}, "recompute_old is True"),
        ([1, 2], {"mini_batches": 3}, "a divisor of prompts = 4"),
    ],
)
def test_what_cannot_be_batched_is_refused(quick, calm, walk, seeds, changes, message):
    with pytest.raises(ValueError, match=message):
        batch_of(quick, calm, walk, seeds=seeds, **changes)


class NoWaiting(TorchDispatchMode):
    """Refuses what a GPU would have to wait for: numbers that the host reads, and their shapes."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        assert name not in ("_local_scalar_dense", "nonzero", "masked_select"), name
        return func(*args, **(kwargs or {}))


def test_passes_and_steps_wait_for_no_value(quick, calm, walk):
    together = batch_of(quick, calm, walk)
    own = prepared(together)[0][0]
    inside = torch.ones_like(own.mask)
    context = PromptsWithAnswers(4, own.prompts.shape[1] - 1, own.group, inside, fixed_shapes=True)
    flat = torch.cat([own.prompts[:, :-1].flatten(), own.tokens.flatten()])
    for weight in together.weights.values():
        weight.grad = torch.ones_like(weight)
    with NoWaiting():
        calm(flat, context).logits.sum().backward()
        together.step()
    with pytest.raises(AssertionError, match="nonzero"), NoWaiting():
        calm(flat, PromptsWithAnswers(4, own.prompts.shape[1] - 1, own.group, own.mask))
