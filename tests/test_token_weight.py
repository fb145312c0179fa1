"""Who gets the gradient: every objective's closed form against automatic differentiation.

Every picture and table of gradients comes from ``token_weight``, so each objective is taken through
both signs of the advantage, ratios on both sides of its range, and both number formats.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from gspo_edu.objectives import OBJECTIVES, ObjectiveResult
from gspo_edu.one_batch import ONE_BATCH

REQUIRED = {"dr_grpo": {"max_len": 8}}
# A ratio below, inside and above each objective's own range; for CISPO and SAPO, which have none,
# one below 1, one just above, and one beyond CISPO's cap.
PLACES = dict.fromkeys(OBJECTIVES, (0.6, 1.03, 1.5)) | {
    "gspo": (0.9992, 1.0002, 1.0009),
    "gspo_token": (0.9992, 1.0002, 1.0009),
    "cispo": (0.6, 1.03, 7.0),
    "gmpo": (0.6, 1.03, 1.6),
}
# Which of the three keep their gradient, for A > 0 and for A < 0.
CLIPPING = {1: (True, True, False), -1: (False, True, True)}
ALWAYS = {1: (True, True, True), -1: (True, True, True)}
FLOWS = dict.fromkeys(OBJECTIVES, CLIPPING) | {"cispo": ALWAYS, "sapo": ALWAYS}
TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-13}
every_objective = pytest.mark.parametrize("name", list(OBJECTIVES))
both_formats = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["float32", "float64"])


def weight_and_gradient(
    name: str,
    ratio: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    dtype: torch.dtype,
    **settings: object,
) -> tuple[ObjectiveResult, torch.Tensor]:
    """The result, and minus the gradient of the loss with respect to logp."""
    old = torch.linspace(-0.3, -0.1, ratio.numel(), dtype=torch.float64).reshape(ratio.shape)
    logp = (old + ratio.double().log()).to(dtype).requires_grad_()
    given = (logp, old.to(dtype), advantages.to(dtype), mask)
    result = OBJECTIVES[name](*given, **REQUIRED.get(name, {}), **settings)
    (gradient,) = torch.autograd.grad(result.loss, logp)
    assert result.token_weight.dtype == gradient.dtype == dtype
    return result, -gradient


def agree(weight: torch.Tensor, gradient: torch.Tensor) -> None:
    """Equal numbers, and exactly zero at the same tokens."""
    tolerance = TOLERANCE[weight.dtype]
    torch.testing.assert_close(weight, gradient, rtol=tolerance, atol=tolerance)
    assert torch.equal(weight == 0, gradient == 0)


@every_objective
@both_formats
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("place", [0, 1, 2], ids=["below", "inside", "above"])
def test_each_corner(name: str, dtype: torch.dtype, sign: int, place: int) -> None:
    """Answers of 1, 2 and 4 tokens with one ratio for all: weight, gradient, and who has none."""
    mask = torch.arange(4) < torch.tensor([1, 2, 4])[:, None]
    ratio = torch.full((3, 4), PLACES[name][place], dtype=torch.float64)
    advantages = sign * torch.tensor([0.4, 1.0, 2.5])
    result, gradient = weight_and_gradient(name, ratio, advantages, mask, dtype)
    agree(result.token_weight, gradient)
    flows = FLOWS[name][sign][place]
    assert ((gradient != 0) == (mask & flows)).all()
    assert (gradient * sign >= 0).all()


@both_formats
@pytest.mark.parametrize(("ratio", "flows"), [(2.9, True), (3.1, False)])
def test_floor_of_the_dual_clip(dtype: torch.dtype, ratio: float, flows: bool) -> None:
    """A < 0 beyond the floor at 3: no gradient there either."""
    given = torch.full((1, 2), ratio), torch.tensor([-1.0]), torch.ones(1, 2)
    result, gradient = weight_and_gradient("ppo_dual_clip", *given, dtype)
    agree(result.token_weight, gradient)
    assert ((gradient != 0) == flows).all()


@every_objective
@both_formats
def test_mixed_answers(name: str, dtype: torch.dtype) -> None:
    """All 27 ways to put three tokens below, inside or above, under both signs."""
    ways = torch.tensor(list(itertools.product(PLACES[name], repeat=3)), dtype=torch.float64)
    ratio = torch.cat([ways, ways])
    advantages = torch.cat([torch.full((27,), 0.7), torch.full((27,), -1.3)])
    result, gradient = weight_and_gradient(name, ratio, advantages, torch.ones(54, 3), dtype)
    agree(result.token_weight, gradient)


@every_objective
@both_formats
def test_advantages_per_token(name: str, dtype: torch.dtype) -> None:
    """Both signs and a zero within one answer."""
    ratio = torch.tensor([PLACES[name], PLACES[name][::-1]], dtype=torch.float64)
    advantages = torch.tensor([[1.5, -0.5, 0.25], [-2.0, 0.0, 1.0]])
    result, gradient = weight_and_gradient(name, ratio, advantages, torch.ones(2, 3), dtype)
    agree(result.token_weight, gradient)


@every_objective
@both_formats
def test_the_one_batch(name: str, dtype: torch.dtype) -> None:
    """The numbers that lesson 06 shows; padding gets nothing."""
    batch = ONE_BATCH.tensors()
    logp = batch.logp.to(dtype).requires_grad_()
    advantages = torch.tensor([1.5, -0.9, 0.3, -0.9], dtype=dtype)
    given = (logp, batch.logp_old.to(dtype), advantages, batch.mask)
    result = OBJECTIVES[name](*given, **REQUIRED.get(name, {}))
    (gradient,) = torch.autograd.grad(result.loss, logp)
    torch.testing.assert_close(result.token_weight, -gradient)
    assert (result.token_weight[~batch.mask] == 0).all()


@every_objective
@both_formats
def test_denominator_and_correction_are_in_the_weight(name: str, dtype: torch.dtype) -> None:
    """The weight is that of the loss as it stands, with every factor."""
    ratio = torch.tensor([PLACES[name]] * 2, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    rollout = torch.full((2, 3), -0.15, dtype=dtype)
    settings = {
        "denominator": 11,
        "logp_rollout": rollout,
        "correction": {"kind": "tis", "cap": 1.02},
    }
    advantages = torch.tensor([0.8, -0.8])
    result, gradient = weight_and_gradient(name, ratio, advantages, mask, dtype, **settings)
    agree(result.token_weight, gradient)
    plain, _ = weight_and_gradient(name, ratio, advantages, mask, dtype)
    assert not torch.allclose(plain.token_weight, result.token_weight)
