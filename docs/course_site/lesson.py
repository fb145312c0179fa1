"""A notebook with its stored outputs as blocks of a page."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape, unescape
from pathlib import Path
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from course_site.text import Text
from gspo_edu.widgets.base import STATE

PYTHON = PythonLexer()
PLAIN_SPANS = HtmlFormatter(nowrap=True)
OPTION = re.compile(r"^  (\w+)\) ")
MISS = re.compile(r"^  Not ([^:]+): ")
UNASKED = re.compile(r"^No prediction yet, and that is fine\.\s+")
FOLDED = {
    "check": "Folded: what an answer is compared with",
    "solution": "Folded: one way to solve it",
}


@dataclass
class Block:
    """A part of the page.

    Attributes:
        kind: "html"; "fold", with a title and parts to be opened; "question", a prediction to be
            made; or "outcome", the parts that stay hidden until then.
        html: of the first kind.
        title: of a fold.
        parts: of a fold or an outcome.
        name, options: of a question: an id, and (letter, text); no options where a number is asked.
    """

    kind: str
    html: str = ""
    title: str = ""
    parts: list[Block] = field(default_factory=list)
    name: str = ""
    options: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Lesson:
    """What the page of one notebook is made of.

    Attributes:
        stem: the file's name without its ending.
        blocks: the page, in order.
        pictures: {file name: PNG}.
        widgets: names of the widgets on it.
    """

    stem: str
    blocks: list[Block] = field(default_factory=list)
    pictures: dict[str, bytes] = field(default_factory=dict)
    widgets: list[str] = field(default_factory=list)


def joined(text: Any) -> str:
    """Notebooks keep a text whole or as a list of lines."""
    return text if isinstance(text, str) else "".join(text)


def read_lesson(path: Path, text: Text) -> Lesson:
    """The notebook at ``path`` as blocks; ``text`` renders its markdown.

    Raises:
        ValueError: if an output has no form that a page can show.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    lesson = Lesson(path.stem)
    hidden: list[Block] | None = None
    for number, cell in enumerate(notebook["cells"]):
        tags = cell["metadata"].get("tags", [])
        text.searchable = hidden is None
        blocks = list(cell_blocks(lesson, text, cell, number))
        (lesson.blocks if hidden is None else hidden).extend(blocks)
        if "predict" in tags:
            hidden = []
            lesson.blocks.append(Block("outcome", parts=hidden))
        elif "reconcile" in tags:
            hidden = None
    text.searchable = True
    return lesson


def cell_blocks(lesson: Lesson, text: Text, cell: dict[str, Any], number: int) -> Iterator[Block]:
    """What one cell becomes."""
    source, tags = joined(cell["source"]), cell["metadata"].get("tags", [])
    if cell["cell_type"] == "markdown":
        yield Block("html", text.html(source))
        return
    outputs = list(output_blocks(lesson, cell, number))
    if "predict" in tags:
        asked = question(joined(cell["outputs"][0]["text"]), f"guess-{lesson.stem[:2]}-{number}")
        text.note(" ".join([unescape(asked.html), *(option for _, option in asked.options)]))
        yield asked
        return
    if "reconcile" in tags:
        printed = "".join(joined(output.get("text", "")) for output in cell["outputs"])
        yield Block("html", verdict(printed))
        return
    code = Block("html", code_html(source))
    view = cell["metadata"].get("jupyter", {})
    folded = next((title for tag, title in FOLDED.items() if tag in tags), None)
    if folded:
        yield Block("fold", title=folded, parts=[code, *outputs])
        return
    yield Block("fold", title="Folded code", parts=[code]) if view.get("source_hidden") else code
    if view.get("outputs_hidden") and outputs:
        outputs = [Block("fold", title="Folded output", parts=outputs)]
    yield from outputs


def code_html(source: str) -> str:
    """Python with its parts marked."""
    marked = highlight(source.rstrip(), PYTHON, PLAIN_SPANS).rstrip("\n")
    return f'<pre class="code"><code>{marked}</code></pre>'


def output_blocks(lesson: Lesson, cell: dict[str, Any], number: int) -> Iterator[Block]:
    """The stored outputs of a cell."""
    for place, output in enumerate(cell["outputs"]):
        if output["output_type"] == "stream":
            yield Block("html", printed_html(joined(output["text"])))
            continue
        data = output.get("data", {})
        picture = ""
        if "image/png" in data:
            name = f"{lesson.stem}-{number:02}-{place}.png"
            lesson.pictures[name] = base64.b64decode(joined(data["image/png"]))
            picture = image_html(name, lesson.pictures[name], output["metadata"]["image/png"])
        if STATE in data:
            lesson.widgets.append(data[STATE]["widget"])
            yield Block("html", mount_html(data[STATE], picture))
        elif picture:
            yield Block("html", f"<figure>{picture}</figure>")
        elif "text/html" in data:
            yield Block("html", f'<div class="scroll out">{joined(data["text/html"])}</div>')
        elif "text/plain" in data:
            yield Block("html", printed_html(joined(data["text/plain"])))
        else:
            raise ValueError(f"{lesson.stem}, cell {number}: nothing to show of {sorted(data)}")


def printed_html(printed: str) -> str:
    """What a cell has printed."""
    return f'<pre class="out">{escape(printed.rstrip(), quote=False)}</pre>'


def image_html(name: str, png: bytes, described: dict[str, Any]) -> str:
    """An <img> with its size, so that nothing jumps, and with its alternative text."""
    width, height = struct.unpack(">II", png[16:24])
    shown = int(described.get("width", width))
    size = f'width="{shown}" height="{round(height * shown / width)}"'
    alt = escape(" ".join(described["alt"].split()))
    return f'<img src="pictures/{name}" {size} alt="{alt}" loading="lazy">'


def mount_html(stored: dict[str, Any], picture: str) -> str:
    """The place of a widget: its state, and its picture until a script has built it."""
    state = stored["state"].replace("<", "\\u003c")
    return (
        f'<div class="widget" data-widget="{stored["widget"]}">'
        f'<script type="application/json">{state}</script>{picture}</div>'
    )


def question(printed: str, name: str) -> Block:
    """A prediction, from what its cell has printed."""
    asked: list[str] = []
    options: list[tuple[str, str]] = []
    for line in printed.splitlines():
        option = OPTION.match(line)
        if line.startswith("No prediction yet."):
            break
        if option:
            options.append((option[1], line[option.end() :]))
        elif options:
            letter, before = options[-1]
            options[-1] = (letter, f"{before} {line.strip()}")
        else:
            asked.append(line)
    return Block("question", html=escape(" ".join(asked)), name=name, options=options)


def verdict(printed: str) -> str:
    """What a prediction is compared with: the outcome, and what each wrong option overlooks."""
    found: list[str] = []
    misses: list[list[str]] = []
    for line in UNASKED.sub("", printed).splitlines():
        miss = MISS.match(line)
        if miss:
            misses.append([miss[1], line[miss.end() :]])
        elif misses and line.startswith("     "):
            misses[-1][1] += f" {line.strip()}"
        elif misses:  # not only a verdict: leave it as it was printed
            return printed_html(printed)
        else:
            found.append(line.strip())
    return f'<div class="verdict"><p>{escape(" ".join(found))}</p>{_misses(misses)}</div>'


def _misses(misses: Iterable[list[str]]) -> str:
    items = "".join(
        f'<li data-option="{escape(option)}"><b>Not {escape(option)}:</b> {escape(why)}</li>'
        for option, why in misses
    )
    return f"<ul>{items}</ul>" if items else ""
