"""Make the exercise notebooks from their solved sources.

    python exercises/build.py 05            exercises/05_gspo.ipynb, the student version
    python exercises/build.py               all of them
    python exercises/build.py --solved DIR  the solved notebooks, for a teacher (or for whoever has
                                            tried first)
    python exercises/build.py --nbgrader DIR
                                            an nbgrader course: DIR/source and its configuration

The sources are exercises/solutions/NN_name.py (jupytext's py:percent format); the notebooks are
never edited. How to write an exercise, with 05 as the example:

1. Add its card and tasks to gspo_edu/checks/exercises.toml. Every task is the name of a check: a
   function of gspo_edu.checks (such as sequence_ratio, or with a name of its own and
   task = "sequence_ratio" for a bug in such a function), or a hand computation of
   gspo_edu/checks/numbers_*.py, where its question, its right value (computed, never typed) and its
   known mistakes are.
2. Write the source. Its first code cell imports, and calls checks.begin("05"); its last one calls
   checks.summary(). Cells have a role, given as cell metadata:

       # %% role="solution"              code that learners write; what stands between
                                         ### BEGIN SOLUTION and ### END SOLUTION is replaced by
                                         # YOUR CODE HERE. Give functions a docstring, numbers a
                                         None above the region: the untouched notebook has to run.
       # %% check="sequence_ratio" answer="my_sequence_ratio"
                                         left empty: the builder writes the cell, with its points
                                         and, for functions, a hidden test with the teacher's seed.
       # %% [markdown] open="05 open question"
                                         a question for a reader to grade; rubric above the cell,
                                         model answer inside a solution region.

   A cell with the tag "faulty" holds a bug to find; its lines may come back in the solution.
   Everything else is an ordinary cell. Outside of solution regions nothing may give an answer away;
   tests/exercises proves it for every line and every number of the solutions.
3. In Markdown, {{card}} becomes the card, {{ask 05 push}} the question of a hand computation.
4. Order: card; hand computations; functions to write; predict, run, reconcile; find the bug; the
   open question; the score. Hints come in three steps, each in a folded <details>: the idea, the
   formula, the line in words.
5. Fade: 02 is worked in full, 03 has blanks, 05 is empty, all on gspo_edu.one_batch.

The regions are nbgrader's, and the cells carry its metadata, so that the solved notebooks are a
source for `nbgrader generate_assignment` as they are. Here they are cut without nbgrader; a test
compares the two.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import nbformat

from gspo_edu import checks
from gspo_edu.authoring import chosen_texts, notebook_of
from gspo_edu.checks.board import Exercise, Item

EXERCISES = Path(__file__).resolve().parent
SOLUTIONS = EXERCISES / "solutions"
CODE_STUB, TEXT_STUB = "# YOUR CODE HERE", "YOUR ANSWER HERE"
HIDDEN = "### BEGIN HIDDEN TESTS\n{}\n### END HIDDEN TESTS\n"
CONFIGURATION = f"""\
import os

# The seed of the hidden tests' inputs: choose your own for each class.
os.environ.setdefault("GSPO_EDU_CLASS_SEED", "1")
# Grading is not for anybody's progress file.
os.environ["GSPO_EDU_PROGRESS"] = os.devnull
os.environ["GSPO_EDU_PREDICTIONS"] = os.devnull

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "gspo-edu"
c.ClearSolutions.code_stub = {{"python": "{CODE_STUB}"}}
c.ClearSolutions.text_stub = "{TEXT_STUB}"
# A check that somebody deleted comes back, and is graded.
c.OverwriteCells.add_missing_cells = True
c.Execute.timeout = 120
c.Execute.interrupt_on_timeout = True
"""
ASK = re.compile(r"\{\{ask ([^}]+)\}\}")


def sources(wanted: list[str]) -> list[Path]:
    """The sources whose names start with one of ``wanted``, all if empty.

    Raises:
        SystemExit: if one of ``wanted`` fits no source.
    """
    return chosen_texts(SOLUTIONS.glob("*.py"), wanted, "exercise")


def solved(source: Path) -> Any:
    """The notebook with solutions and hidden tests, as nbgrader takes it."""
    notebook = notebook_of(source)
    exercise = checks.exercises()[source.stem.split("_")[0]]
    for cell in notebook.cells:
        given = {key: cell.metadata.pop(key, None) for key in ("role", "check", "answer", "open")}
        cell.metadata.pop("lines_to_next_cell", None)
        if given["check"]:
            cell.source = check_source(exercise.item(given["check"]), given["answer"] or "")
        grading = nbgrader_metadata(given, exercise, cell["id"])
        if grading:
            cell.metadata["nbgrader"] = grading
        if cell.cell_type == "markdown":
            cell.source = filled(cell.source, exercise)
    return notebook


def check_source(item: Item, answer: str) -> str:
    """The code of a cell that checks ``answer`` and ends with its points."""
    if item.name in checks.NUMBERS:
        call, hidden = f'checks.number("{item.name}", {answer}).show()', ""
    else:
        given = f'"{item.task or item.name}", {answer}'
        given += f', item="{item.name}"' if item.task else ""
        call = f"checks.function({given}).show()"
        hidden = HIDDEN.format(f"checks.function({given}, seed=checks.class_seed()).show()")
    return f'{call}\n{hidden}checks.points("{item.name}")'


def nbgrader_metadata(given: dict[str, Any], exercise: Exercise, cell: str) -> dict[str, Any]:
    """What nbgrader has to know about a cell; empty if nothing."""
    task = given["check"] or given["open"]
    if not task and given["role"] != "solution":
        return {}
    name = re.sub(r"\W+", "-", task) if task else f"answer-{cell}"
    found: dict[str, Any] = {
        "schema_version": 3,
        "grade_id": name,
        "grade": bool(task),
        "solution": not given["check"],
        "locked": bool(given["check"]),
        "task": False,
    }
    if task:
        found["points"] = exercise.item(task).points
    return found


def filled(text: str, exercise: Exercise) -> str:
    """Markdown with its card and questions put in."""
    text = text.replace("{{card}}", exercise.card())
    return ASK.sub(lambda match: checks.NUMBERS[match[1]].question, text)


def student_version(notebook: Any) -> Any:
    """Cut solutions, hidden tests and outputs, in place."""
    for cell in notebook.cells:
        stub = CODE_STUB if cell.cell_type == "code" else TEXT_STUB
        cell.source = without_regions(cell.source, "SOLUTION", stub)
        cell.source = without_regions(cell.source, "HIDDEN TESTS", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def without_regions(text: str, kind: str, stub: str | None) -> str:
    """``text`` with each region BEGIN kind ... END kind replaced by ``stub``, or left out.

    Raises:
        ValueError: if a region is not closed, or begins inside another.
    """
    kept, inside = [], False
    for line in text.split("\n"):
        if f"BEGIN {kind}" in line:
            if inside:
                raise ValueError(f"a region BEGIN {kind} begins inside another:\n{text}")
            inside = True
            if stub is not None:
                kept.append(line[: len(line) - len(line.lstrip())] + stub)
        elif f"END {kind}" in line:
            inside = False
        elif not inside:
            kept.append(line)
    if inside:
        raise ValueError(f"a region BEGIN {kind} is not closed:\n{text}")
    return "\n".join(kept)


def main() -> None:
    """Build what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("exercise", nargs="*", help="beginning of a name, such as 05; none: all")
    parser.add_argument("--solved", metavar="DIR", type=Path, help="write the solved notebooks")
    parser.add_argument("--nbgrader", metavar="DIR", type=Path, help="write an nbgrader course")
    args = parser.parse_args()
    for source in sources(args.exercise):
        notebook = solved(source)
        folder = EXERCISES
        if args.solved or args.nbgrader:
            folder = args.solved or args.nbgrader / "source" / source.stem
            folder.mkdir(parents=True, exist_ok=True)
        else:
            student_version(notebook)
        target = folder / f"{source.stem}.ipynb"
        nbformat.write(notebook, target)
        print(target)
    configuration = args.nbgrader and args.nbgrader / "nbgrader_config.py"
    if configuration and configuration.exists():
        print(f"{configuration} stays as it is")
    elif configuration:
        configuration.write_text(CONFIGURATION, encoding="utf-8")


if __name__ == "__main__":
    main()
