"""Studies: whatever happens on the way, the same runs, the same tables, and nothing hidden."""

import dataclasses
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time

import joblib
import numpy as np
import pytest

from gspo_edu import study_runs
from gspo_edu.cli import main
from gspo_edu.config import TYPES, TrainConfig
from gspo_edu.run_files import METRICS, read_config, read_lines
from gspo_edu.run_lock import RunFolderError, only_one
from gspo_edu.runs import run
from gspo_edu.study import read_study, run_study
from gspo_edu.study_runs import (
    DIVERGED,
    FAILED,
    FINISHED,
    outcome_of,
    run_all,
    run_folder,
    run_name,
    start_name,
)
from gspo_edu.study_table import read_table

TINY = """
rollouts = 2
prompts = 4
group_size = 4
mini_batches = 2
eval_every = 0
eval_prompts = 4
drift_probe = 4
device = "cpu"
"""
ARMS = """
[[arm]]
name = "GRPO"
objective = "grpo"

[[arm]]
name = "GSPO"
objective = "gspo"
"""
# A decay that turns weights into infinities with the first step.
BROKEN = """
[[arm]]
name = "broken"
objective = "gspo"
lr = 1.0
weight_decay = 3.3e38
"""
TABLES = ("updates.csv.gz", "summary.txt")
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


@pytest.fixture
def planned(tmp_path):
    """Reads a tiny study file with the given lines and arms."""

    def reading(first="seed = [0, 1]\n", arms=ARMS, name="tiny"):
        path = tmp_path / f"{name}.toml"
        path.write_text(first + TINY + arms, encoding="utf-8")
        return read_study(path)

    return reading


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study that is done, with its result; not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    path = folder / "made.toml"
    path.write_text("seed = [0, 1]\nlr = [1e-3, 4e-3]\n" + TINY + ARMS + BROKEN, encoding="utf-8")
    study = read_study(path)
    return study, run_study(study, folder / "out", jobs=1)


def stamps(out):
    """Bytes and time of every file of the runs and their starts."""
    return {
        path.relative_to(out): (path.read_bytes(), path.stat().st_mtime_ns)
        for part in ("runs", "starts")
        for path in (out / part).rglob("*")
        if path.is_file()
    }


def tables(out):
    return {name: (out / name).read_bytes() for name in TABLES}


def without_cost(rows):
    # As text, because NaN is not equal to itself.
    return str([{k: v for k, v in row.items() if "seconds" not in k} for row in rows])


def test_every_run_of_the_grid_is_made_as_gspo_edu_train_makes_it(made, tmp_path):
    study, result = made
    cells = [cell for cell in study.cells if cell.arm != "broken"]
    assert len(cells) == 8
    for cell in cells:
        folder = run_folder(result.out, cell.config())
        assert read_config(folder) == cell.config()
        assert outcome_of(folder).status == FINISHED
        assert outcome_of(folder).cpu_seconds > 0
    study_runs.claim_folder(tmp_path / "alone", cells[3].config(), overwrite=False)
    run(tmp_path / "alone", cells[3].config())
    alone = (tmp_path / "alone" / METRICS).read_bytes()
    assert (run_folder(result.out, cells[3].config()) / METRICS).read_bytes() == alone


def test_the_table_of_updates_holds_every_record(made):
    study, result = made
    rows = read_table(result.out / "updates.csv.gz")
    assert [*rows[0]][:9] == [
        *("study", "arm", "setting", "objective", "lr", "weight_decay", "seed"),
        *("rollout", "update"),
    ]
    assert len(rows) == 8 * 4 + 2 * 2, "a broken run ends with its first rollout"
    for cell in study.cells:
        records = read_lines(run_folder(result.out, cell.config()) / METRICS)
        setting = ", ".join(f"{name} {value}" for name, value in cell.setting)
        mine = [
            row
            for row in rows
            if (row["arm"], row["seed"]) == (cell.arm, cell.seed)
            and row["setting"] == (setting or "the only setting")
        ]
        assert len(mine) == len(records) > 0
        for row, record in zip(mine, records, strict=True):
            for name, value in record.items():
                assert row[name] == (None if value is None else pytest.approx(value, rel=1e-6))
    assert {row["held_out_reward"] is None for row in rows} == {True, False}


def test_the_table_of_runs_holds_every_run(made):
    study, result = made
    rows = read_table(result.out / "runs.csv")
    assert [(row["arm"], row["lr"], row["seed"]) for row in rows] == [
        (cell.arm, cell.config().lr, cell.seed) for cell in study.cells
    ]
    for row, cell in zip(rows, study.cells, strict=True):
        folder = run_folder(result.out, cell.config())
        records = read_lines(folder / METRICS)
        assert row["updates"] == len(records)
        assert row["seconds"] > 0
        assert row["run"] == folder.name
        if row["status"] == FINISHED:
            summary = json.loads((folder / "summary.json").read_text())
            after = pytest.approx(summary["held_out_reward_after"], rel=1e-6)
            assert row["held_out_reward_after"] == after
            mean = np.mean([record["clip_fraction_seq"] for record in records])
            assert row["clip_fraction_seq"] == pytest.approx(mean, rel=1e-6)
            last = [records[1]["kl_from_old"], records[3]["kl_from_old"]]
            assert row["step_size"] == pytest.approx(np.mean(last), rel=1e-6)


def test_a_run_that_diverges_stays_in_sight(made):
    _, result = made
    rows = [row for row in read_table(result.out / "runs.csv") if row["arm"] == "broken"]
    assert [row["status"] for row in rows] == [DIVERGED] * 2
    assert all("not finite: training has diverged" in row["reason"] for row in rows)
    assert [row["held_out_reward_after"] for row in rows] == [None] * 2
    assert "DIVERGED on 2 seeds (0, 1), counted as 0; mean of the others -" in result.text
    assert "broken  mean 0.000  median 0.000" in result.text


def test_the_description_makes_every_run_again(made):
    study, result = made
    text = (result.out / "study.json").read_text(encoding="utf-8")
    found = json.loads(text)
    configs = {
        TrainConfig(**group["config"], seed=seed)
        for group in found["groups"]
        for seed in group["seeds"]
    }
    assert configs == {cell.config() for cell in study.cells}
    assert found["file"] == study.text
    assert found["command"].endswith(" study made.toml")
    assert found["machine"]["cores"] == os.cpu_count()
    assert {*found["machine"]} == {"cpu", "cores", "system", "python", "torch", "gspo_edu"}
    assert platform.node() not in text or len(platform.node()) < 4


def watched(monkeypatch):
    """The names of the folders in which runs are made from now on, in this process."""
    trained = []

    def watching(folder, config, **rest):
        trained.append(folder.name)
        return run(folder, config, **rest)

    monkeypatch.setattr(study_runs, "run", watching)
    return trained


def test_what_is_finished_is_never_run_again(made, tmp_path, monkeypatch):
    study, result = made
    out = tmp_path / "out"
    shutil.copytree(result.out, out)
    before, shown = stamps(out), tables(out)
    trained = watched(monkeypatch)
    again = run_study(study, out, jobs=1)
    assert trained == []
    assert str(again.rows) == str(result.rows)
    assert stamps(out) == before
    assert tables(out) == shown
    for name in ("updates.csv.gz", "runs.csv"):
        (out / name).unlink()
    run_study(study, out, jobs=1)
    assert tables(out) == shown


def test_a_study_that_grows_runs_only_what_is_new(tmp_path, planned, monkeypatch):
    run_study(planned("seed = [0]\n"), tmp_path / "out", jobs=1)
    trained = watched(monkeypatch)
    study = planned("seed = [0, 1]\n")
    result = run_study(study, tmp_path / "out", jobs=1)
    assert trained == [run_name(cell.config()) for cell in study.cells if cell.seed == 1]
    assert len(result.rows) == 4


def test_overwrite_makes_all_runs_and_starts_anew(made, tmp_path, monkeypatch):
    study, result = made
    out = tmp_path / "out"
    shutil.copytree(result.out, out)
    (out / "runs" / "mine").mkdir()
    (out / "runs" / "mine" / "notes.txt").write_text("keep")
    before, trained = stamps(out), watched(monkeypatch)
    run_study(study, out, jobs=1, overwrite=True)
    assert len(trained) == len(study.cells)
    kept = [path for path, stamp in stamps(out).items() if before.get(path) == stamp]
    assert [path.name for path in kept] == ["notes.txt"]
    assert tables(out) == tables(result.out)


def test_a_killed_worker_and_two_jobs_change_nothing(tmp_path, planned, monkeypatch):
    study = planned("seed = [0, 1]\n", ARMS + BROKEN)
    alone = run_study(study, tmp_path / "alone", jobs=1)
    died = tmp_path / "died"

    def dying(folder, config):
        def kill_once(records):
            if config.seed == 1 and config.objective == "grpo" and not died.exists():
                died.touch()
                os.kill(os.getpid(), KILL)

        return run(folder, config, on_rollout=kill_once)

    monkeypatch.setattr(study_runs, "run", dying)
    beside = run_study(study, tmp_path / "beside", jobs=2)
    assert died.exists()
    assert tables(alone.out) == tables(beside.out)
    assert without_cost(alone.rows) == without_cost(beside.rows)
    assert [row["status"] for row in beside.rows] == [FINISHED] * 4 + [DIVERGED] * 2


def test_what_kills_its_worker_every_time_fails_alone_and_is_tried_again(
    tmp_path, planned, monkeypatch
):
    study = planned()

    def dying(folder, config):
        if (config.seed, config.objective) == (1, "gspo"):
            os.kill(os.getpid(), KILL)
        return run(folder, config)

    with monkeypatch.context() as patched:
        patched.setattr(study_runs, "run", dying)
        patched.setattr(study_runs, "MOST_KILLS", 2)
        first = run_study(study, tmp_path / "out", jobs=2)
    assert [row["status"] for row in first.rows] == [FINISHED] * 3 + [FAILED]
    assert "its process was killed 2 times" in first.rows[3]["reason"]
    assert "FAILED, so in no mean: seeds 1; the same command tries them again" in first.text
    second = run_study(study, tmp_path / "out", jobs=1)
    assert [row["status"] for row in second.rows] == [FINISHED] * 4
    run_study(study, tmp_path / "whole", jobs=1)
    assert tables(tmp_path / "whole") == tables(tmp_path / "out")


def test_a_killed_command_goes_on(tmp_path, planned):
    study, out = planned("seed = [0, 1]\nthreads = 1\n"), tmp_path / "out"
    command = [sys.executable, "-m", "gspo_edu.cli", "study", str(tmp_path / "tiny.toml")]
    process = subprocess.Popen(
        [*command, "--jobs", "1", "--out", str(out)], stderr=subprocess.DEVNULL
    )
    second = run_folder(out, study.cells[1].config())
    limit = time.monotonic() + 60
    while not (second / METRICS).exists() and process.poll() is None:
        assert time.monotonic() < limit
        time.sleep(0.005)
    process.kill()
    process.wait()
    first = run_folder(out, study.cells[0].config())
    assert outcome_of(first).status == FINISHED
    kept = {path: path.stat().st_mtime_ns for path in first.iterdir()}
    result = run_study(study, out, jobs=1)
    assert {path: path.stat().st_mtime_ns for path in first.iterdir()} == kept
    assert [row["status"] for row in result.rows] == [FINISHED] * 4
    run_study(study, tmp_path / "whole", jobs=1)
    assert tables(tmp_path / "whole") == tables(out)


def test_another_back_end_is_one_line(made, tmp_path):
    study, result = made
    with joblib.parallel_config(backend="threading", n_jobs=2):
        other = run_study(study, tmp_path / "out", jobs=2)
    assert tables(other.out) == tables(result.out)


def test_a_run_that_fails_stops_nothing_and_is_tried_again(tmp_path, planned, monkeypatch):
    study = planned("seed = [0, 1]\n")

    def failing(folder, config):
        if config.seed == 1 and config.objective == "grpo":
            raise RuntimeError("no luck")
        return run(folder, config)

    with monkeypatch.context() as patched:
        patched.setattr(study_runs, "run", failing)
        first = run_study(study, tmp_path / "out", jobs=1)
    assert [row["status"] for row in first.rows] == [FINISHED, FAILED, FINISHED, FINISHED]
    assert first.rows[1]["reason"] == "RuntimeError: no luck"
    assert "FAILED, so in no mean: seeds 1" in first.text
    assert len(read_table(tmp_path / "out" / "runs.csv")) == 4
    assert len(read_table(tmp_path / "out" / "updates.csv.gz")) == 3 * 4
    trained = watched(monkeypatch)
    second = run_study(study, tmp_path / "out", jobs=1)
    assert trained == [run_name(study.cells[1].config())]
    assert "FAILED" not in second.text


COLD = 'init = "cold"\ncold_start_steps = 1\nwidth = 16\nexpert_width = 8\n'


def test_one_cold_start_for_each_shape(tmp_path, planned, monkeypatch):
    study = planned(COLD + "seed = [0, 1]\nexperts = [4, 8]\n")
    started, real = [], study_runs.initial_policy

    def counting(config):
        started.append(config.experts)
        return real(config)

    monkeypatch.setattr(study_runs, "initial_policy", counting)
    out = tmp_path / "out"
    run_study(study, out, jobs=1)
    assert started == [4, 8]
    inits = {}
    for cell in study.cells:
        init = (run_folder(out, cell.config()) / "init.safetensors").read_bytes()
        inits.setdefault(cell.config().experts, set()).add(init)
    assert {experts: len(found) for experts, found in inits.items()} == {4: 1, 8: 1}
    run_study(study, out, jobs=1)
    assert started == [4, 8]


def test_a_start_that_fails_fails_its_own_runs_only(tmp_path, planned, monkeypatch):
    study = planned(COLD + "seed = [0]\nexperts = [4, 8]\n")
    real = study_runs.initial_policy

    def failing(config):
        if config.experts == 4:
            raise MemoryError("too big")
        return real(config)

    with monkeypatch.context() as patched:
        patched.setattr(study_runs, "initial_policy", failing)
        rows = run_study(study, tmp_path / "out", jobs=1).rows
    assert [row["status"] for row in rows] == [FAILED, FINISHED] * 2
    assert rows[0]["reason"] == "its start: MemoryError: too big"
    rows = run_study(study, tmp_path / "out", jobs=1).rows
    assert [row["status"] for row in rows] == [FINISHED] * 4


OTHER = {
    "objective": "grpo",
    "task": "sort_digits",
    "init": "cold",
    "replay": "r2",
    "device": "cpu",
    "lr": 0.5,
    "cold_start_noise": 0.5,
    "prompt_pool": 64,
    "temperature": 0.5,
}


OF_ENGINE = {
    "engine": {"engine": "bf16"},
    "correction": {},
    "tis_cap": {"tis_cap": 3.0},
    "icepop_low": {"correction": "icepop", "icepop_low": 0.25},
    "icepop_high": {"correction": "icepop", "icepop_high": 3.0},
}
OF_CRITIC = {"critic": True, "critic_lr": 0.5, "gamma": 0.5, "lam": 0.5}


def changed(name):
    """A config that differs from the default in ``name`` alone, or nearly so."""
    default = getattr(TrainConfig(), name)
    if name in OTHER:
        return TrainConfig(**{name: OTHER[name]})
    if name in OF_ENGINE:
        other = {"lag": 1, "recompute_old": True, "correction": "tis", **OF_ENGINE[name]}
        return TrainConfig(**other)
    if name in ("critic", "critic_lr", "gamma", "lam"):
        return TrainConfig(**{"objective": "ppo", "critic": True, name: OF_CRITIC[name]})
    if bool in getattr(TYPES[name], "__args__", (TYPES[name],)):
        return TrainConfig(**{name: not default})
    owner = {"dual_clip": "ppo_dual_clip", "cap": "cispo", "tau_pos": "sapo", "tau_neg": "sapo"}
    owner |= {"log_clip_low": "gmpo", "log_clip_high": "gmpo"}
    value = 3 if default is None else default + 1
    if name.startswith(("clip", "log_clip")):
        value = 0.125
    return TrainConfig(**{"objective": owner.get(name, "gspo"), name: value})


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(TrainConfig)])
def test_settings_that_differ_have_folders_that_differ(name):
    config = changed(name)
    plain = dataclasses.replace(config, **{name: getattr(TrainConfig(), name)})
    assert config != plain
    assert run_name(config) != run_name(plain)
    of_start = {"init", "task", "task_size", "layers", "width", "heads", "experts", "top_k"}
    of_start |= {"expert_width", "norm_topk_prob", "dense", "cold_start_steps"}
    of_start |= {"cold_start_noise", "threads"}
    assert (start_name(config) != start_name(plain)) == (name in of_start)


def test_the_same_settings_have_the_same_folder():
    assert run_name(TrainConfig(lr=1)) == run_name(TrainConfig(lr=1.0))
    assert run_name(TrainConfig(lr=1e-3)) == run_name(TrainConfig())
    assert run_name(TrainConfig(seed=2**53)) != run_name(TrainConfig(seed=2**53 + 1))


def test_equal_runs_of_two_arms_are_made_once(tmp_path, planned, monkeypatch):
    trained = watched(monkeypatch)
    arms = ARMS + '[[arm]]\nname = "GRPO again"\nobjective = "grpo"\nclip_low = 0.2\n'
    study = planned("seed = [0]\nlr = [1e-3, 0.002]\n", arms.replace("clip_low = 0.2", "lr = 2e-3"))
    rows = run_study(study, tmp_path / "out", jobs=1).rows
    assert len(rows) == 5
    assert len(trained) == 4
    assert rows[1]["run"] == rows[4]["run"]


def test_foreign_folders_are_left_alone(tmp_path, planned, made):
    study = planned("seed = [0]\n")
    (tmp_path / "diary").mkdir()
    (tmp_path / "diary" / "today.txt").write_text("dear diary")
    with pytest.raises(RunFolderError, match=r"diary holds today\.txt, but no study"):
        run_study(study, tmp_path / "diary", jobs=1)
    (tmp_path / "other" / "runs" / "mine").mkdir(parents=True)
    with pytest.raises(RunFolderError, match="other holds runs, but no study"):
        run_study(study, tmp_path / "other", jobs=1, overwrite=True)
    with pytest.raises(RunFolderError, match="holds the study 'made'; choose another --out"):
        run_study(study, made[1].out, jobs=1)
    with only_one(tmp_path / "busy"), pytest.raises(RunFolderError, match="another process"):
        run_study(study, tmp_path / "busy", jobs=1)
    assert [path.name for path in (tmp_path / "diary").iterdir()] == ["today.txt"]


def test_no_folder_for_what_cannot_start(tmp_path, planned):
    with pytest.raises(ValueError, match="width is 50; expected a multiple of heads"):
        run_study(planned("width = 50\n"), tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


LISTED = (
    *("clip_fraction_seq", "clip_fraction_token_weighted", "outside_fraction_seq"),
    *("outside_fraction_token_weighted", "drift_per_update", "drift_per_rollout"),
    *("token_log_ratio_std", "sequence_log_ratio_std", "effective_sample_fraction", "grad_norm"),
    *("entropy", "kl_from_old", "length"),
)


def test_records_hold_what_a_study_of_drift_needs(made):
    rows = read_table(made[1].out / "updates.csv.gz")
    for row in [row for row in rows if row["arm"] != "broken"]:
        assert [name for name in LISTED if row[name] is None] == []


def test_r2_and_r3_are_one_run_while_one_engine_samples_and_trains(tmp_path, quick):
    configs = [
        quick(objective="grpo", replay=replay, lr=4e-3, rollouts=3)
        for replay in ("none", "r2", "r3")
    ]
    with only_one(tmp_path):
        run_all(tmp_path, configs, jobs=1)
    none, r2, r3 = (read_lines(run_folder(tmp_path, config) / METRICS) for config in configs)
    assert r2 == r3
    assert none != r2
    assert none[0]["reward"] == r2[0]["reward"]


def test_the_command(tmp_path, planned, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    planned("seed = [0, 1]\n")
    assert main(["study", "tiny.toml", "--jobs", "1"]) == 0
    shown = capsys.readouterr().out
    out = tmp_path / "runs" / "study-tiny"
    assert (out / "summary.txt").read_text(encoding="utf-8") in shown
    assert (out / "figure-1.png").read_bytes().startswith(b"\x89PNG")
    assert main(["study", "tiny.toml", "--jobs", "0"]) == 2
    assert main(["study", "teeny.toml"]) == 2
    assert "teeny.toml does not exist" in capsys.readouterr().err
    (tmp_path / "tiny.toml").write_text("rolouts = 3")
    assert main(["study", "tiny.toml"]) == 2
    assert "tiny.toml: arm 'GSPO': there is no field 'rolouts'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_quick_study(tmp_path, capsys):
    out = tmp_path / "quick"
    assert main(["study", "quick", "--out", str(out)]) == 0
    rows = read_table(out / "runs.csv")
    assert [row["status"] for row in rows] == [FINISHED] * 40
    assert len(read_table(out / "updates.csv.gz")) == 40 * 3 * 4

    def mean(name, **wanted):
        return np.mean([r[name] for r in rows if all(r[k] == v for k, v in wanted.items())])

    clipped = {arm: mean("clip_fraction_seq", arm=arm, lr=1e-3) for arm in ("GRPO", "GSPO")}
    assert clipped["GSPO"] > 3 * clipped["GRPO"]
    for metric in ("drift_per_update", "drift_per_rollout", "step_size"):
        assert mean(metric, lr=4e-3) > 2 * mean(metric, lr=1e-3)
    assert "GSPO minus GRPO (lr 0.001): " in capsys.readouterr().out
