"""The critic: a model of its own, judged before it learns, and never with the policy's routes."""

import dataclasses
import json
import math

import pytest
import torch
from torch.testing import assert_close

from gspo_edu import cli
from gspo_edu.advantages import gae, standardized
from gspo_edu.checkpoint import CheckpointError, load_policy, load_tensors, shipped_policies
from gspo_edu.config import OF_CRITIC, SETTINGS_OF, WITH_CRITIC, TrainConfig
from gspo_edu.critic import Critic
from gspo_edu.metrics import explained_variance
from gspo_edu.moe.routes import RouteTrace
from gspo_edu.run_files import read_lines
from gspo_edu.runs import load_checkpoint, prepare_folder, run
from gspo_edu.sampler import DivergedError
from gspo_edu.tasks import ClockWalk
from gspo_edu.trainer import Trainer

ABOUT_UPDATE = {"value_loss", "critic_grad_norm", "critic_update_skipped"}


@pytest.fixture
def trainer(quick):
    """Builds a trainer of the shipped policy with PPO's critic; keywords change the config."""

    def build(model=None, **changes):
        model = model or load_policy(shipped_policies()["calm"])[0]
        settings = {"objective": "ppo", "critic": True, **changes}
        return Trainer(quick(**settings), model, ClockWalk())

    return build


@pytest.fixture
def critic(trainer, sampled):
    """A critic after some updates, so that its values differ from token to token."""
    critic, rollout = trainer(critic_lr=1e-2).critic, sampled()
    for _ in range(5):
        targets = rollout.rewards[:, None].expand_as(rollout.mask)
        critic.one_update(rollout, targets, rollout.mask)
    return critic


def weights_of(model):
    return [weight.detach().clone() for weight in model.parameters()]


def same_weights(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def with_other_routes(rollout):
    routes = rollout.routes
    prompt, answer = (routes.prompt + 1) % 8, (routes.answer + 1) % 8
    return dataclasses.replace(rollout, routes=RouteTrace(prompt, answer, routes.layers))


def test_it_starts_as_the_policy_with_another_head(trainer, sampled):
    one = trainer()
    policy, critic = dict(one.model.named_parameters()), dict(one.critic.model.named_parameters())
    assert critic.keys() - policy.keys() == {"head.bias"}
    assert critic["head.weight"].shape == (1, one.model.config.width)
    for name, weight in policy.items():
        if name != "head.weight":
            assert torch.equal(weight, critic[name]), name
            assert weight.data_ptr() != critic[name].data_ptr(), "weights of its own"
    assert (one.critic.values(sampled()) == 0).all(), "no opinion yet"


def test_values_are_what_the_last_layer_says_before_each_token(critic, sampled):
    """Read by itself, up to the token before: one row, no cache, no padding, no other answers."""
    rollout = sampled()
    values = critic.values(rollout).detach()
    assert values.shape == rollout.tokens.shape
    assert (values[~rollout.mask] == 0).all()
    assert values[rollout.mask].std() > 1e-3
    for row in (0, 3, 15):
        for place in range(rollout.lengths[row]):
            text = [rollout.prompts[rollout.group[row]], rollout.tokens[row, :place]]
            alone = critic.model(torch.cat(text)[None]).logits[0, -1, 0]
            assert_close(values[row, place], alone.detach(), rtol=1e-4, atol=1e-5)


def test_environment_tokens_are_read_but_not_judged(critic, sampled):
    rollout = sampled()
    row = int(rollout.lengths.argmax())
    mask = rollout.mask.clone()
    mask[row, 1] = False
    other = dataclasses.replace(rollout, mask=mask)
    wanted = critic.values(rollout).where(mask, 0.0)
    assert_close(critic.values(other), wanted, rtol=1e-4, atol=1e-5)
    tokens = rollout.tokens.clone()
    tokens[row, 1] = (tokens[row, 1] + 1) % 10
    changed = critic.values(dataclasses.replace(other, tokens=tokens))
    assert not torch.allclose(changed[row, 2:], wanted[row, 2:], atol=1e-4)


@pytest.mark.parametrize("replay", ["r2", "r3"])
def test_the_policys_routes_never_reach_it(trainer, critic, sampled, replay):
    """The same values, targets and updates, whatever experts the policy has used."""
    rollout = sampled()
    values = critic.values(rollout)
    assert torch.equal(critic.values(with_other_routes(rollout)), values)
    assert torch.equal(critic.values(dataclasses.replace(rollout, routes=None)), values)
    trained = []
    for seen in (rollout, with_other_routes(rollout)):
        one = trainer(replay=replay)
        one.critic.model.load_state_dict(critic.model.state_dict())
        advantages, targets, _ = one.judged(seen)
        policy = one.one_update(one.as_old_policy(seen), advantages)
        found = one.critic.one_update(seen, targets, seen.mask)
        trained.append((advantages, targets, weights_of(one.critic.model), policy, found))
    (advantages, targets, weights, policy, found), other = trained
    assert torch.equal(advantages, other[0])
    assert torch.equal(targets, other[1])
    assert same_weights(weights, other[2])
    assert found == other[4]
    if replay == "r3":
        assert policy != other[3], "the policy does replay them"


def test_a_routes_trace_that_cannot_be_replayed_does_not_matter(critic, sampled):
    rollout = sampled()
    broken = dataclasses.replace(
        rollout, routes=dataclasses.replace(rollout.routes, layers=(7, 8), prompt=torch.zeros(1))
    )
    assert torch.equal(critic.values(broken), critic.values(rollout))


def test_advantages_are_gae_of_its_values(trainer, critic, sampled):
    rollout = sampled()
    values = critic.values(rollout)
    raw, targets = gae(rollout.rewards, values, rollout.mask, gamma=0.9, lam=0.5)
    wanted = {
        False: raw,
        None: standardized(raw, rollout.mask, ddof=1, eps=0.1),
    }
    for normalize, advantages in wanted.items():
        config = dataclasses.replace(
            critic.config,
            gamma=0.9,
            lam=0.5,
            normalize_advantages=normalize,
            ddof=1,
            advantage_eps=0.1,
        )
        judge = Critic(config, trainer().model)
        judge.model = critic.model
        got = judge.judged(rollout, rollout.rewards, rollout.mask)
        assert_close(got[0], advantages)
        assert_close(got[1], targets)
        _, returns = gae(rollout.rewards, values, rollout.mask, gamma=0.9, lam=1.0)
        assert got[2] == {"explained_variance": explained_variance(values, returns, rollout.mask)}
    assert raw[rollout.mask].std() > 0.01


def test_the_whole_rollout_is_judged_before_any_update(trainer, monkeypatch):
    """Every mini-batch of every epoch learns from the targets of one critic."""
    one, seen = trainer(epochs=2), []
    real = Critic.one_update

    def watching(critic, batch, targets, mask):
        seen.append((batch, targets))
        return real(critic, batch, targets, mask)

    monkeypatch.setattr(Critic, "one_update", watching)
    one.next_rollout()  # values are 0 in the first rollout, so the targets are the rewards alone
    assert len(seen) == 4
    for batch, targets in seen:
        start = torch.zeros_like(targets)
        wanted = gae(batch.rewards, start, batch.mask, gamma=1.0, lam=0.95)[1]
        assert_close(targets, wanted)
    later = [targets for _, targets in seen[2:]]
    assert sum(t.sum() for t in later) == pytest.approx(sum(t.sum() for _, t in seen[:2]))


def test_it_learns_what_answers_earn(critic, trainer, sampled):
    """On one rollout that it sees again and again, until its guesses explain the rewards."""
    rollout = sampled()
    fresh = trainer(critic_lr=3e-3).critic
    _, targets, before = fresh.judged(rollout, rollout.rewards, rollout.mask)
    losses = [fresh.one_update(rollout, targets, rollout.mask)["value_loss"] for _ in range(60)]
    assert before["explained_variance"] == 0
    assert losses[-1] < losses[0] / 5
    assert fresh.judged(rollout, rollout.rewards, rollout.mask)[2]["explained_variance"] > 0.3


def test_the_value_loss_is_the_mean_over_tokens(critic, sampled):
    rollout = sampled()
    values, dice = critic.values(rollout).detach(), torch.Generator().manual_seed(0)
    targets = torch.rand(values.shape, generator=dice)
    mask = rollout.mask & (torch.arange(len(rollout)) % 2 == 0)[:, None]
    wanted = ((values - targets)[mask] ** 2).mean()
    targets = targets.where(mask, math.nan)
    found = critic.one_update(rollout, targets, mask)
    assert found["value_loss"] == pytest.approx(wanted.item(), rel=1e-5)
    assert found["critic_grad_norm"] > 0
    assert all(torch.isfinite(weight).all() for weight in critic.model.parameters())


def test_masked_answers_teach_neither_model(trainer, sampled):
    rollout = sampled()
    rollout = dataclasses.replace(rollout, finished=torch.zeros(len(rollout), dtype=torch.bool))
    one = trainer(mask_unfinished=True)
    policy, critic = weights_of(one.model), weights_of(one.critic.model)
    advantages, targets, about = one.judged(rollout)
    one.one_update(rollout, advantages)
    one.critic.one_update(rollout, targets, one.loss_mask(rollout))
    assert (advantages == 0).all()
    assert about["explained_variance"] == 0
    assert same_weights(policy, weights_of(one.model))
    assert same_weights(critic, weights_of(one.critic.model))


def test_an_update_that_is_not_finite_is_skipped_and_counted(critic, sampled):
    rollout, before = sampled(), weights_of(critic.model)
    huge = torch.full(rollout.mask.shape, math.inf)
    assert critic.one_update(rollout, huge, rollout.mask)["critic_update_skipped"] == 1
    assert same_weights(before, weights_of(critic.model))
    assert critic.one_update(rollout, huge * 0 + 1, rollout.mask)["critic_update_skipped"] == 1
    assert critic.one_update(rollout, huge.sign(), rollout.mask)["critic_update_skipped"] == 0
    assert not same_weights(before, weights_of(critic.model))


def test_its_gradient_norm_is_bounded(critic, sampled):
    rollout = sampled()
    targets = torch.full(rollout.mask.shape, 1e4)
    found = critic.one_update(rollout, targets, rollout.mask)
    total = sum(weight.grad.pow(2).sum() for weight in critic.model.parameters()).sqrt()
    assert found["critic_grad_norm"] > 100
    assert total == pytest.approx(critic.config.max_grad_norm, rel=1e-3)


def test_a_diverged_critic_has_its_own_error(critic, sampled):
    rollout = sampled()
    with torch.no_grad():
        critic.model.head.bias.fill_(math.nan)
    with pytest.raises(DivergedError, match=r"critic's values are not finite.*lower critic_lr"):
        critic.judged(rollout, rollout.rewards, rollout.mask)


def test_critic_lr_is_the_critics_alone(trainer):
    for given, used in ((None, 5e-3), (2e-4, 2e-4), (0.0, 0.0)):
        one = trainer(lr=5e-3, critic_lr=given, weight_decay=0.1)
        assert one.optimizer.param_groups[0]["lr"] == 5e-3
        assert one.critic.optimizer.param_groups == [{"lr": used, "weight_decay": 0.1}]
    before = weights_of(one.critic.model)
    one.next_rollout()
    assert same_weights(before, weights_of(one.critic.model))


def test_records_with_and_without_a_critic(trainer):
    (first, *_), (off, *_) = trainer().next_rollout(), trainer(critic=False).next_rollout()
    assert first.keys() - off.keys() == {"explained_variance", *ABOUT_UPDATE}
    # Groups of equal rewards do teach with a critic.
    assert off.keys() - first.keys() == {"signalless_group_fraction"}
    assert first["value_loss"] > 0
    assert first["critic_update_skipped"] == 0
    assert first["explained_variance"] == 0, "a guess of 0 throughout explains nothing"
    assert first["reward"] == off["reward"], "the critic draws no random numbers"
    assert first["clip_fraction_seq"] == 0


def test_without_a_critic_there_is_no_trace_of_one(trainer):
    one = trainer(critic=False)
    tensors, _ = one.state()
    assert one.critic is None
    assert not [name for name in tensors if "critic" in name]


@pytest.mark.parametrize("objective", WITH_CRITIC)
def test_every_objective_with_a_critic_trains(trainer, objective):
    one = trainer(objective=objective)
    before = weights_of(one.model), weights_of(one.critic.model)
    for record in one.records():
        assert record["update_skipped"] == record["critic_update_skipped"] == 0
        assert all(value == value for value in record.values()), "no NaN"
    assert not same_weights(before[0], weights_of(one.model))
    assert not same_weights(before[1], weights_of(one.critic.model))


def test_one_answer_per_prompt_is_enough(trainer):
    records = trainer(group_size=1, prompts=6).next_rollout()
    assert [record["answers"] for record in records] == [3, 3]
    assert records[0]["grad_norm"] > 0


@pytest.mark.parametrize("shape", [{"dense": True}, {"num_layers": 3, "mlp_only_layers": (1,)}])
def test_other_shapes_have_critics_of_their_shape(trainer, tiny, shape):
    one = trainer(model=tiny(**shape), rollouts=1)
    assert one.critic.model.config == one.model.config
    assert list(one.records())[-1]["value_loss"] > 0


def started(folder, config):
    prepare_folder(folder, config, overwrite=False)
    return run(folder, config)


def files_of(folder):
    """Name to content of all that a run leaves, without its times."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name not in ("timings.jsonl", "config.json")
    }


def test_interrupted_and_resumed_equals_uninterrupted(quick, tmp_path):
    config = quick(objective="ppo", critic=True, critic_lr=2e-3, replay="r3")
    started(tmp_path / "whole", config)

    def stop(records):
        raise KeyboardInterrupt

    prepare_folder(tmp_path / "cut", config, overwrite=False)
    for _ in range(2):  # the first rollout is shown again before the second is made
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "cut", config, on_rollout=stop)
    run(tmp_path / "cut", config)
    assert files_of(tmp_path / "whole") == files_of(tmp_path / "cut")
    tensors, _ = load_tensors(tmp_path / "cut" / "checkpoint.safetensors")
    model, _ = load_policy(tmp_path / "cut" / "policy.safetensors")
    names = {name for name, _ in model.named_parameters()} | {"head.bias"}
    kept = {name for name in tensors if name.startswith("critic.model.")}
    assert kept == {f"critic.model.{name}" for name in names}
    assert tensors["critic.model.head.weight"].shape == (1, model.config.width)
    means = [name for name in tensors if name.startswith("critic.optimizer.")]
    assert len(means) == 3 * len(names)
    assert any(tensors[name].abs().sum() > 0 for name in means)


def test_a_checkpoint_of_another_kind_is_refused(trainer, quick, tmp_path):
    config = quick(objective="ppo", critic=True, rollouts=1)
    started(tmp_path / "run", config)
    path = tmp_path / "run" / "checkpoint.safetensors"
    with pytest.raises(CheckpointError, match=r"made with critic=True, the config has False"):
        load_checkpoint(path, trainer(critic=False, rollouts=1))
    tensors, meta = trainer(critic=False).state()
    with pytest.raises(KeyError, match="critic"):
        trainer().load_state(tensors, meta)


def test_the_command_line(tmp_path, capsys):
    words = ["train", "--objective", "ppo", "--critic", "--lam", "0.9", "--rollouts", "1"]
    words += ["--prompts", "4", "--mini-batches", "2", "--eval-prompts", "4", "--device", "cpu"]
    assert cli.main([*words, "--out", str(tmp_path / "run")]) == 0
    records = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert all({"explained_variance", *ABOUT_UPDATE} <= record.keys() for record in records)
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (written["critic"], written["lam"]) == (True, 0.9)
    assert cli.main(["train", "--critic", "--out", str(tmp_path / "none")]) == 2
    assert "critic is True, but gspo has one advantage per answer" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("objective", sorted(SETTINGS_OF.keys() - {*WITH_CRITIC}))
def test_objectives_with_one_advantage_per_answer_have_no_critic(objective):
    with pytest.raises(ValueError, match=rf"but {objective} has one.*ppo, ppo_dual_clip or gspo_t"):
        TrainConfig(objective=objective, critic=True)


@pytest.mark.parametrize("name", OF_CRITIC)
def test_settings_of_the_critic_need_one(name):
    with pytest.raises(ValueError, match=rf"^{name} is 0\.5; expected .*, since critic is off"):
        TrainConfig(objective="ppo", **{name: 0.5})
    config = TrainConfig(objective="ppo", critic=True, **{name: 0.5})
    assert getattr(config, name) == 0.5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"critic_lr": -1e-3}, r"critic_lr is -0.001; expected 0 to 1"),
        ({"critic_lr": 2.0}, r"critic_lr is 2.0; expected 0 to 1"),
        ({"gamma": 1.1}, r"gamma is 1.1; expected 0 to 1"),
        ({"lam": -0.1}, r"lam is -0.1; expected 0 to 1"),
        ({"group_size": 0}, r"group_size is 0; expected 1 or more\."),
        ({"ddof": 2}, r"ddof is 2; expected"),
    ],
)
def test_unusable_settings_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        TrainConfig(objective="ppo", critic=True, **changes)


def test_explained_variance():
    """Returns 0 and 1: a perfect guess, a constant one, one turned round, and padding."""
    returns, mask = torch.tensor([[0.0, 1.0, math.nan]]), torch.tensor([[1, 1, 0]])

    def of(*values):
        return explained_variance(torch.tensor([[*values, math.nan]]), returns, mask).item()

    assert of(0.0, 1.0) == 1
    assert of(5.0, 6.0) == 1, "a constant error is a matter of the mean, not of the variance"
    assert of(0.3, 0.3) == 0
    assert of(0.25, 0.75) == 0.75
    assert of(1.0, 0.0) == -3
    level = torch.full((1, 3), 0.1)
    assert explained_variance(returns, level, mask) == 0
    assert explained_variance(returns, level, mask * 0) == 0
