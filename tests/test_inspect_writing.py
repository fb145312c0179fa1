"""Recorded trainings: the file holds what the updates saw, and the training is the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gspo_edu.config import TrainConfig
from gspo_edu.inspection.numbers import measure
from gspo_edu.inspection.reading import read_run
from gspo_edu.inspection.writing import record_training, rollout_file, write_run
from gspo_edu.moe import ModelConfig, TinyMoE
from gspo_edu.sampler import answer_log_probs, sampled_rollout
from gspo_edu.tasks import ClockWalk
from gspo_edu.tasks.base import VOCAB_SIZE, prompts_of_split
from gspo_edu.trainer import Trainer


def trainer(**changes: object) -> Trainer:
    given = {"prompts": 8, "group_size": 4, "rollouts": 2, "eval_every": 0, "eval_prompts": 2}
    config = TrainConfig(**{**given, "lr": 1e-2, "device": "cpu", **changes})  # type: ignore[arg-type]
    torch.manual_seed(0)
    model = TinyMoE(
        ModelConfig(vocab_size=VOCAB_SIZE, width=16, num_layers=2, num_heads=2, num_experts=4)
    )
    return Trainer(config, model, ClockWalk())


@pytest.mark.parametrize("objective", ["gspo", "grpo"])
def test_a_recorded_training_says_what_its_records_say(objective: str, tmp_path: Path) -> None:
    made = trainer(objective=objective)
    record_training(made, tmp_path / "run")
    records = list(made.records())
    run = read_run(tmp_path / "run")
    assert len(run) == 2 * 8 * 4
    assert run.group is not None
    assert np.bincount(run.group).tolist() == [4] * 16
    assert run.routes is not None
    files = sorted((tmp_path / "run").glob("*.parquet"))
    assert len(files) == len(records) == 8
    drifts = []
    for file, record in zip(files, records, strict=True):
        numbers = measure(read_run(file)).numbers
        own = numbers["clip"][-1]
        assert own["whose"] == "this run"
        assert own["objective"] == objective
        for name in ("clip_fraction_seq", "outside_fraction_token_weighted"):
            assert own[name] == pytest.approx(record[name], abs=1e-6)
        token = numbers["token_log_ratio"]
        assert token["std"] == pytest.approx(record["token_log_ratio_std"], rel=1e-3, abs=1e-7)
        drift = numbers["routes"]["drift_per_rollout"]
        assert drift == pytest.approx(record["drift_per_rollout"], abs=1e-6)
        drifts.append(drift)
    assert max(drifts) > 0


def test_recording_changes_nothing(tmp_path: Path) -> None:
    plain, recorded = trainer(), trainer()
    record_training(recorded, tmp_path / "run")
    assert list(plain.records()) == list(recorded.records())


def test_live_routes_are_written_under_replay(tmp_path: Path) -> None:
    made = trainer(objective="grpo", replay="r2")
    record_training(made, tmp_path / "run")
    records = list(made.records())
    assert max(record["drift_per_rollout"] for record in records) > 0
    last = sorted((tmp_path / "run").glob("*.parquet"))[-1]
    drift = measure(read_run(last)).numbers["routes"]["drift_per_rollout"]
    assert drift == pytest.approx(records[-1]["drift_per_rollout"], abs=1e-6)


def test_a_rollout_file_holds_the_rollout(tmp_path: Path) -> None:
    made = trainer()
    dice = torch.Generator().manual_seed(1)
    prompts = prompts_of_split(made.task, 4, dice, held_out=False)
    rollout = sampled_rollout(made.model, made.task, prompts, 4, generator=dice)
    list(made.records())  # a later policy
    with torch.no_grad():
        score = answer_log_probs(made.model, rollout)
    rollout_file(tmp_path / "run.parquet", rollout, score.logp, settings={"max_length": 24})
    found = read_run(tmp_path / "run.parquet")
    np.testing.assert_array_equal(found.logp, score.logp[rollout.mask])
    np.testing.assert_array_equal(found.logp_old, rollout.logp_old[rollout.mask])
    assert found.lengths.tolist() == rollout.lengths.tolist()
    assert found.rewards is not None
    assert found.rewards.tolist() == rollout.rewards.tolist()
    assert found.settings == {"max_length": 24}
    assert found.routes is None


def test_half_precision_and_empty_answers_are_written(tmp_path: Path) -> None:
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    logp = torch.tensor([[-1.0, -2.0, 9.0], [9.0, 9.0, 9.0]], dtype=torch.bfloat16)
    write_run(tmp_path / "run.parquet", mask, {"logp": logp, "logp_old": logp})
    found = read_run(tmp_path / "run.parquet")
    assert found.lengths.tolist() == [2, 0]
    assert found.logp.tolist() == [-1, -2]


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    ones = torch.ones(2, 3)
    with pytest.raises(ValueError, match="column 'reward' is unknown; expected logp"):
        write_run(tmp_path / "run.parquet", ones, {"reward": [1.0, 2.0]})
    with pytest.raises(ValueError, match="trainer has a critic"):
        record_training(trainer(objective="ppo", critic=True), tmp_path / "run")
    made = trainer()
    record_training(made, tmp_path / "run")
    list(made.records())
    with pytest.raises(ValueError, match=r"holds update-000001.parquet already"):
        record_training(trainer(), tmp_path / "run")
