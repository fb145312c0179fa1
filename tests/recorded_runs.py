"""Made-up runs for the tests of `gspo-edu inspect`, and writers for every format it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file

OF_TOKENS = ("logp", "logp_old", "logp_rollout", "mask", "routes", "routes_reference")
FORMATS = ("parquet", "jsonl", "npz", "flat.npz", "safetensors")


def recorded(
    answers: int = 64,
    group: int = 8,
    *,
    sigma: float = 0.02,
    lengths: tuple[int, int] = (20, 60),
    seed: int = 0,
) -> dict[str, list[Any]]:
    """One value or list per answer: independent token log-ratios of mean -sigma^2 / 2."""
    dice = np.random.default_rng(seed)
    run: dict[str, list[Any]] = {name: [] for name in ("logp", "logp_old", "rewards", "group")}
    for row in range(answers):
        length = int(dice.integers(*lengths))
        old = (-0.3 - 6 * sigma - dice.exponential(0.7, length)).astype(np.float32)
        move = (sigma * dice.standard_normal(length) - sigma**2 / 2).astype(np.float32)
        run["logp"].append((old + move).tolist())
        run["logp_old"].append(old.tolist())
        run["rewards"].append(float(dice.integers(0, 5)) / 4)
        run["group"].append(row // group)
    return run


def padded(lists: list[Any], fill: float) -> np.ndarray:
    """Lists of numbers (or of nested lists) as one array, padded on the right."""
    width = max(len(row) for row in lists)
    inner = np.asarray(next(row for row in lists if len(row))).shape[1:]
    found = np.full((len(lists), width, *inner), fill, np.asarray(lists[0]).dtype)
    for place, row in enumerate(lists):
        found[place, : len(row)] = row
    return found


def arrays_of(run: dict[str, list[Any]]) -> dict[str, np.ndarray]:
    """The run as padded arrays with a mask; NaN lies in the padding of log-probs."""
    found = {}
    for name, values in run.items():
        if name in OF_TOKENS:
            fill = np.nan if name.startswith("logp") else -1 if name.startswith("routes") else 0
            found[name] = padded(values, fill)
            if name.startswith("logp"):
                found[name] = found[name].astype(np.float32)
        else:
            found[name] = np.asarray(values)
    if "mask" not in found:
        found["mask"] = padded([[1] * len(row) for row in run["logp"]], 0)
    return found


def parquet_table(run: dict[str, list[Any]]) -> pa.Table:
    """The run as Arrow's table, log-probs in float32."""
    kinds = {name: pa.list_(pa.float32()) for name in OF_TOKENS if name.startswith("logp")}
    return pa.table({name: pa.array(v, type=kinds.get(name)) for name, v in run.items()})


def write(run: dict[str, list[Any]], path: Path, **settings: Any) -> Path:
    """Write the run in the format that the path's ending names."""
    if path.suffix == ".parquet":
        table = parquet_table(run).replace_schema_metadata({"gspo_edu": json.dumps(settings)})
        pq.write_table(table, path)
    elif path.suffix == ".jsonl":
        rows = [dict(zip(run, row, strict=True)) for row in zip(*run.values(), strict=True)]
        if settings:
            rows[0]["gspo_edu"] = settings
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.name.endswith("flat.npz"):
        flat = {
            name: np.concatenate([np.asarray(row) for row in values])
            if name in OF_TOKENS
            else np.asarray(values)
            for name, values in run.items()
        }
        flat = {n: v.astype("f4") if n.startswith("logp") else v for n, v in flat.items()}
        lengths = np.array([len(row) for row in run["logp"]])
        np.savez(path, lengths=lengths, gspo_edu=json.dumps(settings), **flat)
    elif path.suffix == ".npz":
        np.savez_compressed(path, gspo_edu=json.dumps(settings), **arrays_of(run))
    else:
        tensors = {name: torch.from_numpy(array) for name, array in arrays_of(run).items()}
        save_file(tensors, path, metadata={"gspo_edu": json.dumps(settings)})
    return path
