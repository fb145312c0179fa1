"""The code cells of a lesson's text, and what its questions are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jupytext

TEXTS = Path(__file__).resolve().parents[1] / "lessons/text"


def code_cells(lesson: str) -> list[str]:
    """Sources of the code cells of ``lesson``, such as ``05_gspo``."""
    cells = jupytext.read(TEXTS / f"{lesson}.py", fmt="py:percent").cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


def question_names(lesson: str, **given: Any) -> dict[str, Any]:
    """What the imports and the folded cells with the right answers define.

    With names ``given`` for what these cells use, the imports, which may be heavy, are left out.
    """
    found = dict(given)
    folded = ("warm_up_1 = (", "question_1 = (")
    for source in code_cells(lesson):
        if (not given and source.startswith("import ")) or any(start in source for start in folded):
            exec(source, found)
    return found
