"""What nbval does not see: that outputs are there, in order, small, and described in words."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

from gspo_edu.predictions import NOT_ASKED

ROOT = Path(__file__).resolve().parents[2]
KILOBYTES = 400
SCREEN = 45
TAGS = {"nbval-ignore-output", "predict", "reconcile", "check", "question", "solution"}
SHOWS = {
    *("print", "show", "display", "predict", "reconcile", "check_answer", "summary_picture"),
}
ARXIV = re.compile(r"(?<![\d.])(\d{4}\.\d{5})(?![\d.])")


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def top_level_calls(code: str) -> Iterator[str]:
    """Names that a cell calls when it runs, leaving out what is inside definitions."""
    todo: list[ast.AST] = list(ast.parse(code).body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id
        todo.extend(ast.iter_child_nodes(node))


def faults(notebook: dict[str, Any]) -> list[str]:
    """What is wrong with the stored outputs, in words."""
    found = []
    for wanted, cell in enumerate(code_cells(notebook), 1):
        code = "".join(cell["source"])
        if cell["execution_count"] != wanted:
            found.append(f"cell {wanted} has execution count {cell['execution_count']}")
        if SHOWS & set(top_level_calls(code)) and not cell["outputs"]:
            found.append(f"cell {wanted} shows something, but no output is stored")
        for output in cell["outputs"]:
            if output["output_type"] == "error" or output.get("name") == "stderr":
                found.append(f"cell {wanted} stores an error or a warning")
            if NOT_ASKED in "".join(output.get("text", "")):
                found.append(f"cell {wanted} answers a prediction that nobody was asked for")
            described = output.get("metadata", {}).get("image/png", {}).get("alt", "")
            if "image/png" in output.get("data", {}) and len(described) < 20:
                found.append(f"cell {wanted} has a picture without alt text")
    return found


def test_outputs_are_stored_in_order(lesson: Path) -> None:
    notebook = read(lesson)
    nbformat.validate(nbformat.from_dict(notebook))
    assert faults(notebook) == []


def test_text_and_notebook_are_in_step(lesson: Path, build: ModuleType) -> None:
    def essence(cells: list[Any]) -> list[Any]:
        return [
            (cell["cell_type"], cell["id"], "".join(cell["source"]), dict(cell["metadata"]))
            for cell in cells
        ]

    text = build.notebook_of(build.TEXT / f"{lesson.stem}.py")
    assert essence(read(lesson)["cells"]) == essence(text.cells), f"run {build.__file__}"
    assert read(lesson)["metadata"] == build.METADATA


def test_every_text_has_its_notebook(build: ModuleType) -> None:
    assert {path.stem for path in build.texts([])} == {
        path.stem for path in build.LESSONS.glob("*.ipynb")
    }


def test_cited_papers_are_in_the_bibliography(lesson: Path) -> None:
    entries = json.loads((ROOT / "gspo_edu/bibliography.json").read_text(encoding="utf-8"))
    known = {entry.get("arxiv") for entry in entries.values()}
    cells = read(lesson)["cells"]
    cited = set(ARXIV.findall("\n".join("".join(cell["source"]) for cell in cells)))
    assert cited <= known


def test_lesson_is_small_and_its_cells_fit_a_screen(lesson: Path) -> None:
    assert lesson.stat().st_size < KILOBYTES * 1000
    for cell in code_cells(read(lesson)):
        assert len(cell["source"]) <= SCREEN, "".join(cell["source"])


def test_tags_are_known_and_training_cells_assert(lesson: Path) -> None:
    for cell in read(lesson)["cells"]:
        tags = set(cell["metadata"].get("tags", []))
        assert tags <= TAGS
        code = "".join(cell["source"])
        trains = cell["cell_type"] == "code" and re.search(r"\b(next_rollout|records)\(", code)
        if trains:
            assert "nbval-ignore-output" in tags
            assert "assert " in code


NAME = re.compile(r'\b(predict|reconcile)\(\s*"([^"]+)"')


def test_every_prediction_is_reconciled_after_the_outcome(lesson: Path) -> None:
    asked: list[str] = []
    answered: list[str] = []
    for cell in code_cells(read(lesson)):
        for kind, name in NAME.findall("".join(cell["source"])):
            assert name.split()[0] == lesson.name[:2]
            assert kind in cell["metadata"].get("tags", [])
            if kind == "reconcile":
                assert name in asked
                answered.append(name)
            else:
                assert asked == answered, f"{name} is asked while another is open"
                asked.append(name)
    assert asked == answered
    assert len(set(asked)) == len(asked)


LESSON_NUMBERS = re.compile(r"\blessons?\s+(\d\d\b(?:(?:,|,?\s+(?:and|or|to))\s+\d\d\b)*)", re.I)


def lessons_named(text: str) -> set[str]:
    """Numbers of the lessons that a text speaks of, two digits each."""
    plain = re.sub(r"[*`\[\]]", "", text)
    return {number for run in LESSON_NUMBERS.findall(plain) for number in re.findall(r"\d\d", run)}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("**Lesson 03** and (lesson\n05)", {"03", "05"}),
        ("lessons 02 (ratio), 03", {"02"}),
        ("lessons 02, 03 and 05", {"02", "03", "05"}),
        ("[Lesson 02](02_ppo.ipynb)", {"02"}),
        ("table(lesson=2), 04 answers", set()),
    ],
)
def test_lesson_numbers_are_found(text: str, named: set[str]) -> None:
    assert lessons_named(text) == named


def test_every_lesson_that_is_named_exists(lesson: Path, build: ModuleType) -> None:
    there = {path.name[:2] for path in build.texts([])}
    named = lessons_named("\n".join("".join(cell["source"]) for cell in read(lesson)["cells"]))
    assert named <= there


def stored_cell(source: str, count: int | None, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": count,
        "source": [source],
        "outputs": list(outputs),
        "metadata": {},
    }


PRINTED = {"output_type": "stream", "name": "stdout", "text": ["1\n"]}
UNASKED = {"output_type": "stream", "name": "stdout", "text": [f"{NOT_ASKED}: 02 misspelt.\n"]}
PICTURE = {"output_type": "display_data", "data": {"image/png": ""}, "metadata": {}}
WARNING = {"output_type": "stream", "name": "stderr", "text": ["careful\n"]}


@pytest.mark.parametrize(
    ("cells", "fault"),
    [
        ([stored_cell("print(1)", 1)], "no output is stored"),
        ([stored_cell("if True:\n    print(1)", 1)], "no output is stored"),
        ([stored_cell("x = 1", None)], "execution count None"),
        ([stored_cell("x = 1", 2), stored_cell("y = 1", 1)], "execution count 2"),
        ([stored_cell("show(f, 'a')", 1, PICTURE)], "without alt text"),
        ([stored_cell("print(1)", 1, PRINTED, WARNING)], "a warning"),
        ([stored_cell("reconcile('02 misspelt')", 1, UNASKED)], "nobody was asked"),
    ],
)
def test_faults_are_found(cells: list[dict[str, Any]], fault: str) -> None:
    assert any(fault in found for found in faults({"cells": cells}))


def test_a_sound_notebook_has_no_faults() -> None:
    cells = [stored_cell("def f():\n    print(1)", 1), stored_cell("print(1)", 2, PRINTED)]
    assert faults({"cells": cells}) == []


def test_two_builds_of_one_text_agree(
    tmp_path: Path, build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GSPO_EDU_PREDICTIONS", "restored afterwards")
    text = tmp_path / "00_small.py"
    text.write_text('# %% [markdown]\nr"""\n# $\\\\epsilon$\n"""\n\n# %%\nprint(1)\n')
    notebooks = [build.notebook_of(text) for _ in range(2)]
    for notebook in notebooks:
        build.run(notebook)
    assert notebooks[0] == notebooks[1]
    assert notebooks[0].cells[1].outputs[0].text == "1\n"
    assert [cell["id"] for cell in notebooks[0].cells] == ["cell-00", "cell-01"]


def test_a_warning_stops_the_build(
    tmp_path: Path, build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GSPO_EDU_PREDICTIONS", "restored afterwards")
    text = tmp_path / "00_warns.py"
    text.write_text("# %%\nimport warnings\n\nwarnings.warn('careful')\n")
    notebook = build.notebook_of(text)
    with pytest.raises(RuntimeError, match="careful"):
        build.run(notebook)


def test_an_unknown_lesson_is_refused(build: ModuleType) -> None:
    with pytest.raises(SystemExit, match="no lesson starts with '98'"):
        build.texts(["98"])
