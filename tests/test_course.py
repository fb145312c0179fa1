"""course.py, run as a learner runs it, in a small copy of the project.

Only what would take minutes or the internet is a stub, found before the real one by PYTHONPATH:
`venv` (the real one, without pip), `pip` (notes its calls), and what the course starts.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
import course  # noqa: E402
from course_setup import environment, processes, torch_build  # noqa: E402

TORCH = torch_build.pinned_version()
CPU_WHEEL = f"Processing /wheels/torch-{TORCH}+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
GPU_WHEEL = f"  Downloading torch-{TORCH}-cp312-cp312-manylinux_2_28_x86_64.whl (526.6 MB)"

STUBS = {
    "venv.py": """
        import importlib.util, pathlib, sys, sysconfig
        folder = pathlib.Path(sysconfig.get_path("stdlib")) / "venv"
        spec = importlib.util.spec_from_file_location(
            "venv", folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        real = importlib.util.module_from_spec(spec)
        sys.modules["venv"] = real
        spec.loader.exec_module(real)
        real.EnvBuilder(symlinks=sys.platform != "win32").create(sys.argv[1])
    """,
    "pip/__main__.py": """
        import json, os, pathlib, re, sys, sysconfig, time
        args = sys.argv[1:]
        if args == ["--version"]:
            sys.exit()
        here = pathlib.Path(__file__).parents[1]
        with open(here / "calls.jsonl", "a") as calls:
            calls.write(json.dumps(args) + "\\n")
        if "--dry-run" in args:
            print((here / "offer.txt").read_text(), flush=True)
            time.sleep(60)  # the download, which nobody should wait for
        does = (here / "does.txt").read_text() if (here / "does.txt").exists() else ""
        step = "project" if "-e" in args else "torch"
        log = pathlib.Path(args[args.index("--log") + 1])
        log.write_text("Skipping link: a\\nNewConnectionError: no route\\nFound link b\\n")
        torch = [word for word in args if word.startswith("torch==")]
        if torch:
            site = pathlib.Path(sysconfig.get_path("purelib"))
            info = site / f"torch-{torch[0].removeprefix('torch==')}.dist-info"
            info.mkdir(exist_ok=True)
            (info / "METADATA").write_text("Name: torch")
            if does == "dies in torch":
                os._exit(137)
            (info / "INSTALLER").write_text("pip")
            (info / "RECORD").write_text(f"{info.name}/METADATA,,11\\n{info.name}/RECORD,,\\n")
        if does == f"fails in {step}":
            sys.exit(1)
        if does == f"hangs in {step}":
            (here / "started").touch()
            time.sleep(60)
        if does == "takes its time":
            time.sleep(1)
    """,
    "torch.py": "__version__ = 'stub'",
    "numpy.py": "",
    "matplotlib.py": "",
    "jupyterlab/__main__.py": """
        import json, os, sys
        print(json.dumps(sys.argv[1:]))
    """,
}
STUB_CLI = """
import json, os, sys, gspo_edu
print(json.dumps({"args": sys.argv[1:], "from": gspo_edu.__file__, "in": sys.prefix}))
sys.exit(7)
"""
NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "source": "1 + 1", "outputs": ["2"], "execution_count": 1},
    ],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}


class Clone:
    """A copy of the project, and what happened in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.stubs, self.env = folder / "gspo edu", folder / "stubs", None
        for name in ("course.py", "pyproject.toml", "constraints.txt"):
            self.folder.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, self.folder)
        shutil.copytree(ROOT / "course_setup", self.folder / "course_setup")
        (self.folder / "gspo_edu").mkdir()
        for name in ("__init__.py", "files.py", "lesson_files.py"):
            shutil.copy(ROOT / "gspo_edu" / name, self.folder / "gspo_edu")
        (self.folder / "gspo_edu" / "cli.py").write_text(STUB_CLI)
        (self.folder / "lessons").mkdir()
        (self.folder / "lessons" / "00_start_here.ipynb").write_text(json.dumps(NOTEBOOK))
        for name, code in STUBS.items():
            (self.stubs / name).parent.mkdir(parents=True, exist_ok=True)
            (self.stubs / name).write_text(textwrap.dedent(code))
        self.offer(CPU_WHEEL)

    def offer(self, line: str) -> None:
        (self.stubs / "offer.txt").write_text(line)

    def pip_does(self, what: str) -> None:
        (self.stubs / "does.txt").write_text(what)

    def start(self, *arguments: str, **settings) -> subprocess.Popen[str]:
        command = [sys.executable, str(self.folder / "course.py"), *arguments]
        return subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(self.stubs)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **settings,
        )

    def run(self, *arguments: str, status: int = 0) -> tuple[str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        assert process.returncode == status, err
        return out, err

    def installs(self) -> list[list[str]]:
        """What pip was asked to install since the last look, without asking what it offers."""
        calls = self.stubs / "calls.jsonl"
        lines = calls.read_text().splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        called = [json.loads(line) for line in lines]
        return [call[call.index("install") + 1 :] for call in called if "--dry-run" not in call]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


PROJECT = ["-e", ".[lab,dev,real]", "-c", "constraints.txt"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has to choose a build")
posix = pytest.mark.skipif(os.name == "nt", reason="sends signals as a terminal on POSIX does")


# --- Which Python and which system ---------------------------------------------------------

GOOD = ((3, 12, 1), "CPython", 64, "Linux", "x86_64", "glibc")


@pytest.mark.parametrize(
    "system",
    [
        GOOD,
        ((3, 11, 0), "CPython", 64, "Linux", "aarch64", "glibc"),
        ((3, 13, 9), "CPython", 64, "Windows", "AMD64", ""),
        ((3, 13, 0), "CPython", 64, "Darwin", "arm64", ""),
    ],
)
def test_supported_systems(system: tuple) -> None:
    assert course.unsupported(*system) is None


@pytest.mark.parametrize(
    ("position", "value", "named"),
    [
        (0, (3, 10, 14), "CPython 3.10.14"),
        (0, (3, 14, 0), "CPython 3.14.0"),
        (0, (2, 7, 18), "CPython 2.7.18"),
        (1, "PyPy", "PyPy 3.12.1"),
        (2, 32, "(32 bit)"),
        (3, "FreeBSD", "FreeBSD x86_64"),
        (3, "Darwin", "Darwin x86_64"),
        (4, "riscv64", "Linux riscv64"),
        (5, "other", "without glibc"),
    ],
)
def test_anything_else_gets_one_sentence(position: int, value: object, named: str) -> None:
    system = list(GOOD)
    system[position] = value
    sentence = course.unsupported(*system)
    assert sentence is not None
    assert "Python 3.11, 3.12 or 3.13" in sentence
    assert named in sentence
    assert len(re.findall(r"\.(?:\s|$)", sentence)) == 1


def test_this_system_is_described_as_unsupported_expects() -> None:
    assert course.unsupported(*course.this_system()) is None


def test_course_py_reads_as_python_3_8() -> None:
    ast.parse((ROOT / "course.py").read_text(encoding="utf-8"), feature_version=(3, 8))


def test_other_pythons_for_real() -> None:
    found = map(shutil.which, ("python3.8", "python3.9", "python3.10", "python3.14"))
    others = [
        p
        for p in found
        if p and subprocess.run([p, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0
    ]
    if not others:
        pytest.skip("there is no unsupported Python here")
    for python in others:
        done = subprocess.run(
            [python, str(ROOT / "course.py"), "lab"], capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 1
        assert done.stderr.startswith("gspo-edu works with Python 3.11, 3.12 or 3.13")
        assert done.stderr.count("\n") == 1


def test_the_versions_agree_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest, newest = course.PYTHONS[0], course.PYTHONS[-1]
    assert project["requires-python"] == f">=3.{oldest[1]},<3.{newest[1] + 1}"
    listed = [c for c in project["classifiers"] if c.startswith("Programming Language :: Python")]
    assert [c.rpartition(" ")[2] for c in listed] == [f"3.{minor}" for _, minor in course.PYTHONS]
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    assert f'["3.{oldest[1]}", "3.{newest[1]}"]' in workflow


def test_every_requirement_has_its_tested_version() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][\w.]*", pin) for pin in pins)
    assert pins == sorted(pins)
    assert len(pins) == len({pin.partition("==")[0] for pin in pins})
    version = dict(pin.split("==") for pin in pins)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for requirement in sum(project["optional-dependencies"].values(), project["dependencies"]):
        name, lowest = requirement.split(">=")
        assert _numbers(version[name]) >= _numbers(lowest), requirement


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


# --- Setting up ----------------------------------------------------------------------------


def test_first_call_installs_and_the_second_starts_at_once(clone: Clone) -> None:
    out, err = clone.run("lab", "--no-browser", "--port", "8890")
    torch, project = clone.installs()
    assert torch[-1] == f"torch=={TORCH}"
    assert "--index-url" not in torch
    assert project == PROJECT
    assert f"PyTorch {TORCH} for the CPU" in err
    assert "GB to download" in err
    arguments = json.loads(out.splitlines()[-1])
    assert arguments[-3:] == ["--no-browser", "--port", "8890"]
    lessons = clone.folder / "my_lessons"
    assert f"--ServerApp.root_dir={lessons}" in arguments
    assert "--LabApp.default_url=/lab/tree/00_start_here.ipynb" in arguments
    assert json.loads((lessons / "00_start_here.ipynb").read_text())["cells"][0]["outputs"] == []

    start = time.perf_counter()
    out, err = clone.run("lab")
    assert time.perf_counter() - start < 2
    assert clone.installs() == []
    assert err == ""
    assert "default_url" not in out


def test_only_a_change_of_requirements_installs_again(clone: Clone) -> None:
    clone.run("install")
    clone.installs()
    (clone.folder / "README.md").write_text("changed")
    clone.run("install")
    assert clone.installs() == []
    with open(clone.folder / "constraints.txt", "a") as constraints:
        constraints.write("zstandard==1.0\n")
    _, err = clone.run("install")
    assert clone.installs() == [PROJECT]
    assert "Bringing" in err
    clone.run("install")
    assert clone.installs() == []


def test_line_ends_do_not_count_as_a_change(clone: Clone) -> None:
    clone.run("install")
    clone.installs()
    path = clone.folder / "pyproject.toml"
    path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))
    clone.run("install")
    assert clone.installs() == []


@pytest.mark.parametrize(("step", "again"), [("torch", 1), ("project", 1)])
def test_failed_install_says_how_to_go_on(clone: Clone, step: str, again: int) -> None:
    clone.pip_does(f"fails in {step}")
    _, err = clone.run("install", status=1)
    assert "The network did not answer." in err
    assert "Call the same command again" in err
    assert "Traceback" not in err
    log = clone.folder / ".venv" / "course-install.log"
    assert str(log) in err
    assert log.read_text() == "NewConnectionError: no route\n"
    clone.installs()
    clone.pip_does("")
    clone.run("install")
    assert len(clone.installs()) == again  # what was there is not fetched again


def test_half_written_package_is_installed_again(clone: Clone) -> None:
    clone.pip_does("dies in torch")
    clone.run("install", status=1)
    clone.installs()
    clone.pip_does("")
    clone.run("install")
    assert [call[-1] for call in clone.installs()] == [f"torch=={TORCH}", "constraints.txt"]


@posix
def test_ctrl_c_says_how_to_go_on(clone: Clone) -> None:
    clone.pip_does("hangs in project")
    process = clone.start(
        "lab",
        start_new_session=True,
        # A job in the background ignores SIGINT, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 30
    while not (clone.stubs / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert err.rstrip().endswith(
        "Stopped. Call the same command again: it goes on from where it was."
    )
    assert not (clone.folder / ".venv" / "course-stamp.json").exists()
    clone.installs()
    clone.pip_does("")
    clone.run("lab")
    assert clone.installs() == [PROJECT]


def test_half_made_environment_is_made_anew(clone: Clone) -> None:
    clone.run("install")
    clone.installs()
    env = clone.folder / ".venv"
    processes.python_of(env).unlink()
    (env / "rubbish").mkdir()
    clone.run("install")
    assert len(clone.installs()) == 2
    assert not (env / "rubbish").exists()


def test_a_folder_that_is_no_environment_is_never_emptied(clone: Clone, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    _, err = clone.run("install", "--env", str(tmp_path / "thesis"), status=2)
    assert "give --env a new folder" in err
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.txt"]
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "pyvenv.cfg").write_text("somebody else's")
    _, err = clone.run("install", "--env", str(tmp_path / "broken"), status=1)
    assert "delete that folder" in err
    assert (tmp_path / "broken" / "pyvenv.cfg").exists()


def test_two_calls_at_once_install_once(clone: Clone) -> None:
    clone.pip_does("takes its time")
    both = [clone.start("install") for _ in range(2)]
    said = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert len(clone.installs()) == 2  # PyTorch and the project, once each
    assert sum("waiting for it" in err for err in said) == 1


def test_shared_environment(clone: Clone, tmp_path: Path) -> None:
    env = tmp_path / "for the class"
    clone.run("install", "--env", str(env))
    assert not (clone.folder / ".venv").exists()
    clone.installs()
    student = tmp_path / "student"
    shutil.copytree(clone.folder, student)
    clone.folder = student
    out, _ = clone.run("train", "--env", str(env), "--objective", "gspo", "--seed", "0", status=7)
    assert clone.installs() == []
    ran = json.loads(out)
    assert ran["args"] == ["train", "--objective", "gspo", "--seed", "0"]
    assert Path(ran["from"]).is_relative_to(student)  # not the teacher's checkout
    assert Path(ran["in"]) == env


def test_shared_environment_of_another_version_that_one_cannot_write(
    clone: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    clone.run("install")
    env = clone.folder / ".venv"
    stamp = {**environment.read_stamp(env), "fingerprint": "older"}
    environment.write_json(env / environment.STAMP, stamp)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert environment.ensure_environment(env, gpu=False) == processes.python_of(env)
    assert "course.py install --env" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("free", "folder"), [((1.0, 9.0), "env"), ((9.0, 1.0), "tmp"), ((3.1, 1.6), None)]
)
def test_disk_is_checked_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: tuple, folder: str | None
) -> None:
    env, temporary = tmp_path / "env", tmp_path / "tmp"
    monkeypatch.setattr(environment.tempfile, "gettempdir", lambda: str(temporary))
    sizes = {env: free[0], temporary: free[1]}
    usage = lambda path: type("Usage", (), {"free": sizes[Path(path)] * 1e9})  # noqa: E731
    monkeypatch.setattr(environment.shutil, "disk_usage", usage)
    if folder is None:
        environment.check_disk(env, 3.0)
        return
    with pytest.raises(processes.Stop, match=r"free disk in .*, which has 1\.0 GB") as stopped:
        environment.check_disk(env, 3.0)
    assert str(tmp_path / folder) in str(stopped.value)


def test_a_package_is_complete_with_installer_and_all_files_in_full(tmp_path: Path) -> None:
    info = tmp_path / "thing-1.0.dist-info"
    info.mkdir()
    module = tmp_path / "thing.py"
    module.write_text("pass")
    (info / "RECORD").write_text("thing.py,sha256=x,4\n__pycache__/thing.pyc,,\n")
    assert not environment.is_complete(info)
    (info / "INSTALLER").write_text("pip")
    assert environment.is_complete(info)
    module.write_text("pas")
    assert not environment.is_complete(info)
    module.unlink()
    assert not environment.is_complete(info)


# --- Which build of PyTorch ----------------------------------------------------------------


@linux
def test_gpu_build_on_offer_is_left_alone_and_the_cpu_index_taken(clone: Clone) -> None:
    clone.offer(f"Collecting torch\n{GPU_WHEEL}")
    start = time.perf_counter()
    _, err = clone.run("install")
    assert time.perf_counter() - start < 30  # the stub's download takes 60 s
    torch, _ = clone.installs()
    assert torch == ["--no-deps", "--index-url", torch_build.CPU_INDEX, f"torch=={TORCH}+cpu"]
    assert torch_build.CPU_INDEX in err


def test_gpu_on_request_replaces_the_cpu_build_and_stays(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform == "darwin":
        _, err = clone.run("install", "--gpu", status=2)
        assert "leave --gpu out" in err
        return
    clone.run("install")
    site = environment.site_packages(clone.folder / ".venv")
    (site / f"torch-{TORCH}.dist-info").rename(site / f"torch-{TORCH}+cpu.dist-info")
    record = site / f"torch-{TORCH}+cpu.dist-info" / "RECORD"
    record.write_text(record.read_text().replace(TORCH, f"{TORCH}+cpu"))
    clone.installs()
    _, err = clone.run("install", "--gpu")
    torch, _ = clone.installs()
    assert torch[:2] == ["--no-deps", "--force-reinstall"]
    assert torch[-1] == f"torch=={TORCH}"
    assert "GPU libraries" in err
    clone.run("train", status=7)  # without the flag the environment stays as it is
    assert clone.installs() == []


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        (CPU_WHEEL, True),
        (f"  Downloading torch-{TORCH}%2Bcpu-cp313-cp313-linux_x86_64.whl (190.1 MB)", True),
        (f"  Downloading https://host/whl/torch-{TORCH}+cu130-cp311-cp311-a.whl (2.1 GB)", False),
        (GPU_WHEEL, False),
        (GPU_WHEEL.replace("Downloading", "Using cached"), False),
        (f"  Downloading torch-{TORCH}-cp312-cp312-linux_aarch64.whl (99.1 MB)", None),
        (f"  Downloading torch-{TORCH}-cp312-cp312-linux_x86_64.whl.metadata (31 kB)", None),
        ("  Downloading torchvision-0.29.1-cp312-cp312-linux_x86_64.whl (900.0 MB)", None),
        (f"Collecting torch=={TORCH}", None),
    ],
)
def test_what_a_line_of_pip_says_about_the_build(line: str, verdict: bool | None) -> None:
    assert torch_build.cpu_build_in_line(line) is verdict
    assert torch_build.cpu_build_in_line(line + "\n") is verdict


@pytest.mark.parametrize(
    ("version", "needs", "verdict"),
    [
        (f"{TORCH}+cpu", ["filelock", "sympy>=1.13.3"], True),
        (TORCH, ["filelock", "sympy>=1.13.3"], True),
        (TORCH, ["filelock", 'nvidia-cudnn-cu13==9.20; platform_system == "Linux"'], False),
        (TORCH, ["cuda-toolkit[cublas]==13.0.3"], False),
        (f"{TORCH}+cu130", [], False),
        (f"{TORCH}+rocm6.4", ["triton-rocm"], False),
    ],
)
def test_what_pips_report_says_about_the_build(version: str, needs: list, verdict: bool) -> None:
    metadata = {"name": "torch", "version": version, "requires_dist": needs}
    assert torch_build.cpu_build_in_report({"install": [{"metadata": metadata}]}) is verdict


def test_a_report_without_pytorch_is_no_cpu_build() -> None:
    assert torch_build.cpu_build_in_report({"install": []}) is False


@pytest.mark.parametrize(
    ("system", "gpu", "expected"),
    [
        ("Darwin", False, ["--no-deps", f"torch=={TORCH}"]),
        ("Windows", False, ["--no-deps", f"torch=={TORCH}"]),
        (
            "Windows",
            True,
            ["--no-deps", "--index-url", torch_build.WINDOWS_GPU_INDEX, f"torch=={TORCH}"],
        ),
        ("Linux", True, ["--no-deps", f"torch=={TORCH}"]),
    ],
)
def test_what_pip_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, gpu: bool, expected: list
) -> None:
    monkeypatch.setattr(torch_build.platform, "system", lambda: system)
    assert torch_build.arguments(tmp_path, tmp_path, gpu) == expected


# --- Commands ------------------------------------------------------------------------------


def test_lessons_that_the_learner_changed_survive_the_next_start(clone: Clone) -> None:
    clone.run("lab")
    mine = clone.folder / "my_lessons" / "00_start_here.ipynb"
    changed = mine.read_text().replace("1 + 1", "1 + 2")
    mine.write_text(changed)
    source = clone.folder / "lessons" / "00_start_here.ipynb"
    source.write_text(source.read_text().replace("1 + 1", "2 + 2"))
    _, err = clone.run("lab")
    assert mine.read_text() == changed
    assert "2 + 2" in mine.with_name("00_start_here.new.ipynb").read_text()
    assert "00_start_here.new.ipynb" in err

    out, _ = clone.run("reset", "0")
    assert "00_start_here.backup-1.ipynb" in out
    assert mine.with_name("00_start_here.backup-1.ipynb").read_text() == changed
    assert "2 + 2" in mine.read_text()


def test_lessons_go_where_dir_says(clone: Clone, tmp_path: Path) -> None:
    out, _ = clone.run("lab", "--dir", str(tmp_path / "anna"))
    assert (tmp_path / "anna" / "00_start_here.ipynb").exists()
    assert f"--ServerApp.root_dir={tmp_path / 'anna'}" in json.loads(out.splitlines()[-1])
    _, err = clone.run("lab", "--dir", str(clone.folder / "lessons"), status=2)
    assert "course's own folder" in err
    (tmp_path / "file").write_text("")
    _, err = clone.run("lab", "--dir", str(tmp_path / "file"), status=1)
    assert "is a file" in err


def test_who_cannot_write_to_the_folder_is_told_to_name_another(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(processes.Stop, match=r"Name a folder of your own.* --dir"):
        course.lab(tmp_path / "file" / "my_lessons", [])


@pytest.mark.parametrize("command", ["train", "compare", "study"])
def test_what_follows_the_command_is_passed_on(clone: Clone, command: str) -> None:
    rest = ["--seed", "1", "--out", "a b", "--beta", "-1", "--help"]
    clone.run("install")
    out, _ = clone.run(command, *rest, status=7)
    assert json.loads(out)["args"] == [command, *rest]


def test_help_of_the_trainer_installs_nothing(clone: Clone) -> None:
    _, err = clone.run("train", "--help")
    assert "course.py install" in err
    assert not (clone.folder / ".venv").exists()


@pytest.mark.parametrize(
    "arguments", [[], ["learn"], ["reset"], ["reset", "77"], ["install", "--port", "1"]]
)
def test_usage_errors_end_with_status_2(clone: Clone, arguments: list[str]) -> None:
    _, err = clone.run(*arguments, status=2)
    assert "Traceback" not in err
    assert not (clone.folder / ".venv").exists()


@pytest.mark.parametrize("option", ["--dir", "--env"])
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_folder_is_refused(clone: Clone, option: str, value: str) -> None:
    before = sorted(path.name for path in clone.folder.iterdir())
    _, err = clone.run("lab", option, value, status=2)
    assert err.splitlines()[-1].endswith(f"argument {option}: expected a folder, got nothing")
    assert sorted(path.name for path in clone.folder.iterdir()) == before


def test_tests_are_everything_unless_something_is_named() -> None:
    everything = course.pytest_arguments(["-x", "-k", "ratio"])
    assert everything[:2] == ["-m", "pytest"]
    assert str(ROOT / "tests") in everything
    here = f"{Path(__file__)}::test_supported_systems"
    named = course.pytest_arguments([here])
    assert named[-1] == here
    assert str(ROOT / "tests") not in named
