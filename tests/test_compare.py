"""Objectives side by side: paired seeds, honest intervals, no run made twice."""

import subprocess
import sys

import numpy as np
import pytest

from gspo_edu import compare
from gspo_edu.compare import comparison_table, folder_of, mean_with_interval, run_all, summary_of
from gspo_edu.intervals import mean_interval, student_t_quantile
from gspo_edu.run_lock import only_one
from gspo_edu.runs import RunFolderError, prepare_folder, read_lines, run


@pytest.fixture
def cells(quick):
    """GRPO and GSPO on two seeds."""
    return [
        quick(objective=objective, seed=seed, rollouts=1)
        for objective in ("grpo", "gspo")
        for seed in (0, 1)
    ]


def made_up(objective, seed, gain):
    return {
        "objective": objective,
        "seed": seed,
        "held_out_reward_before": 0.4,
        "held_out_reward_after": 0.4 + gain,
        "held_out_exact_after": 0.125,
        "clip_fraction_seq": 0.0625,
        "drift_per_update": 0.03,
        "drift_per_rollout": 0.05,
    }


def files_of(out):
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.name != "timings.jsonl"
    }


def test_processes_beside_each_other_make_the_runs_of_one_after_the_other(tmp_path, cells):
    alone = run_all(tmp_path / "alone", cells, jobs=1, overwrite=False)
    beside = run_all(tmp_path / "beside", cells, jobs=2, overwrite=False)
    assert alone == beside
    assert files_of(tmp_path / "alone") == files_of(tmp_path / "beside")
    assert [(s["objective"], s["seed"]) for s in alone] == [
        ("grpo", 0), ("grpo", 1), ("gspo", 0), ("gspo", 1),
    ]  # fmt: skip
    prepare_folder(tmp_path / "single", cells[2], overwrite=False)
    run(tmp_path / "single", cells[2])
    metrics = folder_of(tmp_path / "alone", cells[2]) / "metrics.jsonl"
    assert (tmp_path / "single" / "metrics.jsonl").read_bytes() == metrics.read_bytes()


def test_what_is_finished_is_not_run_again(tmp_path, cells, monkeypatch):
    first = run_all(tmp_path, cells[:1], jobs=1, overwrite=False)
    trained = []

    def watching(folder, config):
        trained.append(folder.name)
        return run(folder, config)

    monkeypatch.setattr("gspo_edu.runs.run", watching)
    both = run_all(tmp_path, cells[:2], jobs=1, overwrite=False)
    assert trained == ["grpo-seed1"]
    assert both[0] == first[0]
    run_all(tmp_path, cells[:2], jobs=1, overwrite=True)
    assert trained == ["grpo-seed1", "grpo-seed0", "grpo-seed1"]


def test_what_was_interrupted_goes_on(tmp_path, quick):
    config = quick(rollouts=2)
    folder = folder_of(tmp_path / "stopped", config)
    prepare_folder(folder, config, overwrite=False)

    def stop(records):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(folder, config, on_rollout=stop)
    run_all(tmp_path / "stopped", [config], jobs=1, overwrite=False)
    run_all(tmp_path / "whole", [config], jobs=1, overwrite=False)
    assert files_of(tmp_path / "stopped") == files_of(tmp_path / "whole")


def test_runs_with_other_settings_are_not_mixed_in(tmp_path, cells, quick):
    run_all(tmp_path, cells[:1], jobs=1, overwrite=False)
    before = files_of(tmp_path)
    other = quick(objective="grpo", seed=0, rollouts=1, lr=1e-4)
    with pytest.raises(RunFolderError, match="other settings") as of_compare:
        run_all(tmp_path, [other], jobs=1, overwrite=False)
    assert files_of(tmp_path) == before
    with pytest.raises(RunFolderError) as of_train:
        prepare_folder(folder_of(tmp_path, other), other, overwrite=False)
    assert str(of_train.value) == str(of_compare.value)


def test_summaries_hold_the_means_of_the_metrics(tmp_path, cells):
    (summary,) = run_all(tmp_path, cells[2:3], jobs=1, overwrite=False)
    records = read_lines(folder_of(tmp_path, cells[2]) / "metrics.jsonl")
    for name in ("clip_fraction_seq", "drift_per_update", "drift_per_rollout"):
        assert summary[name] == pytest.approx(np.mean([record[name] for record in records]))
    assert summary == summary_of(folder_of(tmp_path, cells[2]))
    assert summary["drift_per_update"] > 0


def test_the_table_pairs_by_seed():
    grpo = [0.10, 0.20, 0.30, 0.40, 0.50]
    gspo = [0.13, 0.22, 0.33, 0.44, 0.53]  # 0.03 better on each seed but for rounding
    summaries = [made_up("grpo", seed, gain) for seed, gain in enumerate(grpo)]
    summaries += [made_up("gspo", seed, gain) for seed, gain in reversed(list(enumerate(gspo)))]
    table = comparison_table(summaries)
    (paired,) = [line for line in table.splitlines() if line.startswith("gspo minus grpo")]
    assert "+0.030 (" in paired
    assert "5 seeds" in paired
    assert paired.endswith("a difference")
    assert "no clear difference" not in paired
    assert "grpo: mean gain +0.300 (" in table
    rows = [line.split() for line in table.splitlines() if line.startswith("grpo  ")]
    assert rows[1] == ["grpo", "1", "0.400", "0.600", "+0.200", "12.5%", "0.0625", "3.00%"]


def test_noise_is_no_difference():
    differences = [0.1, -0.1, 0.05, -0.04, 0.0]
    summaries = [made_up("grpo", seed, 0.3) for seed in range(5)]
    summaries += [made_up("gspo", seed, 0.3 + d) for seed, d in enumerate(differences)]
    assert "no clear difference" in comparison_table(summaries)


@pytest.mark.parametrize(
    ("probability", "freedom", "wanted"),
    [
        (0.975, 1, 12.7062),
        (0.975, 4, 2.77645),
        (0.95, 30, 1.69726),
        (0.9999, 4, 13.0337),
        (0.975, 1000, 1.96234),
    ],
)
def test_quantiles_of_student_as_printed_in_tables(probability, freedom, wanted):
    assert student_t_quantile(probability, freedom) == pytest.approx(wanted, rel=1e-5)


def test_the_interval_by_hand():
    low, high = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.77645 * 2.5**0.5 / 5**0.5
    assert (low, high) == pytest.approx((3 - half, 3 + half), rel=1e-5)
    assert mean_interval([0.3, 0.3, 0.3]) == pytest.approx((0.3, 0.3))


def test_the_interval_holds_the_mean_as_often_as_it_says():
    dice = np.random.default_rng(0)
    intervals = [mean_interval(dice.normal(size=5).tolist()) for _ in range(400)]
    held = np.mean([low <= 0 <= high for low, high in intervals])
    assert 0.92 < held < 0.98


def test_one_value_has_no_interval():
    with pytest.raises(ValueError, match="values has 1 numbers; expected one per seed, of two"):
        mean_interval([0.5])


def test_means_say_how_many_seeds():
    assert mean_with_interval([0.5, 0.5]).startswith("+0.500 (95% interval +0.500 to")
    assert "2 seeds" in mean_with_interval([0.5, 0.5])


def test_one_comparison_at_a_time(tmp_path, cells):
    with only_one(tmp_path), pytest.raises(RunFolderError, match="another process trains in"):
        run_all(tmp_path, cells[:1], jobs=1, overwrite=False)
    assert [path.name for path in tmp_path.iterdir()] == ["run.lock"]
    with only_one(folder_of(tmp_path, cells[0])), pytest.raises(RunFolderError, match="grpo-seed0"):
        run_all(tmp_path, cells[:1], jobs=1, overwrite=False)
    run_all(tmp_path, cells[:1], jobs=1, overwrite=False)


def test_no_folder_for_what_cannot_start(tmp_path, quick):
    with pytest.raises(ValueError, match="task is 'chess'"):
        run_all(tmp_path / "out", [quick(task="chess")], jobs=1, overwrite=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("jobs", [1, 8, None])
def test_no_more_processes_than_runs_that_are_left(tmp_path, cells, monkeypatch, jobs):
    run_all(tmp_path, cells[:1], jobs=1, overwrite=False)
    asked, real = [], compare.Parallel

    def watching(n_jobs, **rest):
        asked.append(n_jobs)
        assert rest["batch_size"] == 1, "or one process could get several runs, another none"
        return real(n_jobs=n_jobs, **rest)

    monkeypatch.setattr(compare, "Parallel", watching)
    run_all(tmp_path, cells[:2], jobs=jobs, overwrite=False)
    run_all(tmp_path, cells[:2], jobs=jobs, overwrite=False)
    assert asked == [1, 1], "one run was left, then none"


@pytest.mark.parametrize(("threads", "processes"), [(1, 4), (2, 2), (3, 1), (8, 1)])
def test_processes_and_their_threads_fit_the_cores(
    tmp_path, quick, monkeypatch, threads, processes
):
    asked = []

    class Stopped(Exception):
        pass

    def watching(n_jobs, **rest):
        asked.append(n_jobs)
        raise Stopped

    monkeypatch.setattr(compare, "cpu_count", lambda: 4)
    monkeypatch.setattr(compare, "Parallel", watching)
    configs = [quick(seed=seed, threads=threads) for seed in range(5)]
    with pytest.raises(Stopped):
        run_all(tmp_path, configs, jobs=None, overwrite=False)
    assert asked == [processes]


def test_processes_are_started_before_this_one_has_loaded_torch(tmp_path):
    """Torch takes more than a second to load: all processes do it at the same time."""
    code = f"""
import sys
from pathlib import Path
from gspo_edu import compare
from gspo_edu.config import TrainConfig

started, real = [], compare.Parallel

def watching(**keywords):
    started.append("torch" in sys.modules)
    return real(**keywords)

compare.Parallel = watching
small = {{"rollouts": 1, "prompts": 2, "group_size": 2, "mini_batches": 1, "eval_prompts": 2}}
configs = [
    TrainConfig(objective=name, seed=seed, device="cpu", **small)
    for name, seed in (("grpo", 0), ("gspo", 1))
]
found = compare.run_all(Path({str(tmp_path / "out")!r}), configs, jobs=2, overwrite=False)
print(started, [run["seed"] for run in found])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "[False, True] [0, 1]\n", done.stderr


def test_a_refusal_comes_before_any_process_is_left_alone(tmp_path, cells, quick):
    run_all(tmp_path, cells[:1], jobs=1, overwrite=False)
    others = [quick(objective="grpo", seed=seed, rollouts=1, lr=1e-4) for seed in (0, 1, 2)]
    with pytest.raises(RunFolderError, match="other settings"):
        run_all(tmp_path, others, jobs=2, overwrite=False)
    assert len(run_all(tmp_path, cells[:2], jobs=2, overwrite=False)) == 2


@pytest.mark.parametrize(
    "content", ["", "{", "{}", "[]", "null", "3", '{"objective": "grpo", "seed": 0, "updates": 2}']
)
def test_damaged_summaries_are_named_and_can_be_made_again(tmp_path, cells, content):
    (wanted,) = run_all(tmp_path, cells[:1], jobs=1, overwrite=False)
    path = folder_of(tmp_path, cells[0]) / "summary.json"
    path.write_text(content)
    with pytest.raises(RunFolderError, match=r"grpo-seed0.summary\.json is damaged; delete it"):
        run_all(tmp_path, cells[:1], jobs=1, overwrite=False)
    path.unlink()
    assert run_all(tmp_path, cells[:1], jobs=1, overwrite=False) == [wanted]


def test_a_finished_run_without_its_metrics_is_noticed(tmp_path, cells):
    (summary,) = run_all(tmp_path, cells[:1], jobs=1, overwrite=False)
    path = folder_of(tmp_path, cells[0]) / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == summary["updates"] == 2
    for left in (0, 1):
        path.write_text("".join(lines[:left]))
        with pytest.raises(RunFolderError, match=rf"holds {left} updates, but the run has made 2"):
            run_all(tmp_path, cells[:1], jobs=1, overwrite=False)


def test_what_was_not_measured_is_a_dash(tmp_path, quick):
    routed = quick(rollouts=0)
    dense = quick(rollouts=1, init="cold", cold_start_steps=1, dense=True)
    table = comparison_table(run_all(tmp_path / "none", [routed], jobs=1, overwrite=False))
    assert table.splitlines()[1].split()[-2:] == ["-", "-"]
    assert "nan" not in table
    table = comparison_table(run_all(tmp_path / "dense", [dense], jobs=1, overwrite=False))
    assert table.splitlines()[1].endswith("no experts")
