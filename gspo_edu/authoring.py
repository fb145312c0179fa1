"""From a text in jupytext's py:percent format to a notebook, for lessons and exercises alike."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jupytext
import nbformat

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def chosen_texts(texts: Iterable[Path], wanted: list[str], kind: str) -> list[Path]:
    """The texts whose names start with one of ``wanted``, all if empty.

    Args:
        texts: all there are.
        wanted: beginnings of names.
        kind: what a text is, in a word, for the message.

    Raises:
        SystemExit: if one of ``wanted`` fits no text.
    """
    known = sorted(texts)
    for start in wanted:
        if not any(path.name.startswith(start) for path in known):
            sys.exit(f"no {kind} starts with {start!r}; there are {[p.stem for p in known]}")
    return [path for path in known if not wanted or path.name.startswith(tuple(wanted))]


def notebook_of(text: Path) -> Any:
    """The notebook without outputs that a text file describes."""
    notebook = jupytext.read(text, fmt="py:percent")
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02d}"
        cell.metadata.pop("cell_marker", None)
    return notebook
