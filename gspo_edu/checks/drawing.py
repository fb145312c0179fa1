"""Inputs for the checks: answers of different lengths whose ratios fall where mistakes show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")
DECIMALS = 3  # so that a learner can redo an example by hand


def uniform(dice: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    """Rounded float64 numbers between two bounds."""
    drawn = low + (high - low) * torch.rand(*shape, generator=dice, dtype=torch.float64)
    return drawn.round(decimals=DECIMALS)


def lengths_to_mask(lengths: Sequence[int], width: int, *, hole: bool = False) -> Tensor:
    """(B, width) bool; ``hole`` takes a token out of the middle, as a tool's reply would."""
    mask = torch.arange(width)[None, :] < torch.tensor(lengths)[:, None]
    if hole:
        mask[torch.tensor(lengths) > 2, 1] = False
    return mask


def log_probs(dice: torch.Generator, mask: Tensor, log_s: Sequence[float]) -> tuple[Tensor, Tensor]:
    """(logp, logp_old), each (B, T): answers whose log-ratios have about the means ``log_s``.

    The padding holds other numbers, as in real batches.
    """
    shape = mask.shape
    old = uniform(dice, -3.0, -1.2, *shape)
    ratio = uniform(dice, -0.4, 0.4, *shape)
    still = torch.zeros_like(mask)
    still[:, 0] = mask.sum(dim=1) > 2  # a token that has not moved, ratio 1, counts like any other
    moves = mask & ~still
    wanted = torch.tensor(log_s, dtype=torch.float64)[:, None]
    lengths, moving = (x.sum(dim=1, keepdim=True) for x in (mask, moves))
    total = (ratio * moves).sum(dim=1, keepdim=True)
    ratio = ratio + (wanted * lengths - total) / moving
    ratio = ratio.masked_fill(still, 0.0)
    junk = uniform(dice, -1.1, -0.3, *shape)
    new = (old + ratio).where(mask, junk).round(decimals=DECIMALS)
    return new, old


def signed(dice: torch.Generator, signs: Sequence[float]) -> Tensor:
    """(B,) advantages with the signs given."""
    return uniform(dice, 0.5, 1.5, len(signs)) * torch.tensor(signs, dtype=torch.float64)


def shuffled(dice: torch.Generator, values: Sequence[Item]) -> list[Item]:
    """``values`` in another order."""
    order = torch.randperm(len(values), generator=dice)
    return [values[n] for n in order.tolist()]
