"""Gradient estimators by enumeration: exact where theory says so, and made of the objectives."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gspo_edu.estimators import (
    NO_CLIP,
    Moments,
    all_answers,
    answer_gradients,
    answer_weights,
    exact_gradient,
    expected,
    log_probs,
    log_ratio_moment,
    moments,
    policy_at_spread,
    sampled_answers,
    token_spread,
)
from gspo_edu.objectives import OBJECTIVES

VOCAB = 3
UNCLIPPED = ("seq_unnormalised", "grpo", "gspo")
CLIPPED = (*UNCLIPPED, "ppo", "dapo", "gspo_token")


def policy(seed: int) -> Tensor:
    dice = torch.Generator().manual_seed(seed)
    return torch.randn(VOCAB + 1, VOCAB, generator=dice, dtype=torch.float64) / 2


def more_zeros(answers: Tensor) -> Tensor:
    """1 with more zeros than ones, 0 with fewer, one half with equally many."""
    zeros, ones = (answers == 0).sum(dim=1), (answers == 1).sum(dim=1)
    return ((zeros - ones).sign() + 1).double() / 2


def probabilities(logits: Tensor, answers: Tensor) -> Tensor:
    return log_probs(logits, answers).sum(dim=1).exp()


def moments_of(objective: str | None, new: Tensor, old: Tensor, length: int, **settings) -> Moments:
    answers = all_answers(VOCAB, length)
    prob = probabilities(old, answers)
    rewards = more_zeros(answers)
    weights = answer_weights(objective, new, old, answers, rewards - prob @ rewards, **settings)
    return moments(answer_gradients(new, answers, weights), prob)


def gradient(logits: Tensor, length: int) -> Tensor:
    answers = all_answers(VOCAB, length)
    return exact_gradient(logits, answers, more_zeros(answers))


@pytest.mark.parametrize("length", [1, 2, 5])
def test_every_answer_is_there_once_and_probabilities_sum_to_one(length: int) -> None:
    answers = all_answers(VOCAB, length)
    assert answers.shape == (VOCAB**length, length)
    assert len(torch.unique(answers, dim=0)) == VOCAB**length
    assert math.isclose(probabilities(policy(0), answers).sum(), 1)


def test_the_scores_are_those_of_autograd() -> None:
    answers, logits = all_answers(VOCAB, 3)[::5], policy(1)
    weights = torch.arange(answers.numel(), dtype=torch.float64).view(answers.shape) / 7
    found = answer_gradients(logits, answers, weights)
    for row in range(len(answers)):
        leaf = logits.clone().requires_grad_()
        (log_probs(leaf, answers[row : row + 1]) * weights[row]).sum().backward()
        assert torch.allclose(found[row], leaf.grad.flatten())


@pytest.mark.parametrize("objective", [*CLIPPED, "ppo_dual_clip", "cispo", "gmpo", "sapo", None])
@pytest.mark.parametrize("length", [1, 4])
def test_at_the_old_policy_all_are_the_exact_gradient(objective: str | None, length: int) -> None:
    old = policy(2)
    plain = moments_of(None, old, old, length)
    found = moments_of(objective, old, old, length)
    assert torch.allclose(found.mean, gradient(old, length))
    assert torch.allclose(found.mean, plain.mean)
    assert torch.allclose(found.covariance, plain.covariance)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("length", [1, 3, 6])
def test_the_product_without_clip_is_unbiased(seed: int, length: int) -> None:
    old, new = policy(seed), policy(seed + 10)
    found = moments_of("seq_unnormalised", new, old, length, **NO_CLIP)
    assert found.bias(gradient(new, length)) < 1e-12
    assert math.isclose(found.cosine(gradient(new, length)), 1)


def test_one_token_leaves_no_difference_and_two_do() -> None:
    old, new = policy(3), policy(4)
    for objective in UNCLIPPED:
        assert moments_of(objective, new, old, 1, **NO_CLIP).bias(gradient(new, 1)) < 1e-12
    for objective in ("grpo", "gspo", None):
        clip = {} if objective is None else NO_CLIP
        assert moments_of(objective, new, old, 2, **clip).bias(gradient(new, 2)) > 1e-3


def test_the_bias_of_all_but_the_product_is_of_first_order() -> None:
    old, direction = policy(5), policy(6)
    for objective in ("grpo", "gspo"):
        small, large = (
            moments_of(objective, new, old, 4, **NO_CLIP).bias(gradient(new, 4))
            for new in (old + 1e-3 * direction, old + 1e-2 * direction)
        )
        assert math.isclose(large / small, 10, rel_tol=0.1)


@pytest.mark.parametrize("objective", CLIPPED)
def test_weights_are_the_objectives_own(objective: str) -> None:
    """Of equally long answers ``token_weight`` differs from the relative weight by one factor."""
    old, new, answers = policy(7), policy(8), all_answers(VOCAB, 4)
    advantages = more_zeros(answers) - 0.4
    found = answer_weights(objective, new, old, answers, advantages)
    logp = log_probs(new, answers).requires_grad_()
    result = OBJECTIVES[objective](logp, log_probs(old, answers), advantages, torch.ones_like(logp))
    result.loss.backward()
    own = result.token_weight
    factor = (own.abs().sum() / found.abs().sum()).item()
    assert torch.allclose(own, factor * found)
    assert torch.allclose(-logp.grad, factor * found)
    assert (found == 0).any()
    assert (found != 0).any()


def test_no_correction_is_the_advantage_wherever_the_policy_is() -> None:
    answers = all_answers(VOCAB, 3)
    advantages = more_zeros(answers) - 0.4
    found = answer_weights(None, policy(8), policy(7), answers, advantages)
    assert torch.allclose(found, advantages[:, None].expand(answers.shape))


def test_the_token_estimator_is_the_gradient_of_one_changed_token() -> None:
    """Each position drawn by the new policy in turn, all others by the old one."""
    old, new, answers = policy(9), policy(11), all_answers(VOCAB, 4)
    leaf = new.clone().requires_grad_()
    logp_old = log_probs(old, answers)
    changed = 0.0
    for place in range(4):
        logp = logp_old.clone()
        logp[:, place] = log_probs(leaf, answers)[:, place]
        changed = changed + (logp.sum(dim=1).exp() * more_zeros(answers)).sum()
    changed.backward()
    found = moments_of("grpo", new, old, 4, **NO_CLIP)
    assert torch.allclose(found.mean, leaf.grad.flatten())


def test_a_monte_carlo_run_agrees_with_the_enumeration() -> None:
    old, new, length, count = policy(12), policy(13), 5, 40_000
    exact = moments_of("grpo", new, old, length)
    dice = torch.Generator().manual_seed(0)
    answers = sampled_answers(old, length, count, dice)
    everything = all_answers(VOCAB, length)
    baseline = expected(more_zeros, old, everything)
    weights = answer_weights("grpo", new, old, answers, more_zeros(answers) - baseline)
    estimates = answer_gradients(new, answers, weights)
    error = (estimates.mean(dim=0) - exact.mean).norm()
    assert error < 2 * math.sqrt(exact.variance / count)
    assert math.isclose(estimates.var(dim=0).sum(), exact.variance, rel_tol=0.05)


def test_error_joins_bias_and_variance() -> None:
    eight = torch.tensor([[8.0, 1.0], [1.0, 1.0]]).double()
    found = Moments(torch.tensor([3.0, 0.0]).double(), eight)
    truth = torch.tensor([3.0, 4.0]).double()
    assert found.variance == 9
    assert found.noise == 1
    assert math.isclose(found.bias(truth), 0.8)
    assert math.isclose(found.error(truth, 9), math.sqrt(0.64 + 1 / 25))


def test_no_signal_is_all_noise() -> None:
    assert Moments(torch.zeros(2), torch.eye(2)).noise == math.inf


@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("power", [0.0, 0.25, 1.0, 2.0])
def test_ratio_moments_agree_with_the_enumeration(length: int, power: float) -> None:
    old, new, answers = policy(14), policy(15), all_answers(VOCAB, length)
    ratio = probabilities(new, answers) / probabilities(old, answers)
    listed = probabilities(old, answers) @ ratio**power
    assert math.isclose(log_ratio_moment(new, old, length, power), listed.log(), abs_tol=1e-12)


def test_the_product_has_mean_one_at_any_length() -> None:
    assert abs(log_ratio_moment(policy(0), policy(1), 10_000, 1.0)) < 1e-9
    assert log_ratio_moment(policy(0), policy(1), 10_000, 2.0) > 709, "beyond exp's range"


@pytest.mark.parametrize("length", [1, 5])
def test_the_spread_is_that_of_the_listed_tokens(length: int) -> None:
    old, new, answers = policy(16), policy(17), all_answers(VOCAB, length)
    log_ratio = log_probs(new, answers) - log_probs(old, answers)
    listed = (probabilities(old, answers) @ (log_ratio**2).mean(dim=1)).sqrt()
    assert math.isclose(token_spread(new, old, length), listed)
    near = policy_at_spread(old, policy(18), length, 0.1)
    assert math.isclose(token_spread(near, old, length), 0.1)


def test_samples_follow_the_policy() -> None:
    old, answers = policy(19), all_answers(VOCAB, 2)
    drawn = sampled_answers(old, 2, 30_000, torch.Generator().manual_seed(1))
    counted = torch.bincount(drawn[:, 0] * VOCAB + drawn[:, 1], minlength=len(answers)) / 30_000
    assert torch.allclose(counted.double(), probabilities(old, answers), atol=0.01)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: all_answers(0, 3), "vocab is 0"),
        (lambda: all_answers(3, 0), "length is 0"),
        (lambda: all_answers(3, 40), "Take a shorter length"),
        (lambda: log_probs(torch.zeros(3, 3), all_answers(3, 2)), r"expected \(V \+ 1, V\)"),
        (lambda: moments(torch.zeros(2, 3), torch.ones(2)), "sum to 2"),
        (lambda: policy_at_spread(policy(0), torch.zeros(4, 3), 2, 0.1), "spread is 0.1"),
    ],
)
def test_bad_input_is_named(call, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
