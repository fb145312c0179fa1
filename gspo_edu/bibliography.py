"""Every source that the course cites, in one place: ``bibliography.json``.

Each entry was looked up. A test reads all arXiv numbers in code, lessons and documents and finds
each of them here; public material has wrong numbers for GSPO, and this course shall not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("bibliography.json")


@dataclass(frozen=True)
class Source:
    """A paper or page.

    Attributes:
        key: its name in this course, such as ``gspo``.
        title, authors, year: as published; the year is the first version's.
        url: where to read it.
        arxiv: its arXiv number, None for a page.
    """

    key: str
    title: str
    authors: str
    year: int
    url: str
    arxiv: str | None = None

    @property
    def where(self) -> str:
        """Its arXiv number, or the page's address."""
        return self.url if self.arxiv is None else f"arXiv {self.arxiv}"

    def __str__(self) -> str:
        return f"{self.authors} ({self.year}). {self.title}. {self.where}"

    def _repr_html_(self) -> str:
        return (
            f"{escape(self.authors)} ({self.year}). <i>{escape(self.title)}</i>. "
            f'<a href="{escape(self.url)}">{escape(self.where)}</a>'
        )


@cache
def sources() -> dict[str, Source]:
    """All sources by key, in the file's order."""
    entries: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    found = {}
    for key, entry in entries.items():
        arxiv = entry.get("arxiv")
        url = f"https://arxiv.org/abs/{arxiv}" if arxiv else entry["url"]
        found[key] = Source(key, entry["title"], entry["authors"], entry["year"], url, arxiv)
    return found


def source(key: str) -> Source:
    """One source.

    Raises:
        KeyError: if there is no such key; the message names the closest ones.
    """
    known = sources()
    if key not in known:
        close = get_close_matches(key, known, n=3, cutoff=0.5) or list(known)
        raise KeyError(f"there is no source {key!r}; expected for example {', '.join(close)}.")
    return known[key]
