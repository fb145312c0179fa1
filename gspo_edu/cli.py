"""The command line: ``gspo-edu train``, ``compare``, ``study``, ``inspect`` and others.

Exit status: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import dataclasses
import errno
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gspo_edu import __version__, classroom, hf_export, lesson_files
from gspo_edu.config import COMMAND, TrainConfig
from gspo_edu.config_flags import UsageError, add_config_flags, config_of, default_folder, folder
from gspo_edu.inspection import command as inspection
from gspo_edu.study_file import read_study, study_names

# How torch says that memory has run out; only CUDA's error has a type of its own.
NO_MEMORY = re.compile(r"can't allocate|out of memory|excessive memory|overflow")
NAMED = "(default: in runs/, named after the settings)"


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0])
    top.add_argument("--version", action="version", version=f"gspo-edu {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    train = commands.add_parser("train", help="train one policy into a run folder")
    train.add_argument("--out", type=folder, help=f"run folder {NAMED}")
    train.add_argument("--resume", type=folder, metavar="DIR", help="go on with the run in DIR")
    train.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    add_config_flags(train)

    compare = commands.add_parser("compare", help="train objectives on the same seeds")
    compare.add_argument("--out", type=folder, help=f"their folder {NAMED}")
    compare.add_argument("--objectives", nargs="+", default=["grpo", "gspo"], metavar="NAME")
    compare.add_argument("--seeds", type=int, default=5, help="number of seeds, from --seed on")
    compare.add_argument("--jobs", type=int, default=None, help="runs at once (default: all cores)")
    compare.add_argument("--overwrite", action="store_true", help="replace the runs in --out")
    add_config_flags(compare)

    study = commands.add_parser(
        "study", help="train the grid of arms, settings and seeds of a file"
    )
    study.add_argument(
        "file", metavar="FILE", help=f"study file, or one that ships: {', '.join(study_names())}"
    )
    study.add_argument("--out", type=folder, help="its folder (default: runs/study-FILE)")
    study.add_argument("--jobs", type=int, default=None, help="runs at once (default: all cores)")
    study.add_argument("--overwrite", action="store_true", help="replace the runs in --out")

    inspect = commands.add_parser("inspect", help="say what clips and drifts in a recorded run")
    inspection.add_arguments(inspect)

    export = commands.add_parser("export", help="write a policy as a model of transformers")
    hf_export.add_arguments(export)

    config = commands.add_parser("config", help="print every setting with its meaning, as TOML")
    add_config_flags(config)

    lessons = commands.add_parser("lessons", help="copy the lessons to a folder of your own")
    lesson_files.add_arguments(lessons)

    progress = commands.add_parser("progress", help="show what you have solved in the exercises")
    classroom.add_progress_arguments(progress)

    for_class = commands.add_parser("classroom", help="pack the exercises for a class")
    classroom.add_classroom_arguments(for_class)
    return top


def train(args: argparse.Namespace) -> None:
    """Run ``gspo-edu train``."""
    settings = {f.name for f in dataclasses.fields(TrainConfig)} & set(vars(args))
    if args.resume is not None and (args.out or args.overwrite or args.config or settings):
        raise UsageError(
            "--resume DIR takes all settings from DIR/config.json; leave the other options out."
        )
    # Before torch is loaded: a mistake is answered at once.
    config = config_of(args) if args.resume is None else None

    from gspo_edu.progress import TrainingBar, cold_start_bar
    from gspo_edu.runs import prepare_folder, read_config, run

    if config is None:
        folder = args.resume
        config = read_config(folder)
    else:
        folder = args.out or default_folder(f"{config.objective}-seed{config.seed}", args)
        try:
            prepare_folder(folder, config, overwrite=args.overwrite)
        except ValueError as error:
            raise UsageError(str(error)) from None
    try:
        with TrainingBar(config) as bar:
            summary = run(folder, config, watch_cold_start=cold_start_bar, on_rollout=bar.show)
    except KeyboardInterrupt:
        print(f"\nStopped. Go on with:  {COMMAND} train --resume {folder}", file=sys.stderr)
        raise
    from gspo_edu.figures import save_run_figure

    save_run_figure(folder)
    print(
        f"{config.objective}, seed {config.seed}: held-out reward "
        f"{summary['held_out_reward_before']:.3f} -> {summary['held_out_reward_after']:.3f}, "
        f"right answers {summary['held_out_exact_before']:.1%} -> "
        f"{summary['held_out_exact_after']:.1%}, after {summary['updates']} updates.\n"
        f"Run folder: {folder}"
    )


def compare(args: argparse.Namespace) -> None:
    """Run ``gspo-edu compare``."""
    if args.seeds < 1:
        raise UsageError(f"--seeds is {args.seeds}; expected 1 or more.")
    if args.jobs is not None and args.jobs < 1:
        raise UsageError(f"--jobs is {args.jobs}; expected 1 or more.")
    twice = [name for name in args.objectives if args.objectives.count(name) > 1]
    if twice:
        raise UsageError(f"--objectives names {twice[0]} twice.")
    if "objective" in args:
        raise UsageError("compare takes --objectives, with an s, and names after it.")
    base = config_of(args, objective=args.objectives[0])
    configs = [
        config_of(args, objective=objective, seed=base.seed + offset)
        for objective in args.objectives
        for offset in range(args.seeds)
    ]
    out = args.out or default_folder("compare", args)

    from gspo_edu.compare import comparison_table, run_all

    try:
        summaries = run_all(out, configs, jobs=args.jobs, overwrite=args.overwrite)
    except KeyboardInterrupt:
        print("\nStopped. The same command without --overwrite goes on from here.", file=sys.stderr)
        raise
    print(comparison_table(summaries))
    from gspo_edu.figures import save_comparison_figure

    figure = save_comparison_figure(out, configs)
    print(f"Figure: {figure}")


def study(args: argparse.Namespace) -> None:
    """Run ``gspo-edu study``."""
    if args.jobs is not None and args.jobs < 1:
        raise UsageError(f"--jobs is {args.jobs}; expected 1 or more.")
    try:
        planned = read_study(args.file)
    except ValueError as error:
        raise UsageError(str(error)) from None
    out = args.out or Path("runs") / f"study-{planned.name}"

    from gspo_edu.study import run_study
    from gspo_edu.study_figure import save_study_figures

    try:
        result = run_study(planned, out, jobs=args.jobs, overwrite=args.overwrite)
    except KeyboardInterrupt:
        print("\nStopped. The same command without --overwrite goes on from here.", file=sys.stderr)
        raise
    print(result.text)
    for figure in save_study_figures(out):
        print(f"Figure: {figure}")
    print(f"Tables: {out}")


def print_config(args: argparse.Namespace) -> None:
    """Run ``gspo-edu config``: valid TOML, ready for --config."""
    config = config_of(args)
    for field in dataclasses.fields(TrainConfig):
        value = getattr(config, field.name)
        shown = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
        if shown is None:
            # JSON's strings are TOML's basic strings.
            shown = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
        line = f"{field.name} = {shown}" if value is not None else f"# {field.name} = none"
        print(f"{line:<32} # {field.metadata['help']}")


def stop_like_ctrl_c(signum: int, frame: object) -> NoReturn:
    """Let a terminated run end as one that Ctrl-C stopped."""
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    args = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, stop_like_ctrl_c)
    command = {"train": train, "compare": compare, "study": study, "config": print_config}
    with_own_status = {
        "lessons": lesson_files.run,
        "progress": classroom.run,
        "classroom": classroom.run,
        "inspect": inspection.run,
        "export": hf_export.run,
    }
    try:
        if args.command in with_own_status:
            return with_own_status[args.command](args)
        command[args.command](args)
    except UsageError as error:
        print(f"gspo-edu: {error}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"gspo-edu: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `gspo-edu config | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        reason = {
            errno.ENOSPC: "the disk is full; free some space",
            errno.EACCES: "no permission to write there",
            errno.EROFS: "that disk is read-only",
        }.get(error.errno or 0, error.strerror or str(error))
        print(f"gspo-edu: {error.filename or 'writing'}: {reason}.", file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or NO_MEMORY.search(str(error))):
            raise
        print(
            "gspo-edu: this needs more memory than there is; use fewer prompts, a smaller "
            "group_size or a smaller model.",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
