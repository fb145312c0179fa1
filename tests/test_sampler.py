"""Sampling, and log-probs of what was sampled: both directions must agree."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

from gspo_edu.batch import mini_batch_rows
from gspo_edu.cold_start import cold_start_losses
from gspo_edu.moe import drift
from gspo_edu.moe.contexts import AnswerCache
from gspo_edu.sampler import answer_log_probs, sampled_rollout
from gspo_edu.tasks import ClockWalk, SortDigits
from gspo_edu.tasks.base import END, PAD, prompts_of_split


def rollout_of(model, task, seed=0, prompts=3, group_size=4, **changes):
    shown = prompts_of_split(task, prompts, torch.Generator().manual_seed(7), held_out=False)
    dice = torch.Generator().manual_seed(seed)
    return sampled_rollout(model, task, shown, group_size, generator=dice, **changes)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("kind", ["shipped", "dense", "top-1", "mixed"])
def test_sampler_and_trainer_agree_on_log_probs(calm, tiny, walk, kind, temperature):
    model = {
        "shipped": calm,
        "dense": tiny(dense=True),
        "top-1": tiny(top_k=1, norm_topk_prob=False),
        "mixed": tiny(num_layers=3, mlp_only_layers=(1,)),
    }[kind]
    rollout = rollout_of(model, walk, prompts=8, temperature=temperature)
    with torch.no_grad():
        score = answer_log_probs(model, rollout, temperature=temperature)
    agree = rollout.mask
    if kind != "dense":
        same = (rollout.routes.answer.sort().values == score.routes.answer.sort().values).all(-1)
        agree = same.all(-1) & rollout.mask
        assert drift(score.routes.answer, rollout.routes.answer) < 0.01
    assert_close(score.logp[agree], rollout.logp_old[agree], rtol=0, atol=1e-5)
    assert (score.logp[~rollout.mask] == 0).all()
    assert (rollout.logp_old[~rollout.mask] == 0).all()


def test_another_temperature_gives_other_log_probs(calm, walk):
    rollout = rollout_of(calm, walk, temperature=0.7)
    score = answer_log_probs(calm, rollout, temperature=1.0)
    assert (score.logp - rollout.logp_old).abs().max() > 0.05


def test_the_samples_follow_the_log_probs(calm, walk):
    """Mean of -log p of the samples against the mean entropy: both estimate the same number."""
    rollout = rollout_of(calm, walk, prompts=64, group_size=8, temperature=0.7)
    entropy = answer_log_probs(calm, rollout, temperature=0.7).entropy[rollout.mask]
    surprise = -rollout.logp_old[rollout.mask]
    error = (surprise - entropy).std() / len(surprise) ** 0.5
    assert abs(surprise.mean() - entropy.mean()) < 4 * error


def test_the_same_seed_gives_the_same_answers(calm, walk):
    one, same, other = (rollout_of(calm, walk, seed) for seed in (0, 0, 1))
    for name in ("tokens", "mask", "logp_old", "rewards", "finished"):
        assert torch.equal(getattr(one, name), getattr(same, name)), name
    assert torch.equal(one.routes.answer, same.routes.answer)
    assert not torch.equal(one.tokens[:, :2], other.tokens[:, :2])


def test_lengths_mask_and_padding_fit_the_tokens(calm, walk):
    rollout = rollout_of(calm, walk, prompts=8)
    assert len(rollout) == 32
    assert rollout.group.tolist() == [prompt for prompt in range(8) for _ in range(4)]
    assert rollout.tokens.shape[1] == rollout.lengths.max()
    for tokens, mask, finished in zip(
        rollout.tokens.tolist(), rollout.mask.tolist(), rollout.finished.tolist(), strict=True
    ):
        length = tokens.index(END) + 1 if END in tokens else len(tokens)
        assert mask == [place < length for place in range(len(tokens))]
        assert finished == (END in tokens)
        assert set(tokens[length:]) <= {PAD}
    prompts = rollout.prompts[rollout.group]
    again = walk.rewards(prompts, rollout.tokens, rollout.mask, rollout.finished)
    assert torch.equal(rollout.rewards, again)


def test_finished_answers_are_no_longer_computed(calm, walk, monkeypatch):
    rows = []
    forward = type(calm).forward

    def counting(model, tokens, context=None, **rest):
        if isinstance(context, AnswerCache):
            rows.append(len(tokens))
        return forward(model, tokens, context, **rest)

    monkeypatch.setattr(type(calm), "forward", counting)
    rollout = rollout_of(calm, walk)
    assert rows == rollout.mask.sum(dim=0).tolist()
    assert rows[-1] < rows[0]


def test_answers_without_an_end_stop_at_the_limit(calm, walk):
    with torch.no_grad():
        calm.head.weight[END] = 0
        calm.head.weight[1] += 20 * calm.head.weight[1]
        calm.head.weight[END] -= 5 * calm.head.weight.mean(dim=0)
    task = ClockWalk(4)
    rollout = rollout_of(calm, task, prompts=8)
    cut = ~rollout.finished
    assert cut.any(), "the changed policy should rarely end"
    assert (rollout.lengths[cut] == task.max_new_tokens).all()
    assert (rollout.rewards[cut] == 0).all()


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_unusable_temperatures_are_refused(calm, walk, temperature):
    with pytest.raises(ValueError, match=f"temperature is {temperature}"):
        rollout_of(calm, walk, temperature=temperature)


def test_a_diverged_policy_is_refused_with_a_sentence(calm, walk):
    with torch.no_grad():
        calm.head.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="not finite: training has diverged"):
        rollout_of(calm, walk)


def test_replayed_routes_decide_the_log_probs(calm, walk):
    rollout = rollout_of(calm, walk)
    live = answer_log_probs(calm, rollout)
    same = answer_log_probs(calm, rollout, replay=rollout.routes.check(calm.config, rollout.mask))
    assert_close(same.logp, live.logp, rtol=0, atol=1e-5)
    shifted = dataclasses.replace(rollout.routes, answer=(rollout.routes.answer + 1) % 8)
    shifted = shifted.check(calm.config, rollout.mask)
    other = answer_log_probs(calm, rollout, replay=shifted)
    assert torch.equal(other.routes.answer, shifted.answer)
    assert (other.logp - live.logp).abs().max() > 0.1


@pytest.mark.parametrize(
    ("field", "shape"), [("mask", (4, 2)), ("logp_old", (3, 3)), ("rewards", (3,)), ("group", (5,))]
)
def test_rollouts_with_wrong_shapes_are_refused(calm, walk, field, shape):
    rollout = rollout_of(calm, walk, prompts=1)
    with pytest.raises(ValueError, match=f"Rollout.{field} has shape"):
        dataclasses.replace(rollout, **{field: torch.zeros(shape, dtype=torch.int64)})


def test_rollouts_that_name_an_unknown_prompt_are_refused(calm, walk):
    rollout = rollout_of(calm, walk, prompts=1)
    with pytest.raises(ValueError, match="names prompt 1"):
        dataclasses.replace(rollout, group=rollout.group + 1)


def test_ten_answers_in_four_mini_batches(dice):
    group = torch.arange(5).repeat_interleave(2)
    batches = list(mini_batch_rows(group, 4, dice))
    assert [len(rows) for rows in batches] == [3, 3, 2, 2]
    assert sorted(torch.cat(batches).tolist()) == list(range(10))
    again = list(mini_batch_rows(group, 4, dice))
    assert [rows.tolist() for rows in again] != [rows.tolist() for rows in batches]


@pytest.mark.parametrize("count", [0, 11])
def test_unusable_numbers_of_mini_batches_are_refused(dice, count):
    with pytest.raises(ValueError, match=f"mini_batches is {count}; expected 1 to 10"):
        list(mini_batch_rows(torch.arange(10), count, dice))


@pytest.mark.parametrize("shape", [{}, {"dense": True}])
def test_the_cold_start_learns_from_demonstrations(tiny, shape):
    model, task = tiny(**shape), SortDigits(3)

    def losses():
        dice = torch.Generator().manual_seed(0)
        steps = cold_start_losses(model, task, steps=150, noise=0.0, batch_size=64, generator=dice)
        return list(steps)

    found = losses()
    assert len(found) == 150
    assert found[0] > 2
    assert found[-1] < 1.2
    rollout = rollout_of(model, task, prompts=32)
    assert rollout.finished.float().mean() > 0.9
    assert rollout.rewards.mean() > 0.3


def test_the_load_balancing_loss_spreads_the_cold_start(tiny):
    def share_of_busiest(balance):
        model, task = tiny(num_layers=1), SortDigits(3)
        with torch.no_grad():
            model.blocks[0].moe.router.weight.mul_(10)
        dice = torch.Generator().manual_seed(0)
        steps = cold_start_losses(
            model, task, steps=60, noise=0.3, batch_size=32, balance=balance, generator=dice
        )
        assert len(list(steps)) == 60
        routes = rollout_of(model, task, prompts=32).routes.answer.flatten()
        counts = torch.bincount(routes[routes >= 0].long(), minlength=4)
        return counts.max() / counts.sum()

    assert share_of_busiest(1.0) < share_of_busiest(0.0)
