"""What is wrong with the pages of a site: links that lead nowhere, and what would be fetched."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

URL = re.compile(r"""url\(["']?([^"')]+)""")
FETCHED = {"src", "srcset", "poster", "data", "xlink:href"}


class Page(HTMLParser):
    """Anchors, links and faults of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.faults: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        anchor = given.get("id")
        if anchor in self.anchors:
            self.faults.append(f"two elements have the id {anchor!r}")
        if anchor:
            self.anchors.add(anchor)
        if tag == "img" and not given.get("alt"):
            self.faults.append(f"a picture without alternative text: {given.get('src')}")
        loaded = [given[name] for name in FETCHED & set(given)]
        if tag == "link":
            loaded.append(given.get("href", ""))
        self.faults += [f"fetches {address}" for address in loaded if is_remote(address)]
        self.links += [address for address in loaded if not is_remote(address)]
        if tag == "a" and "href" in given and not is_remote(given["href"]):
            self.links.append(given["href"])


def is_remote(address: str) -> bool:
    """Whether ``address`` is outside the site; data inside the page is not."""
    parts = urlsplit(address)
    return bool(parts.scheme or parts.netloc) and parts.scheme != "data"


def faults(site: Path) -> list[str]:
    """Every fault of the pages in the folder ``site``, as "page: what is wrong"."""
    site = site.resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        found += [f"{name}: {fault}" for fault in page.faults]
        for link in page.links:
            fault = broken(link, path, site, pages)
            if fault:
                found.append(f"{name}: {fault}")
    for style in sorted(site.rglob("*.css")):
        for address in URL.findall(style.read_text(encoding="utf-8")):
            if is_remote(address) or not (style.parent / address).is_file():
                found.append(f"{style.relative_to(site).as_posix()}: no such file as {address}")
    return found


def broken(link: str, page: Path, site: Path, pages: dict[Path, Page]) -> str | None:
    """What is wrong with a link on ``page``, or None."""
    parts = urlsplit(link)
    if parts.scheme == "data":
        return None
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page.resolve()
    if not target.is_relative_to(site):
        return f"{link} leads out of the site"
    if not target.is_file():
        return f"{link} leads to no file"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return f"{link} leads to no place on that page"
    return None
