"""The clip range of sequence ratios, against simulation and the objectives themselves."""

from __future__ import annotations

import math

import pytest
import torch

from gspo_edu.clip_range import (
    active_share,
    equal_spread_range,
    length_where_mean_outweighs_spread,
    range_for_outside_share,
    variance_inflation,
)
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.ratios import sequence_log_ratio

GSPO = {"clip_low": 3e-4, "clip_high": 4e-4}


def correlated_tokens(correlation: float, rows: int, length: int) -> torch.Tensor:
    """(rows, length) standard normal AR(1) numbers."""
    fresh = torch.randn(rows, length, generator=torch.Generator().manual_seed(3)).double()
    tokens = fresh.clone()
    for t in range(1, length):
        tokens[:, t] = correlation * tokens[:, t - 1] + math.sqrt(1 - correlation**2) * fresh[:, t]
    return tokens


def test_equal_spread_at_a_thousand_tokens() -> None:
    assert equal_spread_range(0.2, 1000) == pytest.approx(6.3246e-3, rel=1e-4)
    assert equal_spread_range(0.2, 1) == 0.2


def test_the_mean_outweighs_the_spread_from_this_length_on() -> None:
    sigma = 0.05
    length = length_where_mean_outweighs_spread(sigma)
    assert length == pytest.approx(1600)
    assert sigma**2 / 2 == pytest.approx(sigma / math.sqrt(length))


@pytest.mark.parametrize("correlation", [-0.3, 0.0, 0.5, 0.9])
def test_variance_inflation_is_that_of_a_simulation(correlation: float) -> None:
    length = 40
    mean = correlated_tokens(correlation, 20_000, length).mean(dim=1)
    simulated = float(mean.var()) * length
    assert variance_inflation(correlation, length) == pytest.approx(simulated, rel=0.04)


def test_variance_inflation_at_its_ends() -> None:
    assert variance_inflation(0.7, 1) == 1
    assert variance_inflation(0.5, 2) == pytest.approx(1.5)
    assert variance_inflation(0.5, 5000) == pytest.approx(3, rel=1e-3)
    assert variance_inflation(1 - 1e-9, 50) == pytest.approx(50, rel=1e-5)


@pytest.mark.parametrize("positive_share", [0.5, 0.25])
def test_active_share_is_what_gspo_counts(positive_share: float) -> None:
    rows, length, sigma = 4000, 25, 2e-3
    noise = torch.randn(rows, length, generator=torch.Generator().manual_seed(5)).double()
    logp_old = torch.full_like(noise, -1.0)
    mask = torch.ones_like(noise)
    # Each s occurs with either sign, so that signs and ratios are independent exactly.
    logp = (logp_old + sigma * noise).repeat(4, 1)
    sign = torch.where(torch.arange(4) < 4 * positive_share, 1.0, -1.0).repeat_interleave(rows)
    old, mask = logp_old.repeat(4, 1), mask.repeat(4, 1)
    counted = OBJECTIVES["gspo"](logp, old, sign.double(), mask).metrics["clip_fraction_seq"]
    s = sequence_log_ratio(logp, old, mask).exp()
    below = float((s < 1 - GSPO["clip_low"]).double().mean())
    above = float((s > 1 + GSPO["clip_high"]).double().mean())
    assert 0.2 < below < 0.4
    assert 0.1 < above < 0.4
    assert active_share(below, above, positive_share) == pytest.approx(float(counted))


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_the_proposed_range_leaves_that_share_outside(share: float) -> None:
    log_s = 3e-3 * torch.randn(5000, generator=torch.Generator().manual_seed(1)) - 1e-4
    clip_low, clip_high = range_for_outside_share(log_s, share)
    s = log_s.double().exp()
    outside = ((s < 1 - clip_low) | (s > 1 + clip_high)).double().mean()
    assert float(outside) == pytest.approx(share, abs=1e-3)


def test_a_bound_on_the_far_side_of_one_is_zero() -> None:
    clip_low, clip_high = range_for_outside_share(torch.linspace(-0.02, -0.01, 11), 0.2)
    assert clip_high == 0
    assert clip_low == pytest.approx(1 - math.exp(-0.019), rel=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: equal_spread_range(0.0, 10), "clip_token is 0.0"),
        (lambda: equal_spread_range(0.2, 0), "length is 0"),
        (lambda: length_where_mean_outweighs_spread(-1.0), "sigma is -1.0"),
        (lambda: variance_inflation(1.0, 10), "correlation is 1.0"),
        (lambda: variance_inflation(0.5, 0), "length is 0"),
        (lambda: active_share(0.7, 0.7), r"below \+ above is 1.4"),
        (lambda: active_share(0.1, 0.1, -0.5), "positive_share is -0.5"),
        (lambda: range_for_outside_share(torch.zeros(3), 1.0), "share is 1.0"),
        (lambda: range_for_outside_share(torch.zeros(0), 0.5), "log_s is empty"),
    ],
)
def test_bad_input_is_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
