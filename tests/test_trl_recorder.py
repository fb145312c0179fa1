"""What the recorder writes of a real GRPOTrainer's run is what TRL trained on and logged."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gspo_edu.advantages import group_advantages
from gspo_edu.inspection.columns import RecordedRun
from gspo_edu.inspection.findings import findings
from gspo_edu.inspection.numbers import measure
from gspo_edu.inspection.reading import read_run
from gspo_edu.inspection.writing import write_run
from gspo_edu.objectives import grpo, gspo
from gspo_edu.trl_recorder import record_run

pytest.importorskip("trl", reason="the extra 'real' is not installed")

ROOT = Path(__file__).resolve().parents[1]
LIMIT, GROUP, BATCH = 12, 4, 8
SETTINGS = {
    "importance_sampling_level": "sequence",
    "loss_type": "grpo",
    "epsilon": 3e-3,
    "epsilon_high": 4e-3,
    "steps_per_generation": 4,
    "gradient_accumulation_steps": 1,
    "per_device_train_batch_size": BATCH,
    "num_generations": GROUP,
    "max_completion_length": LIMIT,
    "learning_rate": 1e-2,
    "lr_scheduler_type": "constant",
    "logging_steps": 1,
}


def ascending(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Share of neighbours in ascending order."""
    return [sum(b >= a for a, b in pairwise(ids)) / len(ids) for ids in completion_ids]


def made(steps: int, reward: Any = ascending, **changes: Any) -> Any:
    """A tiny Qwen3-MoE in TRL's trainer, which will make ``steps`` updates."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import parity_trl
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    torch.manual_seed(0)
    return parity_trl.trainer(SETTINGS | {"max_steps": steps} | changes, reward_funcs=reward)


def trained(
    folder: Path, steps: int = 8, **changes: Any
) -> tuple[RecordedRun, list[dict[str, Any]]]:
    """The recorded run, and what TRL logged for each update."""
    trainer = made(steps, **changes)
    recorder = record_run(trainer, folder)
    trainer.train()
    assert recorder.written == steps
    return read_run(folder), trainer.state.log_history[:steps]


def rows_of(run: RecordedRun, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(logp, logp_old, advantages, mask) of some answers, padded."""
    parts = []
    for values in (run.logp, run.logp_old, np.ones_like(run.logp)):
        lists = [torch.tensor(v) for v in np.split(values, np.cumsum(run.lengths)[:-1])]
        parts.append(pad_sequence([lists[int(row)] for row in rows], batch_first=True))
    assert run.advantages is not None
    return parts[0], parts[1], torch.tensor(run.advantages).float()[rows], parts[2].bool()


def rows_of_update(run: RecordedRun, update: int) -> Tensor:
    assert run.update is not None
    return torch.tensor(np.flatnonzero(run.update == update))


def test_a_disk_that_refuses_does_not_stop_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_on_the_second(path: Path, *given: Any) -> None:
        if path.name.startswith("update-000002"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write_run(path, *given)

    monkeypatch.setattr("gspo_edu.trl_recorder.write_run", full_on_the_second)
    trainer = made(3)
    recorder = record_run(trainer, tmp_path / "run")
    with pytest.warns(UserWarning, match=r"update 2 could not be recorded .*No space left"):
        trainer.train()
    assert trainer.state.global_step == 3
    assert (recorder.written, recorder.lost) == (2, 1)
    found = read_run(tmp_path / "run").update
    assert found is not None
    assert sorted(set(found.tolist())) == [1, 3]


@pytest.fixture(scope="module")
def sequence_run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return trained(tmp_path_factory.mktemp("recorded") / "run")


def test_losses_and_clip_ratios_are_those_that_trl_logged(sequence_run: Any) -> None:
    run, logged = sequence_run
    seen = []
    for update, log in enumerate(logged, start=1):
        given = rows_of(run, rows_of_update(run, update))
        assert len(given[0]) == BATCH
        result = gspo(*given, clip_low=SETTINGS["epsilon"], clip_high=SETTINGS["epsilon_high"])
        region = result.metrics["clip_fraction_seq"].item()
        assert region == pytest.approx(log["clip_ratio/region_mean"], abs=1e-6)
        assert result.loss.item() == pytest.approx(log["loss"], abs=2e-5)
        seen.append(region)
    assert max(seen) > 0.2
    assert min(seen) == 0


def test_rewards_groups_and_advantages_belong_together(sequence_run: Any) -> None:
    run, logged = sequence_run
    assert len(run) == 8 * BATCH
    assert np.bincount(run.group).tolist() == [GROUP] * (len(run) // GROUP)
    ours = group_advantages(torch.tensor(run.rewards), torch.tensor(run.group), ddof=1, eps=1e-4)
    np.testing.assert_allclose(ours, run.advantages, atol=1e-5)
    rollouts = [log["reward"] for log in logged if "reward" in log]
    assert len(rollouts) == 2
    for place, reward in enumerate(rollouts):
        of_rollout = (run.update - 1) // SETTINGS["steps_per_generation"] == place
        assert run.rewards[of_rollout].mean() == pytest.approx(reward, abs=1e-6)


def test_lengths_ends_and_settings(sequence_run: Any) -> None:
    run, logged = sequence_run
    assert 1 <= run.lengths.min() < run.lengths.max() == LIMIT
    assert (run.lengths[~run.finished] <= LIMIT).all()
    assert run.finished[run.lengths < LIMIT].mean() > 0.5
    lengths = [log["completions/mean_length"] for log in logged if "reward" in log]
    assert run.lengths.mean() == pytest.approx(np.mean(lengths), abs=1e-5)
    assert run.settings == {
        "level": "sequence",
        "clip_low": SETTINGS["epsilon"],
        "clip_high": SETTINGS["epsilon_high"],
        "max_length": LIMIT,
        "source": "TRL, loss_type grpo",
    }
    own = measure(run).numbers["clip"][-1]
    assert own["whose"] == "this run"
    wanted = np.mean([log["clip_ratio/region_mean"] for log in logged])
    assert own["clip_fraction_seq"] == pytest.approx(wanted, abs=1e-6)


def test_a_cap_is_not_recorded_as_a_range(tmp_path: Path) -> None:
    run, _ = trained(
        tmp_path / "run", 1, loss_type="cispo", importance_sampling_level="token", epsilon_high=5.0
    )
    assert run.settings == {
        "level": "token",
        "max_length": LIMIT,
        "source": "TRL, loss_type cispo",
    }
    assert "this run" not in {rule["whose"] for rule in measure(run).numbers["clip"]}


def test_token_level_with_accumulated_gradients(tmp_path: Path) -> None:
    run, logged = trained(
        tmp_path / "run",
        4,
        importance_sampling_level="token",
        gradient_accumulation_steps=2,
    )
    assert len(run) == 4 * 2 * BATCH
    seen = []
    for update, log in enumerate(logged, start=1):
        halves = rows_of_update(run, update).split(BATCH)
        assert len(halves) == 2
        found = []
        for rows in halves:
            result = grpo(*rows_of(run, rows), clip_low=3e-3, clip_high=4e-3)
            found.append(result.metrics["clip_fraction_token_weighted"].item())
        assert np.mean(found) == pytest.approx(log["clip_ratio/region_mean"], abs=1e-6)
        seen += found
    assert max(seen) > 0.1


def test_without_off_policy_steps_every_ratio_is_one(tmp_path: Path) -> None:
    run, _ = trained(tmp_path / "run", 2, steps_per_generation=1)
    assert run.logp.tolist() == run.logp_old.tolist()
    assert "all_ratios_are_one" in {f.name for f in findings(measure(run).numbers)}


def test_recording_changes_nothing(tmp_path: Path) -> None:
    weights = []
    for recorded in (False, True):
        trainer = made(5)
        if recorded:
            record_run(trainer, tmp_path / "run")
        trainer.train()
        weights.append({name: w.clone() for name, w in trainer.model.state_dict().items()})
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name


def test_a_run_that_dies_leaves_its_completed_updates(tmp_path: Path) -> None:
    calls = 0

    def dying(completion_ids: list[list[int]], **_: Any) -> list[float]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("the verifier died")
        return ascending(completion_ids)

    trainer = made(8, dying)
    record_run(trainer, tmp_path / "run")
    with pytest.raises(RuntimeError, match="the verifier died"):
        trainer.train()
    run = read_run(tmp_path / "run")
    assert run.update is not None
    assert sorted(set(run.update.tolist())) == [1, 2, 3, 4]
    assert len(run) == 4 * BATCH


def test_answers_that_nobody_could_judge(tmp_path: Path) -> None:
    def partly(completion_ids: list[list[int]], **_: Any) -> list[float | None]:
        given = ascending(completion_ids)
        return [None if place % 5 == 0 else r for place, r in enumerate(given)]

    run, _ = trained(tmp_path / "run", 4, reward=partly)
    assert run.rewards is not None
    assert run.advantages is not None
    missing = np.isnan(run.rewards)
    assert missing.sum() == -(-4 * BATCH // 5)
    assert (run.advantages[missing] == 0).all()
    assert measure(run).numbers["rewards"]["missing"] == missing.sum()


TWO_PROCESSES = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
import test_trl_recorder as here
trainer = here.made(8, per_device_train_batch_size=here.BATCH // 2)
here.record_run(trainer, sys.argv[2])
trainer.train()
if trainer.accelerator.is_main_process:
    with open(sys.argv[3], "w") as file:
        json.dump(trainer.state.log_history[:8], file)
# A process that ends before the other, with the group alive, can abort in gloo's threads.
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs gloo between processes")
def test_two_processes_write_their_answers_apart(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    words = [script, ROOT / "tests", tmp_path / "run", tmp_path / "log.json"]
    done = subprocess.run(
        [*launch, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert len(list((tmp_path / "run").glob("*-process-001.parquet"))) == 8
    run, seen = read_run(tmp_path / "run"), []
    for update, log in enumerate(json.loads((tmp_path / "log.json").read_text()), start=1):
        given = rows_of(run, rows_of_update(run, update))
        assert len(given[0]) == BATCH
        result = gspo(*given, clip_low=SETTINGS["epsilon"], clip_high=SETTINGS["epsilon_high"])
        region = result.metrics["clip_fraction_seq"].item()
        assert region == pytest.approx(log["clip_ratio/region_mean"], abs=1e-6)
        seen.append(region)
    assert max(seen) > 0.2
    assert run.rewards is not None
    assert run.group is not None
    assert np.bincount(run.group).tolist() == [GROUP] * (8 * BATCH // GROUP)
    ours = group_advantages(torch.tensor(run.rewards), torch.tensor(run.group), ddof=1, eps=1e-4)
    np.testing.assert_allclose(ours, run.advantages, atol=1e-5)


def test_what_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="trainer is object without _generate_and_score"):
        record_run(object(), tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "old.parquet").write_text("")
    with pytest.raises(ValueError, match=r"holds old.parquet already; expected an empty folder"):
        record_run(made(1), tmp_path / "run")
