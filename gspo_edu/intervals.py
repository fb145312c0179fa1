"""How sure a mean over a few seeds is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def student_t_quantile(probability: float, freedom: int) -> float:
    """The value that a Student t variable stays below with ``probability`` (0.5 to 0.9999).

    Found by integrating the density; right to five digits from 1 degree of freedom on.
    """
    # With x = tan(angle) the long tails of few degrees of freedom need no special care.
    angle = np.linspace(0, math.pi / 2, 200_001)[:-1]
    x = np.tan(angle)
    density = (1 + x**2 / freedom) ** (-(freedom + 1) / 2) * (1 + x**2)
    density *= math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    density /= math.sqrt(freedom * math.pi)
    steps = (density[1:] + density[:-1]) / 2 * np.diff(angle)
    below = 0.5 + np.concatenate([[0.0], np.cumsum(steps)])
    return float(np.interp(probability, below, x))


def mean_interval(values: Sequence[float], *, level: float = 0.95) -> tuple[float, float]:
    """Student's t interval of the mean (Student 1908).

    With five values a percentile bootstrap would be a third too narrow; this one is right if the
    values scatter about normally. Show the values beside it.

    Args:
        values: one number per seed.
        level: coverage, between 0 and 1.

    Raises:
        ValueError: if there are fewer than two values.
    """
    count = len(values)
    if count < 2:
        raise ValueError(
            f"values has {count} numbers; expected one per seed, of two or more seeds."
        )
    sample = np.asarray(values, dtype=float)
    half = student_t_quantile((1 + level) / 2, count - 1) * sample.std(ddof=1) / math.sqrt(count)
    return float(sample.mean() - half), float(sample.mean() + half)


def adjusted_interval(values: Sequence[float], comparisons: int) -> tuple[float, float]:
    """``mean_interval`` as one of ``comparisons`` whose 95 % hold for all at once (Bonferroni).

    Raises:
        ValueError: if there are fewer than two values.
    """
    return mean_interval(values, level=1 - 0.05 / comparisons)


def bootstrap_interval(
    values: Sequence[float], *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean (Efron 1979).

    Too narrow for few values: it resamples the spread that divides by n, and knows nothing of
    Student's tails. From five normal values it holds the mean in about 85 % of cases, from eight in
    about 88 %, not in 95 %. It stands beside ``mean_interval`` for values far from normal.

    Args:
        values: one number per seed.
        level: wanted coverage, between 0 and 1.
        resamples: how many times the values are drawn anew.
        seed: of the draws; equal values get equal intervals.

    Raises:
        ValueError: if there are fewer than two values.
    """
    if len(values) < 2:
        raise ValueError(
            f"values has {len(values)} numbers; expected one per seed, of two or more seeds."
        )
    sample = np.asarray(values, dtype=float)
    drawn = np.random.default_rng(seed).integers(len(sample), size=(resamples, len(sample)))
    low, high = np.quantile(sample[drawn].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
