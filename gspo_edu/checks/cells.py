"""Whether the cell before stopped with an error: its answer is then that of an earlier run."""

from __future__ import annotations

import sys
from typing import Any

_last: dict[str, str] = {"error": ""}


def watch_cells() -> None:
    """From now on remember how the last cell ended; does nothing outside of IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return
    if _note_end in shell.events.callbacks["post_run_cell"]:
        shell.events.unregister("post_run_cell", _note_end)
    shell.events.register("post_run_cell", _note_end)
    _last["error"] = ""


def last_error() -> str:
    """Which error stopped the cell which ran last; empty if none did."""
    return _last["error"]


def _note_end(result: Any) -> None:
    error = result.error_before_exec or result.error_in_exec
    _last["error"] = type(error).__name__ if error is not None else ""
    if "leading zeros" in str(error):
        _last["error"] += " (decimals have a point: 1.044)"
