"""Training teaches, and only because of what it is told: short runs of the calm setting."""

import dataclasses

import pytest
import torch

from gspo_edu.checkpoint import load_policy, shipped_policies
from gspo_edu.config import TrainConfig
from gspo_edu.initial import cold_start_command, initial_policy
from gspo_edu.tasks import make_task
from gspo_edu.trainer import Trainer

CALM = TrainConfig(rollouts=32, eval_every=0, device="cpu")


def trained(**changes):
    """(trainer, records) of a short calm run."""
    config = dataclasses.replace(CALM, **changes)
    model, task, _ = initial_policy(config)
    trainer = Trainer(config, model, task)
    return trainer, list(trainer.records())


def gain(trainer, records):
    return records[-1]["held_out_reward"] - trainer.initial_held_out["held_out_reward"]


@pytest.mark.slow
def test_grpo_and_gspo_learn_and_shuffled_rewards_teach_nothing():
    grpo, gspo = trained(objective="grpo"), trained(objective="gspo")
    shuffled = trained(objective="gspo", shuffle_rewards=True)
    assert gain(*grpo) >= 0.2
    assert gain(*gspo) >= 0.2
    assert gain(*shuffled) < 0.08, "no better than at the start, within noise"

    for trainer, records in (grpo, gspo):
        last = records[-8:]
        assert sum(record["reward"] for record in last) / 8 > records[0]["reward"] + 0.15
        assert all(record["update_skipped"] == 0 for record in records)
        drifts = [record["drift_per_update"] for record in records]
        assert sum(drifts) / len(drifts) > 0.001
        assert max(record["drift_per_rollout"] for record in records) > 0.005
        assert records[-1]["held_out_exact"] > trainer.initial_held_out["held_out_exact"]
        assert records[-1]["length_spread"] >= 0.15, "GSPO's length normalisation has work to do"
        assert used_experts(trainer) == [8, 8]
    ours, theirs = grpo[0].model.parameters(), gspo[0].model.parameters()
    assert max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True)) > 1e-3
    clipped = {
        name: sum(record["clip_fraction_seq"] for record in records) / len(records)
        for name, (_, records) in (("grpo", grpo), ("gspo", gspo))
    }
    assert clipped["gspo"] > 5 * clipped["grpo"] > 0, "GSPO's narrow range clips far more"


def used_experts(trainer):
    """How many experts each layer uses on held-out prompts."""
    from gspo_edu.sampler import sampled_rollout
    from gspo_edu.tasks.base import prompts_of_split

    dice = torch.Generator().manual_seed(0)
    prompts = prompts_of_split(trainer.task, 64, dice, held_out=True)
    rollout = sampled_rollout(trainer.model, trainer.task, prompts, 4, generator=dice)
    routes = rollout.routes.answer[rollout.mask]
    return [len(routes[:, layer].unique()) for layer in range(routes.shape[1])]


def test_a_frozen_policy_stays_what_it_is():
    trainer, records = trained(lr=0.0, rollouts=2)
    assert gain(trainer, records) == 0
    assert all(record["drift_per_update"] == 0 for record in records)
    start = load_policy(shipped_policies()["calm"])[0].parameters()
    assert all(torch.equal(a, b) for a, b in zip(trainer.model.parameters(), start, strict=True))


@pytest.mark.parametrize("name", shipped_policies())
def test_shipped_policies_score_what_their_cards_say(name):
    model, card = load_policy(shipped_policies()[name])
    config = dataclasses.replace(CALM, task=card.task)
    trainer = Trainer(config, model, make_task(card.task, card.task_size))
    found = trainer.initial_held_out
    # Equal here; another processor's rounding may turn a sample or two.
    assert found["held_out_reward"] == pytest.approx(card.held_out_reward, abs=0.02)
    assert found["held_out_length_spread"] >= 0.15
    assert found["held_out_finished"] > 0.9
    assert used_experts(trainer) == [model.config.num_experts] * model.config.num_layers


def test_the_default_run_starts_from_the_shipped_policy():
    model, task, card = initial_policy(TrainConfig())
    shipped, shipped_card = load_policy(shipped_policies()["calm"])
    assert card == shipped_card
    assert task == make_task("clock_walk")
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), shipped.parameters(), strict=True)
    )


def test_other_shapes_and_tasks_start_cold():
    small = {"width": 16, "heads": 2, "experts": 4, "cold_start_steps": 2}
    model, task, card = initial_policy(TrainConfig(task="sort_digits", task_size=4, **small))
    assert (model.config.width, model.config.head_dim, model.config.num_experts) == (16, 8, 4)
    assert (card.task, card.task_size, task.digits) == ("sort_digits", 4, 4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"task": "sort_digits", "task_size": 4, "cold_start_steps": 2},
        {"experts": 32, "task_size": 20},
        {"dense": True, "width": 24, "heads": 2},
        {"top_k": 1, "norm_topk_prob": False, "layers": 3, "cold_start_noise": 0.25},
    ],
    ids=str,
)
def test_the_command_on_a_card_asks_for_the_same_policy(changes):
    from gspo_edu import cli
    from gspo_edu.config_flags import config_of
    from gspo_edu.initial import given_shape
    from gspo_edu.moe import ModelConfig
    from gspo_edu.tasks.base import VOCAB_SIZE

    config = TrainConfig(init="cold", rollouts=0, **changes)
    wanted = ModelConfig(VOCAB_SIZE, **given_shape(config))
    words = cold_start_command(config, wanted).split()
    assert words[0] == "gspo-edu"
    again = config_of(cli.parser().parse_args(words[1:]))
    assert ModelConfig(VOCAB_SIZE, **given_shape(again)) == wanted
    for name in ("init", "rollouts", "task", "task_size", "cold_start_steps", "cold_start_noise"):
        assert getattr(again, name) == getattr(config, name), name


def test_a_policy_file_decides_shape_and_size(tiny, tmp_path):
    from gspo_edu.checkpoint import Card, CheckpointError, save_policy

    model, path = tiny(), tmp_path / "mine.safetensors"
    save_policy(path, model, Card(model.config, "clock_walk", 6, "by hand", 0.1))
    loaded, task, _ = initial_policy(TrainConfig(init=str(path)))
    assert loaded.config == model.config
    assert task.longest == 6
    with pytest.raises(CheckpointError, match="num_experts=4, but the config asks for 8"):
        initial_policy(TrainConfig(init=str(path), experts=8))
    with pytest.raises(CheckpointError, match="started on clock_walk"):
        initial_policy(TrainConfig(init=str(path), task="sort_digits"))
