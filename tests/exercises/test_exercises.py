"""Student versions are up to date, give nothing away, and run; solutions get the full score."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

from gspo_edu import checks

ROOT = Path(__file__).resolve().parents[2]
EXERCISES = ROOT / "exercises"
REGION = re.compile(r"BEGIN (SOLUTION|HIDDEN TESTS)\n(.*?)\n[^\n]*END \1", re.S)
SECRET = ("BEGIN SOLUTION", "END SOLUTION", "HIDDEN TESTS", "class_seed", "A model answer")
Run = Callable[[Any], dict[str, Any]]


def stored(source: Path) -> Any:
    return nbformat.read(EXERCISES / f"{source.stem}.ipynb", as_version=4)


def exercise_of(source: Path) -> checks.Exercise:
    return checks.exercises()[source.stem.split("_")[0]]


def test_student_version_is_up_to_date(source: Path, build: ModuleType) -> None:
    made = build.student_version(build.solved(source))
    assert made == stored(source), f"run python exercises/build.py {source.stem}"
    nbformat.validate(made)


def test_every_source_has_its_student_version(build: ModuleType) -> None:
    names = {path.stem for path in build.sources([])}
    assert {path.stem for path in EXERCISES.glob("*.ipynb")} == names
    assert {name.split("_")[0] for name in names} == set(checks.exercises())


def secrets_of(notebook: Any) -> Iterator[str]:
    """Lines of the solutions that say something and are not in a faulty version to be mended."""
    faulty = "\n".join(c.source for c in notebook.cells if "faulty" in c.metadata.get("tags", []))
    for cell in notebook.cells:
        for _, region in REGION.findall(cell.source):
            lines = (line.strip() for line in region.splitlines())
            yield from (line for line in lines if len(line) > 12 and line not in faulty)


def leaks(notebook: Any, secrets: list[str], values: list[str]) -> list[str]:
    """What of the solutions can be found anywhere in the notebook's file."""
    text = nbformat.writes(notebook).replace('\\"', '"')
    found = [secret for secret in secrets if secret in text]
    found += [v for v in values if re.search(rf"(?<![\d.]){re.escape(v)}(?!\d)", text)]
    for cell in notebook.cells:
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count):
            found.append(f"{cell['id']} has outputs")
        if cell.get("attachments"):
            found.append(f"{cell['id']} has attachments")
        if set(cell.metadata) - {"nbgrader", "tags", "jupyter"}:
            found.append(f"{cell['id']} has metadata {sorted(cell.metadata)}")
    return found


def values_of(exercise: checks.Exercise) -> list[str]:
    """The right numbers that nobody writes by accident, as a learner would type them."""
    texts = []
    for item in exercise.items:
        if item.name in checks.NUMBERS:
            task = checks.NUMBERS[item.name]
            text = f"{task.right():.{task.places}f}".rstrip("0").rstrip(".").lstrip("-")
            texts += [text] if len(text.replace(".", "").lstrip("0")) >= 4 else []
    return texts


def test_student_version_gives_nothing_away(source: Path, build: ModuleType) -> None:
    secrets = [*secrets_of(build.solved(source)), *SECRET]
    assert len(secrets) > len(SECRET)
    assert leaks(stored(source), secrets, values_of(exercise_of(source))) == []


@pytest.mark.parametrize("leak", ["solution", "value", "output", "metadata", "hidden"])
def test_a_leak_is_found(leak: str, build: ModuleType) -> None:
    source = EXERCISES / "solutions" / "05_gspo.py"
    notebook = build.student_version(build.solved(source))
    secrets = [*secrets_of(build.solved(source)), *SECRET]
    cell = next(cell for cell in notebook.cells if cell.cell_type == "code")
    if leak == "solution":
        cell.source += f"\n# {secrets[0]}"
    elif leak == "value":
        notebook.cells[0].source += "\nIt is 1.044."
    elif leak == "output":
        cell.outputs = [nbformat.v4.new_output("stream", text="1")]
    elif leak == "metadata":
        cell.metadata["answer"] = "x"
    else:
        cell.source += "\n### BEGIN HIDDEN TESTS"
    assert leaks(notebook, secrets, values_of(exercise_of(source)))


def test_cells_and_table_name_the_same_tasks(source: Path, build: ModuleType) -> None:
    marks = [cell.metadata.get("nbgrader", {}) for cell in build.solved(source).cells]
    graded = {mark["grade_id"]: mark["points"] for mark in marks if mark.get("grade")}
    items = exercise_of(source).items
    assert graded == {re.sub(r"\W+", "-", item.name): item.points for item in items}
    identities = [mark["grade_id"] for mark in marks if mark]
    assert len(set(identities)) == len(identities)


def test_solution_gets_the_full_score(source: Path, build: ModuleType, run: Run) -> None:
    names = run(build.solved(source))
    assert names["checks"].summary() == exercise_of(source).points


def test_untouched_exercise_runs_and_scores_nothing(
    source: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run(stored(source))
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "Not it" not in captured.out
    assert names["checks"].summary() == 0


def test_a_teachers_configuration_stays(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(exercise: str) -> str:
        monkeypatch.setattr(sys, "argv", ["build.py", exercise, "--nbgrader", str(tmp_path)])
        build.main()
        return (tmp_path / "nbgrader_config.py").read_text(encoding="utf-8")

    own = made("05").replace('"GSPO_EDU_CLASS_SEED", "1"', '"GSPO_EDU_CLASS_SEED", "20815"')
    (tmp_path / "nbgrader_config.py").write_text(own, encoding="utf-8")
    assert made("02") == own
    assert '"20815"' in own
    assert {path.name for path in (tmp_path / "source").iterdir()} == {"02_ppo", "05_gspo"}


BY_ARRAY = """
import numpy as np

def my_sequence_ratio(logp, logp_old, mask):
    return np.exp(np.sum((logp - logp_old) * mask.astype(float), axis=1) / np.sum(mask, axis=1))

def my_gspo_loss(logp, logp_old, advantages, mask, clip_low, clip_high):
    s = my_sequence_ratio(logp, logp_old, mask)
    clipped = np.clip(s, 1 - clip_low, 1 + clip_high)
    return -np.mean(np.minimum(s * advantages, clipped * advantages))
"""


def test_functions_of_arrays_work_in_the_cells_between(
    build: ModuleType, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    source = EXERCISES / "solutions" / "05_gspo.py"
    by_tensor, notebook = build.solved(source), build.solved(source)
    for cell in notebook.cells:
        if "def my_gspo_loss" in cell.source:
            cell.source = BY_ARRAY
    said = []
    for version in (by_tensor, notebook):
        assert run(version)["checks"].points("gspo_loss") == 4
        lines = capsys.readouterr().out.splitlines()
        said.append([line for line in lines if line.startswith(("your loss", "   1", "  10"))])
    assert said[0] == said[1]
    assert len(said[0]) == 4


# A fault without a name of its own: half precision.
UNNAMED = {("museum", "exhibit 1")}


def test_every_faulty_function_is_refused_and_named(
    source: Path, build: ModuleType, run: Run
) -> None:
    notebook, exercise = build.solved(source), exercise_of(source)
    names, faulty, seen = run(notebook), "", 0
    for cell in notebook.cells:
        if "faulty" in cell.metadata.get("tags", []):
            faulty = re.findall(r"def (faulty\w*)\(", cell.source)[-1]
        called = re.search(r'checks\.points\("(.*)"\)', cell.source)
        if faulty and called:
            item = exercise.item(called[1])
            result = checks.function(item.task or item.name, names[faulty], seed=0)
            assert not result.passed
            unnamed = (exercise.number, item.name) in UNNAMED
            assert bool(result.misconceptions) != unnamed, result
            faulty, seen = "", seen + 1
    assert seen >= 1


def test_an_exercise_has_its_parts(source: Path, build: ModuleType) -> None:
    cells = build.solved(source).cells
    text = "\n".join(cell.source for cell in cells)
    for part in ("**Objective**", "<summary>First hint", "<summary>Third hint", "checks.summary()"):
        assert part in text
    assert text.count("First hint") == text.count("Second hint") == text.count("Third hint")
    assert "{{" not in "".join(cell.source for cell in cells if cell.cell_type == "markdown")
    for cell in cells:
        assert len(cell.source.splitlines()) <= 60


def test_only_known_files_lie_among_the_exercises() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "exercises"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("no git checkout")
    known = re.compile(r"exercises/(build\.py|\w+\.ipynb|solutions/\w+\.py)")
    assert [name for name in listed.stdout.split() if not known.fullmatch(name)] == []


@pytest.mark.slow
def test_wheel_and_sdist_hold_no_solution(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        text = "\n".join(
            file.read(n).decode("utf-8", "replace") for n in names if n.endswith((".py", ".ipynb"))
        )
    with tarfile.open(sdist) as file:
        names_sdist = file.getnames()
    assert "gspo_edu/_exercises/05_gspo.ipynb" in names
    assert "gspo_edu/checks/exercises.toml" in names
    assert not [name for name in names + names_sdist if "solutions/" in name]
    assert "### END SOLUTION" not in text
    assert "A model answer" not in text


@pytest.mark.slow
def test_untouched_exercise_runs_in_jupyter(tmp_path: Path, monkeypatch: Any) -> None:
    from nbclient import NotebookClient

    monkeypatch.setenv("GSPO_EDU_PREDICTIONS", str(tmp_path / "predictions.json"))
    monkeypatch.setenv("GSPO_EDU_PROGRESS", str(tmp_path / "progress.json"))
    notebook = stored(EXERCISES / "05_gspo.ipynb")
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade") and cell.cell_type == "code":
            shown = [output for output in cell.outputs if output.output_type == "execute_result"]
            assert [output.data["text/plain"] for output in shown] == ["0.0"]
            assert all(output.get("name") != "stderr" for output in cell.outputs)


@pytest.mark.parametrize(
    "text", ["### BEGIN SOLUTION\nx", "### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION"]
)
def test_a_broken_region_is_refused(text: str, build: ModuleType) -> None:
    with pytest.raises(ValueError, match="region"):
        build.without_regions(text, "SOLUTION", "stub")


def test_an_unknown_exercise_is_refused(build: ModuleType) -> None:
    with pytest.raises(SystemExit, match="no exercise starts with '98'"):
        build.sources(["98"])
