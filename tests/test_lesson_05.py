"""Lesson 05's empty cell accepts a right solution and names each usual mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jupytext
import numpy as np
import pytest

TEXT = Path(__file__).resolve().parents[1] / "lessons/text/05_gspo.py"
Loss = Callable[[Any, Any, Any, Any], float]


@pytest.fixture(scope="module")
def code() -> dict[str, str]:
    """The lesson's imports and ranges, and the two cells that check the empty one."""
    pytest.importorskip("anywidget")
    cells = [cell.source for cell in jupytext.read(TEXT).cells if cell.cell_type == "code"]
    (mistakes,) = [source for source in cells if "def usual_mistakes(" in source]
    (check,) = [source for source in cells if "my_gspo_loss(ONE_BATCH" in source]
    return {"imports": f"{cells[0]}\n\n{cells[1]}", "check": f"{mistakes}\n\n{check}"}


def said(code: dict[str, str], loss: Loss, capsys: pytest.CaptureFixture[str]) -> str:
    """What the check prints about a reader's function."""
    names: dict[str, Any] = {}
    exec(code["imports"], names)
    names["my_gspo_loss"] = loss
    exec(code["check"], names)
    return capsys.readouterr().out


def written(
    *,
    log_s: Callable[[Any, Any], Any] = lambda log_ratio, mask: (
        (log_ratio * mask).sum(axis=1) / mask.sum(axis=1)
    ),
    low: float = 3e-4,
    high: float = 4e-4,
    choose: Callable[[Any, Any], Any] = np.minimum,
    average: Callable[[Any], Any] = np.mean,
    sign: float = -1.0,
) -> Loss:
    """A reader's function, right unless told otherwise."""

    def loss(logp: Any, logp_old: Any, advantages: Any, mask: Any) -> float:
        s = np.exp(log_s(logp - logp_old, mask))
        terms = choose(s * advantages, s.clip(1 - low, 1 + high) * advantages)
        return float(sign * average(terms))

    return loss


def with_arithmetic_mean(logp: Any, logp_old: Any, advantages: Any, mask: Any) -> float:
    s = np.exp(logp - logp_old).mean(axis=1, where=mask)
    return float(-np.minimum(s * advantages, s.clip(1 - 3e-4, 1 + 4e-4) * advantages).mean())


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda *given: None, "Not filled in yet"),
        (written(), "Right"),
        (written(sign=1.0), "The sign"),
        (written(average=np.sum), "The mean over the answers is missing"),
        (written(log_s=lambda x, mask: (x * mask).sum(axis=1)), "The root is missing"),
        (written(log_s=lambda x, mask: (x * mask).mean(axis=1)), "Divided by the padded width"),
        (written(log_s=lambda x, mask: x.mean(axis=1)), "A mean without the mask"),
        (written(log_s=lambda x, mask: x.sum(axis=1) / mask.sum(axis=1)), "A sum without the mask"),
        (with_arithmetic_mean, "arithmetic mean"),
        (written(choose=lambda plain, bounded: bounded), "Clipped always"),
        (written(choose=np.maximum), "max() instead of min()"),
        (written(low=0.2, high=0.2), "PPO's range"),
        (lambda *given: 123.0, "is not it"),
    ],
)
def test_the_check_knows_this_function(
    code: dict[str, str], loss: Loss, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in said(code, loss, capsys)
