"""Slides from stored lessons, for a projector.

    python docs/slides.py 02 05                    into docs/_slides; reveal.js from the internet
    python docs/slides.py 02 05 --reveal FOLDER    with a copy of reveal.js: works offline

A slide for each section, below it one for each step; a prediction is asked on a slide of its own,
so that its outcome is not on the wall yet. Questions, answers and folded code are left out.
FOLDER is an unpacked release of reveal.js 4, with dist/ and plugin/ in it. Formulas are MathML,
which browsers draw by themselves.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
from course_site.text import mathml
from jinja2 import DictLoader
from nbconvert.exporters import SlidesExporter
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[1]
REVEAL = "https://unpkg.com/reveal.js@4.6.1"
LEFT_OUT = {"check", "question", "solution"}
# What a question and an outcome say to a learner who has typed nothing.
TO_LEARNER = re.compile(r"^No prediction yet(?:, and that is fine\.\s+|[^,].*\Z)", re.M | re.S)
FROM_HERE_ON = ("Three questions to compute", "Your predictions", "New words")
CODE = re.compile(r"(```.*?```|`[^`]*`)", re.S)
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+(?:\n[^$\n]+)*)\$", re.S)
# nbconvert's own page fetches jQuery, require.js, Mermaid and MathJax, which are not needed here,
# and leaves out what a picture shows.
TEMPLATE = """\
{% extends 'reveal/index.html.j2' %}
{% block html_head_js_jquery %}{% endblock %}
{% block html_head_js_requirejs %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block html_head_js_mathjax %}
<style>.reveal section { font-size: 20px; text-align: left } .reveal table { font-size: 18px }
.reveal .slides section { max-height: 95vh; overflow-y: auto }</style>
{% endblock %}
{% block data_png %}
{%- set about = output | get_metadata("alt", "image/png") or "" -%}
{%- set wide = output | get_metadata("width", "image/png") -%}
<img src="data:image/png;base64,{{ output.data["image/png"] }}" alt="{{ about | escape_html }}"
{%- if wide %} width="{{ wide }}"{% endif %}>
{% endblock %}
{% block footer_js %}
<script src="{{ resources.reveal.url_prefix }}/dist/reveal.js"></script>
<script>Reveal.initialize({hash: true, transition: "none", center: false, slideNumber: "c/t"});
</script>
{% endblock %}
"""


def deck(notebook: Any) -> Any:
    """The lesson's notebook cut into slides, in a copy."""
    cells: list[Any] = []
    after_question = False
    for cell in notebook.cells:
        tags = set(cell.metadata.get("tags", []))
        if cell.cell_type == "markdown":
            parts = sections(cell.source)
            kept = [part for part in parts if not part.startswith(ends())]
            cells += [text_slide(part, first=not cells) for part in kept]
            if len(kept) < len(parts):
                break
        elif not tags & LEFT_OUT and "summary_picture(" not in cell.source:
            apart = "predict" in tags or after_question or pictured(cell)
            kind = "subslide" if apart else "-"
            cells.append(code_slide(cell, kind, hidden="predict" in tags))
            after_question = "predict" in tags
    return nbformat.v4.new_notebook(cells=cells, metadata=notebook.metadata)


def pictured(cell: Any) -> bool:
    """Whether a cell shows a picture, which takes most of a slide."""
    return any("image/png" in output.get("data", {}) for output in cell.outputs)


def ends() -> tuple[str, ...]:
    """Headings after which a lesson is for whoever works alone."""
    return tuple(f"## {title}" for title in FROM_HERE_ON)


def sections(text: str) -> list[str]:
    """Markdown, cut before each heading of a section."""
    return [part for part in re.split(r"^(?=## )", text, flags=re.M) if part.strip()]


def text_slide(text: str, *, first: bool) -> Any:
    """A cell of text: a new slide if it begins a section, else one below."""
    heading = first or text.startswith("## ")
    cell = nbformat.v4.new_markdown_cell(with_formulas(text))
    cell.metadata["slideshow"] = {"slide_type": "slide" if heading else "subslide"}
    return cell


def code_slide(cell: Any, kind: str, *, hidden: bool) -> Any:
    """A copy of a code cell; folded code and the code of a question is not shown."""
    copy = nbformat.from_dict(cell)
    copy.metadata["slideshow"] = {"slide_type": kind}
    if hidden or cell.metadata.get("jupyter", {}).get("source_hidden"):
        copy.metadata["tags"] = [*cell.metadata.get("tags", []), "remove_input"]
    for output in copy.outputs:
        if output.output_type == "stream":
            output.text = TO_LEARNER.sub("", output.text)
    return copy


def with_formulas(text: str) -> str:
    """Markdown with its formulas as MathML, and code left alone."""

    def drawn(found: re.Match[str]) -> str:
        return mathml(found[1] or found[2], {"display_mode": found[1] is not None})

    parts = CODE.split(text)
    parts[::2] = [FORMULA.sub(drawn, part) for part in parts[::2]]
    return "".join(parts)


def page(notebook: Any, reveal: str) -> str:
    """The slides' page."""
    remove = {"enabled": True, "remove_input_tags": {"remove_input"}}
    exporter = SlidesExporter(
        config=Config(TagRemovePreprocessor=remove),
        extra_loaders=[DictLoader({"slides.html.j2": TEMPLATE})],
        template_file="slides.html.j2",
        reveal_url_prefix=reveal,
        reveal_theme="white",  # the others fetch fonts
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    return str(exporter.from_notebook_node(deck(notebook))[0])


def main() -> None:
    """Write what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("lesson", nargs="+", help="beginning of a lesson's name, such as 05")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/_slides", help="a folder")
    parser.add_argument("--reveal", type=Path, help="folder of reveal.js 4, to work offline")
    args = parser.parse_args()
    if args.reveal and not (args.reveal / "dist/reveal.js").is_file():
        sys.exit(f"{args.reveal} has no dist/reveal.js")
    paths = []
    for start in args.lesson:
        found = sorted((ROOT / "lessons").glob(f"{start}*.ipynb"))
        if not found:
            sys.exit(f"no lesson starts with {start!r}")
        paths += found
    args.out.mkdir(parents=True, exist_ok=True)
    if args.reveal:
        for part in ("dist", "plugin"):
            shutil.copytree(args.reveal / part, args.out / "reveal" / part, dirs_exist_ok=True)
    for path in paths:
        target = args.out / f"{path.stem}.html"
        notebook = nbformat.read(path, 4)
        target.write_text(page(notebook, "reveal" if args.reveal else REVEAL), encoding="utf-8")
        print(target)


if __name__ == "__main__":
    main()
