"""A batch of seeds against separate runs."""

import copy
import dataclasses

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from gspo_edu.batched import SeedBatch
from gspo_edu.checkpoint import load_tensors, save_tensors
from gspo_edu.intervals import mean_interval
from gspo_edu.objectives.gspo import RangeWarning
from gspo_edu.sampler import answer_log_probs, layout_of, sampled_rollout, sampling_noise
from gspo_edu.tasks import SortDigits
from gspo_edu.trainer import Trainer

SEEDS = (3, 5, 8)


@pytest.fixture
def trainer(quick, calm, walk):
    """Builds a trainer of the shipped policy with fixed shapes; keywords change the config."""

    def build(seed=0, *, model=calm, task=walk, dtype=torch.float32, fixed_shapes=True, **changes):
        config = quick(seed=seed, **changes)
        return Trainer(config, copy.deepcopy(model).to(dtype), task, fixed_shapes=fixed_shapes)

    return build


@pytest.fixture
def batch_of(trainer):
    def build(seeds=SEEDS, **changes):
        return SeedBatch([trainer(seed, **changes) for seed in seeds])

    return build


def first_batch(together, **changes):
    """A rollout of all seeds as one mini-batch, with its advantages."""
    prompts = torch.cat([one.training_prompts() for one in together.trainers])
    dice = [one.dice for one in together.trainers]
    rollout = together.sampled(prompts, together.config.group_size, dice)
    pairs = zip(together.trainers, together.of_seeds(rollout), strict=True)
    return rollout, torch.cat([one.judged(own)[0] for one, own in pairs])


@pytest.mark.parametrize("objective", ["grpo", "gspo", "cispo"])
@pytest.mark.parametrize(
    ("fixed_shapes", "dtype"),
    [(False, torch.float32), (True, torch.float32), (True, torch.float64)],
)
def test_an_update_from_a_fixed_rollout_equals_that_of_separate_runs(
    trainer, batch_of, objective, dtype, fixed_shapes
):
    together = batch_of(objective=objective, dtype=dtype, max_grad_norm=0.05)
    rollout, advantages = first_batch(together)
    before = together.policy.weights.detach().clone()
    update = together.one_update(rollout, advantages, None)
    records = together.about(update)
    for index, own in enumerate(together.of_seeds(rollout)):
        alone = trainer(
            SEEDS[index],
            objective=objective,
            dtype=dtype,
            max_grad_norm=0.05,
            fixed_shapes=fixed_shapes,
            drift_probe=0,
        )
        wanted = alone.one_update(own, advantages.chunk(len(SEEDS))[index])
        assert wanted["grad_norm"] > 0.05, "the bound on the gradient has something to do"
        assert records[index] == pytest.approx(wanted, rel=1e-5, abs=1e-5)
        gradient = torch.cat([weight.grad.flatten() for weight in alone.model.parameters()])
        assert_close(together.optimizer.parameters[index].grad, gradient, rtol=0, atol=1e-5)
        found, weights = (
            torch.nn.utils.parameters_to_vector(one.model.parameters()).detach()
            for one in (together.trainers[index], alone)
        )
        assert not torch.equal(found, before[index])
        # AdamW's first step is the gradient's sign: rounding decides where that is hardly any.
        clear = gradient.abs() > (1e-6 if dtype == torch.float32 else 0)
        assert clear.float().mean() > 0.7
        assert_close(found[clear], weights[clear], rtol=0, atol=1e-5)
    assert len({record["loss"] for record in records}) == len(SEEDS)


SETTINGS = [
    {},
    {"objective": "grpo", "replay": "r2", "epochs": 2},
    {"objective": "gmpo", "replay": "r3", "recompute_old": True},
    {"objective": "dr_grpo", "beta": 0.1, "mask_unfinished": True},
    {"objective": "ppo", "prompt_pool": 8, "shuffle_rewards": True, "drift_probe": 0},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_whole_runs_equal_those_of_separate_trainers(trainer, batch_of, settings):
    """Every number in every record; in float64, where no rounding turns a sample around."""
    settings = {"dtype": torch.float64, "drift_probe": 6, **settings}
    together = batch_of(**settings)
    found = list(together.records())
    for index, seed in enumerate(SEEDS):
        alone = trainer(seed, **settings)
        wanted = list(alone.records())
        assert len(found) == len(wanted)
        for records, record in zip(found, wanted, strict=True):
            assert list(records[index]) == list(record)
            assert records[index] == pytest.approx(record, rel=1e-9, abs=1e-9)
        pairs = zip(
            together.trainers[index].model.parameters(), alone.model.parameters(), strict=True
        )
        assert all(torch.allclose(a, b, rtol=0, atol=1e-9) for a, b in pairs)


def test_the_dense_twin_as_well(trainer, batch_of, tiny):
    settings = {"model": tiny(dense=True), "dtype": torch.float64, "rollouts": 2}
    found, wanted = list(batch_of(**settings).records()), trainer(SEEDS[2], **settings).records()
    for records, record in zip(found, wanted, strict=True):
        assert records[2] == pytest.approx(record, rel=1e-9, abs=1e-9)


def test_a_seed_does_not_depend_on_the_others(batch_of):
    many, few = batch_of(dtype=torch.float64), batch_of(SEEDS[1:2], dtype=torch.float64)
    for records, (record,) in zip(many.records(), few.records(), strict=True):
        assert records[1] == pytest.approx(record, rel=1e-9, abs=1e-9)
        assert records[0]["reward"] != records[1]["reward"]


@pytest.mark.slow
def test_rewards_at_the_end_are_distributed_as_in_ordinary_runs(trainer, batch_of):
    """Same prompts, other samples: the mean difference is judged by its own scatter."""
    settings = {"rollouts": 6, "prompts": 16, "group_size": 8, "lr": 2e-3}
    settings |= {"eval_every": 0, "eval_prompts": 64}
    seeds = range(6)
    together = batch_of(seeds, **settings)
    start = together.first.initial_held_out["held_out_reward"]
    batched = [record["held_out_reward"] for record in list(together.records())[-1]]
    ordinary = []
    for seed in seeds:
        one = trainer(seed, fixed_shapes=False, **settings)
        ordinary.append(list(one.records())[-1]["held_out_reward"])
    assert batched != ordinary
    low, high = mean_interval([a - b for a, b in zip(batched, ordinary, strict=True)], level=0.99)
    assert low < 0 < high
    # An interval of this kind is narrow enough to notice that training has an effect at all.
    for found in (batched, ordinary):
        assert mean_interval([reward - start for reward in found], level=0.99)[0] > 0


def test_training_goes_on_from_a_checkpoint_and_alone(trainer, batch_of, tmp_path):
    settings = {"dtype": torch.float64, "rollouts": 4}
    whole = list(batch_of(**settings).records())
    together, restored = batch_of(**settings), [trainer(seed, **settings) for seed in SEEDS]
    for _ in range(2):
        together.next_rollout()
    for old, new in zip(together.trainers, restored, strict=True):
        save_tensors(tmp_path / "state", *old.state())
        new.load_state(*load_tensors(tmp_path / "state"))
    again = list(SeedBatch(restored).records())
    for index, record in enumerate(whole[4:]):
        for mine, its in zip(again[index], record, strict=True):
            assert mine == pytest.approx(its, rel=1e-9, abs=1e-9)
    alone = together.trainers[1]
    for record, wanted in zip(alone.records(), whole[4:], strict=True):
        assert record == pytest.approx(wanted[1], rel=1e-9, abs=1e-9)


def test_a_gradient_that_is_not_finite_stops_its_own_model_only(batch_of):
    together = batch_of()
    together.next_rollout()
    before = together.policy.weights.detach().clone()
    steps = [float(slots["step"]) for slots in together.optimizer.state.values()]
    means = [slots["exp_avg"].clone() for slots in together.optimizer.state.values()]
    gradient = torch.ones_like(before)
    gradient[1, 7] = torch.nan
    assert torch.isfinite(together.step(gradient)).tolist() == [True, False, True]
    for index, slots in together.optimizer.state.items():
        moved = index != 1
        assert torch.equal(together.policy.weights[index], before[index]) != moved
        assert torch.equal(slots["exp_avg"], means[index]) != moved
        assert float(slots["step"]) == steps[index] + moved


def test_a_diverged_seed_is_named(batch_of):
    together = batch_of()
    with torch.no_grad():
        together.policy.weights[1] = torch.nan
    with pytest.raises(ValueError, match=r"seeds \[5\]: the policy's log-probs are not finite"):
        together.next_rollout()


def test_a_range_that_cannot_bind_is_noticed_once(batch_of):
    together = batch_of(clip_low=0.2, clip_high=0.2, rollouts=2)
    with pytest.warns(RangeWarning) as seen:
        list(together.records())
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 3}, r"seeds are \[3, 3\]"),
        ({"lr": 0.5}, r"lr is 0.5 with seed 5 but 0.001 with seed 3"),
        ({"task": SortDigits(8)}, "the task is SortDigits"),
        ({"model": "tiny"}, "the model's width is 16 with seed 5 but 48 with seed 3"),
        ({"made": 1}, "rollouts made is 1 with seed 5 but 0 with seed 3"),
    ],
)
def test_runs_that_differ_in_more_than_their_seed_are_refused(trainer, tiny, changes, message):
    made, changes = changes.pop("made", 0), {"seed": 5, **changes}
    if changes.get("model") == "tiny":
        changes["model"] = tiny()
    other = trainer(**changes)
    for _ in range(made):
        other.next_rollout()
    with pytest.raises(ValueError, match=message):
        SeedBatch([trainer(3), other])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "ppo", "critic": True}, "critic is True; .* False only"),
        ({"balance": 0.1}, "balance is 0.1"),
        ({"mini_batches": 3}, "mini_batches is 3; expected a divisor of prompts = 4"),
    ],
)
def test_what_cannot_be_batched_is_refused(batch_of, changes, message):
    with pytest.raises(ValueError, match=message):
        batch_of(**changes)


def test_a_batch_needs_seeds():
    with pytest.raises(ValueError, match="trainers is empty"):
        SeedBatch([])


class NoWaiting(TorchDispatchMode):
    """Refuses what a GPU would have to be waited for: values that the host or a shape needs."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        assert name not in ("_local_scalar_dense", "nonzero", "masked_select", "_unique2"), name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("settings", [{}, {"objective": "grpo", "replay": "r3", "beta": 0.1}])
def test_an_update_looks_at_no_value(batch_of, settings):
    """Apart from the one tolist() of ``step``, which a CPU does not dispatch."""
    together = batch_of(**settings)
    rollout, advantages = first_batch(together)
    batches = list(together.mini_batches(together.as_old_policy(rollout), advantages))
    with NoWaiting():
        for batch in batches:
            update = together.one_update(*batch)
    assert update.after is not None
    with pytest.raises(AssertionError, match=r"_local_scalar_dense|nonzero"), NoWaiting():
        together.first.one_update(together.of_seeds(batch[0])[0], batch[1][:8])


class Operations(TorchDispatchMode):
    """Counts operations, which on a GPU are launches of kernels."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_more_seeds_are_not_more_operations(batch_of):
    counts = []
    for count in (2, 5):
        together = batch_of(range(count))
        rollout, advantages = first_batch(together)
        (batch, *_) = together.mini_batches(rollout, advantages)
        noise = [sampling_noise((18, 16, 13), one.dice) for one in together.trainers]
        prompts = rollout.prompts.unflatten(0, (count, -1))
        with Operations() as seen, torch.no_grad():
            together.policy.answers(prompts, 4, torch.stack(noise), 1.0)
        with Operations() as made:
            together.one_update(*batch)
        counts.append((seen.count, made.count))
    # The rows of the weights are handed to the optimiser one by one, without arithmetic.
    (sampled, updated), (more_sampled, more_updated) = counts
    assert more_sampled <= sampled + 3
    assert more_updated <= 1.1 * updated


def test_fixed_answers_follow_the_policy(calm, walk, dice):
    """How often each first token comes, against its probability: Pearson's chi-squared."""
    prompts = walk.random_prompts(1, dice)
    count = 4000
    rollout = sampled_rollout(calm, walk, prompts, count, generator=dice, fixed_shapes=True)
    probability = calm(prompts).logits[0, -1].softmax(dim=-1)
    expected = count * probability
    often = expected > 5
    seen = torch.bincount(rollout.tokens[:, 0], minlength=13)
    distance = ((seen - expected) ** 2 / expected)[often].sum()
    freedom = int(often.sum()) - 1
    # Mean and variance of chi-squared are its degrees of freedom and twice as many.
    assert freedom > 1
    assert distance < freedom + 4 * (2 * freedom) ** 0.5
    uniform = ((seen - count / 13) ** 2 / (count / 13)).sum()
    assert uniform > 12 + 4 * (2 * 12) ** 0.5


def test_fixed_layouts_score_as_packed_ones(sampled, calm):
    rollout = sampled()
    for rows in (torch.tensor([9, 8, 11, 10, 0, 1, 2, 3]), torch.tensor([5, 1, 12, 13, 2])):
        batch = rollout.rows(rows)
        packed, fixed = (
            answer_log_probs(calm, batch, layout=layout_of(batch, shapes))
            for shapes in (False, True)
        )
        assert_close(fixed.logp, packed.logp, rtol=0, atol=1e-5)
        assert_close(fixed.entropy, packed.entropy, rtol=0, atol=1e-5)
        assert torch.equal(fixed.routes.prompt, packed.routes.prompt)
        assert torch.equal(fixed.routes.answer, packed.routes.answer)
        other = dataclasses.replace(
            packed.routes,
            answer=(packed.routes.answer + 1) % 8,
            prompt=packed.routes.prompt.flip(0),
        )
        packed, fixed = (
            answer_log_probs(calm, batch, replay=other, layout=layout_of(batch, shapes)).logp
            for shapes in (False, True)
        )
        assert_close(fixed, packed, rtol=0, atol=1e-5)


def test_fixed_samples_fill_the_limit_and_are_scored_alike(calm, walk, dice):
    prompts = walk.random_prompts(4, dice)
    rollout = sampled_rollout(calm, walk, prompts, 4, generator=dice, fixed_shapes=True)
    assert rollout.tokens.shape[1] == walk.max_new_tokens
    assert rollout.finished.any()
    score = answer_log_probs(calm, rollout)
    assert_close(score.logp, rollout.logp_old, rtol=0, atol=1e-5)
    assert torch.equal(score.routes.answer, rollout.routes.answer)
    assert torch.equal(score.routes.prompt, rollout.routes.prompt)
