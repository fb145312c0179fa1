"""The command line: every setting is a flag, and every mistake gets one sentence."""

import argparse
import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gspo_edu import __version__, cli
from gspo_edu.checkpoint import load_card, save_policy, shipped_policies
from gspo_edu.config import OF_CORRECTION, OF_CRITIC, TrainConfig, preset_names
from gspo_edu.config_flags import config_of, default_folder
from gspo_edu.run_lock import only_one
from gspo_edu.runs import read_config

QUICK = [
    *("--rollouts", "2", "--prompts", "2", "--group-size", "2", "--mini-batches", "2"),
    *("--eval-prompts", "2", "--eval-every", "0", "--device", "cpu"),
]

# Another value than the default for each field, and the objective that has it.
VALUES = {
    "objective": "grpo",
    "seed": 3,
    "rollouts": 5,
    "task": "sort_digits",
    "task_size": 6,
    "init": 'a "path" \\ with\u00e9',
    "prompts": 7,
    "prompt_pool": 99,
    "group_size": 3,
    "mini_batches": 2,
    "epochs": 2,
    "temperature": 0.7,
    "lr": 2e-05,
    "weight_decay": 0.1,
    "max_grad_norm": 0.5,
    "clip_low": 0.1,
    "clip_high": 0.3,
    "dual_clip": 4.0,
    "cap": 3.0,
    "log_clip_low": 0.3,
    "log_clip_high": 0.5,
    "tau_pos": 1.5,
    "tau_neg": 1.6,
    "beta": 0.01,
    "normalize_advantages": False,
    "ddof": 1,
    "advantage_eps": 1e-4,
    "mask_unfinished": True,
    "recompute_old": True,
    "engine": "bf16",
    "lag": 2,
    "correction": "icepop",
    "tis_cap": 3.0,
    "icepop_low": 0.4,
    "icepop_high": 4.0,
    "replay": "r3",
    "balance": 0.01,
    "critic": True,
    "critic_lr": 2e-3,
    "gamma": 0.9,
    "lam": 0.5,
    "shuffle_rewards": True,
    "layers": 3,
    "width": 24,
    "heads": 2,
    "experts": 6,
    "top_k": 3,
    "expert_width": 8,
    "norm_topk_prob": False,
    "dense": True,
    "cold_start_steps": 20,
    "cold_start_noise": 0.2,
    "eval_every": 3,
    "eval_prompts": 9,
    "drift_probe": 2,
    "device": "cpu",
    "threads": 2,
}
OWNER = {
    "dual_clip": "ppo_dual_clip",
    "cap": "cispo",
    "log_clip_low": "gmpo",
    "log_clip_high": "gmpo",
    "tau_pos": "sapo",
    "tau_neg": "sapo",
    **dict.fromkeys(("critic", *OF_CRITIC), "ppo"),
}
CORRECTED = {"engine": "int8", "recompute_old": True}


@pytest.fixture(autouse=True)
def undisturbed_signals():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def says(capsys):
    """Runs the command line; returns exit status, stdout and stderr."""

    def run(*words):
        try:
            status = cli.main([str(word) for word in words])
        except SystemExit as stop:
            status = stop.code
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def flag(name, value):
    word = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{'' if value else 'no-'}{word}"]
    return [f"--{word}", str(value)]


def sentence(stderr):
    """The one line that an error prints."""
    (line,) = stderr.splitlines()
    assert line.startswith("gspo-edu: ")
    assert line.endswith(".")
    return line


def test_the_table_of_values_covers_every_field():
    assert VALUES.keys() == {field.name for field in dataclasses.fields(TrainConfig)}
    for name, value in VALUES.items():
        assert value != getattr(TrainConfig(), name), name


@pytest.mark.parametrize("name", VALUES)
def test_every_field_is_a_flag_and_comes_back_through_a_file(says, tmp_path, name):
    settings = {name: VALUES[name]}
    if name in OWNER:
        settings["objective"] = OWNER[name]
    if name in OF_CRITIC:
        settings["critic"] = True
    if name in ("correction", *OF_CORRECTION):
        settings |= {**CORRECTED, "correction": OF_CORRECTION.get(name, "icepop")}
    words = [word for key, value in settings.items() for word in flag(key, value)]
    status, printed, _ = says("config", *words)
    assert status == 0
    path = tmp_path / "settings.toml"
    path.write_text(printed, encoding="utf-8")
    args = cli.parser().parse_args(["train", "--config", str(path)])
    assert config_of(args) == TrainConfig(**settings)
    assert says("config", "--config", path)[1] == printed


def test_flags_win_over_the_file(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text("lr = 0.5\nseed = 4\nclip_low = 0.1\n")
    words = ["train", "--config", str(path), "--lr", "0.25", "--clip-low", "none"]
    config = config_of(cli.parser().parse_args(words))
    assert (config.lr, config.seed, config.clip_low) == (0.25, 4, None)


@pytest.mark.parametrize("name", preset_names())
def test_shipped_settings_have_names(says, name):
    assert says("config", "--config", name)[0] == 0


def test_train_writes_a_run_folder(says, tmp_path):
    folder = tmp_path / "run"
    status, out, err = says("train", "--objective", "grpo", "--out", folder, *QUICK)
    assert status == 0, err
    assert "grpo, seed 0: held-out reward" in out
    assert f"Run folder: {folder}" in out
    assert "Traceback" not in err
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 4
    summary = json.loads((folder / "summary.json").read_text())
    assert f"{summary['held_out_reward_after']:.3f}" in out


def test_without_out_the_folder_lies_in_runs(says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert says("train", "--seed", 7, *QUICK)[0] == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("gspo-seed7-rollouts-2")
    assert read_config(folder).seed == 7


def test_existing_runs_ask_for_resume_or_overwrite(says, tmp_path):
    folder = tmp_path / "run"
    assert says("train", "--out", folder, *QUICK)[0] == 0
    before = (folder / "metrics.jsonl").read_bytes()
    status, out, err = says("train", "--out", folder, *QUICK)
    assert (status, out) == (2, "")
    assert "--resume" in sentence(err)
    status, out, err = says("train", "--out", folder, *QUICK, "--seed", 1)
    assert (status, out) == (2, "")
    assert "holds a run with other settings" in sentence(err)
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert says("train", "--resume", folder)[0] == 0
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert says("train", "--out", folder, *QUICK, "--seed", 1, "--overwrite")[0] == 0
    assert (folder / "metrics.jsonl").read_bytes() != before


def test_ctrl_c_says_how_to_go_on(says, tmp_path, monkeypatch):
    from gspo_edu.progress import TrainingBar

    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert says("train", "--out", whole, *QUICK)[0] == 0

    def stop(bar, records):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TrainingBar, "show", stop)
        status, _, err = says("train", "--out", folder, *QUICK)
    assert status == 130
    assert f"gspo-edu train --resume {folder}" in err
    assert "Traceback" not in err
    assert says("train", "--resume", folder)[0] == 0
    assert (folder / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train --lr -1", "lr is -1.0; expected more than 0"),
        ("train --lr nan", "lr is nan; expected a finite number"),
        ("train --objective reinforce", "objective is 'reinforce'; expected one of"),
        ("train --cap 3", "gspo has no such setting"),
        ("train --clip-low 2", "expected 0 <= clip_low < 1"),
        ("train --mini-batches 1000", "expected at most prompts * group_size"),
        ("train --task chess", "task is 'chess'; expected one of"),
        ("train --task-size 1", "longest is 1; expected 4 or more"),
        ("train --width 30 --heads 4", "expected a multiple of heads"),
        ("train --top-k 1", "norm_topk_prob=False"),
        ("train --init nowhere.safetensors", "existing checkpoint file"),
        ("train --device tpu", "device is 'tpu'; expected auto, cpu or cuda"),
        ("train --config nowhere.toml", "nowhere.toml does not exist"),
        ("train --resume run --lr 0.1", "takes all settings from"),
        ("train --resume run --overwrite", "takes all settings from"),
        ("train --clip-high 1e300", "clip_high is 1e+300; expected a finite number"),
        (f"train --prompts {10**400}", "prompts is 1000000"),
        ("train --prompts 3000000000", "prompts is 3000000000; expected less than 2**31"),
        ("compare --seeds 0", "--seeds is 0; expected 1 or more"),
        ("compare --jobs 0", "--jobs is 0; expected 1 or more"),
        ("compare --jobs -1", "--jobs is -1; expected 1 or more"),
        ("compare --objectives grpo reinforce", "objective is 'reinforce'"),
        ("compare --objectives grpo grpo", "names grpo twice"),
        ("compare --objective grpo", "--objectives"),
        ("config --seed -3", "seed is -3; expected 0 or more"),
    ],
)
def test_wrong_usage_gets_one_sentence_and_leaves_nothing(says, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    status, out, err = says(*words.split())
    assert (status, out) == (2, "")
    assert said in sentence(err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "required: COMMAND"),
        ("fly", "invalid choice: 'fly'"),
        ("train --colour red", "unrecognized arguments: --colour red"),
        ("train --lr fast", "--lr: invalid float value: 'fast'"),
        ("train --clip-low wide", "invalid float or none value: 'wide'"),
        ("train --replay r9", "--replay: invalid choice: 'r9'"),
        ("train --out=", "--out: expected a folder, got nothing"),
        ("train --resume=", "--resume: expected a folder, got nothing"),
        ("compare --out=", "--out: expected a folder, got nothing"),
    ],
)
def test_what_argparse_refuses(says, words, said):
    status, out, err = says(*words.split())
    assert (status, out) == (2, "")
    assert said in err.splitlines()[-1]


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_number_of_many_digits_in_a_file(says, tmp_path, digits):
    path = tmp_path / "settings.toml"
    path.write_text(f"prompts = {'9' * digits}\n")
    status, _, err = says("train", "--config", path, "--out", tmp_path / "run")
    assert status == 2
    assert len(sentence(err)) < 300 + len(str(path))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 1 TB"), True),
        (RuntimeError("numel: integer multiplication overflow"), True),
        (RuntimeError("A worker was killed, perhaps because of an excessive memory usage."), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
    ids=str,
)
def test_too_little_memory_gets_a_sentence_and_our_own_mistakes_do_not(
    says, tmp_path, monkeypatch, error, known
):
    from gspo_edu.trainer import Trainer

    def failing(trainer):
        raise error

    monkeypatch.setattr(Trainer, "next_rollout", failing)
    if not known:
        with pytest.raises(RuntimeError, match="shapes"):
            says("train", "--out", tmp_path / "run", *QUICK)
        return
    status, _, err = says("train", "--out", tmp_path / "run", *QUICK)
    assert status == 1
    assert "needs more memory" in err.splitlines()[-1]
    assert "Traceback" not in err


def test_a_run_in_use_is_refused(says, tmp_path):
    folder = tmp_path / "run"
    assert says("train", "--out", folder, *QUICK)[0] == 0
    with only_one(folder):
        for words in (("--resume", folder), ("--out", folder, *QUICK, "--overwrite")):
            status, _, err = says("train", *words)
            assert status in (1, 2)
            assert f"another process trains in {folder}" in err.splitlines()[-1]


@pytest.mark.parametrize("content", ["{}", "[]", "null"])
def test_compare_names_a_damaged_summary(says, tmp_path, content):
    words = ["compare", "--objectives", "grpo", "--seeds", 1, "--jobs", 1, "--out", tmp_path]
    assert says(*words, *QUICK)[0] == 0
    (tmp_path / "grpo-seed0" / "summary.json").write_text(content)
    status, _, err = says(*words, *QUICK)
    assert status == 1
    assert "summary.json is damaged" in err.splitlines()[-1]
    assert "Traceback" not in err


def test_no_run_to_resume(says, tmp_path):
    status, _, err = says("train", "--resume", tmp_path)
    assert status == 1
    assert "holds no run: config.json is missing" in sentence(err)


def test_damaged_checkpoints_get_a_sentence(says, tmp_path):
    folder = tmp_path / "run"
    assert says("train", "--out", folder, *QUICK)[0] == 0
    path = folder / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    status, _, err = says("train", "--resume", folder)
    assert status == 1
    assert "checkpoint.safetensors is damaged" in err.splitlines()[-1]
    assert "Traceback" not in err


def test_a_file_where_the_folder_should_be(says, tmp_path):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        status, _, err = says("train", "--out", out, *QUICK)
        assert status == 1
        assert str(tmp_path / "file") in sentence(err)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EACCES, "no permission"),
        (errno.EROFS, "read-only"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_disks_that_refuse_get_a_sentence_and_the_run_can_go_on(
    says, tmp_path, monkeypatch, number, said
):
    folder, real, calls = tmp_path / "run", os.fsync, []

    def failing(descriptor):
        calls.append(descriptor)
        if len(calls) == 6:
            raise OSError(number, os.strerror(number))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        status, _, err = says("train", "--out", folder, *QUICK)
    assert status == 1
    assert said in err.splitlines()[-1]
    assert f"gspo-edu: {folder}" in err
    assert "Traceback" not in err
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert says("train", "--resume", folder)[0] == 0


def test_a_diverged_policy_gets_a_sentence(says, tmp_path, calm):
    path = shipped_policies()["calm"]
    with torch.no_grad():
        calm.head.weight.fill_(torch.nan)
    save_policy(tmp_path / "diverged.safetensors", calm, load_card(path))
    words = ["--init", tmp_path / "diverged.safetensors", "--out", tmp_path / "run"]
    status, _, err = says("train", *words, *QUICK)
    assert status == 1
    assert "training has diverged" in err.splitlines()[-1]
    assert "Traceback" not in err


def test_compare_trains_every_objective_on_every_seed(says, tmp_path):
    words = ["--objectives", "grpo", "cispo", "--seeds", 2, "--jobs", 1]
    status, out, err = says("compare", *words, "--out", tmp_path / "all", *QUICK)
    assert status == 0, err
    assert "cispo minus grpo, same seeds" in out
    folders = {path.parent.name for path in (tmp_path / "all").glob("*/summary.json")}
    assert folders == {"grpo-seed0", "grpo-seed1", "cispo-seed0", "cispo-seed1"}


def test_a_stopped_compare_says_how_to_go_on(says, tmp_path, monkeypatch):
    def stop(*args, **rest):
        raise KeyboardInterrupt

    monkeypatch.setattr("gspo_edu.compare.run_all", stop)
    status, _, err = says("compare", "--out", tmp_path)
    assert status == 130
    assert err.strip() == "Stopped. The same command without --overwrite goes on from here."


def test_compare_takes_settings_of_its_objectives():
    args = cli.parser().parse_args(["compare", "--objectives", "cispo", "--cap", "3"])
    assert config_of(args, objective="cispo").cap == 3


def test_version(says):
    status, out, _ = says("--version")
    assert (status, out) == (0, f"gspo-edu {__version__}\n")


def in_new_python(code, **keywords):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, **keywords
    )


# What takes longer to load than anyone waits for a help text.
HEAVY = {"torch", "numpy", "matplotlib", "joblib", "tqdm", "safetensors", "IPython", "anywidget"}


def test_importing_the_package_loads_nothing_heavy():
    code = f"import sys, gspo_edu; print(sorted({HEAVY} & set(sys.modules)))"
    done = in_new_python(code)
    assert done.stdout == "[]\n", done.stderr
    in_use = "import sys, gspo_edu.trainer; print('torch' in sys.modules)"
    assert in_new_python(in_use).stdout == "True\n", "the list of modules says nothing"


def commands():
    """Every subcommand, those of subcommands included, as the words that lead to it."""

    def below(parser, words):
        yield words
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, command in action.choices.items():
                    yield from below(command, [*words, name])

    return list(below(cli.parser(), []))


def test_the_commands_are_found():
    found = commands()
    assert all(words in found for words in ([], ["train"], ["compare"], ["lessons", "copy"]))


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_help_works_without_what_is_heavy(words):
    code = (
        f"import sys; sys.modules |= dict.fromkeys({HEAVY}); from gspo_edu.cli import main; "
        f"main({[*words, '--help']})"
    )
    done = in_new_python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" ".join(["usage: gspo-edu", *words]))
    if words == ["train"]:
        for field in dataclasses.fields(TrainConfig):
            assert "--" + field.name.replace("_", "-") in done.stdout


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("config", 0),
        ("config --config stormy --lr 0.002 --objective grpo", 0),
        ("lessons list", 0),
        ("train --lr -1", 2),
        ("train --objective reinforce", 2),
        ("train --cap 3", 2),
        ("train --resume run --lr 0.1", 2),
        ("compare --seeds 0", 2),
        ("compare --objectives grpo gspo reinforce", 2),
    ],
)
def test_what_trains_nothing_works_without_what_is_heavy(tmp_path, words, status):
    code = (
        f"import sys; sys.modules |= dict.fromkeys({HEAVY}); from gspo_edu.cli import main; "
        f"sys.exit(main({words.split()}))"
    )
    done = in_new_python(code, cwd=tmp_path)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        ("train", "gspo-seed0"),
        ("train --objective grpo --seed 3 --replay r2", "grpo-seed3-replay-r2"),
        ("train --shuffle-rewards --no-dense", "gspo-seed0-shuffle_rewards-dense-False"),
        ("train --init a/b.safetensors", "gspo-seed0-init-a_b.safetensors"),
        ("compare --config stormy --lr 0.002", "compare-stormy-lr-0.002"),
    ],
)
def test_runs_with_other_settings_get_other_folders(words, folder):
    args = cli.parser().parse_args(words.split())
    config = config_of(args)
    first = "compare" if args.command == "compare" else f"{config.objective}-seed{config.seed}"
    assert default_folder(first, args) == Path("runs") / folder


def test_the_reader_is_told_the_command_that_started_it():
    words = [sys.executable, "-m", "gspo_edu.cli", "train", "--help"]
    for name, variables in (
        ("gspo-edu", {}),
        ("python course.py", {"GSPO_EDU_COMMAND": "python course.py"}),
    ):
        clean = {k: v for k, v in os.environ.items() if k != "GSPO_EDU_COMMAND"}
        done = subprocess.run(words, env=clean | variables, capture_output=True, text=True)
        assert done.stdout.startswith(f"usage: {name} train")
        assert f"see {name} config" in done.stdout
