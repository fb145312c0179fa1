"""How well run_all, which `gspo-edu compare` is made of, keeps all cores at work.

    python benchmarks/parallel.py                     eight runs, as many at once as there are cores
    python benchmarks/parallel.py --runs 4 --json     the last line is one JSON object

A process of its own makes the runs; its wall time, from the start of Python to its end, is
compared with the processor time of the runs themselves, divided by the number of runs at once.
Starting Python, loading torch in every worker, the shared starting policy and the wait for the
last run come on top. Three ratios:

    beside    divided by what the runs took beside each other; this one has a limit
    alone     divided by what the same runs take one after the other, so that it also shows what
              cores take from each other (caches, memory, hyper-threads)
    lanes     divided by the runs' wall time: what is lost between the runs, whatever else keeps
              the machine busy. Only this one means anything when "waiting" is well above 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LIMIT = 1.15


def measured_run(folder: Path, config: Any) -> dict[str, Any]:
    """``compare.finished_run`` with the processor and wall seconds that it took."""
    from gspo_edu import runs

    wall, cpu = time.perf_counter(), time.process_time()
    summary = runs.run(folder, config)
    return {
        **summary,
        "cpu_seconds": time.process_time() - cpu,
        "wall_seconds": time.perf_counter() - wall,
    }


def serve(out: Path, runs: int, rollouts: int, jobs: int) -> None:
    """In a process of its own: train like ``gspo-edu compare``, print what each run took."""
    from gspo_edu import compare
    from gspo_edu.config import TrainConfig

    compare.finished_run = measured_run
    objectives = ("grpo", "gspo") if runs % 2 == 0 else ("gspo",)
    configs = [
        TrainConfig(objective=objective, seed=seed, rollouts=rollouts, device="cpu")
        for objective in objectives
        for seed in range(runs // len(objectives))
    ]
    found = compare.run_all(out, configs, jobs=jobs, overwrite=False)
    print(json.dumps([[run["cpu_seconds"], run["wall_seconds"]] for run in found]))


def measure(runs: int, rollouts: int, jobs: int) -> dict[str, float]:
    """Wall seconds of the whole command, and what its runs and all its processes used."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--worker", folder, "--runs", str(runs), "--rollouts", str(rollouts)]
        began, before = time.perf_counter(), os.times()
        done = subprocess.run(
            [sys.executable, __file__, *words, "--jobs", str(jobs)],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # the bar
            text=True,
        )
        wall, after = time.perf_counter() - began, os.times()
    each = json.loads(done.stdout.splitlines()[-1])
    return {
        "wall_seconds": wall,
        "run_cpu_seconds": sum(cpu for cpu, _ in each),
        "run_wall_seconds": sum(seconds for _, seconds in each),
        # Worker processes that nobody waited for are not in here; 0 on Windows.
        "process_cpu_seconds": after.children_user
        + after.children_system
        - before.children_user
        - before.children_system,
    }


def main() -> int:
    """Measure, print, and return 1 if the limit is exceeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=8, help="how many runs")
    parser.add_argument("--rollouts", type=int, default=40, help="rollouts of each run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        serve(args.worker, args.runs, args.rollouts, args.jobs)
        return 0
    beside = measure(args.runs, args.rollouts, args.jobs)
    alone = measure(args.runs, args.rollouts, 1)
    lanes = min(args.jobs, args.runs)
    ratios = {
        "beside": lanes * beside["wall_seconds"] / beside["run_cpu_seconds"],
        "alone": lanes * beside["wall_seconds"] / alone["run_cpu_seconds"],
        "lanes": lanes * beside["wall_seconds"] / beside["run_wall_seconds"],
        "waiting": beside["run_wall_seconds"] / beside["run_cpu_seconds"],
    }
    for name, found in ((f"{lanes} at once", beside), ("one by one", alone)):
        print(
            f"{name}: {found['wall_seconds']:.1f} s. Processor time of the {args.runs} runs "
            f"themselves {found['run_cpu_seconds']:.1f} s, of all processes "
            f"{found['process_cpu_seconds']:.1f} s; the runs by the clock "
            f"{found['run_wall_seconds']:.1f} s."
        )
    print("  ".join(f"{name} {ratio:.3f}" for name, ratio in ratios.items()), f" limit {LIMIT}")
    if args.json:
        print(json.dumps({"ratios": ratios, "cores": lanes, "beside": beside, "alone": alone}))
    return 1 if ratios["beside"] > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
