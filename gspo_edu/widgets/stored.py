"""Notebooks that are stored with their outputs."""

from __future__ import annotations

from typing import Any

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def static_outputs(notebook: dict[str, Any]) -> int:
    """Leave only the picture of each widget in an executed notebook, in place.

    A stored notebook has no living widget behind its outputs: JupyterLab would show an error and
    nbconvert's page an empty box instead of the picture. Running the cell brings the widget back.

    Args:
        notebook: as read by ``nbformat.read`` or ``json.load``.

    Returns:
        the number of outputs that were changed. Outputs without a picture stay as they are.
    """
    changed = 0
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if WIDGET_VIEW in data and "image/png" in data:
                del data[WIDGET_VIEW]
                output["metadata"].pop(WIDGET_VIEW, None)
                changed += 1
    if changed:
        notebook["metadata"].pop("widgets", None)
    return changed
