"""Mistakes that losses, trainers and courses of this kind really made, one test each."""

import inspect
import math
import warnings
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from gspo_edu.batch import Rollout
from gspo_edu.config import PRESETS, TrainConfig, config_from_mapping, preset_names, read_toml
from gspo_edu.metrics import entropy, k3, token_weighted_mean
from gspo_edu.moe.config import ModelConfig
from gspo_edu.moe.model import TinyMoE
from gspo_edu.objectives import (
    OBJECTIVES,
    cispo,
    clipped_surrogate,
    gmpo,
    grpo,
    gspo,
    gspo_token,
    ppo,
    ppo_dual_clip,
    sapo,
    seq_unnormalised,
)
from gspo_edu.objectives.gspo import length_at_which_range_binds
from gspo_edu.ratios import product_ratio, sequence_ratio, token_log_ratio, token_ratio
from gspo_edu.sampler import answer_log_probs, sampled_rollout
from gspo_edu.tasks import make_task
from gspo_edu.tasks.base import END, VOCAB_SIZE, masked_after_end
from gspo_edu.trainer import Trainer

REQUIRED = {"dr_grpo": {"max_len": 32}}
GSPO_RANGE = {"clip_low": 3e-4, "clip_high": 4e-4}
every_objective = pytest.mark.parametrize("name", list(OBJECTIVES))


def ragged(lengths, width=None):
    """(B, T) mask of answers with these lengths."""
    return torch.arange(width or max(lengths)) < torch.tensor(lengths)[:, None]


def batch(ratios, advantages, mask=None, old=-2.0):
    """Leaf logp and the other inputs of an objective, from token ratios (B, T), in float64."""
    ratios = torch.as_tensor(ratios, dtype=torch.float64)
    old = torch.as_tensor(old, dtype=torch.float64).expand_as(ratios)
    logp = (old + ratios.log()).requires_grad_()
    mask = torch.ones_like(ratios) if mask is None else mask
    return logp, old, torch.as_tensor(advantages, dtype=torch.float64), mask


def run(objective, logp, old, advantages, mask, **settings):
    """The result and the gradient with respect to logp."""
    if isinstance(objective, str):
        settings = {**REQUIRED.get(objective, {}), **settings}
        objective = OBJECTIVES[objective]
    result = objective(logp, old, advantages, mask, **settings)
    (gradient,) = torch.autograd.grad(result.loss, logp)
    return result, gradient


def close(got, wanted, tol=1e-10):
    wanted = torch.as_tensor(wanted, dtype=torch.float64)
    torch.testing.assert_close(got.detach().double(), wanted, rtol=tol, atol=tol)


# Ratios


def test_ratio_in_bfloat16_is_not_rounded_to_one():
    """One bfloat16 step on 1 of 11 tokens is log s = 3.55e-4, inside the range; on 2 outside."""
    old = torch.full((2, 11), -1.0, dtype=torch.bfloat16)
    logp = old.clone()
    logp[0, 0] = logp[1, 0] = logp[1, 5] = -1 + 2**-8
    assert (logp[0, 0] - old[0, 0]) == 2**-8
    result, _ = run(gspo, logp.requires_grad_(), old, torch.ones(2), torch.ones(2, 11))
    close(sequence_ratio(logp, old, torch.ones(2, 11)).log(), [2**-8 / 11, 2**-7 / 11], tol=1e-7)
    assert float(result.metrics["outside_fraction_seq"]) == 0.5
    assert float(result.metrics["clip_fraction_seq"]) == 0.5
    assert (result.token_weight[0] != 0).all()
    assert (result.token_weight[1] == 0).all()


@pytest.mark.parametrize(
    ("log_s", "outside"), [(3.5e-4, 0), (4.5e-4, 1), (-2.5e-4, 0), (-3.5e-4, 1)]
)
@pytest.mark.parametrize("low", ["logp_old", "neither"])
def test_range_of_gspo_is_resolved_in_float32(log_s, outside, low):
    """log-probs near -1 and a ratio just inside or just outside [1 - 3e-4, 1 + 4e-4]."""
    old = torch.full((1, 64), -1.0)
    logp = (old + log_s).requires_grad_()
    old = old.bfloat16() if low == "logp_old" else old
    result, _ = run(gspo, logp, old, torch.ones(1), torch.ones(1, 64))
    close(sequence_ratio(logp, old, torch.ones(1, 64)), [math.exp(log_s)], tol=2e-7)
    assert float(result.metrics["outside_fraction_seq"]) == outside


def test_sequence_ratio_has_its_root():
    """99 ones and a 10: 10^(1/100) = 1.0233, not 10."""
    ratios = torch.ones(1, 100)
    ratios[0, 41] = 10.0
    logp, old, _, mask = batch(ratios, [1.0])
    close(sequence_ratio(logp, old, mask), [10 ** (1 / 100)])
    close(product_ratio(logp, old, mask), [10.0])
    result, _ = run(gspo, logp, old, torch.tensor([-1.0]), mask)
    close(result.loss, 10 ** (1 / 100))


def test_long_answers_lose_no_digits():
    """10 000 tokens of log-ratio -2.82e-4 in float32: product .0596, geometric mean .99972."""
    logp = torch.full((1, 10_000), -2.82e-4)
    triple = (logp, torch.zeros_like(logp), torch.ones_like(logp))
    assert float(product_ratio(*triple)) == pytest.approx(math.exp(-2.82), rel=1e-5)
    assert float(product_ratio(*triple)) == pytest.approx(0.0596, abs=5e-5)
    assert float(sequence_ratio(*triple)) - 1 == pytest.approx(math.expm1(-2.82e-4), abs=1e-7)


def test_geometric_mean_survives_underflow_of_the_product():
    """10 000 tokens of log-ratio -0.02: the product is e^-200, the geometric mean e^-0.02."""
    logp = torch.full((1, 10_000), -0.02)
    triple = (logp, torch.zeros_like(logp), torch.ones_like(logp))
    assert float(product_ratio(*triple)) == 0.0
    assert float(sequence_ratio(*triple)) == pytest.approx(math.exp(-0.02), rel=1e-6)


@pytest.mark.parametrize("advantage", [1.0, 0.0])
def test_overflow_of_the_product_is_clipped_without_nan(advantage):
    """10 000 tokens of log-ratio 0.02: a ratio of e^200, clipped at 1.2 where A > 0."""
    old = torch.full((1, 10_000), -1.0)
    logp = (old + 0.02).requires_grad_()
    result, gradient = run(seq_unnormalised, logp, old, torch.tensor([advantage]), old.bool())
    assert float(result.loss.detach()) == pytest.approx(-1.2 * advantage)
    assert (gradient == 0).all()
    assert (result.token_weight == 0).all()
    assert float(result.metrics["outside_fraction_seq"]) == 1
    assert float(result.metrics["clip_fraction_seq"]) == advantage


def test_environment_tokens_are_masked_from_ratio_and_length():
    """A tool's output in the middle of an answer changes nothing, however unlikely it became."""
    ratios = torch.tensor([[1.2, 50.0, 1e-3, 1.1]])
    mask = torch.tensor([[1, 0, 0, 1]])
    logp, old, advantage, _ = batch(ratios, [-1.0])
    close(sequence_ratio(logp, old, mask), [(1.2 * 1.1) ** 0.5], tol=1e-7)
    close(product_ratio(logp, old, mask), [1.2 * 1.1], tol=1e-7)
    for name in OBJECTIVES:
        result, gradient = run(name, logp, old, advantage, mask)
        short, of_short = run(name, *batch(ratios[:, [0, 3]], [-1.0]))
        close(result.loss, short.loss.item())
        close(gradient[:, [0, 3]], of_short)
        assert (gradient[:, 1:3] == 0).all()


@every_objective
def test_ratio_carries_the_gradient(name):
    """A ratio computed without graph would make the gradient vanish."""
    _, gradient = run(name, *batch([[1.0, 1.0]], [1.0]))
    assert (gradient < 0).all()


# The clip


def test_min_is_not_max_for_negative_advantages():
    """A = -1: the objective's slope in r is 0 at r = .5 and -1 at r = 1.5; for A = 1 mirrored."""
    ratio = torch.tensor([0.5, 1.5, 0.5, 1.5], requires_grad=True)
    advantage = torch.tensor([-1.0, -1.0, 1.0, 1.0])
    surrogate, _, _ = clipped_surrogate(ratio, advantage, 0.2, 0.2)
    close(surrogate, [-0.8, -1.5, 0.5, 1.2], tol=1e-6)
    (slope,) = torch.autograd.grad(surrogate.sum(), ratio)
    assert slope.tolist() == [0.0, -1.0, 1.0, 0.0]


@pytest.mark.parametrize("name", ["ppo", "ppo_dual_clip", "grpo", "dr_grpo", "dapo"])
def test_range_is_one_minus_and_one_plus_epsilon(name):
    """eps = .2 clips below .8 and above 1.2: not [.2, 1.2], not one side only."""
    ratios, wanted = [0.79, 0.81, 1.19, 1.21], {1.0: [1, 1, 1, 0], -1.0: [0, 1, 1, 1]}
    for advantage, alive in wanted.items():
        _, gradient = run(name, *batch([ratios], [advantage]), clip_low=0.2, clip_high=0.2)
        assert (gradient != 0).int().tolist() == [alive]


@pytest.mark.parametrize("objective", [gspo, gspo_token])
def test_gspo_clips_answers_on_both_sides(objective):
    """s = .9996, .9998, 1.0003, 1.0005: the whole answer or none of it, in all four quadrants."""
    s = torch.tensor([0.9996, 0.9998, 1.0003, 1.0005], dtype=torch.float64)
    # Token ratios far outside of GRPO's range, whose geometric mean is s.
    ratios = torch.stack([s * 3, s / 3], dim=1)
    for advantage, alive in {1.0: [1, 1, 1, 0], -1.0: [0, 1, 1, 1]}.items():
        result, gradient = run(objective, *batch(ratios, [advantage] * 4))
        assert (gradient != 0).int().tolist() == [[kept, kept] for kept in alive]
        weight = -advantage * s / 8 * torch.tensor(alive)
        close(gradient, weight[:, None].expand(4, 2), tol=1e-9)
        assert float(result.metrics["clip_fraction_seq"]) == 0.25
        assert float(result.metrics["outside_fraction_seq"]) == 0.5


@pytest.mark.parametrize("name", ["ppo", "grpo", "dapo"])
def test_clip_fraction_counts_what_min_clipped(name):
    """Four quadrants, r = .5 and 1.5, A = +-1: outside 4 of 4, clipped 2 of 4."""
    result, _ = run(name, *batch([[0.5], [0.5], [1.5], [1.5]], [1.0, -1.0, 1.0, -1.0]))
    for kind in ("seq", "token_weighted"):
        assert float(result.metrics[f"outside_fraction_{kind}"]) == 1.0
        assert float(result.metrics[f"clip_fraction_{kind}"]) == 0.5


def test_dual_clip_catches_only_negative_advantages():
    """r = 4, 1.1, .5, 2 with c = 3: one of four floored for A = -1, PPO untouched for A = +1."""
    ratios = [[4.0, 1.1, 0.5, 2.0]]
    result, gradient = run(ppo_dual_clip, *batch(ratios, [-1.0]), dual_clip=3.0)
    assert float(result.metrics["dual_clip_fraction"]) == 0.25
    close(result.loss, (3.0 + 1.1 + 0.8 + 2.0) / 4)
    close(gradient, [[0.0, 1.1 / 4, 0.0, 2.0 / 4]])
    result, gradient = run(ppo_dual_clip, *batch(ratios, [1.0]), dual_clip=3.0)
    plain, of_plain = run(ppo, *batch(ratios, [1.0]))
    assert float(result.metrics["dual_clip_fraction"]) == 0.0
    close(result.loss, plain.loss.item())
    close(gradient, of_plain)


def test_cap_of_cispo_is_absolute():
    """eps_high = 4 in the paper is a cap of 5: r = 10 weighs 5; there is no lower bound."""
    eps_high = 4.0
    ratios, advantages = [[10.0, 5.5, 4.5, 0.01]], [1.0]
    _, gradient = run(cispo, *batch(ratios, advantages), cap=1 + eps_high)
    close(gradient, [[-5 / 4, -5 / 4, -4.5 / 4, -0.01 / 4]])
    assert inspect.signature(cispo).parameters["cap"].default == 5.0
    result, of_default = run(cispo, *batch(ratios, advantages))
    close(of_default, gradient)
    assert float(result.metrics["cap_fraction"]) == 0.5
    assert float(result.metrics["clip_fraction_token_weighted"]) == 0.0


def test_cispo_has_a_gradient_only_through_log_pi():
    """The value is weight times log pi; the weight itself is a constant."""
    logp, old, advantage, mask = batch([[2.0]], [3.0])
    result, gradient = run(cispo, logp, old, advantage, mask)
    close(result.loss, -2.0 * 3.0 * logp.item())
    close(gradient, [[-6.0]])


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_temperature_of_sapo_leaves_the_slope_at_one(advantage, temperature):
    """The objective's gradient at r = 1 is A / L for both signs and every temperature."""
    length = 5
    _, gradient = run(
        sapo, *batch([[1.0] * length], [advantage]), tau_pos=temperature, tau_neg=temperature
    )
    close(-gradient, [[advantage / length] * length])


def test_temperatures_of_sapo_follow_the_sign():
    """tau_neg acts where A <= 0 and tau_pos elsewhere: the weight falls off at its own speed."""
    for advantage, tau in {1.0: 0.7, -1.0: 2.0}.items():
        _, gradient = run(sapo, *batch([[1.5]], [advantage]), tau_pos=0.7, tau_neg=2.0)
        gate = 1 / (1 + math.exp(-tau * 0.5))
        close(-gradient, [[4 * gate * (1 - gate) * 1.5 * advantage]])


def test_gmpo_clips_tokens_inside_the_mean():
    """log r = .6 and .2 with A > 0: the first counts as .4, the mean is .3; A < 0 is unbounded."""
    ratios = torch.tensor([[0.6, 0.2]]).double().exp()
    result, gradient = run(gmpo, *batch(ratios, [1.0]))
    close(result.metrics["geo_mean_ratio"], [math.exp(0.3)], tol=1e-7)
    close(gradient, [[0.0, -math.exp(0.3) / 2]], tol=1e-7)
    result, _ = run(gmpo, *batch(ratios, [-1.0]))
    close(result.metrics["geo_mean_ratio"], [math.exp(0.4)], tol=1e-7)


# The range of GSPO


@pytest.mark.parametrize("objective", [gspo, gspo_token])
def test_default_range_of_gspo_is_the_papers(objective):
    """3e-4 and 4e-4, in the function as in a run's settings; PPO's 0.2 is three orders away."""
    parameters = inspect.signature(objective).parameters
    assert {name: parameters[name].default for name in GSPO_RANGE} == GSPO_RANGE
    assert TrainConfig(objective=objective.__name__).given_objective_settings() == {}


@pytest.mark.parametrize("name", preset_names())
def test_no_preset_gives_gspo_another_range(name):
    """A preset that sets a range for all objectives would hand PPO's to GSPO."""
    config = config_from_mapping(read_toml(PRESETS / f"{name}.toml"), name)
    assert replace(config, objective="gspo").given_objective_settings() in ({}, GSPO_RANGE)


@pytest.mark.parametrize("objective", [gspo, gspo_token])
def test_range_that_cannot_bind_is_named_with_its_length(objective):
    """Token log-ratios +-.5, answers of 64 tokens: 0.2 could bind up to (2 * .5 / log 1.2)^2."""
    log_ratio = torch.tensor([[0.5, -0.5] * 32])
    logp, old, advantage, mask = batch(log_ratio.exp(), [1.0])
    longest = (2 * 0.5 / math.log(1.2)) ** 2
    with pytest.warns(UserWarning, match=r"\[1 - 0\.2, 1 \+ 0\.2\] cannot bind") as caught:
        objective(logp, old, advantage, mask, clip_low=0.2, clip_high=0.2)
    (warning,) = caught
    assert f"at most {longest:.2g} tokens; the shortest here has 64" in str(warning.message)
    assert "deviation 0.5 " in str(warning.message)
    assert "3e-4 and 4e-4" in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.parametrize(("spread", "words"), [(0.09, "no answer is short"), (0.1, "at most 1.2")])
def test_below_one_token_no_length_is_named(spread, words):
    """An answer has a token at least; (2 * .09 / log 1.2)^2 is below 1."""
    log_ratio = spread * torch.tensor([[1.0, -1.0] * 32])
    with pytest.warns(UserWarning, match=words):
        gspo(*batch(log_ratio.exp(), [1.0]), clip_low=0.2, clip_high=0.2)


@pytest.mark.parametrize("objective", [gspo, gspo_token])
@pytest.mark.parametrize(
    ("length", "spread", "settings"),
    [
        (64, 0.5, {}),
        (64, 0.5, {"clip_low": 3e-3, "clip_high": 4e-3}),
        (28, 0.5, {"clip_low": 0.2, "clip_high": 0.2}),
        (64, 0.0, {"clip_low": 0.2, "clip_high": 0.2}),
        (64, 1e-7, {"clip_low": 0.2, "clip_high": 0.2}),
        (0, 0.5, {"clip_low": 0.2, "clip_high": 0.2}),
    ],
)
def test_range_that_can_bind_is_not_warned_about(objective, length, spread, settings):
    """Narrow ranges, short answers, the first update up to rounding, a batch without tokens."""
    log_ratio = spread * torch.tensor([[1.0, -1.0] * 32])
    mask = ragged([length], width=64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        objective(*batch(log_ratio.exp(), [1.0], mask), **settings)


def test_length_at_which_a_range_binds():
    """Two standard deviations of log s = sigma / sqrt(L) reach the nearer bound at that length."""
    for low, high in ((0.2, 0.2), (0.1, 0.4), (3e-4, 4e-4)):
        nearer = min(-math.log(1 - low), math.log(1 + high))
        length = length_at_which_range_binds(0.3, low, high)
        assert 2 * 0.3 / math.sqrt(length) == pytest.approx(nearer)
    assert length_at_which_range_binds(0.3, 0.0, 0.2) == math.inf


# Averages


@pytest.mark.parametrize("name", ["grpo", "gspo", "gspo_token", "gmpo", "sapo"])
def test_mean_per_answer_has_no_length_bias(name):
    """Lengths 2 and 10, A = 1, r = 1: the gradient of each of the two rows sums to -1/2."""
    ratios = torch.ones(2, 10)
    _, gradient = run(name, *batch(ratios, [1.0, 1.0], ragged([2, 10])))
    close(gradient.sum(dim=1), [-0.5, -0.5])


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("ppo", [2 / 12, 10 / 12]),
        ("dapo", [2 / 12, 10 / 12]),
        ("cispo", [2 / 12, 10 / 12]),
        ("dr_grpo", [2 / 64, 10 / 64]),
        ("seq_unnormalised", [2 / 2, 10 / 2]),
    ],
)
def test_who_weighs_by_length(name, shares):
    """The other denominators, on the same two answers: all tokens, a constant, none."""
    _, gradient = run(name, *batch(torch.ones(2, 10), [1.0, 1.0], ragged([2, 10])))
    close(-gradient.sum(dim=1), shares)


@pytest.mark.parametrize("objective", [gspo, gspo_token])
def test_answer_loss_is_not_weighted_by_the_token_mask(objective):
    """Lengths 2 and 20 with the same s and A: the same share of the gradient."""
    ratios = torch.full((2, 20), 1.0002)
    _, gradient = run(objective, *batch(ratios, [1.0, 1.0], ragged([2, 20])))
    close(-gradient.sum(dim=1), [1.0002 / 2] * 2, tol=1e-6)


@every_objective
def test_gradient_accumulation_keeps_the_objective(name):
    """Lengths 1 to 8, whole and in four parts of two with the whole batch's denominator."""
    lengths = [1, 8, 3, 5, 2, 2, 7, 4]
    dice = torch.Generator().manual_seed(0)
    ratios = (0.3 * torch.randn(8, 8, generator=dice)).exp()
    advantages = torch.randn(8, generator=dice)
    mask = ragged(lengths)
    given = batch(ratios, advantages, mask)
    token_mean = name in ("ppo", "ppo_dual_clip", "dapo", "cispo")
    result, gradient = run(name, *given)
    total, parts = 0.0, []
    for rows in torch.arange(8).tensor_split(4):
        part, of_part = run(
            name,
            *batch(ratios[rows], advantages[rows], mask[rows]),
            denominator=sum(lengths) if token_mean else len(lengths),
        )
        total += part.loss.item()
        parts.append(of_part)
    close(result.loss, total, tol=1e-6)
    close(gradient, torch.cat(parts), tol=1e-6)


@every_objective
def test_batch_without_any_response_token(name):
    """Loss 0, a backward pass that works, gradients and metrics 0: never NaN."""
    given = batch([[2.0, 0.5]] * 2, [1.0, -1.0], torch.zeros(2, 2))
    result, gradient = run(name, *given, beta=0.1, logp_ref=given[1] - 1)
    assert float(result.loss.detach()) == 0.0
    assert (gradient == 0).all()
    assert (result.token_weight == 0).all()
    for metric, value in result.metrics.items():
        assert (value == (1.0 if metric == "geo_mean_ratio" else 0.0)).all()


# On-policy, and without signal


@every_objective
def test_first_update_of_a_rollout_has_ratio_one(name):
    """Old log-probs from the same forward: nothing is clipped, yet the gradient is not zero."""
    dice = torch.Generator().manual_seed(1)
    logits = torch.randn(4, 6, 5, generator=dice, requires_grad=True)
    logp = logits.log_softmax(dim=-1)[..., 0]
    mask = ragged([2, 6, 3, 4])
    assert (token_ratio(logp, logp.detach(), mask)[mask] == 1).all()
    assert (sequence_ratio(logp, logp.detach(), mask) == 1).all()
    advantages = torch.tensor([1.5, -0.5, -1.5, 0.5])
    result = OBJECTIVES[name](logp, logp.detach(), advantages, mask, **REQUIRED.get(name, {}))
    result.loss.backward()
    for kind in ("clip_fraction", "outside_fraction"):
        assert float(result.metrics[f"{kind}_seq"]) == 0
        assert float(result.metrics[f"{kind}_token_weighted"]) == 0
    assert float(logits.grad.abs().max()) > 1e-3


@pytest.mark.parametrize("lengths", [[2, 6, 3, 4], [5, 5, 5, 5]])
@every_objective
def test_loss_of_the_first_update(name, lengths):
    """Centred advantages: 0 for a mean per answer, else only for equal lengths; it says little."""
    advantages, old = [1.5, -0.5, -1.5, 0.5], torch.tensor([[-1.0], [-2.0], [-3.0], [-5.0]])
    mask = ragged(lengths, width=6)
    result, _ = run(name, *batch(torch.ones(4, 6), advantages, mask, old=old))
    mean_per_answer = name in ("grpo", "gspo", "gspo_token", "gmpo", "seq_unnormalised")
    equal = len(set(lengths)) == 1
    token_ratio_at_one = name in ("ppo", "ppo_dual_clip", "dapo", "dr_grpo")
    is_zero = mean_per_answer or (equal and token_ratio_at_one)
    assert (abs(result.loss.item()) < 1e-12) == is_zero


def test_loss_of_cispo_and_sapo_on_policy():
    """A weighted log-prob, and 2 A / tau: not zero for centred advantages of equal lengths."""
    given = batch(torch.ones(2, 3), [1.0, -1.0], old=[[-2.0], [-1.0]])
    close(run(cispo, *given)[0].loss, -(-2.0 + 1.0) / 2)
    close(run(sapo, *given)[0].loss, -(2 / 1.0 - 2 / 1.05) / 2)


@every_objective
def test_group_without_signal(name):
    """A = 0: no gradient without the KL term, with it only the KL's, never NaN."""
    logp, old, advantages, mask = batch([[3.0, 0.2, 1.0]] * 2, [0.0, 0.0])
    result, gradient = run(name, logp, old, advantages, mask)
    assert float(result.loss.detach()) == 0
    assert (gradient == 0).all()
    reference = old - torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    result, gradient = run(name, logp, old, advantages, mask, beta=0.5, logp_ref=reference)
    slope = 1 - (reference - logp.detach()).exp()
    share = {"dr_grpo": 1 / 64}.get(name, 1 / 6)
    close(gradient, 0.5 * share * slope)
    assert float(result.loss.detach()) > 0


# KL


def test_direction_of_the_kl_estimator():
    """log-prob -1, reference -2: k3 = e^-1 + 1 - 1 = .36788, its gradient 1 - e^-1 = .63212."""
    logp, old, advantages, mask = batch([[1.0]], [0.0])
    logp, old = (logp + 1.0).detach().requires_grad_(), old + 1.0
    reference = torch.full_like(old, -2.0)
    close(k3(logp, reference), [[0.36788]], tol=1e-5)
    for name in ("grpo", "gspo", "ppo"):
        result, gradient = run(name, logp, old, advantages, mask, beta=1.0, logp_ref=reference)
        close(result.loss, 0.36788, tol=1e-5)
        close(gradient, [[0.63212]], tol=1e-5)
        close(result.metrics["k3_token_mean"], 0.36788, tol=1e-5)


@every_objective
def test_kl_is_from_token_log_probs_at_any_level(name):
    """log-ratios to the reference +1 and -1: their mean is 0, but k3 is e - 2 and 1/e."""
    logp, old, advantages, mask = batch([[1.0, 1.0]], [0.0])
    reference = old + torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    result, _ = run(name, logp, old, advantages, mask, beta=1.0, logp_ref=reference)
    wanted = ((math.e - 2) + math.exp(-1)) / 2
    close(result.metrics["k3_token_mean"], wanted)
    close(result.loss, wanted * (2 / 32 if name == "dr_grpo" else 1))


# Sampling, entropy, mini-batches: a tiny policy, no training to speak of


def tiny_policy(seed=0):
    torch.manual_seed(seed)
    shape = {"num_layers": 1, "width": 8, "num_heads": 1, "head_dim": 8, "expert_width": 8}
    return TinyMoE(ModelConfig(VOCAB_SIZE, dense=True, **shape))


def tiny_rollout(model, temperature=1.0, prompts=3, group_size=6):
    task, dice = make_task("clock_walk", 4), torch.Generator().manual_seed(3)
    asked = task.random_prompts(prompts, dice)
    return sampled_rollout(model, task, asked, group_size, temperature=temperature, generator=dice)


@pytest.mark.parametrize("temperature", [0.6, 0.7, 1.0, 1.5])
def test_sampler_and_trainer_score_at_the_same_temperature(temperature):
    """The ratio is 1 on-policy for the distribution that sampled, and for no other."""
    model = tiny_policy()
    rollout = tiny_rollout(model, temperature)
    with torch.no_grad():
        same = answer_log_probs(model, rollout, temperature=temperature).logp
        other = answer_log_probs(model, rollout, temperature=temperature * 1.4).logp
    log_ratio = token_log_ratio(same, rollout.logp_old, rollout.mask)
    assert float(log_ratio.abs().max()) < 1e-5
    log_ratio = token_log_ratio(other, rollout.logp_old, rollout.mask)
    assert float(log_ratio.abs().max()) > 1e-2


def test_entropy_is_that_of_the_distribution_and_counted_once():
    """A head of zeros is uniform over 13 tokens: log 13 per token, whatever the lengths."""
    model = tiny_policy()
    rollout = tiny_rollout(model)
    assert len(set(rollout.lengths.tolist())) > 1
    logits = torch.zeros(*rollout.tokens.shape, VOCAB_SIZE)
    mean = token_weighted_mean(entropy(logits), rollout.mask)
    assert float(mean) == pytest.approx(math.log(VOCAB_SIZE))
    with torch.no_grad():
        score = answer_log_probs(model, rollout)
    wanted = torch.stack(
        [-(p * p.log()).sum() for p in all_probabilities(model, rollout)[rollout.mask]]
    )
    close(token_weighted_mean(score.entropy, rollout.mask), wanted.double().mean(), tol=1e-5)


def all_probabilities(model, rollout):
    """(B, T, V) next-token probabilities, from one plain pass per answer."""
    rows = []
    for tokens, group in zip(rollout.tokens, rollout.group, strict=True):
        prompt = rollout.prompts[group]
        with torch.no_grad():
            logits = model(torch.cat([prompt, tokens[:-1]])[None]).logits[0]
        rows.append(logits[len(prompt) - 1 :].softmax(dim=-1))
    return torch.stack(rows)


def test_unfinished_answers_are_flagged():
    """No end token within the limit: every token counts, and the answer is not finished."""
    tokens = torch.tensor([[3, END, 5, END], [3, 4, 5, 6], [3, 4, 5, END]])
    mask, finished = masked_after_end(tokens)
    assert mask.sum(dim=1).tolist() == [2, 4, 4]
    assert finished.tolist() == [True, False, True]


def tiny_trainer(**settings):
    config = TrainConfig(prompts=2, group_size=5, eval_prompts=1, **settings)
    return Trainer(config, tiny_policy(), make_task("clock_walk", 4))


@pytest.mark.parametrize("masked", [False, True])
def test_unfinished_answers_are_masked_or_kept_by_choice(masked):
    """Kept, they count and are trained on; masked, their tokens reach neither loss nor gradient."""
    trainer = tiny_trainer(mask_unfinished=masked, lr=0.0)
    rollout = tiny_rollout(trainer.model, prompts=1, group_size=4)
    rollout = replace(rollout, finished=torch.tensor([True, False, True, False]))
    advantages = torch.tensor([0.0, 1.0, 0.0, -2.0])
    record = trainer.one_update(rollout, advantages)
    kept = rollout.lengths[rollout.finished].sum() if masked else rollout.lengths.sum()
    assert record["tokens"] == int(kept)
    assert (record["grad_norm"] == 0) == masked


def test_last_mini_batch_is_neither_dropped_nor_rescaled():
    """10 answers in four mini-batches: 3, 3, 2, 2, each answer weighing 1/size, as reported."""
    trainer = tiny_trainer(mini_batches=4, lr=0.0)
    seen = []

    def noting(batch: Rollout, advantages):
        seen.append((len(batch), advantages))
        return one_update(batch, advantages)

    one_update, trainer.one_update = trainer.one_update, noting
    records = trainer.next_rollout()
    assert [record["answers"] for record in records] == [3, 3, 2, 2]
    assert [size for size, _ in seen] == [3, 3, 2, 2]
    for size, advantages in seen:
        # lr = 0: every ratio stays 1 up to rounding, so the loss is minus the mean advantage.
        result, _ = run(gspo, *batch(torch.ones(size, 2), advantages))
        close(result.loss, -advantages.double().sum() / size)
        close(result.token_weight.sum(dim=1), advantages.double() / size)
    for record, (size, advantages) in zip(records, seen, strict=True):
        assert record["loss"] == pytest.approx(-float(advantages.sum()) / size, abs=1e-5)


def test_broken_verifier_stops_the_run_before_any_update():
    """The second prompt's answer 3 gets NaN: an error that names both, and untouched weights."""
    trainer = tiny_trainer()
    sound = trainer.task
    broken = torch.zeros(10)
    broken[8] = math.nan
    trainer.task = SimpleNamespace(
        **{name: getattr(sound, name) for name in ("prompt_length", "max_new_tokens")},
        random_prompts=sound.random_prompts,
        rewards=lambda *_: broken,
    )
    before = [weight.clone() for weight in trainer.model.parameters()]
    with pytest.raises(ValueError, match=r"prompt 1, answer 3 \(row 8\) is nan"):
        trainer.next_rollout()
    for weight, old in zip(trainer.model.parameters(), before, strict=True):
        assert torch.equal(weight, old)


def test_groups_without_signal_are_reported():
    """Every record of a rollout says which share of its groups was silent."""
    trainer = tiny_trainer(mini_batches=2)
    sound = trainer.task
    trainer.task = SimpleNamespace(
        **{name: getattr(sound, name) for name in ("prompt_length", "max_new_tokens", "exact")},
        random_prompts=sound.random_prompts,
        rewards=lambda *_: torch.tensor([1.0] * 5 + [0.0, 1.0] * 2 + [0.0]),
    )
    trainer.held_out_metrics = dict
    records = trainer.next_rollout()
    assert [record["signalless_group_fraction"] for record in records] == [0.5, 0.5]


def test_grpo_and_gspo_differ_once_the_policy_moved():
    """A check on the checks: off-policy the two objectives must not agree."""
    given = batch([[1.001, 0.998, 1.003]], [1.0])
    assert not torch.allclose(run(grpo, *given)[1], run(gspo, *given)[1], rtol=1e-5)
