"""Where the lessons are."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
LESSONS = ROOT / "lessons"


@pytest.fixture(scope="session")
def build() -> ModuleType:
    """lessons/build.py, the tool that makes notebooks out of texts."""
    spec = importlib.util.spec_from_file_location("lessons_build", LESSONS / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the argument ``lesson`` runs once per stored notebook."""
    if "lesson" in metafunc.fixturenames:
        paths = sorted(LESSONS.glob("[0-9][0-9]_*.ipynb"))
        assert paths, f"there are no lessons in {LESSONS}"
        metafunc.parametrize("lesson", paths, ids=[path.stem for path in paths])
