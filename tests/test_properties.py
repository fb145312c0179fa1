"""What must hold for every objective and every batch; and what objectives refuse."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from gspo_edu.objectives import OBJECTIVES, clipped_surrogate, gspo, gspo_token, ppo
from gspo_edu.ratios import sequence_ratio, token_ratio

REQUIRED = {"dr_grpo": {"max_len": 7}}
TOKEN_MEANS = {"ppo", "ppo_dual_clip", "dapo", "cispo"}
CORRECTIONS = [
    None,
    {"kind": "tis", "cap": 1.1},
    {"kind": "icepop", "low": 0.9, "high": 1.2},
    {"kind": "icepop", "low": 0.0, "high": 1.1},
]
GARBAGE = [math.nan, math.inf, -math.inf, -1e30, 7.0]
few = settings(derandomize=True, max_examples=18, deadline=None)
every_objective = pytest.mark.parametrize("name", list(OBJECTIVES))


@dataclass(frozen=True)
class Batch:
    """Inputs of an objective, float64, and the keywords that all objectives share."""

    logp: Tensor
    logp_old: Tensor
    advantages: Tensor
    mask: Tensor
    logp_ref: Tensor
    logp_rollout: Tensor
    beta: float = 0.0
    correction: dict | None = None

    def rows(self, index):
        """The batch made of the rows ``index``."""
        tensors = {k: v[index] for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **tensors)


def run(name, batch, **settings_of_its_own):
    """The objective's result and its gradient with respect to logp."""
    given = {**REQUIRED.get(name, {}), **vars(batch), **settings_of_its_own}
    given["logp"] = logp = batch.logp.detach().clone().requires_grad_()
    result = OBJECTIVES[name](**given)
    (gradient,) = torch.autograd.grad(result.loss, logp)
    return result, gradient


def close(got, wanted):
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


def same_metrics(result, other, rows=slice(None)):
    """Equal metrics; those with one value per answer are compared in the order ``rows``."""
    assert result.metrics.keys() == other.metrics.keys()
    for name, value in result.metrics.items():
        wanted = other.metrics[name]
        close(value, wanted[rows] if wanted.dim() else wanted)


@st.composite
def batches(draw, *, tokens_per_answer=None, per_token=None, beta=None, corrected=True):
    """Small ragged batches whose masks have holes and whose ratios leave every clip range.

    Args:
        tokens_per_answer: response tokens of each answer; None: anything from none to all.
        per_token: advantages (B, T) instead of (B,); None: either.
        beta: a fixed value; None: drawn.
        corrected: draw a correction, too.
    """
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    # Narrow ratios cross the range of GSPO, wide ones those of the others.
    spread = draw(st.sampled_from([0.00137, 0.613, 1.7]))

    def numbers(count):
        drawn = draw(st.lists(st.integers(-99, 99), min_size=count, max_size=count))
        return torch.tensor(drawn, dtype=torch.float64) / 99

    old = -1.5 + numbers(rows * width).reshape(rows, width)
    if tokens_per_answer is None:
        picks = draw(st.lists(st.booleans(), min_size=rows * width, max_size=rows * width))
        mask = torch.tensor(picks).reshape(rows, width)
    else:
        mask = numbers(rows * width).reshape(rows, width).argsort(dim=1) < tokens_per_answer
    if per_token is None:
        per_token = draw(st.booleans())
    advantages = 1.9 * numbers(rows * width if per_token else rows)
    return Batch(
        logp=old + spread * numbers(rows * width).reshape(rows, width),
        logp_old=old,
        advantages=advantages.reshape(rows, width) if per_token else advantages,
        mask=mask,
        logp_ref=old + 0.5 * numbers(rows * width).reshape(rows, width),
        logp_rollout=old + 0.3 * numbers(rows * width).reshape(rows, width),
        beta=draw(st.sampled_from([0.0, 0.3])) if beta is None else beta,
        correction=draw(st.sampled_from(CORRECTIONS)) if corrected else None,
    )


@every_objective
@few
@given(batches(), st.sampled_from(GARBAGE))
def test_padding_reaches_nothing(name, batch, garbage):
    """T or 3T wide, with zeros or with NaN outside the mask: the same numbers."""
    rows, width = batch.mask.shape

    def padded(x):
        if x.dim() == 1:
            return x
        extra = x.new_full((rows, 2 * width), False if x.dtype == torch.bool else garbage)
        x = x if x.dtype == torch.bool else x.where(batch.mask, garbage)
        return torch.cat([x, extra], dim=1)

    wide = replace(batch, **{k: padded(v) for k, v in vars(batch).items() if torch.is_tensor(v)})
    result, gradient = run(name, batch)
    other, other_gradient = run(name, wide)
    close(other.loss, result.loss)
    close(other_gradient[:, :width], gradient)
    close(other.token_weight[:, :width], result.token_weight)
    same_metrics(other, result)
    assert (other_gradient[~wide.mask] == 0).all()
    assert (other.token_weight[~wide.mask] == 0).all()


@every_objective
@few
@given(batches(), st.randoms())
def test_order_of_rows(name, batch, dice):
    """Shuffled answers: the same loss and metrics, the gradient shuffled with them."""
    order = torch.tensor(dice.sample(range(len(batch.mask)), len(batch.mask)))
    result, gradient = run(name, batch)
    other, other_gradient = run(name, batch.rows(order))
    close(other.loss, result.loss)
    close(other_gradient, gradient[order])
    close(other.token_weight, result.token_weight[order])
    same_metrics(other, result, rows=order)


@every_objective
@few
@given(batches())
def test_batch_given_twice(name, batch):
    """A mean does not change, each copy gets half of the gradient; a sum doubles."""
    rows = len(batch.mask)
    twice = torch.arange(rows).repeat(2)
    result, gradient = run(name, batch)
    other, other_gradient = run(name, batch.rows(twice))
    close(other.loss, result.loss)
    close(other_gradient, gradient.repeat(2, 1) / 2)
    close(other.token_weight, result.token_weight.repeat(2, 1) / 2)
    same_metrics(other, result, rows=twice)
    summed, _ = run(name, batch, denominator=1)
    close(run(name, batch.rows(twice), denominator=1)[0].loss, 2 * summed.loss)


@every_objective
@few
@given(batches(), st.integers(1, 4))
def test_micro_batches_add_up(name, batch, parts):
    """Pieces with the whole batch's denominator: losses, gradients and weights add up."""
    whole = int(batch.mask.sum()) if name in TOKEN_MEANS else len(batch.mask)
    result, gradient = run(name, batch)
    pieces = [
        run(name, batch.rows(index), denominator=whole)
        for index in torch.arange(len(batch.mask)).tensor_split(parts)
        if len(index)
    ]
    close(sum(piece.loss for piece, _ in pieces), result.loss)
    close(torch.cat([piece for _, piece in pieces]), gradient)
    close(torch.cat([piece.token_weight for piece, _ in pieces]), result.token_weight)


@every_objective
@few
@given(batches(beta=0.0))
def test_token_weight_is_minus_the_gradient(name, batch):
    """Who gets the gradient, in closed form and by automatic differentiation."""
    result, gradient = run(name, batch)
    close(result.token_weight, -gradient)


@every_objective
@few
@given(batches(beta=0.0))
def test_kl_term_is_added_and_left_out_of_token_weight(name, batch):
    """beta times k3, averaged like the objective, whatever the level of the ratio."""
    result, gradient = run(name, batch)
    other, other_gradient = run(name, replace(batch, beta=0.3))
    close(other.token_weight, result.token_weight)
    mask = batch.mask.double()
    if name in TOKEN_MEANS:
        share = mask / mask.sum().clamp(min=1)
    elif name == "dr_grpo":
        share = mask / REQUIRED[name]["max_len"] / len(mask)
    else:
        share = mask / mask.sum(dim=1, keepdim=True).clamp(min=1) / len(mask)
    log_ratio = batch.logp_ref - batch.logp
    close(other.loss, result.loss + 0.3 * (share * (log_ratio.exp() - log_ratio - 1)).sum())
    close(other_gradient, gradient + 0.3 * share * (1 - log_ratio.exp()))


# Part of CISPO's value is detached: its gradient is not the slope of its loss, by design.
@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != "cispo"])
@few
@given(batches(per_token=False), st.integers(0, 99))
def test_gradient_is_the_slope(name, batch, seed):
    """Along a random direction, against central differences; steps that cross a kink are left out.

    With advantages per answer, which for ``gspo_token`` makes the detached parts cancel.
    """
    dice = torch.Generator().manual_seed(seed)
    direction = torch.randn(batch.logp.shape, generator=dice, dtype=torch.float64)
    step = 1e-6
    result, gradient = run(name, batch)
    ahead, _ = run(name, replace(batch, logp=batch.logp + step * direction))
    behind, _ = run(name, replace(batch, logp=batch.logp - step * direction))
    for other in (ahead, behind):
        assume(torch.equal(other.token_weight != 0, result.token_weight != 0))
    slope = (ahead.loss - behind.loss) / (2 * step)
    torch.testing.assert_close((gradient * direction).sum(), slope.detach(), rtol=1e-6, atol=1e-7)


@few
@given(batches(beta=0.0, corrected=False), st.floats(0.1, 3))
def test_cispo_in_closed_form(batch, cap):
    """-min(r, cap) A / tokens: the capped ratio weighs, only log pi has a gradient."""
    _, gradient = run("cispo", batch, cap=cap)
    ratio = token_ratio(batch.logp, batch.logp_old, batch.mask).clamp(max=cap)
    advantage = batch.advantages if batch.advantages.dim() == 2 else batch.advantages[:, None]
    close(gradient, -ratio * advantage * batch.mask / batch.mask.sum().clamp(min=1))


@few
@given(batches(beta=0.0, corrected=False), st.floats(0.05, 0.5), st.floats(0.05, 0.5))
def test_ppo_spelt_in_two_ways(batch, low, high):
    """min(r A, clip(r) A), and min(r A, g) with g = (1 + high) A for A >= 0, (1 - low) A below."""
    advantage = batch.advantages if batch.advantages.dim() == 2 else batch.advantages[:, None]
    result, gradient = run("ppo", batch, clip_low=low, clip_high=high)
    logp = batch.logp.clone().requires_grad_()
    ratio = (logp - batch.logp_old).exp()
    bound = torch.where(advantage >= 0, (1 + high) * advantage, (1 - low) * advantage)
    surrogate = torch.minimum(ratio * advantage, bound)
    loss = -(surrogate * batch.mask).sum() / batch.mask.sum().clamp(min=1)
    close(result.loss, loss)
    at_kink = (ratio * advantage == bound) & (advantage != 0)
    assume(not (at_kink & batch.mask).any())
    close(gradient, torch.autograd.grad(loss, logp)[0])
    clipped = (ratio * advantage > bound) & batch.mask
    close(
        result.metrics["clip_fraction_token_weighted"],
        clipped.sum().double() / batch.mask.sum().clamp(min=1),
    )


@few
@given(batches(per_token=False, corrected=False))
def test_gspo_and_grpo_share_their_first_gradient(batch):
    """At theta = theta_old every ratio is 1, and the two differ in nothing."""
    batch = replace(batch, logp=batch.logp_old)
    (of_gspo, gradient), (of_grpo, other) = run("gspo", batch), run("grpo", batch)
    close(of_gspo.loss, of_grpo.loss)
    close(gradient, other)
    close(of_gspo.token_weight, of_grpo.token_weight)
    same_metrics(of_gspo, of_grpo)


@few
@given(batches(tokens_per_answer=1), st.floats(1e-4, 0.04), st.floats(1e-4, 0.04))
def test_gspo_is_grpo_on_answers_of_one_token(batch, low, high):
    """With the same range: value, gradient, weights and metrics."""
    (of_gspo, gradient), (of_grpo, other) = (
        run(name, batch, clip_low=low, clip_high=high) for name in ("gspo", "grpo")
    )
    close(of_gspo.loss, of_grpo.loss)
    close(gradient, other)
    close(of_gspo.token_weight, of_grpo.token_weight)
    same_metrics(of_gspo, of_grpo)


@few
@given(batches(per_token=False))
def test_gspo_token_is_gspo_for_one_advantage_per_answer(batch):
    """Value, gradient, weights and metrics agree, clipped or not."""
    (of_gspo, gradient), (of_token, other) = run("gspo", batch), run("gspo_token", batch)
    close(of_gspo.loss, of_token.loss)
    close(gradient, other)
    close(of_gspo.token_weight, of_token.token_weight)
    same_metrics(of_gspo, of_token)


@few
@given(batches(per_token=True, beta=0.0, corrected=False))
def test_gspo_token_differs_for_one_advantage_per_token(batch):
    """Inside the range the values agree, but each token is pulled by its own advantage."""
    batch = replace(batch, logp=batch.logp_old + 1e-4 * torch.tanh(batch.logp - batch.logp_old))
    (of_gspo, gradient), (of_token, other) = run("gspo", batch), run("gspo_token", batch)
    lengths = batch.mask.sum(dim=1, keepdim=True).clamp(min=1)
    pull = sequence_ratio(batch.logp, batch.logp_old, batch.mask)[:, None] / lengths
    pull = pull * batch.mask / len(batch.mask)
    mean = (batch.advantages * batch.mask).sum(dim=1, keepdim=True) / lengths
    close(of_gspo.loss, of_token.loss)
    close(gradient, -pull * mean)
    close(other, -pull * batch.advantages)


def test_gspo_token_clips_token_by_token():
    """s = 1.001, advantages +1 and -1: the mean is 0 for gspo; gspo_token clips only the first."""
    old = torch.full((1, 2), -1.0, dtype=torch.float64)
    logp = (old + math.log(1.001)).requires_grad_()
    advantages, mask = torch.tensor([[1.0, -1.0]]), torch.ones(1, 2)
    result = gspo_token(logp, old, advantages, mask)
    (gradient,) = torch.autograd.grad(result.loss, logp)
    close(gradient, torch.tensor([[0.0, 1.001 / 2]], dtype=torch.float64))
    assert float(result.metrics["clip_fraction_seq"]) == 0.5
    (gradient,) = torch.autograd.grad(gspo(logp, old, advantages, mask).loss, logp)
    assert (gradient == 0).all()


@every_objective
@few
@given(batches(per_token=False))
def test_advantages_of_shape_b_b1_and_bt(name, batch):
    """(B,), (B, 1) and a constant (B, T) mean the same."""
    result, gradient = run(name, batch)
    column = batch.advantages[:, None]
    for advantages in (column, column.expand(batch.mask.shape)):
        other, other_gradient = run(name, replace(batch, advantages=advantages))
        close(other.loss, result.loss)
        close(other_gradient, gradient)
        same_metrics(other, result)


def inputs(**changed):
    """Two answers of three tokens that every objective accepts, with some inputs changed."""
    plain = {
        "logp": torch.full((2, 3), -1.0),
        "logp_old": torch.full((2, 3), -1.1),
        "advantages": torch.tensor([1.0, -1.0]),
        "mask": torch.ones(2, 3),
    }
    return {**plain, **changed}


@every_objective
@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (1, 2), (3, 1), (2, 2), (2, 3, 1)])
def test_advantages_of_another_shape_are_refused(name, shape):
    """The error shows the shape given and the three that are possible."""
    with pytest.raises(ValueError, match="advantages has shape") as caught:
        OBJECTIVES[name](**inputs(advantages=torch.zeros(shape)), **REQUIRED.get(name, {}))
    assert f"{shape}; expected (2,), (2, 1) or (2, 3)" in str(caught.value)


@every_objective
@pytest.mark.parametrize("wrong", ["logp", "logp_old", "mask", "logp_ref", "logp_rollout"])
@pytest.mark.parametrize("shape", [(2, 1), (1, 3), (2, 4), (3,)])
def test_log_probs_and_mask_are_never_broadcast(name, wrong, shape):
    """The error names the argument and its shape."""
    changed = inputs(**{wrong: torch.ones(shape)}, **REQUIRED.get(name, {}))
    with pytest.raises(ValueError, match=r"one shape \(B, T\)") as caught:
        OBJECTIVES[name](**changed)
    assert f"{wrong} {shape}" in str(caught.value)


@every_objective
def test_additive_mask_is_refused(name):
    """0 for tokens to keep and -1e9 for others would select exactly the wrong tokens."""
    mask = torch.tensor([[0.0, 0.0, -1e9], [0.0, -1e9, -1e9]])
    with pytest.raises(ValueError, match="additive mask"):
        OBJECTIVES[name](**inputs(mask=mask), **REQUIRED.get(name, {}))


@every_objective
@pytest.mark.parametrize("keyword", ["clip_eps", "epsilon", "kl_coef", "loss_type"])
def test_unknown_keyword(name, keyword):
    """Another library's spelling of a setting is a TypeError, not ignored."""
    with pytest.raises(TypeError, match=keyword):
        OBJECTIVES[name](**inputs(), **REQUIRED.get(name, {}), **{keyword: 0.2})


def test_required_setting():
    """Dr. GRPO has no default for the constant that it divides by."""
    with pytest.raises(TypeError, match="max_len"):
        OBJECTIVES["dr_grpo"](**inputs())


def test_settings_are_keywords():
    """A range given by position could land in the wrong setting."""
    with pytest.raises(TypeError, match="positional"):
        ppo(*inputs().values(), 0.2, 0.2)


@every_objective
@pytest.mark.parametrize(
    ("settings_given", "message"),
    [
        ({"beta": 0.1}, "beta is 0.1, so logp_ref"),
        ({"beta": -0.1}, "beta is -0.1; expected the weight of the KL term, 0 or more"),
        ({"beta": math.nan}, "beta is nan; expected"),
        ({"beta": math.inf}, "beta is inf; expected"),
        ({"denominator": math.nan}, "denominator is nan"),
        ({"correction": {"kind": "tis", "cap": 0.0}}, "correction cap is 0.0; expected"),
        ({"denominator": -4}, "denominator is -4"),
        ({"denominator": 0.5}, "denominator is 0.5"),
        ({"correction": {"kind": "tis", "cap": 2.0}}, "'tis' needs logp_rollout"),
        ({"correction": {"kind": "tis"}}, "correction is {'kind': 'tis'}"),
        ({"correction": {"kind": "truncate", "cap": 2.0}}, "expected {'kind': 'tis'"),
        ({"correction": {"kind": "icepop", "cap": 2.0}}, "expected {'kind': 'tis'"),
    ],
)
def test_unusable_common_settings(name, settings_given, message):
    """Each error says what was given and what is missing."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is compared below)
        OBJECTIVES[name](**inputs(), **REQUIRED.get(name, {}), **settings_given)
    assert message in str(caught.value)


RANGED = [name for name in OBJECTIVES if name not in ("cispo", "gmpo", "sapo")]


@pytest.mark.parametrize(
    ("name", "settings_given", "message"),
    [
        *((name, {"clip_low": 1.0}, "clip range") for name in RANGED),
        *((name, {"clip_low": -0.2}, "clip range") for name in RANGED),
        *((name, {"clip_high": -0.2}, "clip range") for name in RANGED),
        ("ppo_dual_clip", {"dual_clip": 1.2}, "dual_clip is 1.2; expected more than 1"),
        ("ppo_dual_clip", {"dual_clip": math.nan}, "dual_clip is nan; expected more than 1"),
        *((name, {"clip_low": math.nan}, "clip range") for name in RANGED),
        ("dr_grpo", {"max_len": 0}, "max_len is 0"),
        ("dr_grpo", {"max_len": math.nan}, "max_len is nan"),
        ("dr_grpo", {"max_len": math.inf}, "max_len is inf"),
        ("cispo", {"cap": 0.0}, "cap is 0.0"),
        ("cispo", {"cap": math.nan}, "cap is nan; expected a positive"),
        ("gmpo", {"log_clip_low": -0.4}, "log_clip_low, log_clip_high are -0.4, 0.4"),
        ("gmpo", {"log_clip_high": -0.4}, "log_clip_low, log_clip_high are 0.4, -0.4"),
        ("sapo", {"tau_pos": math.nan}, "tau_pos, tau_neg are nan, 1.05; expected positive"),
        ("sapo", {"tau_neg": math.nan}, "tau_pos, tau_neg are 1.0, nan; expected positive"),
        ("sapo", {"tau_neg": math.inf}, "tau_pos, tau_neg are 1.0, inf; expected positive"),
        ("sapo", {"tau_pos": 0.0}, "tau_pos, tau_neg are 0.0"),
        ("sapo", {"tau_neg": -1.0}, "tau_pos, tau_neg are 1.0, -1.0"),
    ],
)
def test_unusable_settings_of_its_own(name, settings_given, message):
    """A range of negative width, a floor inside the range, a constant of 0 and so on."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is compared below)
        OBJECTIVES[name](**inputs(), **{**REQUIRED.get(name, {}), **settings_given})
    assert message in str(caught.value)


def test_range_of_zero_width_is_allowed():
    """It clips as soon as the policy moves with the advantage."""
    ratio = torch.tensor([1.1, 0.9, 1.0])
    _, clipped, outside = clipped_surrogate(ratio, torch.ones(3), 0.0, 0.0)
    assert clipped.tolist() == [True, False, False]
    assert outside.tolist() == [True, True, False]


@every_objective
def test_result_is_detached_except_for_the_loss(name):
    """Metrics and weights carry no graph, the loss does."""
    given = inputs(logp=torch.full((2, 3), -1.0, requires_grad=True))
    result = OBJECTIVES[name](**given, **REQUIRED.get(name, {}))
    assert result.loss.requires_grad
    assert result.loss.dim() == 0
    assert not result.token_weight.requires_grad
    assert not any(value.requires_grad for value in result.metrics.values())


@every_objective
@few
@given(batches(corrected=False))
def test_only_logp_has_a_gradient(name, batch):
    """With a graph on every input, the others get none and the gradient of logp is the same."""
    batch = replace(batch, beta=0.3)
    result, gradient = run(name, batch)
    leaves = {
        key: getattr(batch, key).clone().requires_grad_()
        for key in ("logp", "logp_old", "advantages", "logp_ref", "logp_rollout")
    }
    other = OBJECTIVES[name](**{**REQUIRED.get(name, {}), **vars(batch), **leaves})
    other.loss.backward()
    close(other.loss, result.loss)
    close(leaves.pop("logp").grad, gradient)
    assert all(leaf.grad is None for leaf in leaves.values())


@every_objective
def test_one_tensor_as_new_and_old_log_probs(name):
    """The first update of a rollout, with the graph left on: not a gradient of exactly 0."""
    plain = inputs(logp=torch.full((2, 3), -1.0, requires_grad=True))
    for old in (plain["logp"].detach(), plain["logp"]):
        plain["logp"].grad = None
        OBJECTIVES[name](**{**plain, "logp_old": old}, **REQUIRED.get(name, {})).loss.backward()
        assert (plain["logp"].grad[0] < 0).all()
        assert (plain["logp"].grad[1] > 0).all()


# What is left of the gradient where exp() of every log-ratio overflows float32, {sign of A: ...}.
FLOWS_WHEN_HUGE = {"cispo": {1, -1}, "sapo": set(), "ppo_dual_clip": set()}


@every_objective
@pytest.mark.parametrize("dtype_and_size", [(torch.float32, 89.0), (torch.float64, 710.0)])
@pytest.mark.parametrize("level", ["token", "answer"])
@pytest.mark.parametrize("sign", [1, 0, -1])
def test_overflow_of_the_ratio_never_makes_nan(name, dtype_and_size, level, sign):
    """Zero where the objective's gradient is zero, infinite where it grows with the ratio."""
    dtype, size = dtype_and_size
    advantages = torch.full((2, 3) if level == "token" else (2,), 3.0 * sign, dtype=dtype)
    logp = torch.full((2, 3), size, dtype=dtype, requires_grad=True)
    given = inputs(logp=logp, logp_old=torch.zeros(2, 3, dtype=dtype), advantages=advantages)
    result = OBJECTIVES[name](**given, **REQUIRED.get(name, {}))
    (gradient,) = torch.autograd.grad(result.loss, logp)
    flows = sign in FLOWS_WHEN_HUGE.get(name, {-1})
    assert not result.loss.isnan()
    assert ((gradient * -sign > 0) if flows else (gradient == 0)).all()
    assert ((result.token_weight * sign > 0) if flows else (result.token_weight == 0)).all()
    assert bool(result.loss.isinf()) == (flows and name != "cispo")
    if name not in ("cispo", "sapo"):
        assert float(result.metrics["outside_fraction_seq"]) == 1


@pytest.mark.parametrize("size", [1.0, 80.0, 88.0])
def test_a_large_ratio_in_range_of_the_number_format_is_exact(size):
    """A < 0: value and gradient grow with the ratio as far as float32 goes."""
    logp = torch.full((1, 1), size, requires_grad=True)
    zero, one = torch.zeros(1, 1), torch.ones(1, 1)
    for name in ("ppo", "grpo", "dapo", "gspo", "gspo_token", "seq_unnormalised", "gmpo"):
        loss = OBJECTIVES[name](logp, zero, -one, one).loss
        (gradient,) = torch.autograd.grad(loss, logp)
        assert float(loss.detach()) == pytest.approx(math.exp(size), rel=1e-5)
        assert float(gradient) == pytest.approx(math.exp(size), rel=1e-5)


@pytest.mark.parametrize("dual_clip", [3.0, 1e38, math.inf])
def test_floor_of_any_height(dual_clip):
    """Below the floor the gradient grows with the ratio, beyond it is exactly zero."""
    below = min(math.log(dual_clip), 88.0) - 0.5
    logp = torch.tensor([[below, 200.0]], requires_grad=True)
    loss = OBJECTIVES["ppo_dual_clip"](
        logp, torch.zeros(1, 2), -torch.ones(1), torch.ones(1, 2), dual_clip=dual_clip
    ).loss
    (gradient,) = torch.autograd.grad(loss, logp)
    assert float(gradient[0, 0]) == pytest.approx(math.exp(below) / 2, rel=1e-5)
    assert float(gradient[0, 1]) == (0 if dual_clip < math.inf else math.inf)


@every_objective
def test_kl_that_is_not_asked_for_never_makes_nan(name):
    """beta = 0 with a reference so far off that k3 is infinite."""
    given = inputs(logp=torch.full((2, 3), -1.0, requires_grad=True))
    far = torch.full((2, 3), 200.0)
    settings_given = REQUIRED.get(name, {})
    plain = OBJECTIVES[name](**given, **settings_given)
    result = OBJECTIVES[name](**given, **settings_given, logp_ref=far)
    assert float(result.loss.detach()) == float(plain.loss.detach())
    assert result.metrics["k3_token_mean"].isinf()
    (gradient,) = torch.autograd.grad(result.loss, given["logp"])
    assert gradient.isfinite().all()


@every_objective
@pytest.mark.parametrize("shape", [(0, 3), (0, 0), (2, 0)])
@pytest.mark.parametrize("level", ["token", "answer"])
def test_batch_of_nothing(name, shape, level):
    """No answers, or answers without positions: loss 0, and a backward pass that works."""
    logp = torch.zeros(shape, requires_grad=True)
    given = inputs(
        logp=logp,
        logp_old=torch.zeros(shape),
        mask=torch.ones(shape),
        advantages=torch.zeros(shape if level == "token" else shape[:1]),
    )
    settings_given = {**REQUIRED.get(name, {}), "beta": 0.1, "logp_ref": torch.zeros(shape)}
    result = OBJECTIVES[name](**given, **settings_given)
    result.loss.backward()
    assert float(result.loss.detach()) == 0
    assert logp.grad.shape == result.token_weight.shape == shape
    assert all((value == 0).all() for key, value in result.metrics.items() if key[:3] != "geo")
