"""Columns that arrive part by part, put together to one ``RecordedRun``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gspo_edu.inspection.columns import (
    Array,
    Naming,
    RecordedRun,
    RouteCount,
    RunFileError,
    check_count,
    numbered,
)

ROUTE_SLOTS_AT_ONCE = 2**22
MOST_EXPERTS = int(np.iinfo(np.int16).max)


@dataclass
class Parts:
    """What has been read so far, a list of arrays per column."""

    lengths: list[Array] = field(default_factory=list)
    columns: dict[str, list[Array]] = field(default_factory=dict)
    routes: RouteCount | None = None
    positions: int = 0

    def add(
        self,
        counts: Array,
        tokens: dict[str, Array],
        answers: dict[str, Array],
        routes: tuple[Array, Array] | None,
        name_of: Naming,
    ) -> None:
        """Take some more answers in.

        Args:
            counts: (b,) positions of each answer.
            tokens: flat arrays of sum(counts) positions, by column; ``mask`` is used up here.
            answers: arrays (b,), by column.
            routes: both kinds, (positions, N, K), or None.
            name_of: what an answer of this part is called.

        Raises:
            RunFileError: if the mask holds other things than 0 and 1, or there is too much.
        """
        self.positions += int(counts.sum())
        check_count(self.positions)
        kept, lengths = response_tokens(tokens.pop("mask", None), counts, name_of)
        self.lengths.append(lengths)
        for name, values in tokens.items():
            values = values if values.dtype in (np.float32, np.float64) else values.astype("f4")
            self.columns.setdefault(name, []).append(values if kept is None else values[kept])
        for name, values in answers.items():
            self.columns.setdefault(name, []).append(values)
        if routes is not None:
            self.routes = self.routes or RouteCount()
            mine, reference = routes if kept is None else (routes[0][kept], routes[1][kept])
            count_routes(self.routes, mine, reference)

    def run(self, settings: dict[str, Any]) -> RecordedRun:
        """Everything, as one record; the parts are given up, so that memory holds them once."""
        found: dict[str, Array] = {}
        for name in list(self.columns):
            parts = self.columns.pop(name)
            found[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
            parts.clear()
        if "group" in found:
            found["group"] = numbered(found["group"])
        lengths = np.concatenate(self.lengths) if self.lengths else np.zeros(0, np.int64)
        nothing = np.zeros(0, np.float32)
        logp, logp_old = found.pop("logp", nothing), found.pop("logp_old", nothing)
        return RecordedRun(lengths, logp, logp_old, routes=self.routes, settings=settings, **found)


def response_tokens(
    mask: Array | None, counts: Array, name_of: Naming
) -> tuple[Array | None, Array]:
    """Which positions are response tokens (None: all), and how many each answer has.

    Raises:
        RunFileError: if the mask holds anything but 0 and 1.
    """
    if mask is None:
        return None, counts.astype(np.int64)
    kept = mask.astype(bool)
    odd = kept != mask
    ends = np.cumsum(counts)
    if odd.any():
        place = int(odd.argmax())
        row = int(np.searchsorted(ends, place, side="right"))
        raise RunFileError(
            f"mask, {name_of(row)}: holds {mask[place]:g}; expected 1 (or true) on response tokens "
            "and 0 (or false) elsewhere. It is not an additive mask."
        )
    if kept.all():
        return None, counts.astype(np.int64)
    so_far = np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])
    return kept, so_far[ends] - so_far[ends - counts]


def count_routes(count: RouteCount, routes: Array, reference: Array) -> None:
    """Add the expert slots of some tokens, both (tokens, N, K), to ``count``."""
    import torch

    from gspo_edu.moe.routes import drift
    from gspo_edu.route_split import changed_tokens

    # Each slot is compared with all K of the reference.
    for given in (routes, reference):
        if given.dtype != np.int16 and given.size and given.max() > MOST_EXPERTS:
            raise RunFileError(
                f"routes hold the expert {given.max()}; expected ids of up to {MOST_EXPERTS:,}. "
                "Are these token ids?"
            )
    step = max(1, ROUTE_SLOTS_AT_ONCE // max(1, int(np.prod(routes.shape[1:])) * routes.shape[-1]))
    for first in range(0, len(routes), step):
        mine = torch.tensor(routes[first : first + step], dtype=torch.int16)
        other = torch.tensor(reference[first : first + step], dtype=torch.int16)
        known = (mine >= 0) & (other[..., :1] >= 0)
        slots, tokens = int(known.sum()), int(known.flatten(1).any(dim=1).sum())
        count.slots += slots
        count.changed += drift(mine, other).item() * slots
        count.tokens += tokens
        count.changed_tokens += changed_tokens(mine, other).sum().item()
