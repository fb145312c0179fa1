"""Pages in docs/ that a command writes from the code's own numbers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from gspo_edu.files import write_atomically


def write_page(path: Path, page: Callable[[], str]) -> None:
    """The command: write ``page()`` to ``path``, or to the file after ``--out``."""
    parser = argparse.ArgumentParser(description=f"Write docs/{path.name}.")
    parser.add_argument("--out", type=Path, default=path, help="the page's file")
    out = parser.parse_args().out
    write_atomically(out, page().encode())
    print(out)
