"""docs/teaching-tables.md, written from the lessons, the glossary and the exercises.

    python docs/teaching_tables.py      after a lesson, an exercise or a question has changed

Goals and minutes come from the lessons' sources, answers from their stored notebooks, points from
the exercises' table, and the numbers of the misconceptions are computed (``misconceptions.py``).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from misconceptions import MISCONCEPTIONS

from gspo_edu.checks import NUMBERS, exercises
from gspo_edu.glossary import terms
from gspo_edu.made_page import write_page

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/teaching-tables.md"
GOALS = re.compile(
    r"\*\*(?:Afterwards you can|What you will be able to do:)\*\*(.*?)\n\n\*\*", re.S
)
LISTED = re.compile(r"^- (.+?)(?=^- |\Z)", re.M | re.S)
TITLE = re.compile(r"^# (\d\d · .+)$", re.M)
TIME = re.compile(r"\*\*Time:\*\*(.*?)(?:\n\n|\*\*|\"\"\"|$)", re.S)


def page() -> str:
    """The page's text."""
    return "\n".join(
        [INTRODUCTION, *goals(), *misconceptions(), *points(), *answers(), ""],
    )


def one_line(text: str) -> str:
    """``text`` without line breaks, and with no bar that would end a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")


def lesson_texts() -> dict[str, str]:
    """The source of each lesson by number."""
    sources = sorted((ROOT / "lessons/text").glob("[0-9][0-9]_*.py"))
    return {path.name[:2]: path.read_text(encoding="utf-8") for path in sources}


def goals() -> list[str]:
    """What each lesson teaches, how long it takes and which words it introduces."""
    lines = ["", "## Learning goals", ""]
    for number, text in lesson_texts().items():
        title, found, time = TITLE.search(text), GOALS.search(text), TIME.search(text)
        if not (title and found and time):
            raise ValueError(f"lesson {number} names no title, goals or time")
        words = [term.term for term in terms() if term.lesson == int(number)]
        listed = LISTED.findall(found[1].strip()) or [found[1]]
        lines += [f"### {title[1]}", "", "Afterwards a learner can", ""]
        lines += [f"- {one_line(goal)}" for goal in listed]
        lines += ["", f"Time: {one_line(time[1])}", ""]
        lines += [f"New words: {', '.join(words)}.", ""] if words else []
    return lines


def misconceptions() -> list[str]:
    """The table of beliefs, questions and numbers."""
    lines = [
        "## Misconceptions",
        "",
        "| belief | revealed by | what settles it |",
        "|---|---|---|",
    ]
    for one in MISCONCEPTIONS:
        lines.append(f"| {one.belief} | {one.question} | {one_line(one.settled())} |")
    return [
        *lines,
        "",
        'A "prediction" is asked in the lesson of its number, under that name; an "exercise" is a '
        "task of the exercise notebook, and an exhibit stands in `exercises/museum.ipynb`. "
        "The checks name these and further mistakes when a learner makes them.",
        "",
    ]


def points() -> list[str]:
    """The tasks of all exercises."""
    lines = [
        "## Exercises: tasks, points, goals",
        "",
        "| exercise | minutes | difficulty | points by checks | points by a reader |",
        "|---|---|---|---|---|",
    ]
    for number, exercise in exercises().items():
        read = sum(item.points for item in exercise.items if item.by_hand)
        lines.append(
            f"| {number} {exercise.title} | {exercise.minutes} | {exercise.difficulty} of 5 | "
            f"{exercise.points} | {read} |"
        )
    lines += ["", "| task | points | who grades | what it shows that a learner can do |"]
    lines.append("|---|---|---|---|")
    for number, exercise in exercises().items():
        for item in exercise.items:
            grader = "a reader" if item.by_hand else "a check"
            name = item.name if item.name.startswith(number) else f"{number} {item.name}"
            lines.append(f"| {name} | {item.points} | {grader} | {item.goal} |")
    return lines


def answers() -> list[str]:
    """The lessons' closing questions as their folded cells work them out."""
    lines = [
        "",
        "## Answers to the closing questions",
        "",
        "Each lesson ends with three questions to compute; the folded cell under them works them "
        'out. This is what it prints. Lines that begin with "From lesson" answer the questions '
        "at the lesson's beginning.",
        "",
    ]
    for path in sorted((ROOT / "lessons").glob("[0-9][0-9]_*.ipynb")):
        lines += [f"Lesson {path.name[:2]}:", "", "```text", closing_answers(path), "```", ""]
    lines += ["And the hand computations of the exercises:", "", "| task | answer |", "|---|---|"]
    for name, number in NUMBERS.items():
        lines.append(f"| {name} | {round(number.right(), number.places):.10g} |")
    return lines


def closing_answers(path: Path) -> str:
    """What the folded solution after a stored lesson's three questions has printed.

    Raises:
        ValueError: if there is none.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if "solution" in cell["metadata"].get("tags", []):
            printed = "".join("".join(out.get("text", "")) for out in cell["outputs"])
            if "1. " in printed and "3. " in printed:
                return printed.rstrip()
    raise ValueError(f"{path.name} has no solved closing questions")


INTRODUCTION = """\
# Tables for teachers

<!-- Written by docs/teaching_tables.py; do not edit. -->

The plans, and how to hand out, collect and grade: [Teacher's guide](teaching.md). This page holds
answers: it is for teachers, and for whoever has tried first."""


if __name__ == "__main__":
    write_page(PAGE, page)
