"""For a class: its zip of exercises with the table of points, and a learner's own progress.

The zip holds student versions only. Solutions stay in the course's repository; see
``python exercises/build.py --help`` for the solved notebooks and for an nbgrader course.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gspo_edu.files import write_atomically
from gspo_edu.lesson_files import DEFAULT_FOLDER, lesson_sources

if TYPE_CHECKING:
    from gspo_edu.checks.board import Exercise

SECRETS = ("BEGIN SOLUTION", "END SOLUTION", "BEGIN HIDDEN TESTS", "END HIDDEN TESTS")
DATE = (2025, 7, 25, 0, 0, 0)  # one date, so that equal content makes an equal file
READ_ME = """\
Exercises of the course from PPO to GRPO to GSPO.

1. Install the course:  pip install gspo-edu[lab]   (or follow its README)
   On a JupyterHub or another host your teacher tells you whether this is done already.
2. Start:               jupyter lab
3. Open a notebook in this folder, fill in the cells marked YOUR CODE HERE, run all cells.
   The cell below each of yours says at once what is right. The last cell adds up the points.
4. Hand in the saved notebook under its own name.

points.csv lists the tasks, their points and what they show.
gspo-edu progress exercises   (in a terminal, beside this folder) shows what you have solved.
"""
ELSEWHERE = "Are your exercises elsewhere? Name their folder: gspo-edu progress FOLDER"


def export(target: Path, wanted: list[str], *, overwrite: bool = False) -> list[str]:
    """Write the class's zip; returns the names in it.

    Args:
        target: the zip file.
        wanted: beginnings of exercise names, such as 05; empty for all.
        overwrite: replace the file if it is there.

    Raises:
        ValueError: if a name fits no exercise, the file exists, or a notebook holds a solution.
        OSError: if the file cannot be written.
    """
    if target.exists() and not overwrite:
        raise ValueError(f"{target} exists; give --overwrite to replace it")
    sources = {
        name: path for name, path in lesson_sources().items() if name.startswith("exercises/")
    }
    names = [Path(name).name for name in sources]
    for start in wanted:
        if not any(name.startswith(start) for name in names):
            raise ValueError(f"{start!r} fits no exercise; there are: {', '.join(names)}")
    chosen = [n for n in names if not wanted or n.startswith(tuple(wanted))]
    files = {name: student_copy(sources[f"exercises/{name}"]) for name in chosen}
    files |= {"README.txt": READ_ME.encode(), "points.csv": points_table(chosen).encode()}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(f"exercises/{name}", DATE), content)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, packed.getvalue())
    return list(files)


def student_copy(path: Path) -> bytes:
    """A student version without outputs.

    Raises:
        ValueError: if it holds a solution or a hidden test.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    for secret in SECRETS:
        if secret in text:
            raise ValueError(f"{path} holds {secret!r}; it is no student version")
    return text.encode()


def points_table(notebooks: list[str]) -> str:
    """CSV of exercise, task, points, who grades, learning goal."""
    from gspo_edu.checks import exercises

    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(["exercise", "task", "points", "graded by", "learning goal"])
    for number in (name.removesuffix(".ipynb").split("_")[0] for name in notebooks):
        for item in exercises()[number].items:
            grader = "a reader" if item.by_hand else "the check"
            rows.writerow([number, item.name, item.points, grader, item.goal])
    return table.getvalue()


def progress_table(folder: Path) -> str:
    """What a learner has solved in each exercise, from the progress files below ``folder``.

    Looks into the folder itself, the folders in it (nbgrader fetches each exercise into one of its
    own) and the file that ``GSPO_EDU_PROGRESS`` names; a damaged file is moved to a backup.

    Raises:
        ValueError: if there is neither such a folder nor a file.
    """
    from gspo_edu.checks.board import exercises
    from gspo_edu.checks.memory import memories, set_aside_if_damaged

    files = progress_files(folder)
    if not files and not folder.is_dir():
        raise ValueError(f"dir is {folder}; expected an existing folder.")
    kept: dict[str, Any] = {}
    notes = []
    for file in files:
        backup = set_aside_if_damaged(file)
        if backup:
            notes.append(f"{file} could not be read; it is kept as {backup.name}.")
        solved = {name: memory for name, memory in kept.items() if memory.solved}
        kept |= memories(file) | solved
    if not kept:
        return "\n".join([*notes, f"Nothing tried yet in {folder.resolve()}.", ELSEWHERE])
    lines = ["exercise                                              solved   points   missed first"]
    for exercise in exercises().values():
        lines.append(progress_line(exercise, kept))
    return "\n".join([*notes, *lines])


def progress_files(folder: Path) -> list[Path]:
    """The progress files that belong to ``folder``, the one that a variable names last."""
    from gspo_edu.checks.memory import FILE_NAME, progress_file

    found = [folder / FILE_NAME, *sorted(folder.glob(f"*/{FILE_NAME}"))]
    if os.environ.get("GSPO_EDU_PROGRESS"):
        found.append(progress_file())
    return [file for file in dict.fromkeys(found) if file.is_file()]


def progress_line(exercise: Exercise, kept: dict[str, Any]) -> str:
    """One exercise's row. A name that two exercises share counts where it was first tried."""
    items = [item for item in exercise.items if not item.by_hand]
    mine = {
        item.name: kept[item.name]
        for item in items
        if item.name in kept and kept[item.name].exercise == exercise.number
    }
    solved = [item for item in items if item.name in mine and mine[item.name].solved]
    missed = sum(not memory.first_right for memory in mine.values())
    title = f"{exercise.number} {exercise.title}"[:50]
    points = f"{sum(item.points for item in solved)}/{exercise.points}"
    return f"{title:50} {len(solved):6}/{len(items):<2} {points:>7} {missed:13}"


def add_classroom_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `export FILE.zip` to the ``classroom`` command's parser."""
    actions = parser.add_subparsers(dest="classroom_action", metavar="ACTION", required=True)
    out = actions.add_parser("export", help="pack the exercises for a class, without solutions")
    out.add_argument("file", metavar="FILE", type=Path, help="the zip file to write")
    out.add_argument(
        "exercise", nargs="*", default=[], help="beginning of a name, such as 05 (default: all)"
    )
    out.add_argument("--overwrite", action="store_true", help="replace FILE")


def add_progress_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder to the ``progress`` command's parser."""
    parser.add_argument(
        "dir",
        nargs="?",
        metavar="DIR",
        help=f"your folder of lessons (default: {DEFAULT_FOLDER}, or this one if there is none)",
    )


def run(args: argparse.Namespace) -> int:
    """Carry out ``classroom`` or ``progress``. Returns the exit status: 0, 1 failure, 2 usage."""
    try:
        if args.command == "progress":
            usual = DEFAULT_FOLDER if Path(DEFAULT_FOLDER).is_dir() else "."
            print(progress_table(Path(args.dir or usual).expanduser()))
        else:
            names = export(args.file, args.exercise, overwrite=args.overwrite)
            print(f"{args.file}: {len(names) - 2} exercises, README.txt and points.csv.")
    except ValueError as error:
        print(f"gspo-edu {args.command}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"gspo-edu {args.command}: {error}", file=sys.stderr)
        return 1
    return 0
