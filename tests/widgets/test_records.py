"""What Routes and TrainingReplay show: records of real runs, and the numbers read from them."""

import copy
import json
import math

import pytest
import torch

pytest.importorskip("anywidget")

from gspo_edu.batch import Rollout
from gspo_edu.moe import ModelConfig, TinyMoE
from gspo_edu.moe.routes import replay_gates
from gspo_edu.sampler import sampled_rollout
from gspo_edu.stored_studies import stored_study
from gspo_edu.tasks import ClockWalk
from gspo_edu.tasks.base import VOCAB_SIZE, prompts_of_split
from gspo_edu.widgets import Routes, TrainingReplay, replay_record, route_record
from gspo_edu.widgets.route_record import make_record, shipped_record


@pytest.fixture(scope="module")
def run():
    """A rollout of a tiny model, and the model before and after two steps."""
    torch.manual_seed(0)
    policy, task = TinyMoE(ModelConfig(VOCAB_SIZE)), ClockWalk()
    dice = torch.Generator().manual_seed(1)
    prompts = prompts_of_split(task, 2, dice, held_out=False)
    rollout = sampled_rollout(policy, task, prompts, 2, generator=dice)
    policies = [policy]
    for _ in range(2):
        policy = copy.deepcopy(policy)
        with torch.no_grad():
            for weight in policy.parameters():
                weight += 0.05 * torch.randn_like(weight)
        policies.append(policy)
    return policies, rollout


def test_route_record_is_the_rollout(run):
    policies, rollout = run
    record = json.loads(json.dumps(route_record(policies, rollout, 1)))
    length = int(rollout.mask[1].sum())
    assert len(record["tokens"]) == length
    widget = Routes(record, update=0)
    sampled = rollout.routes.answer[1, :length]
    assert widget.experts().sort().values.tolist() == sampled.sort().values.tolist()
    assert widget.drift == 0
    assert record["logp"][0] == pytest.approx(rollout.logp_old[1, :length].tolist(), abs=1e-4)
    after = Routes(record, update=2)
    assert after.drift > 0
    assert len(after.flips()) > 0
    held = Routes(record, update=2, replay=True)
    assert held.drift == 0
    assert held.flips() == []
    assert torch.equal(held.experts(), widget.experts())
    logits = torch.tensor(record["replayed_logits"][1], dtype=torch.float64)
    torch.testing.assert_close(held.gates(), replay_gates(logits, held.experts()))
    assert held.ratios != after.ratios
    assert held.gates().sum(dim=-1).flatten().tolist() == pytest.approx([1.0] * 2 * length)


def test_route_record_refuses(run):
    policies, rollout = run
    with pytest.raises(ValueError, match=r"row is 9; expected 0 to 3"):
        route_record(policies, rollout, 9)
    with pytest.raises(ValueError, match=r"policies gives 1; expected"):
        route_record(policies[:1], rollout, 0)
    bare = Rollout(**{**vars(rollout), "routes": None})
    with pytest.raises(ValueError, match=r"rollout.routes is None"):
        route_record(policies, bare, 0)


def test_shipped_route_record():
    record = shipped_record()
    widget = Routes()
    assert widget.flips()
    assert (widget.token - 1, widget.layer) == widget.flips()[0]
    assert 0.05 < widget.drift < 0.3
    for moment, logp in enumerate(record["logp"]):
        ratios = Routes(update=moment).ratios
        wanted = [math.exp(b - a) for a, b in zip(record["logp"][0], logp, strict=True)]
        assert ratios == wanted
    assert Routes(update=99).moment() == len(record["logp"]) - 1
    assert "0 of 44 expert slots (0.0%)" in Routes(replay=True).words()


@pytest.mark.slow
def test_shipped_route_record_can_be_made_anew():
    shipped, made = shipped_record(), make_record()
    assert {key: made[key] for key in ("layers", "top_k")} == {
        key: shipped[key] for key in ("layers", "top_k")
    }
    widget = Routes(made)
    assert len({token for token, _ in widget.flips()}) >= 3  # the same on another machine


@pytest.mark.parametrize("study", ["calm", "stormy"])
def test_replay_is_the_stored_study(study):
    stored = stored_study(study)
    widget = TrainingReplay(study, rollout=3)
    setting = widget.record["setting"]
    for arm in ("GRPO", "GSPO"):
        rows = [
            row
            for row in stored.updates
            if (row["arm"], row["setting"], row["rollout"]) == (arm, setting, 3)
        ]
        for metric, value in widget.values(arm).items():
            mean = sum(row[metric] for row in rows) / len(rows)
            assert value == pytest.approx(mean, abs=1e-4)
    widget.seed = 2
    of_seed = [row["reward"] for row in rows if row["seed"] == 2]
    assert widget.values("GSPO")["reward"] == pytest.approx(of_seed[0], abs=1e-4)
    assert f"rollout 3 of {widget.last}, seed 2" in widget.words()
    widget.rollout = 1000
    assert widget.values("GSPO")["reward"] == widget.curve("reward", "GSPO")[-1]


def test_a_run_that_ended_leaves_the_mean():
    record = replay_record("calm")
    record["values"]["reward"][0][0][5:] = [None] * (len(record["values"]["reward"][0][0]) - 5)
    others = [seed[9] for seed in record["values"]["reward"][0][1:]]
    widget = TrainingReplay(record=record, rollout=10)
    assert widget.values("GRPO")["reward"] == pytest.approx(sum(others) / len(others))
    widget.seed = record["seeds"][0]
    assert math.isnan(widget.values("GRPO")["reward"])
    assert widget.picture() is not None


def test_replay_refuses():
    with pytest.raises(ValueError, match=r"name is 'storm'"):
        TrainingReplay("storm")
    with pytest.raises(ValueError, match=r"expected two arms"):
        TrainingReplay(arms=("GRPO",))
    with pytest.raises(ValueError, match=r"arm is 'SAPO'"):
        TrainingReplay(arms=("GRPO", "SAPO"))
    with pytest.raises(ValueError, match=r"metric is 'loss'"):
        TrainingReplay().curve("loss", "GRPO")
    with pytest.raises(ValueError, match=r"arm is 'PPO'"):
        TrainingReplay().values("PPO")
