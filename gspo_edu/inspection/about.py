"""Numbers of a recorded run that need no ratios: lengths, advantages, how log-probs are rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gspo_edu import metrics
from gspo_edu.advantages import group_advantages
from gspo_edu.inspection.columns import Array, RecordedRun

LOOKED_AT = 1_000_000  # log-probs, to see how they are rounded
ROUNDED_SHARE = 0.99
NO_ADVANTAGE = 1e-6  # of normalised advantages; rewards may have been float32
# Low bits of a float32 that are 0 once it has been through a shorter format.
FREE_BITS = {"bf16": 0xFFFF, "fp16": 0x1FFF}


def about_advantages(run: RecordedRun) -> Array | None:
    """(B,) the file's advantages, or those that follow from rewards and groups; None without."""
    if run.advantages is not None:
        return run.advantages
    if run.rewards is None or run.group is None:
        return None
    found: Array = group_advantages(torch.tensor(run.rewards), torch.tensor(run.group)).numpy()
    # A reward equal to its group's mean may differ from it in the last digit, and has no sign.
    return np.where(np.abs(found) < NO_ADVANTAGE, 0.0, found)


def about_lengths(run: RecordedRun) -> dict[str, Any]:
    """How long answers are, and how many the limit has cut."""
    lengths = run.lengths[run.lengths > 0]
    limit = run.settings.get("max_length")
    spread = None
    if run.group is not None:
        spread = metrics.within_group_length_spread(
            torch.tensor(run.lengths), torch.tensor(run.group)
        ).item()
    return {
        "mean": float(lengths.mean()),
        "median": float(np.median(lengths)),
        "min": int(lengths.min()),
        "max": int(lengths.max()),
        "harmonic_mean": float(1 / np.mean(1 / lengths)),
        "within_group_spread": spread,
        "empty_answers": int((run.lengths == 0).sum()),
        "limit": limit,
        "longest_fraction": float((lengths == lengths.max()).mean()),
        "limit_fraction": None if limit is None else float((lengths >= limit).mean()),
        "unfinished_fraction": None if run.finished is None else float((~run.finished).mean()),
    }


def rounding(values: Array) -> str | None:
    """``bf16`` or ``fp16`` if log-probs hold no more digits than that, else None.

    Zeros say nothing: they are the same in every format.
    """
    some = values[:: max(1, len(values) // LOOKED_AT)]
    some = some[np.isfinite(some) & (some != 0)]
    if len(some) < 10:
        return None
    single = some.astype(np.float32)
    whole = single == some
    bits = single.view(np.uint32)
    for name, free in FREE_BITS.items():
        if (whole & ((bits & free) == 0)).mean() > ROUNDED_SHARE:
            return name
    return None
