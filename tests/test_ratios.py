"""Importance ratios: values, masks, precision, and what they refuse."""

import math
import re

import pytest
import torch

from gspo_edu.objectives.corrections import correction_weight
from gspo_edu.ratios import (
    product_log_ratio,
    product_ratio,
    sequence_log_ratio,
    sequence_ratio,
    token_log_ratio,
    token_ratio,
)

ALL = [
    token_log_ratio,
    token_ratio,
    sequence_log_ratio,
    sequence_ratio,
    product_log_ratio,
    product_ratio,
]
every_ratio = pytest.mark.parametrize("ratio", ALL, ids=lambda f: f.__name__)


def test_three_levels_of_the_same_answer():
    """Token ratios 2, 1/2, 8: their product is 8, their geometric mean 2."""
    logp = torch.tensor([[2.0, 0.5, 8.0]]).log() - 5.0
    triple = (logp, torch.full((1, 3), -5.0), torch.ones(1, 3))
    torch.testing.assert_close(token_ratio(*triple), torch.tensor([[2.0, 0.5, 8.0]]))
    torch.testing.assert_close(product_ratio(*triple), torch.tensor([8.0]))
    torch.testing.assert_close(sequence_ratio(*triple), torch.tensor([2.0]))


@every_ratio
def test_padding_is_never_read(ratio):
    """NaN and infinities outside the mask change neither the value nor the gradient."""
    logp = torch.tensor([[-1.0, -2.0, math.nan, math.inf]], requires_grad=True)
    old = torch.tensor([[-1.5, -1.0, -math.inf, math.nan]])
    mask = torch.tensor([[1, 1, 0, 0]])
    clean = ratio(logp.detach()[:, :2], old[:, :2], mask[:, :2])
    got = ratio(logp, old, mask)
    torch.testing.assert_close(got.detach()[..., :2], clean)
    (gradient,) = torch.autograd.grad(got.sum(), logp)
    assert torch.isfinite(gradient).all()
    assert (gradient[:, 2:] == 0).all()
    assert (gradient[:, :2] != 0).all()


@pytest.mark.parametrize(
    ("ratio", "neutral"),
    [(token_log_ratio, 0.0), (token_ratio, 0.0), (sequence_log_ratio, 0.0), (sequence_ratio, 1.0)],
)
def test_answer_without_tokens(ratio, neutral):
    """Its token entries are 0, its log-ratio is 0 and its ratio is 1: no division by zero."""
    logp = torch.tensor([[-1.0, -2.0]])
    assert (ratio(logp, logp - 1, torch.zeros(1, 2)) == neutral).all()


@every_ratio
@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float32, torch.bfloat16])
def test_mask_of_any_dtype(ratio, kind):
    """Booleans, integers and floats mean the same mask."""
    logp = torch.tensor([[-1.0, -2.0, -0.5], [-1.0, -1.0, -1.0]])
    old = logp + torch.tensor([0.25, -0.5, 1.0])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    torch.testing.assert_close(ratio(logp, old, mask.to(kind)), ratio(logp, old, mask))


@every_ratio
@pytest.mark.parametrize("wrong", ["logp", "logp_old", "mask"])
@pytest.mark.parametrize("shape", [(2, 4), (2, 1), (1, 3), (3,), (2, 3, 1)])
def test_other_shapes_are_refused(ratio, wrong, shape):
    """Nothing is broadcast: the error names each argument's shape."""
    given = {name: torch.zeros(2, 3) for name in ("logp", "logp_old", "mask")}
    given[wrong] = torch.zeros(shape)
    with pytest.raises(ValueError, match="one shape") as caught:
        ratio(**given)
    assert f"{wrong} {shape}" in str(caught.value)


@every_ratio
def test_log_probs_of_one_answer_need_their_batch_dimension(ratio):
    """(T,) is refused, although the three shapes agree."""
    with pytest.raises(ValueError, match=r"one shape \(B, T\)"):
        ratio(torch.zeros(3), torch.zeros(3), torch.ones(3))


@every_ratio
@pytest.mark.parametrize("odd", [-1e9, 0.5, 2.0, math.nan])
def test_mask_of_other_numbers_is_refused(ratio, odd):
    """An additive mask (0 to keep, -1e9 to drop) would otherwise be read the wrong way round."""
    mask = torch.tensor([[0.0, 0.0, odd]])
    with pytest.raises(ValueError, match=re.escape(f"mask holds {odd:g}; expected 1")):
        ratio(torch.zeros(1, 3), torch.zeros(1, 3), mask)


@pytest.mark.parametrize("name", ["logp", "logp_old"])
def test_low_precision_meets_float32(name):
    """One of the two in bfloat16: the difference is taken in float32."""
    given = {"logp": torch.full((1, 4), -1.0), "logp_old": torch.full((1, 4), -1.0)}
    given[name] = given[name].bfloat16()
    other = "logp_old" if name == "logp" else "logp"
    given[other] = given[other] + 3.5e-4
    sign = 1 if other == "logp" else -1
    got = sequence_log_ratio(**given, mask=torch.ones(1, 4))
    assert got.dtype == torch.float32
    assert float(got) == pytest.approx(sign * 3.5e-4, abs=1e-7)


def test_float64_stays_float64():
    """Nothing is rounded to float32 on the way."""
    logp = torch.full((1, 2), -1.0 + 1e-12, dtype=torch.float64)
    got = sequence_log_ratio(logp, torch.full_like(logp, -1.0), torch.ones(1, 2))
    assert got.dtype == torch.float64
    assert float(got) == pytest.approx(1e-12, rel=1e-3)


def test_gradient_of_each_level():
    """d log s / d logp is 1/L per token, d log(product) / d logp is 1."""
    logp = torch.full((1, 4), -1.0, requires_grad=True)
    mask = torch.tensor([[1, 0, 1, 1]])
    (of_mean,) = torch.autograd.grad(sequence_log_ratio(logp, logp.detach(), mask).sum(), logp)
    (of_sum,) = torch.autograd.grad(product_log_ratio(logp, logp.detach(), mask).sum(), logp)
    torch.testing.assert_close(of_mean, mask / 3)
    torch.testing.assert_close(of_sum, mask.float())


@pytest.mark.parametrize(
    ("correction", "level", "wanted"),
    [
        (None, "token", 1.0),
        ({"kind": "tis", "cap": 2.0}, "token", [[2.0, 0.9, 0.3, 0.0]]),
        ({"kind": "icepop", "low": 0.5, "high": 5.0}, "token", [[3.0, 0.9, 0.0, 0.0]]),
        ({"kind": "tis", "cap": 0.92}, "answer", [[0.92]]),
        ({"kind": "icepop", "low": 0.95, "high": 5.0}, "answer", [[0.0]]),
        ({"kind": "icepop", "low": 0.9, "high": 5.0}, "answer", [[0.81 ** (1 / 3)]]),
    ],
)
def test_sampler_and_trainer_disagree(correction, level, wanted):
    """rho = 3, .9, .3: TIS caps, IcePop drops; at answer level both see the geometric mean."""
    old = torch.full((1, 4), -2.0, requires_grad=True)
    rollout = old.detach() - torch.tensor([[3.0, 0.9, 0.3, 7.0]]).log()
    weight = correction_weight(correction, old, rollout, torch.tensor([[1, 1, 1, 0]]), level)
    torch.testing.assert_close(weight, torch.tensor(wanted))
    assert not weight.requires_grad


@every_ratio
def test_old_log_probs_are_detached(ratio):
    """One tensor given as both: the ratio is 1, but the gradient does not cancel to 0."""
    logp = torch.full((1, 3), -1.0, requires_grad=True)
    mask = torch.ones(1, 3)
    (of_both,) = torch.autograd.grad(ratio(logp, logp, mask).sum(), logp)
    (of_new,) = torch.autograd.grad(ratio(logp, logp.detach(), mask).sum(), logp)
    assert (of_new > 0).all()
    assert torch.equal(of_both, of_new)


@pytest.mark.parametrize("bad", [0.0, -2.0, math.nan])
def test_cap_of_a_correction_is_positive(bad):
    old = torch.zeros(1, 2)
    with pytest.raises(ValueError, match=f"correction cap is {bad}; expected a positive number"):
        correction_weight({"kind": "tis", "cap": bad}, old, old, torch.ones(1, 2))


@pytest.mark.parametrize(
    ("low", "high"), [(5.0, 0.5), (-0.5, 5.0), (math.nan, 5.0), (0.5, math.nan)]
)
def test_bounds_of_a_correction_are_in_order(low, high):
    old = torch.zeros(1, 2)
    with pytest.raises(ValueError, match=f"low, high are {low}, {high}; expected 0 <= low <= high"):
        correction_weight({"kind": "icepop", "low": low, "high": high}, old, old, torch.ones(1, 2))
