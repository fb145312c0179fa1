"""nbgrader from the solved source to feedback, with submissions good and bad (needs nbgrader)."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

from gspo_edu.checks import exercises

pytest.importorskip("nbgrader", reason="pip install -e '.[classroom]'")

NAME = "05_gspo"
FULL = exercises()["05"].points
LIMIT = 30  # seconds for a cell; the first one imports torch


def nbgrader(course: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run nbgrader in the course's folder."""
    command = [sys.executable, "-m", "nbgrader", *arguments, f"--Execute.timeout={LIMIT}"]
    environment = os.environ | {"GSPO_EDU_CLASS_SEED": "7", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=course, capture_output=True, text=True, env=environment)


def graded(notebook: Any, name: str) -> Any:
    """The cell with that grade_id."""
    cells = [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == name]
    [cell] = cells
    return cell


def answer(notebook: Any, beginning: str) -> Any:
    """The learner's cell with ``beginning`` in it."""
    cells = [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("solution")]
    [cell] = [cell for cell in cells if cell.cell_type == "code" and beginning in cell.source]
    return cell


def half_done(notebook: Any, released: Any) -> None:
    """Only the first two numbers are there."""
    for mine, empty in zip(notebook.cells, released.cells, strict=True):
        if mine.source != empty.source and not mine.source.startswith(("my_s =", "my_loud_s =")):
            mine.source = empty.source


def crashing(notebook: Any, released: Any) -> None:
    """A cell and a function that raise, and one that is no Python."""
    answer(notebook, "my_s =").source = "my_s = 1 / 0"
    answer(
        notebook, "def my_sequence_ratio"
    ).source = "def my_sequence_ratio(logp, logp_old, mask):\n    return never_defined"
    answer(notebook, "def my_gspo_loss").source = "def my_gspo_loss(logp"


def slow(notebook: Any, released: Any) -> None:
    """A cell that does not end, after its number is there."""
    answer(notebook, "my_loud_s").source += "\nwhile True:\n    pass"


def tampered(notebook: Any, released: Any) -> None:
    """Nothing solved; every check says 100 and is worth 100."""
    notebook.cells = copy.deepcopy(released.cells)
    for cell in notebook.cells:
        grading = cell.metadata.get("nbgrader", {})
        if grading.get("locked"):
            cell.source, grading["points"], grading["locked"] = "100.0", 100, False


def deleted(notebook: Any, released: Any) -> None:
    """Two checks are gone."""
    notebook.cells.remove(graded(notebook, "gspo_loss"))
    notebook.cells.remove(graded(notebook, "05-loud-token"))


def renamed(notebook: Any, released: Any) -> None:
    """A check has another id."""
    graded(notebook, "sequence_ratio").metadata["nbgrader"]["grade_id"] = "mine"


LOST = sum(exercises()["05"].item(name).points for name in ("sequence_ratio", "gspo_loss")) + 1
SUBMISSIONS: dict[str, tuple[Callable[[Any, Any], None] | None, int | None]] = {
    "perfect": (None, FULL),
    "half": (half_done, 2),
    "crashing": (crashing, FULL - LOST),
    "slow": (slow, FULL),
    "tampered": (tampered, 0),
    "deleted": (deleted, FULL),
    "renamed": (renamed, None),
}


@pytest.mark.slow
def test_nbgrader_grades_every_kind_of_submission(
    tmp_path: Path, build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nbgrader.api import Gradebook

    # nbgrader calls alembic by its bare name, which only an activated environment finds.
    scripts = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}{os.environ['PATH']}")
    source = build.SOLUTIONS / f"{NAME}.py"
    solved = build.solved(source)
    folder = tmp_path / "source" / NAME
    folder.mkdir(parents=True)
    nbformat.write(solved, folder / f"{NAME}.ipynb")
    (tmp_path / "nbgrader_config.py").write_text(build.CONFIGURATION, encoding="utf-8")
    made = nbgrader(tmp_path, "generate_assignment", NAME)
    assert made.returncode == 0, made.stderr
    released = nbformat.read(tmp_path / "release" / NAME / f"{NAME}.ipynb", 4)
    for learner, (spoil, _) in SUBMISSIONS.items():
        notebook = copy.deepcopy(released)
        for mine, theirs in zip(notebook.cells, solved.cells, strict=True):
            if mine.metadata.get("nbgrader", {}).get("solution"):
                lines = theirs.source.split("\n")
                mine.source = "\n".join(
                    line for line in lines if not line.strip().startswith("###")
                )
        if spoil:
            spoil(notebook, released)
        folder = tmp_path / "submitted" / learner / NAME
        folder.mkdir(parents=True)
        nbformat.write(notebook, folder / f"{NAME}.ipynb")

    done = nbgrader(tmp_path, "autograde", NAME, "--create")
    assert done.returncode != 0, "the renamed id has to be reported"
    with Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}") as book:
        scores = {s.student.id: s.score for s in book.assignment_submissions(NAME)}
    for learner, (_, expected) in SUBMISSIONS.items():
        there = (tmp_path / "autograded" / learner / NAME / f"{NAME}.ipynb").is_file()
        assert there == (expected is not None), done.stderr
        if there:
            assert scores[learner] == expected, learner

    fed = nbgrader(tmp_path, "generate_feedback", NAME)
    assert fed.returncode == 0, fed.stderr
    page = tmp_path / "feedback/perfect" / NAME / f"{NAME}.html"
    assert "sequence_ratio" in page.read_text(encoding="utf-8")
