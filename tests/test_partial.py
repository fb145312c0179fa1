"""Partial rollout: whole answers in pieces, each token's log-prob from the policy that wrote it."""

import copy

import pytest
import torch
from torch.testing import assert_close

from gspo_edu.checkpoint import load_policy, shipped_policies
from gspo_edu.partial import PartialRollouts
from gspo_edu.sampler import answer_log_probs
from gspo_edu.tasks import ClockWalk
from gspo_edu.tasks.base import END, PAD
from gspo_edu.trainer import Trainer


def moved(model, by=0.02, seed=0):
    """The policy after something that changed it."""
    other, dice = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in other.parameters():
            weight += by * torch.randn(weight.shape, generator=dice)
    return other


def rounds(walk, policies, budget, dice, prompts=16, group_size=4):
    """Completed groups of all rounds: prompts start in the first, one policy per round."""
    sampler = PartialRollouts(walk, budget, group_size)
    shown = walk.random_prompts(prompts, dice)
    none = shown[:0]
    return sampler, [
        sampler.next_round(policy, shown if number == 0 else none, dice)
        for number, policy in enumerate(policies)
    ]


@pytest.mark.parametrize("budget", [1, 5, 7])
def test_every_answer_comes_out_once_and_whole(calm, walk, dice, budget):
    needed = -(-walk.max_new_tokens // budget)
    sampler, found = rounds(walk, [calm] * needed, budget, dice)
    assert sampler.waiting == []
    whole = [one for one in found if one is not None]
    assert sum(len(one.rollout) for one in whole) == 16 * 4
    for one in whole:
        rollout = one.rollout
        ends = ((rollout.tokens == END) & rollout.mask).sum(dim=1)
        assert torch.equal(ends == 1, rollout.finished)
        assert (rollout.lengths[~rollout.finished] == walk.max_new_tokens).all()
        assert (rollout.tokens[~rollout.mask] == PAD).all()
        wanted = walk.rewards(
            rollout.prompts[rollout.group], rollout.tokens, rollout.mask, rollout.finished
        )
        assert torch.equal(rollout.rewards, wanted)


def test_a_group_waits_for_its_longest_answer(calm, walk, dice):
    _, found = rounds(walk, [calm] * 5, 4, dice)
    for number, one in enumerate(found):
        if one is not None:
            longest = one.rollout.lengths.view(-1, 4).amax(dim=1)
            assert ((longest > 4 * number) & (longest <= 4 * (number + 1))).all()


def test_each_token_keeps_the_log_prob_and_routes_of_its_author(calm, walk, dice):
    policies = [moved(calm, seed=seed) for seed in range(5)]
    _, found = rounds(walk, policies, 4, dice)
    authors = set()
    for one in found:
        if one is None:
            continue
        assert torch.equal(one.author >= 0, one.rollout.mask)
        for number, policy in enumerate(policies):
            by = one.author == number
            if not by.any():
                continue
            authors.add(number)
            score = answer_log_probs(policy, one.rollout)
            assert_close(score.logp[by], one.rollout.logp_old[by], rtol=0, atol=1e-4)
            same = score.routes.answer[by] == one.rollout.routes.answer[by]
            assert same.float().mean() > 0.995
            others = one.rollout.mask & ~by
            if others.any():
                apart = (score.logp - one.rollout.logp_old)[others].abs().mean()
                assert apart > 1e-3, "the other tokens are not this policy's"
        places = torch.arange(one.author.shape[1]).expand_as(one.author)
        assert torch.equal(one.author[one.rollout.mask], places[one.rollout.mask] // 4)
    assert {0, 1, 2} <= authors


def test_with_one_policy_the_pieces_are_as_likely_as_the_whole(calm, walk, dice):
    _, found = rounds(walk, [calm] * 4, 5, dice)
    for one in found:
        if one is not None:
            logp = answer_log_probs(calm, one.rollout).logp
            assert_close(logp, one.rollout.logp_old, rtol=0, atol=1e-5)


def test_new_prompts_start_while_old_answers_go_on(calm, walk, dice):
    sampler = PartialRollouts(walk, 4, 4)
    made = 0
    for _ in range(8):
        one = sampler.next_round(calm, walk.random_prompts(8, dice), dice)
        made += 0 if one is None else len(one.rollout) // 4
        if one is not None:
            assert torch.equal(one.rollout.group, torch.arange(len(one.rollout)) // 4)
    assert made + sum(len(groups.prompts) for groups in sampler.waiting) == 64
    assert len(sampler.waiting) <= 4, "no answer waits longer than its limit"


def test_a_trainer_learns_from_answers_of_several_authors(quick, dice):
    trainer = Trainer(
        quick(objective="gspo"), load_policy(shipped_policies()["calm"])[0], ClockWalk()
    )
    sampler = PartialRollouts(trainer.task, 6, 4)
    records, mixed = [], 0
    for _ in range(6):
        one = sampler.next_round(trainer.model, trainer.training_prompts(), dice)
        if one is not None and len(one.rollout) >= 4:
            records += trainer.train_on(one.rollout)
            mixed += int((one.author.amax(dim=1) > one.author[:, 0]).sum())
    assert [record["update"] for record in records] == list(range(1, len(records) + 1))
    assert mixed > 0
    assert max(record["token_log_ratio_std"] for record in records[4::2]) > 1e-3


def test_dense_models_have_no_routes(tiny, walk, dice):
    _, found = rounds(walk, [tiny(dense=True)] * 4, 5, dice)
    assert all(one.rollout.routes is None for one in found if one is not None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"budget": 0}, "budget is 0; expected 1 or more"),
        ({"budget": 4, "group_size": 0}, "group_size is 0; expected 1 or more"),
        ({"budget": 4, "temperature": 0.0}, "temperature is 0.0; expected a positive number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(walk, settings, words):
    with pytest.raises(ValueError, match=words):
        PartialRollouts(walk, **{"group_size": 4, **settings})
