"""Run folders: equal runs are equal files, and any interruption can be undone."""

import dataclasses
import errno
import json
import math
import os
import pickle
import pkgutil
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch

from gspo_edu import runs
from gspo_edu.checkpoint import CheckpointError, load_tensors, save_tensors
from gspo_edu.config import TrainConfig
from gspo_edu.run_lock import only_one
from gspo_edu.runs import RunFolderError, prepare_folder, read_config, run
from gspo_edu.trainer import Trainer

WEIGHTS = ("policy.safetensors", "checkpoint.safetensors", "init.safetensors")


def started(folder, config):
    prepare_folder(folder, config, overwrite=False)
    return run(folder, config)


def metrics_of(folder):
    return (folder / "metrics.jsonl").read_bytes()


def records_of(folder):
    return [json.loads(line) for line in metrics_of(folder).splitlines()]


def timed_rollouts(folder):
    lines = (folder / "timings.jsonl").read_text().splitlines()
    return [json.loads(line)["rollout"] for line in lines]


def assert_same_run(one, other):
    assert timed_rollouts(one) == timed_rollouts(other)
    assert metrics_of(one) == metrics_of(other)
    assert (one / "summary.json").read_bytes() == (other / "summary.json").read_bytes()
    for name in WEIGHTS:
        tensors, meta = load_tensors(one / name)
        others, other_meta = load_tensors(other / name)
        assert meta == other_meta
        assert tensors.keys() == others.keys()
        for key, tensor in tensors.items():
            assert torch.equal(tensor, others[key]), (name, key)


def nothing_temporary(folder):
    return not [path for path in folder.iterdir() if path.name.startswith(".")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, quick):
    """A run that nothing interrupted, to be read only."""
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    started(folder, quick())
    return folder


@pytest.fixture
def whole(undisturbed, tmp_path):
    """A copy of it, to be changed at will."""
    return shutil.copytree(undisturbed, tmp_path / "whole")


def test_a_run_leaves_what_its_docstring_says(undisturbed, quick):
    listed = {line.split()[0] for line in runs.__doc__.splitlines() if "  " in line}
    assert {path.name for path in undisturbed.iterdir()} == listed - {"figure.png"}
    assert read_config(undisturbed) == quick()
    summary = json.loads((undisturbed / "summary.json").read_text())
    last = records_of(undisturbed)[-1]
    assert summary["updates"] == last["update"] == 6
    assert summary["held_out_reward_after"] == last["held_out_reward"]
    assert summary["held_out_reward_before"] != summary["held_out_reward_after"]


def test_no_policy_is_evaluated_twice(tmp_path, quick, monkeypatch):
    evaluated, real = [], Trainer.held_out_metrics

    def counting(trainer):
        evaluated.append(trainer.rollout)
        return real(trainer)

    monkeypatch.setattr(Trainer, "held_out_metrics", counting)
    summary = started(tmp_path / "run", quick())
    assert evaluated == [0, 2, 3]
    (tmp_path / "run" / "summary.json").unlink()
    assert run(tmp_path / "run", quick()) == summary
    assert evaluated == [0, 2, 3, 0], "a resumed run knows its last evaluation"
    none = started(tmp_path / "none", quick(rollouts=0))
    assert evaluated == [0, 2, 3, 0, 0]
    assert none["held_out_reward_after"] == none["held_out_reward_before"]


def test_a_run_cut_short_is_evaluated_at_its_end(whole, quick):
    shorter = quick(rollouts=1)
    for name, lines in (("metrics.jsonl", 2), ("timings.jsonl", 1)):
        kept = (whole / name).read_bytes().splitlines(keepends=True)[:lines]
        (whole / name).write_bytes(b"".join(kept))
    runs.write_json(whole / "config.json", dataclasses.asdict(shorter))
    tensors, meta = load_tensors(whole / "checkpoint.safetensors")
    save_tensors(whole / "checkpoint.safetensors", tensors, {**meta, "rollout": 1, "update": 2})
    assert run(whole, shorter)["held_out_reward_after"] > 0


def test_the_number_of_threads_is_the_configs(tmp_path, quick):
    assert torch.get_num_threads() == 1
    used = []
    prepare_folder(tmp_path, quick(threads=2, rollouts=1), overwrite=False)
    run(tmp_path, read_config(tmp_path), on_rollout=lambda _: used.append(torch.get_num_threads()))
    assert used == [2]
    assert json.loads((tmp_path / "config.json").read_text())["threads"] == 2
    assert TrainConfig().threads == 1, "as long as nothing else is asked for"


def test_times_are_in_the_timings_only(undisturbed):
    names = {name for record in records_of(undisturbed) for name in record}
    assert not {name for name in names if "time" in name or "second" in name}
    timings = [
        json.loads(line) for line in (undisturbed / "timings.jsonl").read_text().splitlines()
    ]
    assert [timing["rollout"] for timing in timings] == [1, 2, 3]
    assert all(timing["seconds"] > 0 for timing in timings)


@pytest.mark.parametrize("changes", [{}, {"objective": "grpo", "replay": "r3", "beta": 0.01}])
def test_the_same_seed_gives_the_same_files_and_another_does_not(tmp_path, quick, changes):
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        started(tmp_path / name, quick(seed=seed, rollouts=2, **changes))
    assert_same_run(tmp_path / "one", tmp_path / "same")
    assert metrics_of(tmp_path / "one") != metrics_of(tmp_path / "other")


@pytest.mark.parametrize("after", [1, 2, 3])
def test_interrupted_in_the_callback_and_resumed_equals_uninterrupted(
    tmp_path, quick, undisturbed, after
):
    config, folder = quick(), tmp_path / "run"
    prepare_folder(folder, config, overwrite=False)
    seen = []

    def stop(records):
        seen.append(records)
        if len(seen) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(folder, config, on_rollout=stop)
    shown = []
    run(folder, config, on_rollout=shown.append)
    assert [records[0]["rollout"] for records in shown] == [1, 2, 3]
    assert_same_run(undisturbed, folder)


STAGES = [
    *(("gspo_edu.trainer.Trainer.one_update", call, "before") for call in (1, 4)),
    *(
        ("gspo_edu.runs.append_lines", call, when)
        for call in (1, 4)
        for when in ("before", "after")
    ),
    *(("gspo_edu.runs.save_tensors", call, "before") for call in (1, 3)),
    # Files in the order in which they are moved to their place: init, metrics, timings, one
    # checkpoint per rollout, policy, summary.
    *(("os.replace", call, "before") for call in (1, 2, 3, 4, 7, 8)),
    *(("os.replace", call, "after") for call in (1, 3, 5, 7, 8)),
]


@pytest.mark.parametrize(("stage", "call", "when"), STAGES)
def test_interrupted_anywhere_and_resumed_equals_uninterrupted(
    tmp_path, quick, undisturbed, monkeypatch, stage, call, when
):
    """Just before or just after the n-th call of what writes and what computes."""
    config, folder = quick(), tmp_path / "run"
    prepare_folder(folder, config, overwrite=False)
    real, calls = pkgutil.resolve_name(stage), []

    def interrupted(*args, **rest):
        calls.append(stage)
        if when == "before" and len(calls) == call:
            raise KeyboardInterrupt
        result = real(*args, **rest)
        if len(calls) == call:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patch:
        patch.setattr(stage, interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(folder, config)
    run(folder, config)
    assert_same_run(undisturbed, folder)
    assert nothing_temporary(folder)


def test_a_torn_line_of_metrics_is_cut_off(tmp_path, quick, undisturbed, monkeypatch):
    config, folder = quick(), tmp_path / "run"
    prepare_folder(folder, config, overwrite=False)
    with monkeypatch.context() as patch:
        patch.setattr(runs, "append_lines", tearing(runs.append_lines, call=3))
        with pytest.raises(KeyboardInterrupt):
            run(folder, config)
    assert not metrics_of(folder).endswith(b"\n")
    run(folder, config)
    assert_same_run(undisturbed, folder)


def tearing(real, call):
    calls = []

    def torn(path, records):
        calls.append(path)
        if len(calls) < call:
            return real(path, records)
        with path.open("a") as file:
            file.write(runs.as_line(records[0]) + runs.as_line(records[1])[:20])
        raise KeyboardInterrupt

    return torn


def test_a_full_disk_can_be_undone(tmp_path, quick, undisturbed, monkeypatch):
    config, folder = quick(), tmp_path / "run"
    prepare_folder(folder, config, overwrite=False)
    calls, real = [], os.fsync

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 7:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            run(folder, config)
    assert nothing_temporary(folder)
    run(folder, config)
    assert_same_run(undisturbed, folder)


def test_a_finished_run_resumed_stays_as_it_is(whole):
    before = {path.name: path.read_bytes() for path in whole.iterdir()}
    run(whole, read_config(whole))
    assert {path.name: path.read_bytes() for path in whole.iterdir()} == before


SIGNALS = [name for name in ("SIGTERM", "SIGINT", "SIGKILL") if hasattr(signal, name)]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("name", SIGNALS)
def test_a_stopped_process_resumed_equals_an_undisturbed_run(tmp_path, quick, name):
    config = quick(rollouts=10)
    folder, whole = tmp_path / "run", tmp_path / "whole"
    flags = ["rollouts", "prompts", "group_size", "mini_batches", "eval_every", "eval_prompts"]
    flags += ["drift_probe", "device"]
    words = [word for f in flags for word in ("--" + f.replace("_", "-"), str(getattr(config, f)))]
    process = subprocess.Popen(
        [sys.executable, "-m", "gspo_edu.cli", "train", "--out", str(folder), *words],
        # A job in the background ignores SIGINT, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and len(metrics.read_bytes().splitlines()) >= 4):
        assert time.monotonic() < deadline, "the run did not start"
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(getattr(signal, name))
    _, stderr = process.communicate(timeout=60)
    assert not (folder / "policy.safetensors").exists(), "stopped too late to show anything"
    if name == "SIGKILL":
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130
        assert f"--resume {folder}" in stderr
        assert nothing_temporary(folder)
    assert "Traceback" not in stderr
    assert read_config(folder) == config
    run(folder, config)
    started(whole, config)
    assert_same_run(whole, folder)


def test_existing_runs_are_refused_unless_overwritten(whole, quick):
    before = metrics_of(whole)
    with pytest.raises(RunFolderError, match=r"already holds this run.*--resume.*--overwrite"):
        prepare_folder(whole, read_config(whole), overwrite=False)
    with pytest.raises(RunFolderError, match=r"other settings\. Replace it with --overwrite"):
        prepare_folder(whole, quick(seed=5), overwrite=False)
    assert metrics_of(whole) == before
    prepare_folder(whole, quick(seed=5), overwrite=True)
    assert {path.name for path in whole.iterdir()} == {"config.json", "run.lock"}
    run(whole, quick(seed=5))
    assert metrics_of(whole) != before


@pytest.mark.parametrize("overwrite", [False, True])
def test_folders_with_other_files_are_left_alone(tmp_path, quick, overwrite):
    (tmp_path / "policy.safetensors").write_text("mine")
    with pytest.raises(RunFolderError, match="holds files, but no run"):
        prepare_folder(tmp_path, quick(), overwrite=overwrite)
    assert (tmp_path / "policy.safetensors").read_text() == "mine"


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "chess"},
        {"task_size": 1},
        {"init": "nowhere.safetensors"},
        {"width": 30},
        {"top_k": 1},
        {"top_k": 9},
        {"device": "tpu"},
    ],
    ids=str,
)
def test_what_cannot_start_leaves_no_folder(tmp_path, quick, changes):
    with pytest.raises(ValueError, match=r"expected|norm_topk_prob"):
        prepare_folder(tmp_path / "run", quick(**changes), overwrite=False)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_made(tmp_path, quick):
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(OSError, match="file"):
            prepare_folder(folder, quick(), overwrite=False)
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "init.safetensors"])
def test_damaged_checkpoints_are_named_and_nothing_changes(whole, name):
    path = whole / name
    path.write_bytes(path.read_bytes()[:-10])
    before = {p.name: p.read_bytes() for p in whole.iterdir()}
    with pytest.raises(CheckpointError, match=f"{name} is damaged"):
        run(whole, read_config(whole))
    assert {p.name: p.read_bytes() for p in whole.iterdir()} == before


def test_a_checkpoint_of_another_model_is_refused(whole):
    tensors, meta = load_tensors(whole / "checkpoint.safetensors")
    tensors["model.head.weight"] = tensors["model.head.weight"][:, :5]
    save_tensors(whole / "checkpoint.safetensors", tensors, meta)
    with pytest.raises(CheckpointError, match="does not fit this run"):
        run(whole, read_config(whole))


def test_metrics_that_are_shorter_than_the_checkpoint_are_refused(whole):
    lines = metrics_of(whole).splitlines(keepends=True)
    (whole / "metrics.jsonl").write_bytes(b"".join(lines[:3]))
    with pytest.raises(RunFolderError, match=r"holds 3 updates, but the run has made 6"):
        run(whole, read_config(whole))


def edited(path, change):
    """Change the list of a file's lines."""
    lines = path.read_bytes().splitlines(keepends=True)
    change(lines)
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize("name", ["metrics.jsonl", "timings.jsonl"])
@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines.insert(1, lines[0]),
        lambda lines: lines.extend(list(lines)),
        lambda lines: lines.pop(0),
        lambda lines: lines.pop(1),
        lambda lines: lines.reverse(),
        *(
            lambda lines, odd=odd: lines.insert(1, odd)
            for odd in (b"5\n", b"{}\n", b"[]\n", b"null\n", b'"update"\n')
        ),
        lambda lines: lines.__setitem__(0, b'{"update": 1, "rollout": 1}\n'),
        lambda lines: lines.__setitem__(0, lines[0].replace(b": 1", b": true", 1)),
        lambda lines: lines.clear(),
    ],
)
def test_lines_that_are_not_those_of_the_run_are_refused(whole, name, change):
    edited(whole / name, change)
    before = {path.name: path.read_bytes() for path in whole.iterdir()}
    with pytest.raises(RunFolderError, match=rf"{name} (is damaged: line|holds \d)"):
        run(whole, read_config(whole))
    assert {path.name: path.read_bytes() for path in whole.iterdir()} == before


def test_metrics_of_a_run_with_other_mini_batches_are_refused(whole):
    foreign = [{**record, "rollout": (record["update"] + 2) // 3} for record in records_of(whole)]
    (whole / "metrics.jsonl").write_text("".join(map(runs.as_line, foreign)))
    with pytest.raises(RunFolderError, match="another run: its update 3 lies in rollout 1"):
        run(whole, read_config(whole))


@pytest.mark.parametrize(
    "change", [{"lr": 1e-4}, {"objective": "grpo"}, {"seed": 9}, {"replay": "r3"}], ids=str
)
def test_a_checkpoint_of_other_settings_is_refused(whole, change):
    config = dataclasses.replace(read_config(whole), **change)
    runs.write_json(whole / "config.json", dataclasses.asdict(config))
    (name,) = change
    with pytest.raises(CheckpointError, match=f"does not fit this run .it was made with {name}="):
        run(whole, config)


def test_a_run_can_be_made_longer(whole, quick, tmp_path):
    longer = quick(rollouts=4)
    runs.write_json(whole / "config.json", dataclasses.asdict(longer))
    run(whole, longer)
    started(tmp_path / "at_once", longer)
    policies = [load_tensors(f / "policy.safetensors")[0] for f in (whole, tmp_path / "at_once")]
    assert all(torch.equal(policies[0][name], policies[1][name]) for name in policies[0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"task": "sort_digits"}, "was started on clock_walk, but the config's task"),
        ({"task_size": 9}, "was started on task size 12, but the config's is 9"),
        ({"experts": 4}, "has num_experts=8, but the config asks for 4"),
        ({"dense": True}, "has dense=False, but the config asks for True"),
    ],
)
def test_the_start_must_fit_the_config(whole, change, said):
    config = dataclasses.replace(read_config(whole), **change)
    runs.write_json(whole / "config.json", dataclasses.asdict(config))
    (whole / "checkpoint.safetensors").unlink()
    with pytest.raises(CheckpointError, match=rf"init\.safetensors {said}"):
        run(whole, config)


def test_a_flipped_byte_of_a_checkpoint_is_noticed(whole):
    path = whole / "checkpoint.safetensors"
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors is damaged"):
        run(whole, read_config(whole))


def test_one_process_at_a_time(whole, quick):
    before = {path.name: path.read_bytes() for path in whole.iterdir()}
    with only_one(whole):
        for attempt in (
            lambda: run(whole, read_config(whole)),
            lambda: prepare_folder(whole, quick(), overwrite=True),
        ):
            with pytest.raises(RunFolderError, match=f"another process trains in {whole}"):
                attempt()
    assert {path.name: path.read_bytes() for path in whole.iterdir()} == before
    run(whole, read_config(whole))


def test_a_run_is_locked_while_it_trains(tmp_path, quick):
    refused = []

    def again(records):
        with pytest.raises(RunFolderError, match="another process trains"):
            run(tmp_path / "run", quick())
        refused.append(records)

    prepare_folder(tmp_path / "run", quick(), overwrite=False)
    run(tmp_path / "run", quick(), on_rollout=again)
    assert len(refused) == 3


def test_a_killed_process_leaves_no_lock(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from gspo_edu.run_lock import only_one\n"
        "with only_one(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE)
    assert process.stdout.readline().strip() == b"held"
    with pytest.raises(RunFolderError, match="another process trains"), only_one(tmp_path):
        pass
    process.kill()
    process.communicate()
    with only_one(tmp_path):
        pass


def test_a_folder_that_another_call_has_overwritten_meanwhile(tmp_path, quick):
    prepare_folder(tmp_path, quick(), overwrite=False)
    prepare_folder(tmp_path, quick(seed=4), overwrite=True)
    with pytest.raises(RunFolderError, match="other settings meanwhile"):
        run(tmp_path, quick())


def test_our_own_half_written_files_do_not_fill_a_folder(tmp_path, quick):
    for name in (".config.json.123", ".init.safetensors.9"):
        (tmp_path / name).write_text("{")
    prepare_folder(tmp_path, quick(), overwrite=False)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "run.lock"}
    for name in (".mine.123", ".config.json.bak"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(RunFolderError, match="holds files, but no run"):
            prepare_folder(folder, quick(), overwrite=False)


def test_damaged_metrics_are_named(whole):
    (whole / "metrics.jsonl").write_bytes(b"\xff{\n" + metrics_of(whole))
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl is damaged"):
        run(whole, read_config(whole))


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"lr": "fast"}', '{"colour": 1}'])
def test_damaged_configs_are_named(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config\.json"):
        read_config(tmp_path)


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(RunFolderError, match=r"holds no run: config\.json is missing"):
        read_config(tmp_path)


def test_metrics_without_finite_value_become_null():
    line = runs.as_line({"a": math.nan, "b": -math.inf, "c": 1.5, "d": 3})
    assert json.loads(line) == {"a": None, "b": None, "c": 1.5, "d": 3}
    assert line.endswith("}\n")


def test_a_run_pickles_nothing(tmp_path, quick, monkeypatch):
    def refused(*args, **rest):
        raise AssertionError("pickle")

    for module, names in ((pickle, ("dump", "dumps", "load", "loads")), (torch, ("save", "load"))):
        for name in names:
            monkeypatch.setattr(module, name, refused)
    started(tmp_path / "run", quick(rollouts=1))
    run(tmp_path / "run", quick(rollouts=1))


def test_a_cold_start_comes_first_when_asked_for(tmp_path, quick):
    shape = {"width": 16, "heads": 2, "experts": 4, "expert_width": 8}
    config = quick(init="cold", cold_start_steps=4, rollouts=1, **shape)
    watched = []

    def watch(losses, steps):
        for loss in losses:
            watched.append((loss, steps))
            yield loss

    prepare_folder(tmp_path / "run", config, overwrite=False)
    run(tmp_path / "run", config, watch_cold_start=watch)
    assert [steps for _, steps in watched] == [4] * 4
    again = quick(init="cold", cold_start_steps=4, rollouts=1, seed=9, **shape)
    started(tmp_path / "other", again)
    init = [(tmp_path / name / "init.safetensors").read_bytes() for name in ("run", "other")]
    assert init[0] == init[1], "the cold start does not depend on the run's seed"
    from_file = quick(init=str(tmp_path / "run" / "init.safetensors"), rollouts=1)
    started(tmp_path / "from_file", from_file)
    assert metrics_of(tmp_path / "from_file") == metrics_of(tmp_path / "run")
