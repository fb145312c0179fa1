#!/usr/bin/env python3
"""Set up gspo-edu and start it: the one command of the course. Needs nothing but Python.

The first call makes an environment in `.venv` and installs what the course needs; later calls
start at once. Nothing is written outside this folder, apart from pip's own cache.
"""

from __future__ import annotations

# Only this file has to be readable for an old Python: it must get as far as its one sentence.
import argparse
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent
PYTHONS = [(3, 11), (3, 12), (3, 13)]
MACHINES = {"Windows": ["AMD64"], "Darwin": ["arm64"], "Linux": ["x86_64", "aarch64"]}
NEEDS = (
    "gspo-edu works with Python 3.11, 3.12 or 3.13 (CPython, 64 bit) on Windows 11, macOS with "
    "Apple silicon and Linux with glibc (x86-64, aarch64)"
)
WINDOWS_11 = 22000
PASSED_ON = {
    "lab": "open your copies of the lessons in JupyterLab",
    "train": "train the tiny model with one objective",
    "compare": "train GRPO and GSPO on the same seeds and show both side by side",
    "study": "train the grid of a study file, or of one that ships with the course",
    "inspect": "say what clips and drifts in a recorded run",
    "export": "write a policy as a model folder of transformers",
    "progress": "show what you have solved in the exercises",
    "config": "print every setting of the training with its meaning",
    "test": "run the tests and check the lessons",
}
TAKES_THE_REST = {
    "lab": "JupyterLab (e.g. --no-browser --port 8890)",
    "test": "pytest (e.g. -k ratio, or a file)",
}
EXAMPLES = """\
examples:
  python course.py lab                           open the lessons
  python course.py train --objective gspo        what follows goes to `gspo-edu train`
  python course.py test                          run the tests
  python course.py reset 05                      restore lesson 05, keep yours as a backup
  python course.py lab --env /srv/gspo-edu       use one environment for a whole class
"""


def unsupported(
    version: tuple[int, ...], implementation: str, bits: int, system: str, machine: str, libc: str
) -> str | None:
    """One sentence naming what works and what this is; None where the course is supported."""
    if (
        version[:2] in PYTHONS
        and implementation == "CPython"
        and bits == 64
        and machine in MACHINES.get(system, [])
        and (system != "Linux" or libc == "glibc")
    ):
        return None
    number = ".".join(str(part) for part in version[:3])
    where = f"{system} {machine}{' without glibc' if libc == 'other' else ''}"
    return f"{NEEDS}; this is {implementation} {number} ({bits} bit) on {where}."


def this_system() -> tuple[tuple[int, ...], str, int, str, str, str]:
    """The arguments of `unsupported` for the Python that runs this file."""
    system, machine = platform.system(), platform.machine()
    if system == "Windows":  # platform.machine() is the processor's, not this Python's
        machine = {"win-amd64": "AMD64", "win-arm64": "ARM64"}.get(sysconfig.get_platform(), "x86")
    libc = platform.libc_ver()[0] or "other" if system == "Linux" else ""
    bits = 64 if sys.maxsize > 2**32 else 32
    return sys.version_info[:3], platform.python_implementation(), bits, system, machine, libc


def other_python() -> str | None:
    """The command of a supported Python beside this one, if there is one."""
    for major, minor in reversed(PYTHONS):
        for command in ([f"python{major}.{minor}"], ["py", f"-{major}.{minor}"]):
            if shutil.which(command[0]):
                # a version manager's name for a Python may be there without the Python
                done = subprocess.run([*command, "-c", ""], stderr=subprocess.DEVNULL)
                if done.returncode == 0:
                    return " ".join(command)
    return None


def folder_name(word: str) -> str:
    """The argparse type of a folder; an empty word would mean the current one."""
    if not word.strip():
        raise argparse.ArgumentTypeError("expected a folder, got nothing")
    return word


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The command with course.py's own options, and what is passed on. Exits 2 on bad usage."""
    shared = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    shared.add_argument(
        "--env",
        type=folder_name,
        metavar="PATH",
        default=str(ROOT / ".venv"),
        help="environment (default: .venv)",
    )
    shared.add_argument("--gpu", action="store_true", help="install PyTorch's GPU build (NVIDIA)")
    parser = argparse.ArgumentParser(
        prog="course.py",
        description="Set up gspo-edu (once) and start it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    by_name = {}
    for name, what in PASSED_ON.items():
        taker = TAKES_THE_REST.get(name, f"`gspo-edu {name}`")
        by_name[name] = commands.add_parser(
            name,
            parents=[shared],
            help=what,
            description=f"{what[0].upper()}{what[1:]}. All other options go to {taker}.",
            # `train --help` is the trainer's to answer
            add_help=name in TAKES_THE_REST,
            allow_abbrev=False,
        )
    what = "set up or update the environment, and start nothing"
    commands.add_parser("install", parents=[shared], help=what, description=what.capitalize() + ".")
    reset = commands.add_parser("reset", help="restore one lesson and keep yours as a backup")
    reset.add_argument("lesson", metavar="LESSON", help="number or name, e.g. 05")
    for command in (by_name["lab"], reset):
        command.add_argument(
            "--dir",
            type=folder_name,
            metavar="PATH",
            default=str(ROOT / "my_lessons"),
            help="folder with your copies of the lessons (default: my_lessons)",
        )
    args, rest = parser.parse_known_args(argv)
    if rest and args.command not in PASSED_ON:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if getattr(args, "gpu", False) and platform.system() == "Darwin":
        parser.error("--gpu is for NVIDIA cards; on macOS there is one build: leave --gpu out")
    return args, rest


def lab(folder: Path, rest: list[str]) -> list[str]:
    """Copy the lessons and return the arguments that start JupyterLab in `folder`."""
    from course_setup.processes import Stop, say
    from gspo_edu import lesson_files

    try:
        report = lesson_files.copy_lessons(folder)
    except ValueError as error:
        raise Stop(str(error), 2) from None
    except OSError as error:
        raise Stop(
            f"Cannot copy the lessons to {folder}: {error}. "
            "Name a folder of your own, e.g. --dir ~/my_lessons"
        ) from None
    for sentence in report.sentences(folder):
        say(sentence)
    arguments = ["-m", "jupyterlab", f"--ServerApp.root_dir={folder}"]
    if report.made and report.made[0].startswith("00_"):
        arguments.append(f"--LabApp.default_url=/lab/tree/{report.made[0]}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # JupyterLab refuses root, as in a container
        arguments.append("--allow-root")
    return [*arguments, *rest]


def reset(lesson: str, folder: Path) -> str:
    """Restore one lesson; returns what to tell the learner."""
    from course_setup.processes import Stop
    from gspo_edu import lesson_files

    try:
        return lesson_files.reset_sentence(*lesson_files.reset_lesson(lesson, folder))
    except ValueError as error:
        raise Stop(str(error), 2) from None
    except OSError as error:
        raise Stop(f"Cannot restore the lesson in {folder}: {error}") from None


def pytest_arguments(rest: list[str]) -> list[str]:
    """All tests, which run the lessons too, on up to four cores, unless `rest` names files."""
    chosen = [
        word for word in rest if not word.startswith("-") and Path(word.split("::")[0]).exists()
    ]
    processes = min(4, os.cpu_count() or 1)
    options = ["-c", str(ROOT / "pyproject.toml"), "-n", str(processes), "--dist", "loadfile"]
    return ["-m", "pytest", *options, *rest, *([] if chosen else [str(ROOT / "tests")])]


def hand_over(python: Path, env: Path, arguments: list[str]) -> int:
    """Become `python arguments`; on Windows, which cannot, wait for it. Returns its status."""
    from course_setup.processes import child_variables

    variables = child_variables(env)
    if arguments[:2] == ["-m", "gspo_edu.cli"]:  # it tells the reader what to call next
        variables["GSPO_EDU_COMMAND"] = "python course.py"
    if arguments[:2] == ["-m", "pytest"]:  # the test processes share the cores
        variables.setdefault("OMP_NUM_THREADS", "1")
    # -P: the checkout at hand is imported, whatever folder this is called in
    command = [str(python), "-P", *arguments]
    if os.name != "nt":
        os.execve(command[0], command, variables)
    process = subprocess.Popen(command, env=variables)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # it is the program's, which has it as well
            continue


def main(argv: list[str]) -> int:
    sentence = unsupported(*this_system())
    if sentence:
        better = other_python()
        hint = f" Try: {better} course.py {' '.join(argv) or 'lab'}" if better else ""
        print(sentence + hint, file=sys.stderr)
        return 1
    args, rest = parse(argv)

    from course_setup.environment import ensure_environment, is_ready
    from course_setup.processes import Stop, say

    if sys.platform == "win32" and sys.getwindowsversion().build < WINDOWS_11:
        say("Note: the course is tested on Windows 11; this is an older Windows.")
    try:
        if args.command == "reset":
            print(reset(args.lesson, Path(args.dir).expanduser().absolute()))
            return 0
        env = Path(args.env).expanduser().absolute()
        if {"-h", "--help"} & set(rest) and not is_ready(env, gpu=False):
            say(f"The options of `{args.command}` can be shown after: python course.py install")
            return 0
        python = ensure_environment(env, args.gpu)
        if args.command == "install":
            return 0
        if args.command == "lab":
            arguments = lab(Path(args.dir).expanduser().absolute(), rest)
        elif args.command == "test":
            arguments = pytest_arguments(rest)
        else:
            arguments = ["-m", "gspo_edu.cli", args.command, *rest]
        return hand_over(python, env, arguments)
    except Stop as stop:
        say(f"course.py: {stop}")
        return stop.status
    except KeyboardInterrupt:
        say("\nStopped. Call the same command again: it goes on from where it was.")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
