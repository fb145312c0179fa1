"""What nbgrader makes of the solved notebooks is what we make of them (needs nbgrader)."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("nbgrader", reason="pip install -e '.[classroom]'")

from nbgrader.preprocessors import ClearHiddenTests, ClearOutput, ClearSolutions


def test_nbgrader_cuts_the_same(source: Path, build: ModuleType) -> None:
    theirs = build.solved(source)
    cut = ClearSolutions(code_stub={"python": build.CODE_STUB}, text_stub=build.TEXT_STUB)
    for step in (cut, ClearHiddenTests(), ClearOutput()):
        theirs, _ = step.preprocess(theirs, {"nbgrader": {}})
    ours = build.student_version(build.solved(source))
    assert [cell.source for cell in theirs.cells] == [cell.source for cell in ours.cells]
    assert [cell.metadata for cell in theirs.cells] == [cell.metadata for cell in ours.cells]
