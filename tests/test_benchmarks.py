"""The benchmarks run, report what they measured, and notice what is too slow or fails."""

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from script_modules import script_module

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def load(name):
    return script_module(f"benchmarks/{name}.py")


def report_of(name, *words):
    """What the benchmark's last line says, whatever its exit status."""
    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"{name}.py", *words, "--json"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def lessons(monkeypatch, tmp_path):
    """The benchmark of lessons, with a course of its own in an empty folder."""
    module = load("lessons")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    for kind in ("lessons", "exercises"):
        (tmp_path / kind).mkdir()
    return module


def write(path, *cells):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    nbformat.write(notebook, path)
    return path


UPDATE = """
import torch
weight = torch.ones(2, requires_grad=True)
weight.sum().backward()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "limit"),
    [
        (UPDATE, 60),
        (UPDATE + "from gspo_edu.adamw import AdamW\nAdamW([weight], lr=1e-3).step()", 180),
        (UPDATE + "torch.optim.SGD([weight], lr=1e-3).step()", 180),
        ("import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'input()'])", 180),
    ],
    ids=["no step", "our optimiser", "torch's optimiser", "another process"],
)
def test_lessons_that_train_have_more_time(lessons, tmp_path, code, limit):
    path = write(tmp_path / "lessons" / "01_x.ipynb", code)
    before = path.read_bytes()
    row = lessons.run_notebook(path)
    assert (row.failure, row.limit, row.good) == ("", limit, True)
    assert row.seconds > 0
    assert path.read_bytes() == before
    assert [p.name for p in (tmp_path / "lessons").iterdir()] == ["01_x.ipynb"]


@pytest.mark.slow
def test_a_lesson_that_fails_or_is_too_slow_is_noticed(lessons, tmp_path, monkeypatch, capsys):
    write(tmp_path / "lessons" / "01_fails.ipynb", "open('left.txt', 'w').close()", "1 / 0")
    write(tmp_path / "exercises" / "01_slow.ipynb", "x = 1")
    monkeypatch.setattr(lessons, "LIMIT", 0.1)
    monkeypatch.setattr(sys, "argv", ["lessons.py", "--json"])
    assert lessons.main() == 1
    *_, fails, slow, report = capsys.readouterr().out.splitlines()
    assert fails.startswith("lessons/01_fails")
    assert fails.endswith("ZeroDivisionError: division by zero")
    assert slow.startswith("exercises/01_slow")
    assert slow.endswith("too slow")
    assert not json.loads(report)["good"]
    assert not list(tmp_path.rglob("left.txt")), "lessons run in a folder of their own"


def test_a_lesson_that_does_not_exist_is_named(lessons, tmp_path):
    write(tmp_path / "lessons" / "01_x.ipynb", "1")
    with pytest.raises(SystemExit, match="no lesson starts with '09'"):
        lessons.notebooks(["01", "09"])
    assert [path.name for path in lessons.notebooks(["01"])] == ["01_x.ipynb"]


@pytest.mark.slow
def test_runs_beside_each_other_are_measured():
    report = report_of("parallel", "--runs", "2", "--rollouts", "1", "--jobs", "2")
    assert report["cores"] == 2
    for found in (report["beside"], report["alone"]):
        assert 0 < found["run_cpu_seconds"] < found["wall_seconds"] * 2
    ratio = 2 * report["beside"]["wall_seconds"] / report["beside"]["run_cpu_seconds"]
    assert report["ratios"]["beside"] == pytest.approx(ratio)
    assert ratio > 1


@pytest.mark.slow
def test_the_start_is_measured():
    medians = report_of("imports", "--times", "1")["median_seconds"]
    assert 0 < medians["import gspo_edu"] < medians["import gspo_edu.trainer"]


@pytest.mark.slow
def test_the_cost_of_a_critic_is_measured():
    report = report_of("critic", "--cycles", "1")
    grpo, ppo = report["medians"]["GRPO"], report["medians"]["PPO with critic"]
    assert grpo["tokens"] == ppo["tokens"], "both sides do the same work"
    assert grpo["critic_seconds"] == 0 < ppo["critic_seconds"]
    for name in ("weights_mb", "gradients_mb", "optimizer_mb"):
        assert 1.9 < report["ratios"][name] < 2, "a head of one output is smaller than the policy's"
    assert grpo["optimizer_mb"] == pytest.approx(2 * grpo["weights_mb"], rel=1e-3)
    assert report["ratios"]["seconds_per_rollout"] > 1
    assert report["ratios"]["above_start_mb"] > 1


@pytest.mark.slow
def test_a_batch_of_seeds_is_measured():
    seeds = report_of("batched", "--counts", "1", "4", "--repeats", "1")["seeds"]
    for name in ("rollout", "update"):
        found = seeds["4"][name]
        assert found["growth"] * found["gain"] == pytest.approx(4)
        assert 0 < seeds["1"][name]["operations"] <= found["operations"]
        assert found["operations"] < 1.1 * seeds["1"][name]["operations"], "seeds are no launches"


def test_the_cost_of_inspect_is_measured():
    report = report_of("inspect_run", "--tokens", "20000")
    assert report["over"] == []
    assert set(report["cost"]) == set(load("inspect_run").KINDS)
    for cost in report["cost"].values():
        assert 0 < cost["processor_seconds"] < 10
        assert 0.1 < cost["gigabytes"] < 2
