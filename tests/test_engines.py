"""Engines: their arithmetic is real, what they report is theirs, and what they cost is counted."""

import dataclasses
import itertools
import json

import pytest
import torch
from torch.testing import assert_close

from gspo_edu.checkpoint import load_policy, shipped_policies
from gspo_edu.config import TrainConfig
from gspo_edu.engines import Engine, engine_copy, quantize
from gspo_edu.moe.routes import drift
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.objectives.corrections import correction_weight
from gspo_edu.ratios import sequence_log_ratio, token_log_ratio
from gspo_edu.runs import METRICS, prepare_folder, run
from gspo_edu.sampler import answer_log_probs, sampled_rollout
from gspo_edu.tasks import ClockWalk
from gspo_edu.trainer import Trainer


@pytest.fixture
def trainer(quick):
    """Builds a trainer of the shipped policy; keywords change the config."""

    def build(model=None, **changes):
        model = model or load_policy(shipped_policies()["calm"])[0]
        return Trainer(quick(**changes), model, ClockWalk())

    return build


@pytest.mark.parametrize("shape", [(5, 8), (3, 8, 6)])
def test_quantised_weights_are_off_by_half_a_step_of_their_channel(shape, dice):
    weight = torch.randn(shape, generator=dice) * torch.logspace(-3, 1, shape[-1])
    numbers, scale = quantize(weight)
    assert numbers.dtype == torch.int8
    assert numbers.shape == weight.shape
    assert scale.shape == (*shape[:1], 1, *shape[2:])
    assert numbers.abs().amax(dim=1).eq(127).all(), "each channel uses the whole range"
    assert ((numbers * scale - weight).abs() <= scale / 2 * (1 + 1e-5)).all()


def test_a_channel_of_zeros_stays_one():
    numbers, scale = quantize(torch.zeros(2, 4))
    assert (numbers == 0).all()
    assert torch.isfinite(numbers * scale).all()


def test_int8_rounds_the_matrices_and_nothing_else(calm):
    rounded = engine_copy(calm, "int8")
    changed = {
        name
        for (name, before), after in zip(calm.named_parameters(), rounded.parameters(), strict=True)
        if not torch.equal(before, after)
    }
    layers = ("attention.qkv.weight", "attention.out.weight", "moe.gate_up", "moe.down")
    assert changed == {f"blocks.{layer}.{name}" for layer in range(2) for name in layers}
    for name in changed:
        for channel in rounded.get_parameter(name).movedim(1, -1).flatten(0, -2):
            steps = channel / (channel.abs().max() / 127)
            assert (steps - steps.round()).abs().max() < 1e-3, "whole multiples of one scale"


def test_int8_of_a_dense_model_rounds_its_block(tiny):
    model = tiny(dense=True)
    rounded = engine_copy(model, "int8")
    for name in ("blocks.0.dense.gate_up.weight", "blocks.1.dense.down.weight"):
        assert not torch.equal(model.get_parameter(name), rounded.get_parameter(name))


def test_bf16_computes_in_bf16_up_to_the_logits(calm, walk, dice):
    engine = engine_copy(calm, "bf16")
    assert {weight.dtype for weight in engine.parameters()} == {torch.bfloat16}
    prompts = walk.random_prompts(4, dice)
    logits = engine(prompts).logits
    assert logits.dtype == torch.bfloat16
    rollout = sampled_rollout(engine, walk, prompts, 4, generator=dice)
    assert rollout.logp_old.dtype == torch.float32
    kept = rollout.logp_old[rollout.mask]
    assert not torch.equal(kept, kept.bfloat16().float()), "the softmax is not rounded again"


@pytest.mark.parametrize("kind", ["bf16", "int8"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_an_engine_reports_the_log_probs_it_sampled_with(calm, walk, dice, kind, temperature):
    """Cached and batched passes of one engine agree better than engine and trainer do."""
    engine = engine_copy(calm, kind)
    prompts = walk.random_prompts(16, dice)
    rollout = sampled_rollout(engine, walk, prompts, 8, temperature=temperature, generator=dice)

    def distance(model):
        score = answer_log_probs(model, rollout, temperature=temperature)
        apart = (score.logp - rollout.logp_old)[rollout.mask].abs()
        return apart.mean().item(), drift(score.routes.answer, rollout.routes.answer).item()

    own, trainers = distance(engine), distance(calm)
    assert own[0] < trainers[0]
    assert own[1] <= trainers[1]
    if kind == "int8":
        assert own[0] < 1e-5
    assert 1e-3 < trainers[0] < 0.1


def test_the_policy_itself_is_left_alone(calm):
    before = [weight.clone() for weight in calm.parameters()]
    for kind in ("bf16", "int8"):
        for weight in engine_copy(calm, kind).parameters():
            assert not weight.requires_grad
    assert all(torch.equal(a, b) for a, b in zip(before, calm.parameters(), strict=True))
    assert all(weight.requires_grad for weight in calm.parameters())
    assert Engine().serving(calm) is calm


def test_unknown_engines_and_lags_are_refused(calm):
    with pytest.raises(ValueError, match="engine is 'fp4'; expected one of fp32, bf16, int8"):
        engine_copy(calm, "fp4")
    with pytest.raises(ValueError, match="engine is 'fp4'; expected one of fp32, bf16, int8"):
        Engine("fp4")
    with pytest.raises(ValueError, match="lag is -1; expected 0 or more rollouts"):
        Engine("fp32", -1)


# In training


def test_records_speak_of_the_engine_only_where_there_is_one(trainer):
    plain = trainer().next_rollout()[0]
    assert not [name for name in plain if name.startswith("engine_")]
    told = trainer(engine="bf16").next_rollout()[0]
    assert [name for name in told if not name.startswith("engine_")] == list(plain)
    assert {name for name in told if name.startswith("engine_")} == {
        *(
            f"engine_{level}_log_ratio_{what}"
            for level, what in itertools.product(("token", "sequence"), ("mean", "std", "max"))
        ),
        *("engine_clip_fraction_seq", "engine_clip_fraction_token_weighted"),
        *("engine_outside_fraction_seq", "engine_outside_fraction_token_weighted"),
        *("engine_drift", "engine_changed_tokens"),
    }


@pytest.mark.parametrize("objective", ["grpo", "gspo"])
@pytest.mark.parametrize("kind", ["bf16", "int8"])
def test_the_metrics_are_what_they_say(trainer, kind, objective):
    one = trainer(engine=kind, objective=objective, prompts=16)
    seen = []
    real = one.judged
    one.judged = lambda rollout: seen.append(rollout) or real(rollout)
    record = one.next_rollout()[0]
    (rollout,) = seen
    again = trainer()
    score = answer_log_probs(again.model, rollout)
    logp, inside = score.logp.detach(), rollout.mask
    log_r = token_log_ratio(logp, rollout.logp_old, inside)[inside]
    log_s = sequence_log_ratio(logp, rollout.logp_old, inside)
    for name, values in (("token", log_r), ("sequence", log_s)):
        assert record[f"engine_{name}_log_ratio_mean"] == pytest.approx(values.mean().item())
        assert record[f"engine_{name}_log_ratio_max"] == values.abs().max()
        std = values.std(correction=0).item()
        assert record[f"engine_{name}_log_ratio_std"] == pytest.approx(std)
    slots = drift(score.routes.answer, rollout.routes.answer)
    assert record["engine_drift"] == slots
    other = score.routes.answer.sort().values != rollout.routes.answer.sort().values
    share = other.flatten(2).any(dim=2)[inside].float().mean().item()
    assert record["engine_changed_tokens"] == pytest.approx(share)
    result = OBJECTIVES[objective](logp, rollout.logp_old, real(rollout)[0], inside)
    clipped = result.metrics["clip_fraction_seq"].item()
    assert record["engine_clip_fraction_seq"] == clipped
    assert clipped > 0.2 if objective == "gspo" else clipped < 0.02


def test_old_log_probs_are_the_engines_or_the_trainers(trainer):
    trusting, recomputing = (
        trainer(engine="bf16", recompute_old=again).next_rollout() for again in (False, True)
    )
    assert trusting[0]["token_log_ratio_std"] > 5e-3, "the first mini-batch is off-policy already"
    assert recomputing[0]["token_log_ratio_std"] < 1e-6
    assert trusting[0]["engine_token_log_ratio_std"] == recomputing[0]["engine_token_log_ratio_std"]


def other_engine(one, calm, walk, dice):
    """A rollout of a bf16 engine, long enough that routes differ."""
    prompts = walk.random_prompts(32, dice)
    rollout = sampled_rollout(engine_copy(calm, "bf16"), walk, prompts, 4, generator=dice)
    assert drift(answer_log_probs(one.model, rollout).routes.answer, rollout.routes.answer) > 0
    return rollout


def test_r2_takes_the_trainers_routes_and_r3_the_engines(trainer, calm, walk, dice):
    r2, r3 = (trainer(engine="bf16", replay=mode, recompute_old=True) for mode in ("r2", "r3"))
    rollout = other_engine(r2, calm, walk, dice)
    live = answer_log_probs(calm, rollout)
    old = r2.as_old_policy(rollout)
    assert torch.equal(old.routes.answer, live.routes.answer)
    assert torch.equal(old.logp_old, live.logp)
    old = r3.as_old_policy(rollout)
    assert torch.equal(old.routes.answer, rollout.routes.answer)
    replayed = answer_log_probs(calm, rollout, replay=rollout.routes)
    assert torch.equal(old.logp_old, replayed.logp), "R3's old log-probs follow the same routes"
    assert torch.equal(old.logp_rollout, rollout.logp_old)


def test_r3_brings_engine_and_trainer_together(trainer):
    free, replayed = (
        trainer(engine="bf16", replay=mode, prompts=32, group_size=8).next_rollout()[0]
        for mode in ("none", "r3")
    )
    assert replayed["engine_token_log_ratio_std"] < 0.8 * free["engine_token_log_ratio_std"]
    assert replayed["engine_drift"] > 0, "what the router would choose still differs"


@pytest.mark.parametrize("engine", [{}, {"engine": "int8"}])
def test_r3_is_on_policy_in_the_first_mini_batch(trainer, engine):
    record = trainer(replay="r3", recompute_old=True, **engine).next_rollout()[0]
    assert record["token_log_ratio_std"] < 1e-6
    assert record["clip_fraction_seq"] == 0


def test_a_correction_weighs_what_the_trainer_learns_from(trainer, calm, walk, dice):
    plain = trainer(engine="bf16", objective="grpo", recompute_old=True)
    rollout = other_engine(plain, calm, walk, dice)
    advantages = torch.randn(len(rollout), generator=dice)
    none = trainer(engine="bf16", objective="grpo", recompute_old=True)
    capped = trainer(
        engine="bf16", objective="grpo", recompute_old=True, correction="tis", tis_cap=1e-6
    )
    dropped = trainer(
        *(),
        engine="bf16",
        objective="grpo",
        recompute_old=True,
        correction="icepop",
        icepop_low=1.5,
        icepop_high=1.6,
    )
    norms = {}
    for name, one in {"none": none, "tis": capped, "icepop": dropped}.items():
        old = one.as_old_policy(rollout)
        norms[name] = one.one_update(old, advantages)["grad_norm"]
    assert norms["tis"] == pytest.approx(1e-6 * norms["none"], rel=1e-3)
    assert norms["icepop"] < 0.3 * norms["none"]


def test_icepop_from_zero_on_masks_only_what_is_too_large() -> None:
    rho = torch.tensor([[0.01, 1.0, 2.0, 3.0]])
    given = rho.log(), torch.zeros(1, 4), torch.ones(1, 4)
    weight = correction_weight({"kind": "icepop", "low": 0.0, "high": 2.5}, *given)
    assert_close(weight, torch.tensor([[0.01, 1.0, 2.0, 0.0]]))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engine": "fp16"}, "engine is 'fp16'; expected one of fp32, bf16, int8"),
        ({"lag": -1}, "lag is -1; expected 0 or more"),
        ({"correction": "clip"}, "correction is 'clip'; expected one of none, tis, icepop"),
        (
            {"correction": "tis", "recompute_old": True},
            "correction is tis, but the trainer itself samples.*expected engine bf16",
        ),
        (
            {"correction": "tis", "engine": "bf16"},
            "correction is tis, but the old log-probs are the engine's own.*expected recompute_old",
        ),
        ({"tis_cap": 2.0}, r"tis_cap is 2.0, but correction is none; expected correction tis"),
        (
            {"correction": "tis", "recompute_old": True, "lag": 1, "icepop_low": 0.1},
            "icepop_low is 0.1, but correction is tis; expected correction icepop",
        ),
        (
            {"correction": "tis", "recompute_old": True, "lag": 1, "tis_cap": 0.0},
            "correction cap is 0.0; expected a positive number",
        ),
        (
            {"correction": "icepop", "recompute_old": True, "lag": 1, "icepop_low": 9.0},
            "correction low, high are 9.0, 5.0",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        TrainConfig(**settings)


def test_corrections_have_the_published_defaults():
    common = {"engine": "bf16", "recompute_old": True}
    assert TrainConfig(**common).correction_settings() is None
    tis = TrainConfig(**common, correction="tis").correction_settings()
    assert tis == {"kind": "tis", "cap": 2.0}
    icepop = TrainConfig(**common, correction="icepop").correction_settings()
    assert icepop == {"kind": "icepop", "low": 0.5, "high": 5.0}


# Behind


@pytest.mark.parametrize("lag", [1, 2])
def test_an_engine_that_lags_samples_with_the_weights_of_then(trainer, lag):
    one = trainer(lag=lag, rollouts=5)
    then = []
    for made in range(5):
        then.append([weight.detach().clone() for weight in one.model.parameters()])
        one.next_rollout()
        wanted = then[max(0, made - lag)]
        sent = one.engine.sent[0].values()
        assert all(torch.equal(a, b) for a, b in zip(wanted, sent, strict=True))
        assert len(one.engine.sent) == min(lag, made) + 1


def test_a_lag_shows_in_the_ratios_from_its_rollout_on(trainer):
    records = list(trainer(lag=1).records())
    stds = [record["engine_token_log_ratio_std"] for record in records[::2]]
    assert stds[0] < 1e-5, "nothing has been trained yet"
    assert min(stds[1:]) > 1e-3
    fresh = list(trainer(lag=0).records())
    assert fresh[0]["reward"] == records[0]["reward"]


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": "bf16", "replay": "r3"},
        {"engine": "int8", "lag": 2, "recompute_old": True, "correction": "tis"},
    ],
    ids=str,
)
def test_runs_repeat_and_resume_byte_for_byte(tmp_path, quick, changes):
    config = quick(**changes, rollouts=4, eval_every=0)
    for name in ("whole", "again", "cut"):
        prepare_folder(tmp_path / name, config, overwrite=False)
    run(tmp_path / "whole", config)
    run(tmp_path / "again", config)
    calls = itertools.count(1)

    class Stop(Exception):
        pass

    def stop(records):
        if next(calls) == 3:
            raise Stop

    with pytest.raises(Stop):
        run(tmp_path / "cut", config, on_rollout=stop)
    run(tmp_path / "cut", config)
    whole, again, cut = (
        (tmp_path / name / METRICS).read_bytes() for name in ("whole", "again", "cut")
    )
    assert whole == again == cut
    assert len(whole.splitlines()) == 8
    assert "engine_drift" in json.loads(whole.splitlines()[0])


def test_a_rollout_needs_as_many_engine_log_probs_as_tokens(sampled):
    rollout = sampled()
    with pytest.raises(ValueError, match=r"logp_rollout has shape \(1, 1\); expected"):
        dataclasses.replace(rollout, logp_rollout=torch.zeros(1, 1))
    whole = dataclasses.replace(rollout, logp_rollout=rollout.logp_old - 1)
    rows = torch.tensor([3, 0])
    assert_close(whole.rows(rows).logp_rollout, rollout.logp_old[rows] - 1)
