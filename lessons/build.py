"""Run lessons/text/NN_name.py and store it with its outputs as lessons/NN_name.ipynb.

    python lessons/build.py 02 05     these lessons
    python lessons/build.py           all of them

The text files are the source (jupytext's py:percent format); the notebooks are made from them and
are never edited. A lesson that raises, or writes to stderr, is not stored.

Cells carry tags for the tests and the site: nbval-ignore-output (training, pictures, widgets,
timings: the cell itself asserts what must hold), predict, reconcile, question, check and solution
(what a question is compared with, and how it is solved: both folded).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from gspo_edu.authoring import METADATA, chosen_texts, notebook_of
from gspo_edu.widgets import static_outputs

LESSONS = Path(__file__).resolve().parent
TEXT = LESSONS / "text"


def texts(wanted: list[str]) -> list[Path]:
    """The text files whose names start with one of ``wanted``, all if empty.

    Raises:
        SystemExit: if one of ``wanted`` fits no text.
    """
    return chosen_texts(TEXT.glob("[0-9][0-9]_*.py"), wanted, "lesson")


def run(notebook: Any) -> None:
    """Execute in place, leaving nothing in the outputs that differs from run to run.

    Raises:
        CellExecutionError: if a cell raises.
        RuntimeError: if a cell writes to stderr: readers would take a warning for their mistake.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GSPO_EDU_PREDICTIONS"] = str(Path(folder) / "predictions.json")
        NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            store_widget_state=False,
            resources={"metadata": {"path": str(LESSONS)}},
        ).execute()
    static_outputs(notebook)
    # The kernel's own entries name the Python version that happened to build.
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                raise RuntimeError(f"{cell['id']} wrote to stderr:\n{output['text']}")


def main() -> None:
    """Build what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("lesson", nargs="*", help="beginning of a name, such as 05; none: all")
    for text in texts(parser.parse_args().lesson):
        began = time.perf_counter()
        notebook = notebook_of(text)
        run(notebook)
        target = LESSONS / f"{text.stem}.ipynb"
        nbformat.write(notebook, target)
        size = target.stat().st_size / 1000
        print(f"{target.name}: {time.perf_counter() - began:.1f} s, {size:.0f} kB")


if __name__ == "__main__":
    main()
