"""The browser side of the widgets, put together from the files in ``static/``."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

IMPORT = re.compile(r"^import (\{[^}]*\}) from \"\./(\w+)\.js\";$", flags=re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:function|const) (\w+))", flags=re.MULTILINE)


def source(file_name: str) -> str:
    """Text of one file of ``static/``."""
    return (files("gspo_edu.widgets") / "static" / file_name).read_text(encoding="utf-8")


def styles() -> str:
    """The stylesheet of all widgets."""
    return source("widgets.css") + source("plots.css")


def parts(name: str) -> list[str]:
    """``name`` and all the scripts that it imports, each once and after those it imports."""
    found: dict[str, None] = {}
    for _, other in IMPORT.findall(source(f"{name}.js")):
        found |= dict.fromkeys(parts(other))
    return [*found, name]


def scoped(name: str) -> str:
    """One script as a function call that returns what it exports: no names clash."""
    code = source(f"{name}.js")
    exported = ", ".join(EXPORT.findall(code))
    inside = IMPORT.sub(r"const \1 = \2_js;", EXPORT.sub("", code))
    return f"const {name}_js = (() => {{\n{inside}\nreturn {{ {exported} }};\n}})();"


@cache
def script(name: str) -> str:
    """``<name>.js`` and what it imports as one script that defines ``render``.

    The files are ES modules, so that Node can test them one by one. A widget is sent to the
    browser as one text, in which each of them has a scope of its own.
    """
    joined = "\n".join(scoped(part) for part in parts(name))
    return f"{joined}\nconst {{ render }} = {name}_js;"


def module(name: str) -> str:
    """The ES module of one widget, as anywidget wants it."""
    return script(name) + "\nexport default { render };\n"
