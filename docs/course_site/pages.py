"""The pages of the site, from the repository's own files."""

from __future__ import annotations

import json
import posixpath
import re
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib import get_data_path

from course_site.lesson import Lesson, joined, read_lesson
from course_site.links import faults
from course_site.text import Heading, Text, term_anchor
from gspo_edu.glossary import LANGUAGES, terms
from gspo_edu.lesson_files import copy_lessons
from gspo_edu.widgets import WIDGETS
from gspo_edu.widgets.assets import script, styles
from gspo_edu.widgets.page import MODEL, embedded_state, to_html, without_script

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LESSONS, DOCS = ROOT / "lessons", ROOT / "docs"
ROW = re.compile(r"^\| \[\d\d (.+?)\]\(lessons/(\w+)\.ipynb\) \| (.+?) \|$", re.MULTILINE)
MINUTES = re.compile(r"\*\*Time:\*\*\s+(\d+)\s+minutes")
ANSWERS = {"teaching-tables"}  # documents whose text would give away what lessons ask
NEEDS = re.compile(r"\*\*You need:?\*\*(.+?)(?:\*\*Time|\.\s)", re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """One lesson on the map: what it is about, how long it takes, what it builds on."""

    stem: str
    title: str
    aim: str
    minutes: int
    needs: list[str]

    @property
    def number(self) -> str:
        """Two digits."""
        return self.stem[:2]


def entries() -> list[Entry]:
    """The lessons of the README's table.

    Raises:
        ValueError: if a lesson is not in the table, or does not say how long it takes.
    """
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = {stem: (title, aim) for title, stem, aim in ROW.findall(readme)}
    found = []
    for path in sorted(LESSONS.glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        opening = "\n".join(joined(cell["source"]) for cell in cells[:3])
        time, needs = MINUTES.search(opening), NEEDS.search(opening)
        if path.stem not in rows:
            raise ValueError(f"{path.stem} is not in the table of the README")
        if time is None:
            raise ValueError(f"{path.stem} does not say '**Time:** N minutes' at its beginning")
        numbers = re.findall(r"\b\d\d\b", needs[1]) if needs else []
        found.append(Entry(path.stem, *rows[path.stem], int(time[1]), numbers))
    return found


class Site:
    """Builds the site into a folder.

    Args:
        folder: where to; made if it is not there.
        wanted: beginnings of lessons' names; none means all. Links to the others lead to the map.
    """

    def __init__(self, folder: Path, wanted: list[str]) -> None:
        self.folder = folder.resolve()
        self.all = entries()
        self.entries = [e for e in self.all if not wanted or e.stem.startswith(tuple(wanted))]
        self.search: list[list[str]] = []
        self.shown: dict[str, list[Entry]] = {}
        self.environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.docs = {path.stem: doc_title(path) for path in sorted(DOCS.glob("*.md"))}

    def build(self) -> list[str]:
        """Write everything; returns the faults of the result, none if it is sound."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.assets()
        copy_lessons(self.folder / "notebooks")
        (self.folder / "notebooks/.lessons.json").unlink()
        for place, entry in enumerate(self.entries):
            self.lesson(place, entry)
        for path in sorted(DOCS.glob("*.md")):
            self.document(path)
        self.glossary()
        self.widget_pages()
        self.write("index.html", "index.html", "gspo-edu", entries=self.entries)
        index = json.dumps(self.search, ensure_ascii=False, separators=(",", ":"))
        self.put("assets/search-index.js", f"globalThis.searchIndex = {index};\n")
        return faults(self.folder)

    def assets(self) -> None:
        """Styles and scripts, the widgets' own among them, and a font with large brackets."""
        font = Path(get_data_path()) / "fonts/ttf/DejaVuSerif.ttf"
        self.put(f"assets/{font.name}", font.read_bytes())
        for path in sorted((HERE / "assets").iterdir()):
            self.put(f"assets/{path.name}", path.read_text(encoding="utf-8"))
        self.put("assets/widgets.css", styles())
        for widget in WIDGETS:
            # A classic script: browsers load no modules from disk.
            kept = f"(globalThis.renderers ??= {{}}).{widget.name} = render;"
            self.put(f"assets/{widget.name}.js", f"{{\n{script(widget.name)}\n{kept}\n}}\n")
        self.put("assets/model.js", MODEL)

    def put(self, name: str, content: str | bytes) -> None:
        """Write one file of the site."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def write(self, name: str, template: str, title: str, **given: Any) -> None:
        """Write one page."""
        page = self.environment.get_template(template).render(
            title=title, root="../" * name.count("/"), here=name, docs=self.docs, **given
        )
        self.put(name, page)

    def text(self, name: str, folder: str, terms_linked: bool = True) -> Text:
        """What renders the markdown of the page ``name``, whose source lies in ``folder``."""
        root = "../" * name.count("/")
        mine = posixpath.basename(name)[:2] if folder == "lessons" else None
        numbers = {e.number: f"{root}lessons/{e.stem}.html" for e in self.entries}
        numbers.pop(mine or "", None)
        return Text(
            partial(self.resolve, root=root, folder=folder),
            numbers.get,
            f"{root}glossary.html" if terms_linked else None,
        )

    def resolve(self, link: str, root: str, folder: str) -> str:
        """The address of a link in ``folder``, from a page ``root`` away from the index."""
        parts = urlsplit(link)
        if parts.scheme or not parts.path:
            return link
        path = posixpath.normpath(posixpath.join(folder, parts.path))
        fragment = f"#{parts.fragment}" if parts.fragment else ""
        stem = posixpath.splitext(posixpath.basename(path))[0]
        if path.startswith("lessons/") and path.endswith(".ipynb"):
            if stem in {entry.stem for entry in self.all} - {entry.stem for entry in self.entries}:
                return f"{root}index.html"
            path = f"lessons/{stem}.html"
        elif path.startswith("exercises/"):
            path = f"notebooks/{path}"
        elif path.startswith("docs/") and path.endswith(".md"):
            path = f"docs/{stem}.html"
        return f"{root}{path}{fragment}"

    def index(self, name: str, title: str, text: Text) -> None:
        """Add a page's sections to the search."""
        for anchor, section, said in text.sections:
            self.search.append(
                [title, section, f"{name}#{anchor}", " ".join(" ".join(said).split())]
            )

    def lesson(self, place: int, entry: Entry) -> None:
        """The page of one lesson, and its pictures."""
        name = f"lessons/{entry.stem}.html"
        text = self.text(name, "lessons")
        lesson: Lesson = read_lesson(LESSONS / f"{entry.stem}.ipynb", text)
        for file, png in lesson.pictures.items():
            self.put(f"lessons/pictures/{file}", png)
        for widget in dict.fromkeys(lesson.widgets):
            self.shown.setdefault(widget, []).append(entry)
        exercise = f"exercises/{entry.stem}.ipynb"
        self.write(
            name,
            "lesson.html",
            f"{entry.number} {entry.title}",
            entry=entry,
            entries=self.entries,
            blocks=lesson.blocks,
            headings=outline(text),
            widgets=list(dict.fromkeys(lesson.widgets)),
            exercise=exercise if (ROOT / exercise).is_file() else None,
            before=self.entries[place - 1] if place else None,
            after=self.entries[place + 1] if place + 1 < len(self.entries) else None,
        )
        self.index(name, f"{entry.number} {entry.title}", text)

    def document(self, path: Path) -> None:
        """The page of one markdown file, and the pictures beside it."""
        name = f"docs/{path.stem}.html"
        text = self.text(name, "docs")
        text.searchable = path.stem not in ANSWERS
        html = text.html(path.read_text(encoding="utf-8"))
        for picture in set(re.findall(r'<img src="\.\./(docs/[^"]+)"', html)):
            (self.folder / picture).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / picture, self.folder / picture)
        title = self.docs[path.stem]
        self.write(name, "document.html", title, html=html, headings=outline(text))
        self.index(name, title, text)

    def glossary(self) -> None:
        """The terms in four languages."""
        lessons = {int(entry.number): entry for entry in self.entries}
        rows = [(term_anchor(term), term, lessons.get(term.lesson or -1)) for term in terms()]
        self.write("glossary.html", "glossary.html", "Glossary", rows=rows, languages=LANGUAGES)
        for anchor, term, _ in rows:
            names = " · ".join([*term.aliases, term.ru, term.pl, term.zh])
            address = f"glossary.html#{anchor}"
            self.search.append(["Glossary", term.term, address, f"{term.definition} {names}"])

    def widget_pages(self) -> None:
        """A large page of each widget, and the same as one file that can be passed on."""
        made = []
        for kind in WIDGETS:
            widget = kind()
            name = f"widgets/{widget.name}.html"
            self.put(f"widgets/{widget.name}-one-file.html", to_html(widget))
            shown = self.shown.get(widget.name, [])
            words = widget.words()
            given = {"widget": widget, "lessons": shown}
            given |= {"state": embedded_state(widget), "still": without_script(widget)}
            self.write(name, "widget.html", widget.title, **given)
            self.search.append(["Widget", widget.title, name, words])
            made.append((widget, words, shown))
        self.write("widgets/index.html", "widgets.html", "Widgets", made=made)


def outline(text: Text) -> list[Heading]:
    """The sections of a page."""
    return [heading for heading in text.headings if heading.level == 2]


def doc_title(path: Path) -> str:
    """The first heading of a markdown file."""
    first = path.read_text(encoding="utf-8").splitlines()[0]
    if not first.startswith("# "):
        raise ValueError(f"{path.name} begins with {first!r}; expected a heading")
    return first.removeprefix("# ").replace("`", "")
