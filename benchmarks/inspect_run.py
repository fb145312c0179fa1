"""Seconds and memory that `gspo-edu inspect` takes for ten million tokens.

    python benchmarks/inspect_run.py            every format
    python benchmarks/inspect_run.py --json     the last line is one JSON object

Each file holds log-probs, old log-probs, mask, rewards and groups of answers of 200 to 3800 tokens.
Measured is the whole command, with report and figure, as a process of its own: wall seconds, the
seconds of processor time (which a busy machine does not lengthen), and the largest memory. (Not
called inspect.py: Python has a module of that name, which it would hide.)
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SECONDS, GIGABYTES = 10.0, 2.0
GROUP = 8
SHORTEST, LONGEST = 200, 3800


def answers(tokens: int) -> dict[str, Any]:
    """Columns of about ``tokens`` tokens, flat, with the lengths of the answers."""
    dice = np.random.default_rng(0)
    count = max(GROUP, 2 * tokens // (SHORTEST + LONGEST) // GROUP * GROUP)
    lengths = dice.integers(SHORTEST, LONGEST, count)
    old = -0.2 - dice.exponential(0.7, lengths.sum()).astype(np.float32)
    moves = 0.03 * dice.standard_normal(len(old), dtype=np.float32)
    return {
        "logp": old + moves,
        "logp_old": old,
        "mask": np.ones(len(old), bool),
        "lengths": lengths,
        "rewards": dice.integers(0, 2, count).astype(float),
        "group": np.arange(count) // GROUP,
    }


def padded(columns: dict[str, Any]) -> dict[str, Any]:
    """The same with arrays (B, T) and a mask."""
    inside = np.arange(columns["lengths"].max()) < columns["lengths"][:, None]
    found = {name: value for name, value in columns.items() if name != "lengths"}
    for name in ("logp", "logp_old", "mask"):
        found[name] = np.zeros(inside.shape, columns[name].dtype)
        found[name][inside] = columns[name]
    return found


def lists(columns: dict[str, Any]) -> Any:
    """The same as Arrow's table with one answer per row."""
    import pyarrow as pa

    ends = np.concatenate([[0], np.cumsum(columns["lengths"])])
    return pa.table(
        {
            name: pa.LargeListArray.from_arrays(ends, pa.array(value))
            if len(value) == ends[-1]
            else value
            for name, value in columns.items()
            if name != "lengths"
        }
    )


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    import pyarrow.parquet as pq

    pq.write_table(lists(columns), path)


def write_flat(path: Path, columns: dict[str, Any]) -> None:
    np.savez(path, **columns)


def write_padded(path: Path, columns: dict[str, Any]) -> None:
    np.savez(path, **padded(columns))


def write_safetensors(path: Path, columns: dict[str, Any]) -> None:
    from safetensors.numpy import save_file

    save_file(padded(columns), path)


def write_lines(path: Path, columns: dict[str, Any]) -> None:
    table = lists(columns)
    with path.open("w", encoding="utf-8") as file:
        for batch in table.to_batches(max_chunksize=200):
            file.writelines(json.dumps(row) + "\n" for row in batch.to_pylist())


# The writer of each kind of file, and whether the limits hold for it.
KINDS: dict[str, tuple[str, Callable[[Path, dict[str, Any]], None], bool]] = {
    "Parquet": ("run.parquet", write_parquet, True),
    "NPZ, flat": ("flat.npz", write_flat, True),
    "NPZ, padded": ("padded.npz", write_padded, True),
    "safetensors": ("run.safetensors", write_safetensors, True),
    "JSON lines": ("run.jsonl", write_lines, False),
}


def cost_of(path: Path) -> dict[str, float | None]:
    """What one call of the command costs."""
    command = [sys.executable, "-m", "gspo_edu.cli", "inspect", str(path)]
    report = os.open(path.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT)
    began = time.perf_counter()
    process = os.posix_spawn(
        sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, report, 1)]
    )
    _, status, used = os.wait4(process, 0)
    seconds = time.perf_counter() - began
    os.close(report)
    if status:
        raise SystemExit(f"{' '.join(command)} failed.")
    to_gigabytes = 1e9 if sys.platform == "darwin" else 1e6
    return {
        "wall_seconds": seconds,
        "processor_seconds": used.ru_utime + used.ru_stime,
        "gigabytes": used.ru_maxrss / to_gigabytes,
        "file_megabytes": path.stat().st_size / 1e6,
    }


def main() -> int:
    """Measure, print, and return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    args = parser.parse_args()
    if not hasattr(os, "wait4"):
        raise SystemExit("This system does not say what a process has used: run it elsewhere.")
    columns, found, over = answers(args.tokens), {}, []
    print(f"{len(columns['logp']):,} tokens in {len(columns['lengths']):,} answers")
    print(f"{'':<12} {'MB':>7} {'wall s':>8} {'CPU s':>7} {'peak GB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in args.kinds:
            name, write, limited = KINDS[kind]
            path = Path(folder) / name
            write(path, columns)
            cost = found[kind] = cost_of(path)
            path.unlink()
            print(
                f"{kind:<12} {cost['file_megabytes']:7.0f} {cost['wall_seconds']:8.1f} "
                f"{cost['processor_seconds']:7.1f} {cost['gigabytes']:8.2f}"
            )
            if limited and (cost["processor_seconds"] > SECONDS or cost["gigabytes"] > GIGABYTES):
                over.append(kind)
    if over:
        print(f"More than {SECONDS:g} s or {GIGABYTES:g} GB: {', '.join(over)}.")
    if args.json:
        print(json.dumps({"tokens": len(columns["logp"]), "cost": found, "over": over}))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
