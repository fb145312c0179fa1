"""Seconds of every lesson and exercise, and of the test suite, against their limits.

    python benchmarks/lessons.py                  every lesson, one after the other
    python benchmarks/lessons.py 03 05            these
    python benchmarks/lessons.py --tests --json   the tests as well; the last line is JSON

Each notebook runs from the top in a new kernel, in an empty folder: nothing is written into the
course. The time is what a learner waits for "Run All Cells" in all, the kernel's start included.
A lesson may take a minute, one that trains three. Whether it trains is not written down anywhere
but observed: it does if an optimiser makes a step in its kernel, or if it leaves the work to other
processes. The status is 1 if a limit is exceeded, a cell raises or a test fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parents[1]
LIMIT, LIMIT_OF_TRAINING = 60.0, 180.0
# Run in the kernel before the first cell and after the last one. Torch is loaded by the former
# instead of by the lesson's own imports, which makes no difference to the sum.
BEFORE = """
import torch.optim.optimizer as _torch_optimizer
from gspo_edu.adamw import AdamW as _AdamW
_steps, _step = [], _AdamW.step
def _counted_step(optimizer):
    _steps.append(1)
    _step(optimizer)
_AdamW.step = _counted_step
_torch_optimizer.register_optimizer_step_post_hook(lambda *seen: _steps.append(1))
"""
AFTER = """
import psutil as _psutil
print(bool(_steps or _psutil.Process().children()))
"""


@dataclass(frozen=True)
class Row:
    """What one notebook, or the test suite, took.

    Attributes:
        seconds: by the clock.
        cpu_seconds: processor time of all its processes; 0 on Windows.
        limit: most seconds allowed; None for none.
        failure: the error of a cell, or pytest's last line; empty if all went well.
    """

    name: str
    seconds: float
    cpu_seconds: float
    limit: float | None
    failure: str = ""

    @property
    def good(self) -> bool:
        """Nothing failed, and no limit is exceeded."""
        return not self.failure and (self.limit is None or self.seconds <= self.limit)


def notebooks(wanted: list[str]) -> list[Path]:
    """Lessons, then exercises, whose names start with one of ``wanted``; all if empty."""
    found = [path for kind in ("lessons", "exercises") for path in (ROOT / kind).glob("*.ipynb")]
    for start in wanted:
        if not any(path.name.startswith(start) for path in found):
            sys.exit(f"no lesson starts with {start!r}; there are {sorted(p.stem for p in found)}")
    found.sort(key=lambda path: (path.parent.name != "lessons", path.name))
    return [path for path in found if not wanted or path.name.startswith(tuple(wanted))]


def cpu_of_children() -> float:
    """Processor time of all processes that were waited for."""
    times = os.times()
    return times.children_user + times.children_system


def run_notebook(path: Path) -> Row:
    """Execute a copy of a notebook and time it."""
    notebook: Any = nbformat.read(path, as_version=4)
    before, after = map(nbformat.v4.new_code_cell, (BEFORE, AFTER))
    notebook.cells = [before, *notebook.cells, after]
    failure, cpu, began = "", cpu_of_children(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GSPO_EDU_PREDICTIONS"] = str(Path(folder) / "predictions.json")
        client = NotebookClient(
            notebook,
            timeout=LIMIT_OF_TRAINING,
            kernel_name="python3",
            store_widget_state=False,
            resources={"metadata": {"path": folder}},
        )
        try:
            client.execute()
        except CellExecutionError as error:
            failure = f"{error.ename}: {error.evalue}"
        except TimeoutError:
            failure = f"a cell takes more than {LIMIT_OF_TRAINING:.0f} s"
    seconds, cpu = time.perf_counter() - began, cpu_of_children() - cpu
    trains = bool(failure) or after.outputs[0].text.strip() == "True"
    name = path.relative_to(ROOT).as_posix().removesuffix(".ipynb")
    return Row(name, seconds, cpu, LIMIT_OF_TRAINING if trains else LIMIT, failure)


def run_tests() -> Row:
    """Time the test suite, in as many processes as there are cores."""
    words = ["-m", "pytest", "-q", "-n", str(os.cpu_count() or 1), "--dist", "loadfile"]
    cpu, began = cpu_of_children(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *words, "tests"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    seconds, cpu = time.perf_counter() - began, cpu_of_children() - cpu
    lines = done.stdout.splitlines() or done.stderr.splitlines() or ["no output"]
    return Row("tests", seconds, cpu, None, lines[-1] if done.returncode else "")


def line(name: str, seconds: str, cpu: str, limit: str, remark: str) -> str:
    """One line of the table."""
    return f"{name:<36} {seconds:>8} {cpu:>8} {limit:>6}  {remark}".rstrip()


def main() -> int:
    """Measure, print, and return 1 unless all is well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("lesson", nargs="*", help="beginning of a name, such as 05; none: all")
    parser.add_argument("--tests", action="store_true", help="time the test suite as well")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    args = parser.parse_args()
    rows: list[Row] = []
    print(line("", "seconds", "CPU", "limit", ""))
    for path in [*notebooks(args.lesson), *([None] if args.tests else [])]:
        row = run_tests() if path is None else run_notebook(path)
        rows.append(row)
        limit = "" if row.limit is None else f"{row.limit:.0f}"
        remark = row.failure or ("" if row.good else "too slow")
        print(line(row.name, f"{row.seconds:.1f}", f"{row.cpu_seconds:.1f}", limit, remark))
        sys.stdout.flush()
    good = all(row.good for row in rows)
    if args.json:
        print(json.dumps({"good": good, "rows": [asdict(row) for row in rows]}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
