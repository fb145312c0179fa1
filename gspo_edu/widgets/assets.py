"""The browser side of the widgets, put together from the files in ``static/``."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

SHARED = ("math", "frame")


def source(file_name: str) -> str:
    """Text of one file of ``static/``."""
    return (files("gspo_edu.widgets") / "static" / file_name).read_text(encoding="utf-8")


@cache
def script(name: str) -> str:
    """``math.js``, ``frame.js`` and ``<name>.js`` as one script that defines ``render``.

    The files are ES modules, so that Node can test them one by one. A widget is sent to the
    browser as one text, so their import and export statements fall away here.
    """
    parts = [source(f"{part}.js") for part in (*SHARED, name)]
    joined = re.sub(r"^import [^;]*;\n", "", "\n".join(parts), flags=re.MULTILINE)
    return re.sub(r"^export ", "", joined, flags=re.MULTILINE)


def module(name: str) -> str:
    """The ES module of one widget, as anywidget wants it."""
    return script(name) + "\nexport default { render };\n"
