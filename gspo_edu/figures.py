"""Figures of finished runs, from their metrics.jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def save_run_figure(folder: Path) -> Path:
    return folder


def save_comparison_figure(out: Path, configs: Sequence[object]) -> Path:
    return out
