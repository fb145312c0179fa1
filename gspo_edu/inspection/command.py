"""``gspo-edu inspect FILE``: read, measure, print, draw."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from gspo_edu.inspection import SHARES


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of ``gspo-edu inspect``; nothing heavy is imported for them."""
    command.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        help="a run's .parquet, .jsonl, .npz or .safetensors, or a folder of .parquet files "
        "(columns: docs/inspect.md)",
    )
    command.add_argument(
        "--range",
        nargs=2,
        type=float,
        action="append",
        default=[],
        dest="ranges",
        metavar=("LOW", "HIGH"),
        help="also say what [1 - LOW, 1 + HIGH] would clip; may be given several times",
    )
    command.add_argument(
        "--share",
        nargs="+",
        type=float,
        default=None,
        dest="shares",
        metavar="X",
        help="clip fractions of GSPO for which a range is wanted "
        f"(default: {' '.join(map(str, SHARES))})",
    )
    command.add_argument("--json", action="store_true", help="print the numbers as one object")
    command.add_argument(
        "--figure",
        type=Path,
        metavar="PNG",
        help="where to draw (default: FILE-inspect.png beside FILE; with --json only if given)",
    )


def run(args: argparse.Namespace) -> int:
    """Run ``gspo-edu inspect``; returns the exit status: 0, or 2 if the file does not fit.

    Warnings about the run do not change the status.
    """
    from gspo_edu.inspection.columns import RunFileError
    from gspo_edu.inspection.reading import read_run

    try:
        found = read_run(args.file)
    except RunFileError as error:
        print(f"gspo-edu: {error}", file=sys.stderr)
        return 2
    import torch

    from gspo_edu.inspection.findings import findings
    from gspo_edu.inspection.numbers import measure

    # Memory, not arithmetic, is what takes the time; more threads only get into each other's way.
    torch.set_num_threads(1)
    try:
        measured = measure(found, [tuple(r) for r in args.ranges], args.shares or SHARES)
    except ValueError as error:
        print(f"gspo-edu: {error}", file=sys.stderr)
        return 2
    warned = findings(measured.numbers)
    # `.` and `..` have no name of their own.
    named = args.file if args.file.name not in ("", "..") else args.file.resolve()
    if args.json:
        warnings = [finding._asdict() for finding in warned]
        print(json.dumps({**measured.numbers, "warnings": warnings}, allow_nan=False))
    else:
        from gspo_edu.inspection.report import report

        print(report(measured.numbers, warned, named.name or str(named)))
    if args.figure is None and args.json:
        return 0
    from gspo_edu.files import write_atomically
    from gspo_edu.inspection.figure import figure
    from gspo_edu.plots import png

    path = args.figure or named.with_name(f"{named.stem or 'root'}-inspect.png")
    write_atomically(path, png(figure(measured)))
    if not args.json:
        print(f"\nFigure: {path}")
    return 0
