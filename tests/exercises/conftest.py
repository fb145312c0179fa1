"""The exercises: sources, what is made of them, and a way to run them without a kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from script_modules import script_module

from gspo_edu import predictions

ROOT = Path(__file__).resolve().parents[2]
EXERCISES = ROOT / "exercises"


@pytest.fixture(scope="session")
def build() -> ModuleType:
    """exercises/build.py."""
    return script_module("exercises/build.py")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], dict[str, Any]]:
    """Runs a notebook's code cells in order; returns the names they define."""
    monkeypatch.setenv("GSPO_EDU_PREDICTIONS", str(tmp_path / "predictions.json"))
    monkeypatch.setenv("GSPO_EDU_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setattr(predictions, "show", lambda *given: None)

    def run(notebook: Any) -> dict[str, Any]:
        names: dict[str, Any] = {}
        for cell in notebook.cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, cell["id"], "exec"), names)
        return names

    return run


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the argument ``source`` runs once per exercise."""
    if "source" in metafunc.fixturenames:
        paths = sorted((EXERCISES / "solutions").glob("*.py"))
        assert paths, f"there are no exercises in {EXERCISES}"
        metafunc.parametrize("source", paths, ids=[path.stem for path in paths])
