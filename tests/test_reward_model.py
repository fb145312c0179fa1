"""The Bradley-Terry reward model: features, raters, fit, selection, and the task it rewards."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gspo_edu.batch import Rollout
from gspo_edu.reward_model import (
    FEATURES,
    ModelledWalk,
    RewardModel,
    best_of,
    error_rate_behind,
    fitted_reward_model,
    pair_accuracy,
    preferences,
    probability_first_wins,
    walk_features,
)
from gspo_edu.tasks import ClockWalk
from gspo_edu.tasks.base import SYMBOLS
from gspo_edu.trainer import Trainer


def ids(line: str) -> Tensor:
    return torch.tensor([[SYMBOLS.index(word) for word in line.split()]])


def features_of(prompt: str, answer: str) -> dict[str, float]:
    tokens = ids(answer)
    found = walk_features(ids(prompt), tokens, tokens != SYMBOLS.index("·"))
    return {name: value for name, value in zip(FEATURES, found[0].tolist(), strict=True) if value}


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        # From 3: +2, +7, +7, to the goal 8 short of one hour.
        (
            "5 2 9 end · ·",
            {
                "step = smaller + 0": 1 / 3,
                "step = smaller + 5": 2 / 3,
                "step = larger + 0": 2 / 3,
                "step = larger + 5": 1 / 3,
                "stop = goal + 1": 1,
                "moves": 0.3,
            },
        ),
        ("end", {"stop = goal + 5": 1}),
        ("8 end", {"step = smaller + 3": 1, "step = larger + 8": 1, "stop = goal + 0": 1}),
        # No digit is no move, and neither is the step from it.
        ("= 5 end", {"stop = goal + 7": 1}),
        ("5 =", {"step = smaller + 0": 0.5, "step = larger + 5": 0.5}),
    ],
)
def test_features_of_a_walk(answer: str, wanted: dict[str, float]) -> None:
    found = features_of("3 8 2 7 =", answer)
    moves = sum(word not in ("end", "·") for word in answer.split())
    assert found == pytest.approx({**wanted, **({"moves": moves / 10} if moves else {})})


def test_padding_changes_no_feature() -> None:
    assert features_of("3 8 2 7 =", "5 7 end") == features_of("3 8 2 7 =", "5 7 end · · ·")


@pytest.mark.parametrize(("agreement", "rate"), [(1.0, 0.0), (0.5, 0.5), (0.82, 0.1), (0.68, 0.2)])
def test_error_rate_behind_an_agreement(agreement: float, rate: float) -> None:
    assert math.isclose(error_rate_behind(agreement), rate, abs_tol=1e-12)


def test_raters_err_as_often_as_told(dice: torch.Generator) -> None:
    rewards = torch.tensor([[1.0, 0.0], [0.2, 0.7]]).repeat(5000, 1)
    first = preferences(rewards, 0.2, dice)
    assert abs((first == (rewards[:, 0] > rewards[:, 1])).double().mean() - 0.8) < 0.015
    equal = preferences(torch.ones(10_000, 2), 0.0, dice)
    assert abs(equal.double().mean() - 0.5) < 0.02
    assert torch.equal(preferences(rewards, 0.0, dice), rewards[:, 0] > rewards[:, 1])


def test_probabilities_of_a_pair_are_complementary() -> None:
    difference = torch.tensor([0.0, 1.0, 3.0])
    wins = probability_first_wins(difference)
    assert torch.allclose(wins + probability_first_wins(-difference), torch.ones(3))
    assert torch.allclose((wins / (1 - wins)).log(), difference, atol=1e-5)


def test_the_fit_is_a_minimum_of_the_likelihood(sampled, dice: torch.Generator) -> None:
    pairs = sampled(prompts=200, group_size=2)
    first = preferences(pairs.rewards.view(-1, 2), 0.1, dice)
    model = fitted_reward_model((pairs, first))
    weights = model.weights.clone().requires_grad_()
    seen = walk_features(pairs.prompts[pairs.group], pairs.tokens, pairs.mask)
    difference = (seen[0::2] - seen[1::2]) @ weights
    likely = torch.where(
        first, probability_first_wins(difference), 1 - probability_first_wins(difference)
    )
    (1e-3 * (weights**2).sum() - likely.log().mean()).backward()
    assert weights.grad.abs().max() < 1e-4


def test_the_fit_finds_the_scores_that_made_the_choices(sampled, dice: torch.Generator) -> None:
    pairs = sampled(prompts=4000, group_size=2)
    truth = RewardModel(torch.randn(len(FEATURES), generator=dice).double())
    score = truth.of_rollout(pairs).view(-1, 2)
    wins = probability_first_wins(score[:, 0] - score[:, 1])
    found = fitted_reward_model((pairs, torch.rand(len(wins), generator=dice) < wins))
    learnt = found.of_rollout(pairs).view(-1, 2)
    both = torch.stack([score[:, 0] - score[:, 1], learnt[:, 0] - learnt[:, 1]])
    assert torch.corrcoef(both)[0, 1] > 0.95


def test_two_sets_of_comparisons_are_one(sampled, dice: torch.Generator) -> None:
    pairs = sampled(prompts=30, group_size=2)
    first = preferences(pairs.rewards.view(-1, 2), 0.1, dice)
    parts = [(pairs.rows(torch.arange(2 * a, 2 * b)), first[a:b]) for a, b in ((0, 10), (10, 30))]
    whole, joined = fitted_reward_model((pairs, first)), fitted_reward_model(*parts)
    assert torch.allclose(whole.weights, joined.weights, atol=1e-3)


def test_more_comparisons_make_a_better_model(sampled, dice: torch.Generator) -> None:
    fresh = sampled(prompts=500, group_size=2)

    def accuracy(count: int) -> float:
        pairs = sampled(prompts=count, group_size=2)
        first = preferences(pairs.rewards.view(-1, 2), 0.15, dice)
        return pair_accuracy(fitted_reward_model((pairs, first)), fresh)

    few, many = accuracy(20), accuracy(2000)
    assert few < 0.85
    assert many > few + 0.1
    assert many > 0.9


@pytest.mark.parametrize("sign", [1, -1])
def test_equal_answers_count_neither_way(sampled, sign: int) -> None:
    pairs = sampled(prompts=2, group_size=2)
    half = replace(pairs, rewards=torch.tensor([1.0, 1.0, 1.0, 0.0]))
    dice = torch.Generator().manual_seed(0)
    model = RewardModel(sign * torch.randn(len(FEATURES), generator=dice, dtype=torch.float64))
    score = model.of_rollout(pairs)
    assert score[0] != score[1]
    assert pair_accuracy(model, half) == float(score[2] > score[3])


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_best_of_is_the_mean_over_all_choices(count: int, dice: torch.Generator) -> None:
    scores, values = torch.rand(2, 3, 5, generator=dice).double()
    by_hand = [
        values[prompt, max(chosen, key=lambda place: scores[prompt, place])]
        for prompt in range(3)
        for chosen in itertools.combinations(range(5), count)
    ]
    assert math.isclose(best_of(scores, values, count), sum(by_hand) / len(by_hand))


def test_best_of_large_numbers_does_not_overflow() -> None:
    scores = torch.arange(2000.0)[None]
    assert math.isclose(best_of(scores, torch.ones(1, 2000), 1000), 1)
    assert best_of(scores, scores, 2000) == 1999


def test_the_trainer_takes_a_reward_model(quick, calm) -> None:
    weights = torch.zeros(len(FEATURES), dtype=torch.float64)
    weights[FEATURES.index("moves")] = 2.0
    task = ModelledWalk(model=RewardModel(weights))
    trainer = Trainer(quick(rollouts=1), calm, task)
    record = trainer.next_rollout()[0]
    assert math.isclose(record["reward"], 2 * (record["length"] - 1) / 10, rel_tol=1e-4)


def test_the_modelled_walk_knows_what_is_right(walk: ClockWalk) -> None:
    task = ModelledWalk(model=RewardModel(torch.ones(len(FEATURES), dtype=torch.float64)))
    tokens = ids("5 7 4 6 8 end")
    given = (ids("3 8 2 7 ="), tokens, torch.ones_like(tokens).bool(), torch.tensor([True]))
    assert task.rewards(*given).item() != walk.rewards(*given).item()
    assert task.exact(*given).item() is True
    assert (task.prompt_length, task.max_new_tokens) == (walk.prompt_length, walk.max_new_tokens)


def one_pair(group: list[int]) -> Rollout:
    tokens = ids("5 7 end").repeat(len(group), 1)
    return Rollout(
        prompts=ids("3 8 2 7 =").repeat(2, 1),
        tokens=tokens,
        mask=torch.ones_like(tokens).bool(),
        logp_old=torch.zeros(tokens.shape),
        rewards=torch.zeros(len(group)),
        group=torch.tensor(group),
        finished=torch.ones(len(group)).bool(),
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: error_rate_behind(0.4), "agreement is 0.4"),
        (lambda: preferences(torch.zeros(4), 0.1, torch.Generator()), r"expected \(N, 2\)"),
        (lambda: preferences(torch.zeros(4, 2), 0.6, torch.Generator()), "error_rate is 0.6"),
        (lambda: fitted_reward_model((one_pair([0, 1]), torch.tensor([True]))), "side by side"),
        (lambda: fitted_reward_model((one_pair([0, 0, 1]), torch.tensor([True]))), "3 answers"),
        (
            lambda: fitted_reward_model((one_pair([0, 0]), torch.tensor([True])), ridge=0),
            "ridge is 0",
        ),
        (lambda: fitted_reward_model(), "comparisons has 0 sets"),
        (lambda: best_of(torch.zeros(2, 3), torch.zeros(3, 2), 1), r"one shape \(P, N\)"),
        (lambda: best_of(torch.zeros(2, 3), torch.zeros(2, 3), 4), "count is 4"),
    ],
)
def test_bad_input_is_named(call, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
