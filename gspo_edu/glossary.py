"""The course's terms in English, Russian, Polish and Chinese, each with one sentence.

``term("importance ratio")`` shows one, ``table()`` shows all. The entries are ``glossary.json``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("glossary.json")
LANGUAGES = {"ru": "Russian", "pl": "Polish", "zh": "Chinese"}


@dataclass(frozen=True)
class Term:
    """One term.

    Attributes:
        term: in English.
        aliases: other names and abbreviations under which it is found.
        lesson: number of the lesson that introduces it; None if none does so far.
        definition: one sentence.
        ru, pl, zh: in Russian, Polish and Chinese.
    """

    term: str
    aliases: tuple[str, ...]
    lesson: int | None
    definition: str
    ru: str
    pl: str
    zh: str

    @property
    def place(self) -> str:
        """Number of the lesson with two digits, or a dash."""
        return "–" if self.lesson is None else f"{self.lesson:02}"

    @property
    def note(self) -> str:
        """Where it is introduced, in brackets after a space, or nothing."""
        return "" if self.lesson is None else f" (lesson {self.place})"

    def __str__(self) -> str:
        return (
            f"{self.term}{self.note}: {self.definition}\n"
            f"  ru: {self.ru} · pl: {self.pl} · zh: {self.zh}"
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        translations = " · ".join(
            f'{name}: <span lang="{code}">{escape(getattr(self, code))}</span>'
            for code, name in LANGUAGES.items()
        )
        return (
            f"<p><b>{escape(self.term)}</b>{self.note}: "
            f"{escape(self.definition)}<br>{translations}</p>"
        )


class TermTable(Sequence[Term]):
    """Terms in alphabetical order, shown as a table in a notebook and as lines elsewhere."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = tuple(terms)

    def __getitem__(self, index: Any) -> Any:
        return self.terms[index]

    def __len__(self) -> int:
        return len(self.terms)

    def __repr__(self) -> str:
        return "\n".join(str(entry) for entry in self.terms)

    def _repr_html_(self) -> str:
        heads = ["Term", "Lesson", "In one sentence", *LANGUAGES.values()]
        head = "".join(f'<th scope="col" style="text-align:left">{text}</th>' for text in heads)
        cell = 'style="text-align:left;vertical-align:top"'
        rows = []
        for entry in self.terms:
            names = [entry.term, *(alias for alias in entry.aliases if alias.isupper())]
            first = f"{names[0]} ({', '.join(names[1:])})" if names[1:] else names[0]
            cells = [
                f'<th scope="row" {cell}>{escape(first)}</th>',
                f"<td {cell}>{entry.place}</td>",
                f"<td {cell}>{escape(entry.definition)}</td>",
            ]
            cells += [
                f'<td lang="{code}" {cell}>{escape(getattr(entry, code))}</td>'
                for code in LANGUAGES
            ]
            rows.append(f"<tr>{''.join(cells)}</tr>")
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


@cache
def terms() -> tuple[Term, ...]:
    """All terms in alphabetical order."""
    entries = json.loads(FILE.read_text(encoding="utf-8"))
    found = [Term(**{**entry, "aliases": tuple(entry["aliases"])}) for entry in entries]
    return tuple(sorted(found, key=lambda entry: plain(entry.term)))


def plain(name: str) -> str:
    """``name`` without capitals and with spaces for every kind of dash and underscore."""
    for sign in "-–—_":
        name = name.replace(sign, " ")
    return " ".join(name.lower().split())


@cache
def names() -> dict[str, Term]:
    """{plain name: term} of every English name, abbreviation and translation."""
    found: dict[str, Term] = {}
    for entry in terms():
        for name in (entry.zh, entry.pl, entry.ru, *entry.aliases, entry.term):
            found[plain(name)] = entry
    return found


def term(name: str) -> Term:
    """The term called ``name``: in any of the four languages, or an abbreviation such as GSPO.

    Raises:
        KeyError: if there is none; the message suggests the closest names.
    """
    known = names()
    wanted = plain(name)
    if wanted in known:
        return known[wanted]
    close = get_close_matches(wanted, known, n=5, cutoff=0.6)
    close += [other for other in known if wanted and wanted in other]
    suggestions = list(dict.fromkeys(known[other].term for other in close))[:3]
    hint = (
        f"did you mean {' or '.join(repr(other) for other in suggestions)}?"
        if suggestions
        else "table() lists all terms."
    )
    raise KeyError(f"the glossary has no term {name!r}; {hint}")


def table(lesson: int | None = None) -> TermTable:
    """All terms, or those that one lesson introduces.

    Raises:
        ValueError: if no term belongs to that lesson.
    """
    chosen = [entry for entry in terms() if lesson in (None, entry.lesson)]
    if not chosen:
        known = sorted({entry.lesson for entry in terms() if entry.lesson is not None})
        raise ValueError(
            f"lesson is {lesson}; expected one that introduces terms: "
            f"{', '.join(str(number) for number in known)}."
        )
    return TermTable(chosen)
