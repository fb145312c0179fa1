"""A learner's own copies of the lessons (standard library only).

A copy has no outputs, so that nothing is given away before the learner has predicted it. It is
made once. While the learner has not touched it, it follows the course's newer versions. After
that it is never written again: a newer lesson arrives beside it, as `NAME.new.ipynb`.

What was delivered is remembered in `.lessons.json` in the learner's folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from gspo_edu.files import write_atomically

PACKAGE = Path(__file__).resolve().parent
RECORD_NAME = ".lessons.json"
DEFAULT_FOLDER = "my_lessons"


@dataclass
class CopyReport:
    """What `copy_lessons` did, as file names relative to the learner's folder."""

    made: list[str] = field(default_factory=list)
    refreshed: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def sentences(self, folder: Path) -> list[str]:
        """What a learner wants to know; empty when nothing was written."""
        said = []
        if self.made:
            said.append(f"Copied {_listed(self.made)} to {folder}.")
        if self.refreshed:
            said.append(f"Brought up to date (you had not changed it): {_listed(self.refreshed)}.")
        if self.beside:
            said.append(
                f"A newer version lies beside your own work, which stays as it is: "
                f"{_listed(self.beside)}."
            )
        return said


def lesson_sources() -> dict[str, Path]:
    """The lessons and exercises that come with this course, by name in the learner's folder.

    Returns e.g. `{"05_….ipynb": path, "exercises/05_….ipynb": path}`, in order.

    Raises:
        FileNotFoundError: neither a checkout's `lessons/` nor a wheel's copy of it is there.
    """
    if (PACKAGE / "_lessons").is_dir():
        lessons, exercises = PACKAGE / "_lessons", PACKAGE / "_exercises"
    else:
        lessons, exercises = PACKAGE.parent / "lessons", PACKAGE.parent / "exercises"
    if not lessons.is_dir():
        raise FileNotFoundError(
            f"no lessons found: expected a folder {lessons}; clone the course again or reinstall it"
        )
    sources = {path.name: path for path in sorted(lessons.glob("*.ipynb"))}
    sources |= {f"exercises/{path.name}": path for path in sorted(exercises.glob("*.ipynb"))}
    return sources


def copy_lessons(folder: str | Path) -> CopyReport:
    """Copy every lesson into `folder`, without outputs; leave alone what the learner changed.

    Raises:
        ValueError: `folder` is empty or the course's own folder of lessons.
        OSError: `folder` cannot be written, or a lesson of the course cannot be read; no
            half-written file stays behind.
    """
    folder = _checked(folder)
    record = _read_record(folder)
    report = CopyReport()
    for name, source in lesson_sources().items():
        copy = _without_outputs(source)
        content = _fingerprint(copy)
        target, beside = folder / name, _existing_beside(folder, name)
        mine = target.exists() and not _is_as_delivered(target, name, record)
        # Without the record, or after the learner took a newer version over, a text may be there.
        texts = [name, *beside] if mine else [name]
        if not target.exists():
            report.made.append(name)
        elif record["versions"].get(name) == content or any(
            _has_text(folder / known, content) for known in texts
        ):
            report.kept.append(name)
            record["versions"][name] = content
            for known in texts:
                if _fingerprint_of_file(folder / known) == content:
                    record["copies"][known] = content
            continue
        elif not mine:
            report.refreshed.append(name)
        else:
            untouched = (n for n in beside if _is_as_delivered(folder / n, n, record))
            target = folder / next(untouched, _new_name(name, len(beside)))
            report.beside.append(target.relative_to(folder).as_posix())
        _write(target, copy)
        record["versions"][name] = content
        record["copies"][target.relative_to(folder).as_posix()] = content
    _write(folder / RECORD_NAME, record)
    return report


def reset_lesson(lesson: str, folder: str | Path) -> tuple[Path, Path | None]:
    """Put a fresh copy of one lesson into `folder`; keep the learner's own as a backup.

    `lesson` is a number (`5`, `05`), a file name, a path, or the beginning of a name that fits
    one lesson only. Returns the fresh copy and the backup, `None` if there was nothing to keep.

    Raises:
        ValueError: `lesson` fits no lesson, or several; the message lists them.
        OSError: `folder` cannot be written, or the course's lesson cannot be read; the learner's
            copy is then still there.
    """
    folder = _checked(folder)
    name = find_lesson(lesson, folder)
    copy = _without_outputs(lesson_sources()[name])
    target, backup = folder / name, None
    if target.exists() and _fingerprint_of_file(target) != _fingerprint(copy):
        stem = target.name.removesuffix(".ipynb")
        candidates = (target.with_name(f"{stem}.backup-{n}.ipynb") for n in count(1))
        backup = next(path for path in candidates if not path.exists())
        _write_bytes(backup, target.read_bytes())
    _write(target, copy)
    record = _read_record(folder)
    record["versions"][name] = record["copies"][name] = _fingerprint(copy)
    _write(folder / RECORD_NAME, record)
    return target, backup


def find_lesson(lesson: str, folder: Path) -> str:
    """The one name in `lesson_sources()` that `lesson` means; ValueError otherwise."""
    names = list(lesson_sources())
    asked = lesson.replace("\\", "/").removesuffix(".ipynb")
    for start in (f"{folder.as_posix()}/", f"{folder.name}/", "./", "lessons/"):
        asked = asked.removeprefix(start)
    if asked.isdecimal():
        asked = f"{int(asked):02d}_"
    exact = [name for name in names if name.removesuffix(".ipynb") == asked]
    fits = exact or [name for name in names if asked and name.startswith(asked)]
    if len(fits) != 1:
        what = "fits several lessons" if fits else "is no lesson"
        choices = ", ".join(name.removesuffix(".ipynb") for name in fits or names)
        raise ValueError(f"{lesson!r} {what}; choose one of: {choices or '(there are none)'}")
    return fits[0]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `copy DIR`, `reset LESSON --dir DIR` and `list` to the `lessons` command's parser."""
    actions = parser.add_subparsers(dest="lessons_action", metavar="ACTION", required=True)
    copy = actions.add_parser("copy", help="copy the lessons, without outputs, into a folder")
    copy.add_argument("dir", metavar="DIR", help="the folder; what you changed there stays")
    reset = actions.add_parser("reset", help="restore one lesson and keep yours as a backup")
    reset.add_argument("lesson", metavar="LESSON", help="number or name, e.g. 05")
    reset.add_argument("--dir", metavar="DIR", default=DEFAULT_FOLDER, help="default: %(default)s")
    actions.add_parser("list", help="print the names of the lessons")


def run(args: argparse.Namespace) -> int:
    """Carry out what `add_arguments` parsed. Returns the exit status: 0, 1 failure, 2 usage."""
    try:
        if args.lessons_action == "list":
            print("\n".join(name.removesuffix(".ipynb") for name in lesson_sources()))
        elif args.lessons_action == "copy":
            report = copy_lessons(args.dir)
            said = report.sentences(Path(args.dir)) or [f"Nothing to do: {args.dir} is up to date."]
            print("\n".join(said))
        else:
            print(reset_sentence(*reset_lesson(args.lesson, args.dir)))
    except ValueError as error:
        print(f"gspo-edu lessons: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"gspo-edu lessons: {error}", file=sys.stderr)
        return 1
    return 0


def reset_sentence(fresh: Path, backup: Path | None) -> str:
    """What `reset_lesson` did, in a sentence."""
    kept = f"your version is kept as {backup.name}" if backup else "there was no change to keep"
    return f"{fresh} is fresh; {kept}."


def _checked(folder: str | Path) -> Path:
    if not str(folder).strip():
        raise ValueError("the folder's name is empty; give a folder for the lessons")
    folder = Path(folder)
    for source in {path.parent.resolve() for path in lesson_sources().values()}:
        if source in (folder.resolve(), *folder.resolve().parents):
            raise ValueError(f"{folder} is the course's own folder of lessons; give another one")
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; give a folder for the lessons")
    return folder


def _without_outputs(source: Path) -> dict[str, Any]:
    """The notebook without outputs; OSError if it is none."""
    try:
        return _stripped(json.loads(source.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise OSError(
            f"{source} is damaged (no notebook); get the course again or restore that file"
        ) from None


def _stripped(notebook: dict[str, Any]) -> dict[str, Any]:
    # With the pairing left in, JupyterLab would write a text twin beside the learner's copy.
    for key in ("widgets", "jupytext"):
        notebook.get("metadata", {}).pop(key, None)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
            cell.get("metadata", {}).pop("execution", None)
    return notebook


def _fingerprint(notebook: dict[str, Any]) -> str:
    """Hash of what a learner can change: text, order and outputs, not ids or editor metadata."""
    cells = [
        [
            cell["cell_type"],
            "".join(cell["source"]),
            cell.get("attachments", {}),
            cell.get("outputs", []),
        ]
        for cell in notebook["cells"]
    ]
    return hashlib.sha256(json.dumps(cells, sort_keys=True).encode()).hexdigest()


def _fingerprint_of_file(path: Path) -> str:
    try:
        return _fingerprint(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError):
        return "no notebook"


def _has_text(path: Path, content: str) -> bool:
    """Whether the notebook's cells are those of the fingerprint `content`, outputs left out."""
    try:
        return _fingerprint(_without_outputs(path)) == content
    except (OSError, KeyError, TypeError):
        return False


def _is_as_delivered(path: Path, name: str, record: dict[str, dict[str, str]]) -> bool:
    return _fingerprint_of_file(path) == record["copies"].get(name)


def _existing_beside(folder: Path, name: str) -> list[str]:
    """The names of the newer versions that lie beside a copy: `NAME.new.ipynb`, `NAME.new-2…`."""
    names = (_new_name(name, n) for n in count())
    return list(takewhile(lambda beside: (folder / beside).exists(), names))


def _new_name(name: str, already: int) -> str:
    stem = name.removesuffix(".ipynb")
    return f"{stem}.new-{already + 1}.ipynb" if already else f"{stem}.new.ipynb"


def _read_record(folder: Path) -> dict[str, dict[str, str]]:
    """`versions`: newest delivered, by lesson; `copies`: what each file was when written."""
    try:
        record = json.loads((folder / RECORD_NAME).read_text(encoding="utf-8"))
        return {"versions": dict(record["versions"]), "copies": dict(record["copies"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {"versions": {}, "copies": {}}


def _write(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    if not path.exists() or path.read_bytes() != text.encode():
        _write_bytes(path, text.encode())


def _write_bytes(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} notebooks ({names[0]}, ...)"
