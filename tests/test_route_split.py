"""log r is split into a part of the routes and a part of the weights, exactly."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from gspo_edu.moe import drift
from gspo_edu.route_split import (
    changed_tokens,
    mean_pull,
    rms,
    router_margin,
    split_log_ratio,
)
from gspo_edu.sampler import answer_log_probs


def moved(model, size, names=("",)):
    """A copy whose weights with one of ``names`` in their name have moved at random."""
    other, dice = copy.deepcopy(model), torch.Generator().manual_seed(8)
    with torch.no_grad():
        for name, weight in other.named_parameters():
            if any(part in name for part in names):
                weight += size * torch.randn(weight.shape, generator=dice)
    return other


def test_the_parts_add_up_to_log_r(calm, sampled) -> None:
    rollout = sampled()
    policy = moved(calm, 0.03)
    split = split_log_ratio(policy, rollout)
    with torch.no_grad():
        logp = answer_log_probs(policy, rollout).logp
    assert split.changed.any()
    assert not split.changed[~rollout.mask].any()
    assert_close(split.total, (logp - rollout.logp_old).where(rollout.mask, 0.0))
    for part in (split.route, split.weights):
        assert (part[~rollout.mask] == 0).all()
        assert rms(part, rollout.mask) > 1e-3


def test_the_same_policy_has_no_parts(calm, sampled) -> None:
    split = split_log_ratio(calm, sampled())
    assert split.route.abs().max() < 1e-4
    assert split.weights.abs().max() < 1e-4
    assert not split.changed.any()


def test_unchanged_routes_leave_no_route_part(calm, sampled) -> None:
    rollout = sampled()
    split = split_log_ratio(moved(calm, 0.05, ["head."]), rollout)  # behind all routers
    assert not split.changed.any()
    assert_close(split.route, torch.zeros_like(split.route), atol=1e-5, rtol=0)
    assert rms(split.weights, rollout.mask) > 1e-3


def test_the_temperature_is_the_sampling_one(calm, sampled) -> None:
    rollout = sampled(temperature=0.7)
    assert split_log_ratio(calm, rollout, temperature=0.7).total.abs().max() < 1e-4
    assert split_log_ratio(calm, rollout).total.abs().max() > 1e-2


def test_a_rollout_without_routes_is_refused(calm, sampled) -> None:
    with pytest.raises(ValueError, match=r"rollout\.routes is None; expected the routes"):
        split_log_ratio(calm, replace(sampled(), routes=None))


def test_routes_of_another_model_are_refused(tiny, sampled) -> None:
    with pytest.raises(ValueError, match="routes"):
        split_log_ratio(tiny(num_layers=3), sampled())


def test_changed_tokens_by_hand() -> None:
    before = torch.tensor([[[3, 7], [0, 5]], [[1, 2], [4, 6]], [[-1, -1], [-1, -1]]])
    after = torch.tensor([[[7, 3], [5, 0]], [[1, 2], [4, 0]], [[9, 9], [9, 9]]])
    assert changed_tokens(after, before).tolist() == [False, True, False]
    assert drift(after, before) == 1 / 8
    with pytest.raises(ValueError, match=r"shape \(3, 2, 2\) and reference \(2, 2, 2\)"):
        changed_tokens(after, before[:2])


def test_the_margin_is_that_of_the_last_chosen_expert() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.9, -1.0], [0.0, 5.0, 1.0, 4.0]])
    assert_close(router_margin(logits, 2), torch.tensor([0.1, 3.0]))
    assert_close(router_margin(logits, 1), torch.tensor([1.0, 1.0]))
    for top_k in (0, 4):
        with pytest.raises(ValueError, match=f"top_k is {top_k}; expected 1 to 3"):
            router_margin(logits, top_k)


def test_the_pull_weighs_answers_alike_and_has_the_advantages_sign() -> None:
    part = torch.tensor([[0.2, 0.4, 9.0], [-0.1, 9.0, 9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    mean, error = mean_pull(part, torch.tensor([1.0, -2.0]), mask)
    assert mean == pytest.approx((0.3 + 0.2) / 2)
    assert error == pytest.approx(torch.tensor([0.3, 0.2]).std().item() / 2**0.5)
    assert mean_pull(-part, torch.tensor([1.0, -2.0]), mask)[0] == pytest.approx(-mean)


def test_rms_leaves_padding_out() -> None:
    x = torch.tensor([[3.0, 4.0, 100.0]])
    assert rms(x, torch.tensor([[1, 1, 0]])) == pytest.approx((25 / 2) ** 0.5)
    assert rms(x, torch.zeros(1, 3)) == 0
