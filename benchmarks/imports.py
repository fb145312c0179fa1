"""Seconds until the package is imported and until the command line answers.

    python benchmarks/imports.py            each command five times, in turns
    python benchmarks/imports.py --json     the last line is one JSON object

Each is a process of its own; the times are those of the whole process, the interpreter's start
included. The commands take turns, so that a busy minute of the machine meets all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

CLI = ("-m", "gspo_edu.cli")
# What is timed, how Python is called for it, and the most seconds that the median may take.
COMMANDS: dict[str, tuple[Sequence[str], float | None]] = {
    "python -c pass": (("-c", "pass"), None),
    "import gspo_edu": (("-c", "import gspo_edu"), 0.3),
    "gspo-edu --help": ((*CLI, "--help"), 0.5),
    "gspo-edu train --help": ((*CLI, "train", "--help"), 0.5),
    "gspo-edu config": ((*CLI, "config"), 0.5),
    "import torch": (("-c", "import torch"), None),
    "import gspo_edu.trainer": (("-c", "import gspo_edu.trainer"), None),
}


def seconds_of(arguments: Sequence[str]) -> float:
    """Wall seconds of one Python process."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> int:
    """Measure, print, and return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--times", type=int, default=5, help="how often each is measured")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    args = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(args.times + 1):
        for name, (arguments, _) in COMMANDS.items():
            seconds = seconds_of(arguments)
            if turn:  # the first one reads the files from the disk
                found[name].append(seconds)
    print(f"{'':<24} {'median':>7} {'min':>7} {'max':>7} {'limit':>7}")
    slow = []
    for name, times in found.items():
        limit, median = COMMANDS[name][1], statistics.median(times)
        shown = "" if limit is None else f"{limit:7.2f}"
        print(f"{name:<24} {median:7.3f} {min(times):7.3f} {max(times):7.3f} {shown}".rstrip())
        if limit is not None and median > limit:
            slow.append(name)
    if args.json:
        medians = {name: statistics.median(times) for name, times in found.items()}
        print(json.dumps({"median_seconds": medians, "above_limit": slow}))
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
