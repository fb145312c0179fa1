"""Two turns: what the environment wrote is seen by the policy and counted by nobody (hazard 27)."""

import dataclasses
import math

import pytest
import torch
from torch.testing import assert_close

from gspo_edu.advantages import group_advantages
from gspo_edu.batched import SeedBatch
from gspo_edu.checkpoint import load_policy, shipped_policies
from gspo_edu.config import TrainConfig
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.ratios import sequence_log_ratio, token_log_ratio
from gspo_edu.sampler import answer_log_probs, sampled_rollout
from gspo_edu.tasks import TwoTurnWalk, make_task
from gspo_edu.tasks.base import END, EQUALS, PAD
from gspo_edu.tasks.two_turn import both_turns, joined_turns
from gspo_edu.trainer import Trainer

WORDS = {"=": EQUALS, "end": END, "·": PAD}
REPLY = "8 7 2 7 ="  # to 3 8 2 7 =: from the goal 8 two moves further, 8 + 2 + 7


def ids(line):
    return [WORDS.get(word) or int(word) for word in line.split()]


@pytest.fixture
def task():
    return TwoTurnWalk()


@pytest.fixture
def rollout(calm, task, dice):
    """64 dialogues of the shipped policy."""
    return sampled_rollout(calm, task, task.random_prompts(16, dice), 4, generator=dice)


def dialogue(first, second, task):
    """Tokens and mask of one dialogue, the policy's turns as text."""
    prompts = torch.tensor([ids("3 8 2 7 =")])
    turns = [torch.tensor([ids(line)], dtype=torch.int64).view(1, -1) for line in (first, second)]
    whole = [torch.ones_like(turn, dtype=torch.bool) for turn in turns]
    return prompts, *joined_turns(turns[0], whole[0], task.reply(prompts), turns[1], whole[1])


def test_a_dialogue_by_hand(task):
    _, tokens, mask = dialogue("5 7 4 6 8 end", "5 7 end", task)
    assert tokens.tolist() == [ids(f"5 7 4 6 8 end {REPLY} 5 7 end")]
    assert mask.tolist() == [[True] * 6 + [False] * 5 + [True] * 3]
    first, second = both_turns(tokens, mask)
    assert first[0, :6].tolist() == ids("5 7 4 6 8 end")
    assert second[0, :3].tolist() == ids("5 7 end")
    assert (first[0, 6:] == PAD).all()
    assert (second[0, 3:] == PAD).all()


@pytest.mark.parametrize(
    ("first", "second", "reward", "exact"),
    [
        ("5 7 4 6 8 end", "5 7 end", 1.0, True),
        ("5 7 4 6 8 end", "0 7 end", 1.0, True),
        ("5 7 4 6 8 end", "7 end", 0.5, False),  # a jump
        ("8 end", "5 7 end", 0.5, False),
        ("5 7 4 6 8 end", "5 2 end", 0.5 + 0.25, False),  # allowed moves, another goal
        ("8 end", "7 end", 0.0, False),
    ],
)
def test_the_reward_is_the_mean_of_both_walks(task, first, second, reward, exact):
    prompts, tokens, mask = dialogue(first, second, task)
    given = (prompts, tokens, mask, torch.tensor([True]))
    assert task.rewards(*given).item() == pytest.approx(reward)
    assert task.exact(*given).item() == exact
    assert task.rewards(*given[:3], torch.tensor([False])).item() == 0, "cut"


def test_a_reward_does_not_read_the_environments_tokens(task, rollout):
    other = rollout.tokens.where(rollout.mask, 0)
    prompts = rollout.prompts[rollout.group]
    again = task.rewards(prompts, other, rollout.mask, rollout.finished)
    assert torch.equal(again, rollout.rewards)
    assert rollout.rewards.unique().numel() > 5


def test_demonstrations_are_right_and_leave_the_environment_out(task, dice):
    prompts = task.random_prompts(64, dice)
    tokens, mask = task.demonstrations(prompts, 0.0, dice)
    assert task.exact(prompts, tokens, mask, torch.ones(64, dtype=torch.bool)).all()
    reply = tokens[~mask & (tokens != PAD)].view(64, 5)
    assert torch.equal(reply, task.reply(prompts))


def test_what_was_sampled_is_laid_out_turn_by_turn(task, rollout):
    prompts = rollout.prompts[rollout.group]
    reply = task.reply(prompts)
    assert rollout.finished.float().mean() > 0.9
    for row in rollout.finished.nonzero()[:, 0].tolist():
        tokens, mask = rollout.tokens[row], rollout.mask[row]
        end = int((tokens == END).nonzero()[0, 0])
        assert mask[: end + 1].all()
        assert torch.equal(tokens[end + 1 : end + 6], reply[row])
        assert not mask[end + 1 : end + 6].any()
        last = int((tokens == END).nonzero()[1, 0])
        assert mask[end + 6 : last + 1].all()
        assert not mask[last + 1 :].any()
        assert (tokens[last + 1 :] == PAD).all()
        assert rollout.lengths[row] == last + 1 - 5, "the environment's five do not count"


def test_a_first_turn_that_is_cut_has_no_second(tiny, task, dice):
    """A policy that never ends: its dialogues have one turn, no reply and no reward."""
    never = tiny()
    with torch.no_grad():
        never.head.weight.zero_()
        never.norm.weight.zero_()
    never.head.register_forward_hook(
        lambda module, given, out: out - 1e4 * (torch.arange(13) == END)
    )
    found = sampled_rollout(never, task, task.random_prompts(4, dice), 2, generator=dice)
    assert not found.finished.any()
    assert (found.lengths == task.turn_limit).all()
    assert found.mask.all()
    assert (found.rewards == 0).all()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampler_and_trainer_agree_across_the_turns(calm, task, dice, temperature):
    prompts = task.random_prompts(8, dice)
    found = sampled_rollout(calm, task, prompts, 4, temperature=temperature, generator=dice)
    score = answer_log_probs(calm, found, temperature=temperature)
    assert_close(score.logp.detach(), found.logp_old, rtol=0, atol=1e-5)
    assert torch.equal(score.routes.answer, found.routes.answer)
    replayed = answer_log_probs(
        calm, found, temperature=temperature, replay=found.routes.check(calm.config, found.mask)
    )
    assert_close(replayed.logp.detach(), found.logp_old, rtol=0, atol=1e-5)


def test_the_policy_sees_what_the_environment_wrote(calm, rollout):
    """Another reply changes the second turn's log-probs and no others."""
    reply = ~rollout.mask & (rollout.tokens != PAD)
    other = rollout.tokens.where(~(reply & (rollout.tokens < 10)), 3)
    changed = answer_log_probs(calm, dataclasses.replace(rollout, tokens=other)).logp.detach()
    apart = (changed - rollout.logp_old).abs()
    after = reply.long().cumsum(dim=1) > 0
    assert apart[rollout.mask & after].mean() > 0.1
    assert apart[rollout.mask & ~after].max() < 1e-5


def without_environment(values, mask, fill=0):
    """Columns (B, T) with the policy's tokens alone, to the left."""
    order = (~mask).long().argsort(dim=1, stable=True)
    width = int(mask.sum(dim=1).max())
    return values.where(mask, fill).gather(1, order)[:, :width]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_objective_counts_the_environments_tokens(calm, rollout, dice, objective):
    """Ratios, lengths, loss, gradient: as if these columns were not there, even if they are NaN."""
    mask = rollout.mask
    logp = (rollout.logp_old + 0.1 * torch.randn(mask.shape, generator=dice)).where(mask, math.nan)
    old = rollout.logp_old.where(mask, math.nan)
    advantages = group_advantages(rollout.rewards, rollout.group)
    settings = {"max_len": 36} if objective == "dr_grpo" else {}

    def run(logp, old, mask):
        logp = logp.clone().requires_grad_()
        result = OBJECTIVES[objective](logp, old, advantages, mask, **settings)
        result.loss.backward()
        return result, logp.grad

    whole, gradient = run(logp, old, mask)
    short = tuple(without_environment(x, mask) for x in (logp, old, mask))
    wanted, short_gradient = run(*short)
    assert_close(whole.loss, wanted.loss)
    assert_close(without_environment(gradient, mask), short_gradient)
    assert (gradient[~mask] == 0).all()
    for name, value in wanted.metrics.items():
        assert_close(whole.metrics[name], value)
    s = sequence_log_ratio(logp, old, mask)
    by_hand = (logp - old).where(mask, 0.0).sum(dim=1) / rollout.lengths
    assert_close(s, by_hand)
    assert (token_log_ratio(logp, old, mask)[~mask] == 0).all()


def test_a_mask_that_forgets_the_environment_is_another_ratio(rollout, calm, dice):
    """What the mask is for: the reply's tokens would be 5 more in every mean."""
    with torch.no_grad():
        for weight in calm.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=dice)
    there = rollout.tokens != PAD
    everything = dataclasses.replace(rollout, mask=there)
    old_all = answer_log_probs(load_policy(shipped_policies()["calm"])[0], everything).logp
    new_all = answer_log_probs(calm, everything).logp
    right = sequence_log_ratio(new_all, old_all, rollout.mask)
    wrong = sequence_log_ratio(new_all, old_all, there)
    assert (right - wrong).abs().median() > 1e-2
    assert_close(there.sum(dim=1)[rollout.finished], rollout.lengths[rollout.finished] + 5)


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "gspo"},
        {"objective": "grpo", "replay": "r2"},
        {"objective": "grpo", "replay": "r3", "engine": "bf16", "recompute_old": True},
        {"objective": "ppo", "critic": True},
    ],
    ids=str,
)
def test_dialogues_train(quick, calm, task, changes):
    one = Trainer(quick(task="two_turn", **changes), calm, task)
    for record in one.records():
        assert record["update_skipped"] == 0
        assert all(value == value for value in record.values()), "no NaN"
    assert 4 < record["length"] < 36


def test_two_turns_are_a_task_by_name():
    task = make_task("two_turn", 6)
    assert task == TwoTurnWalk(6)
    assert (task.turn_limit, task.max_new_tokens) == (9, 18)
    assert TrainConfig(task="two_turn").task == "two_turn"
    with pytest.raises(ValueError, match="longest is 3; expected 4 or more"):
        TwoTurnWalk(3)


def test_a_batch_of_seeds_refuses_dialogues(quick, tiny, task):
    trainers = [Trainer(quick(task="two_turn", seed=s), tiny(), task) for s in (0, 1)]
    with pytest.raises(ValueError, match=r"task is two_turn; .* of one turn only"):
        SeedBatch(trainers)
