"""Metrics against values that can be worked out by hand."""

import itertools
import math

import pytest
import torch

from gspo_edu.metrics import (
    answer_weighted_mean,
    clip_metrics,
    effective_sample_fraction,
    effective_sample_size,
    entropy,
    k1,
    k2,
    k3,
    signalless_group_fraction,
    token_weighted_mean,
    within_group_length_spread,
)
from gspo_edu.objectives import clipped_surrogate


def test_two_ways_to_average():
    """One answer of 1 token with value 1, one of 3 with 0: mean 1/2 per answer, 1/4 per token."""
    x = torch.tensor([[1.0, math.nan, math.inf], [0.0, 0.0, 0.0]])
    mask = torch.tensor([[1, 0, 0], [1, 1, 1]])
    assert float(token_weighted_mean(x, mask)) == 0.25
    assert float(answer_weighted_mean(x, mask)) == 0.5


def test_means_skip_answers_without_tokens():
    """An empty answer is not counted as an answer with value 0."""
    x = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    mask = torch.tensor([[1, 1], [0, 0]])
    assert float(answer_weighted_mean(x, mask)) == 1.0
    assert float(token_weighted_mean(x, mask)) == 1.0
    for mean in (answer_weighted_mean, token_weighted_mean):
        assert float(mean(x, torch.zeros(2, 2))) == 0.0


def test_clip_metrics_name_what_they_count():
    """Four quadrants: all four ratios are outside the range, min() clips two of them."""
    ratio = torch.tensor([[0.5, 0.5, 1.5, 1.5]])
    advantage = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    _, clipped, outside = clipped_surrogate(ratio, advantage, 0.2, 0.2)
    assert clipped.tolist() == [[False, True, True, False]]
    assert outside.tolist() == [[True, True, True, True]]
    found = clip_metrics(clipped, outside, torch.ones(1, 4))
    assert {name: float(value) for name, value in found.items()} == {
        "clip_fraction_seq": 0.5,
        "clip_fraction_token_weighted": 0.5,
        "outside_fraction_seq": 1.0,
        "outside_fraction_token_weighted": 1.0,
    }


def test_clip_fraction_per_answer_and_per_token():
    """One clipped token of 1, none of 3: half of each answer's share, a quarter of all tokens."""
    clipped = torch.tensor([[True, True, True], [False, False, False]])
    mask = torch.tensor([[1, 0, 0], [1, 1, 1]])
    found = clip_metrics(clipped, ~clipped, mask)
    assert float(found["clip_fraction_seq"]) == 0.5
    assert float(found["clip_fraction_token_weighted"]) == 0.25
    assert float(found["outside_fraction_seq"]) == 0.5
    assert float(found["outside_fraction_token_weighted"]) == 0.75


def test_kl_estimators_and_their_direction():
    """log-prob -1 under the policy, -2 under the other."""
    logp = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
    other = torch.tensor(-2.0, dtype=torch.float64)
    assert float(k1(logp, other).detach()) == 1.0
    assert float(k2(logp, other).detach()) == 0.5
    assert float(k3(logp, other).detach()) == pytest.approx(math.exp(-1), abs=1e-12)
    (gradient,) = torch.autograd.grad(k3(logp, other), logp)
    assert float(gradient) == pytest.approx(1 - math.exp(-1), abs=1e-12)


def test_k1_and_k3_are_unbiased_for_kl_of_policy_to_other():
    """The expectation under the policy itself, summed exactly over a vocabulary of three."""
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    q = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    kl = (p * (p / q).log()).sum()
    torch.testing.assert_close((p * k1(p.log(), q.log())).sum(), kl)
    torch.testing.assert_close((p * k3(p.log(), q.log())).sum(), kl)
    assert float((p * k2(p.log(), q.log())).sum()) != pytest.approx(float(kl), rel=0.01)
    assert (k3(p.log(), q.log()) >= 0).all()


def test_k3_keeps_its_digits_near_zero():
    """For a log-ratio of 1e-4 in float32, k3 is x^2 / 2 and not rounding noise."""
    assert float(k3(torch.tensor(0.0), torch.tensor(1e-4))) == pytest.approx(5e-9, rel=1e-3)


def test_kl_of_low_precision_log_probs_is_in_float32():
    """bfloat16 inputs are subtracted after conversion."""
    assert k3(torch.tensor(-1.0).bfloat16(), torch.tensor(-2.0).bfloat16()).dtype == torch.float32


def test_entropy_of_known_distributions():
    """Uniform over 13: log 13; a fair coin: log 2; certainty: 0; each once, not divided again."""
    logits = torch.full((1, 2, 13), -1e9)
    logits[0, 0, :2] = 3.0
    logits[0, 1, 7] = 3.0
    got = entropy(torch.cat([torch.zeros(1, 1, 13), logits], dim=1))
    torch.testing.assert_close(got, torch.tensor([[math.log(13), math.log(2), 0.0]]))
    mask = torch.tensor([[1, 1, 0]])
    mean = (math.log(13) + math.log(2)) / 2
    assert float(token_weighted_mean(got, mask)) == pytest.approx(mean)


@pytest.mark.parametrize(
    ("ratios", "wanted"),
    [([1.0, 1.0, 1.0, 1.0], 4.0), ([5.0, 0.0, 0.0, 0.0], 1.0), ([3.0, 1.0], 1.6)],
)
def test_effective_sample_size(ratios, wanted):
    """B for equal ratios, 1 when one answer carries everything."""
    assert float(effective_sample_size(torch.tensor(ratios))) == pytest.approx(wanted)


@pytest.mark.parametrize("offset", [0.0, 80.0, -80.0, 1e4, -1e4])
def test_effective_sample_fraction_of_extreme_log_ratios(offset):
    """A factor common to all ratios changes nothing, even where exp() of it has no float."""
    for ratios in ([1.0, 1.0, 1.0, 1.0], [3.0, 1.0], [2.0]):
        ratio = torch.tensor(ratios)
        wanted = float(effective_sample_size(ratio)) / len(ratios)
        got = effective_sample_fraction(ratio.double().log() + offset)
        assert float(got) == pytest.approx(wanted)
    far = torch.tensor([0.0, -200.0, 200.0, 0.0])
    assert float(effective_sample_fraction(far)) == 0.25


def test_groups_without_signal():
    """All right and all wrong both count, whatever the ids are."""
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.5, 0.5])
    ids = torch.tensor([9, 9, 4, 4, 7, 7, 1, 1])
    assert float(signalless_group_fraction(rewards, ids)) == 0.75


@pytest.mark.parametrize("p", [0.5, 0.1, 0.9])
def test_share_of_groups_without_signal_is_p_to_the_g(p):
    """Over all groups of four right/wrong answers the expectation is p^G + (1 - p)^G."""
    expected = 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=4):
        right = sum(outcome)
        fraction = signalless_group_fraction(torch.tensor(outcome), torch.zeros(4))
        expected += p**right * (1 - p) ** (4 - right) * float(fraction)
    assert expected == pytest.approx(p**4 + (1 - p) ** 4)


def test_spread_of_lengths_within_groups():
    """Lengths 1 and 3 vary by half of their mean, 5 and 5 not at all; groups are averaged."""
    lengths, ids = torch.tensor([1, 5, 3, 5]), torch.tensor([0, 1, 0, 1])
    assert float(within_group_length_spread(lengths, ids)) == pytest.approx(0.25)
