"""Where the lessons are."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from script_modules import script_module

ROOT = Path(__file__).resolve().parents[2]
LESSONS = ROOT / "lessons"


@pytest.fixture(scope="session")
def build() -> ModuleType:
    """lessons/build.py, the tool that makes notebooks out of texts."""
    return script_module("lessons/build.py")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the argument ``lesson`` runs once per stored notebook."""
    if "lesson" in metafunc.fixturenames:
        paths = sorted(LESSONS.glob("[0-9][0-9]_*.ipynb"))
        assert paths, f"there are no lessons in {LESSONS}"
        metafunc.parametrize("lesson", paths, ids=[path.stem for path in paths])
