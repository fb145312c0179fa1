"""The browser side of the widgets, put together from the files in ``static/``."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

IMPORT = re.compile(r"^import \{[^}]*\} from \"\./(\w+)\.js\";\n", flags=re.MULTILINE)


def source(file_name: str) -> str:
    """Text of one file of ``static/``."""
    return (files("gspo_edu.widgets") / "static" / file_name).read_text(encoding="utf-8")


def parts(name: str) -> list[str]:
    """``name`` and all the scripts that it imports, each once and after those it imports."""
    found: dict[str, None] = {}
    for other in IMPORT.findall(source(f"{name}.js")):
        found |= dict.fromkeys(parts(other))
    return [*found, name]


@cache
def script(name: str) -> str:
    """``<name>.js`` and what it imports as one script that defines ``render``.

    The files are ES modules, so that Node can test them one by one. A widget is sent to the
    browser as one text, so their import and export statements fall away here.
    """
    joined = "\n".join(IMPORT.sub("", source(f"{part}.js")) for part in parts(name))
    return re.sub(r"^export ", "", joined, flags=re.MULTILINE)


def module(name: str) -> str:
    """The ES module of one widget, as anywidget wants it."""
    return script(name) + "\nexport default { render };\n"
