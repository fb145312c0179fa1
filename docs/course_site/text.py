"""Markdown to HTML, with formulas as MathML, links within the site and links to the glossary."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

from gspo_edu.glossary import Term, names, plain

# "lesson 02", and "lessons 02 (ratio), 03 and 05"
NUMBER = r"\d\d(?:\s\([^)]*\))?"
LESSONS = re.compile(rf"\blessons?\s{NUMBER}(?:(?:,|,?\s(?:and|or))\s{NUMBER})*", re.IGNORECASE)
ONE_LESSON = re.compile(r"(?:lessons?\s)?\b(\d\d)\b(?![^(]*\))", re.IGNORECASE)

# A named function before anything but a bracket: TeX leaves a thin space.
FUNCTION = re.compile(r"(<mi>(?:log|exp|min|max)</mi>)(?=<m(?!o))")


def mathml(formula: str, options: dict[str, Any]) -> str:
    """A LaTeX formula as MathML, which browsers draw by themselves.

    Raises:
        ValueError: if a command of it is unknown.
    """
    block = bool(options.get("display_mode"))
    element = str(convert(formula, display="block" if block else "inline"))
    unknown = re.search(r"<m[a-z]+>(\\[a-zA-Z]+)", element)
    if unknown:
        raise ValueError(f"unknown command {unknown[1]} in the formula {formula!r}")
    element = FUNCTION.sub(r'\1<mspace width="0.17em"></mspace>', element)
    return f'<span class="formula">{element}</span>' if block else element


def in_words(formula: str) -> str:
    """A LaTeX formula as the text that a search can find and show: ``\\frac{\\pi}{2}`` is π/2."""
    return " ".join(_in_words(ElementTree.fromstring(convert(formula))).split())


def _in_words(node: ElementTree.Element) -> str:
    name = node.tag.rpartition("}")[2]
    parts = [node.text or "", *map(_in_words, node)]
    if name == "mfrac":
        return "/".join(part if len(part) < 2 else f"({part})" for part in parts[1:])
    if name == "mspace":
        return " "
    if name == "mover" and parts[-1] == "^":
        return f"{parts[1]}\N{COMBINING CIRCUMFLEX ACCENT}"
    if name == "msup":
        return "^".join(parts[1:])
    return "".join(parts)


@cache
def parser() -> MarkdownIt:
    """CommonMark with tables and with formulas between dollar signs."""
    known = MarkdownIt("commonmark").enable("table")
    return known.use(dollarmath_plugin, renderer=mathml, double_inline=True)


def slug(title: str) -> str:
    """``title`` as it stands in an address."""
    return "-".join(re.findall(r"\w+", title.lower())) or "section"


@cache
def term_pattern() -> re.Pattern[str]:
    """Every English name of the glossary, the longest first, with a plural's ending."""
    found = set()
    for entry in set(names().values()):
        found |= {
            name for name in (entry.term, *entry.aliases) if len(name) > 1 and "_" not in name
        }
    choices = []
    for name in sorted(found, key=len, reverse=True):
        # An abbreviation is one only in capitals: "ESS" is no part of speech, "is" no IS.
        escaped = re.escape(name).replace("\\ ", "[ -]").replace("\\-", "[ -]")
        choices.append(escaped if name.upper() == name else f"(?i:{escaped})")
    return re.compile(rf"(?<![\w-])({'|'.join(choices)})(?:e?s)?(?![\w-])")


@dataclass(frozen=True)
class Heading:
    """A heading of a page: level, anchor and plain text."""

    level: int
    anchor: str
    title: str


@dataclass
class Text:
    """Turns the markdown of one page into HTML, and remembers its headings and its words.

    Attributes:
        resolve: gives the address, seen from the page, of a link in the source.
        lesson_link: gives the address of the lesson with a number of two digits, or None.
        glossary: address of the glossary seen from the page; None links no terms.
        searchable: whether the words of what comes next may be found; those of outcomes may not.
    """

    resolve: Callable[[str], str]
    lesson_link: Callable[[str], str | None]
    glossary: str | None
    headings: list[Heading] = field(default_factory=list)
    sections: list[tuple[str, str, list[str]]] = field(default_factory=list)
    linked: set[str] = field(default_factory=set)
    searchable: bool = True

    def html(self, source: str) -> str:
        """``source`` as HTML."""
        tokens = parser().parse(source)
        for before, token in zip([None, *tokens], tokens, strict=False):
            if token.type != "inline" or token.children is None:
                if token.type in ("fence", "code_block"):
                    self.note(token.content)
                elif token.type.startswith("math_block"):
                    self.note(in_words(token.content))
                continue
            said = words(token.children)
            heading = before is not None and before.type == "heading_open"
            if heading and before is not None:
                before.attrs["id"] = self._open_section(int(before.tag[1]), said)
            else:
                self.note(said)
            token.children = self._linked(token.children, heading)
        rendered: str = parser().renderer.render(tokens, parser().options, {})
        return rendered.replace("<table>", '<div class="scroll"><table>').replace(
            "</table>", "</table></div>"
        )

    def note(self, said: str) -> None:
        """Let a search find ``said`` in the present section, unless it is hidden there."""
        if self.sections and self.searchable:
            self.sections[-1][2].append(said)

    def _open_section(self, level: int, title: str) -> str:
        taken = {heading.anchor for heading in self.headings}
        anchor = start = slug(title)
        number = 2
        while anchor in taken:
            anchor, number = f"{start}-{number}", number + 1
        self.headings.append(Heading(level, anchor, title))
        self.sections.append((anchor, title, []))
        return anchor

    def _linked(self, children: Sequence[Token], heading: bool) -> list[Token]:
        """The inline tokens with their addresses changed and the terms linked."""
        found: list[Token] = []
        depth = 0
        for token in children:
            if token.type == "link_open":
                token.attrs["href"] = self.resolve(str(token.attrs["href"]))
            elif token.type == "image":
                token.attrs["src"] = self.resolve(str(token.attrs["src"]))
            depth += token.nesting if token.type.startswith("link_") else 0
            if token.type == "text" and not depth and not heading:
                html = self.linked_text(token.content)
                token = Token("html_inline", "", 0, content=html)
            found.append(token)
        return found

    def linked_text(self, text: str) -> str:
        """Plain text as HTML: lessons that it names are linked, terms at their first mention."""
        parts, done = [], 0
        runs = [
            match
            for run in LESSONS.finditer(text)
            for match in ONE_LESSON.finditer(text, run.start(), run.end())
        ]
        marks = [(match, self._lesson(match)) for match in runs]
        if self.glossary is not None:
            marks += [(match, self._term(match)) for match in term_pattern().finditer(text)]
        for match, opening in sorted(marks, key=lambda mark: mark[0].start()):
            if opening is not None and match.start() >= done:
                parts += [
                    escape(text[done : match.start()], quote=False),
                    opening,
                    escape(match[0]),
                ]
                parts.append("</a>")
                done = match.end()
        return "".join(parts) + escape(text[done:], quote=False)

    def _lesson(self, match: re.Match[str]) -> str | None:
        address = self.lesson_link(match[1])
        return None if address is None else f'<a href="{address}">'

    def _term(self, match: re.Match[str]) -> str | None:
        entry = names().get(plain(match[0])) or names().get(plain(match[1]))
        if entry is None or entry.term in self.linked:
            return None
        self.linked.add(entry.term)
        meaning = escape(entry.definition)
        return f'<a class="term" href="{self.glossary}#{term_anchor(entry)}" title="{meaning}">'


def term_anchor(entry: Term) -> str:
    """Where the glossary has it."""
    return f"term-{slug(entry.term)}"


def words(children: Sequence[Token]) -> str:
    """Inline tokens as plain text."""
    said = []
    for token in children:
        formula = token.type.startswith("math")
        content = in_words(token.content) if formula else token.content
        said.append(" " if "break" in token.type else content)
    return " ".join("".join(said).split())
