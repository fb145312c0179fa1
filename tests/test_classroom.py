"""The class's zip holds student versions only; progress is read back, or rebuilt."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path

import pytest

from gspo_edu import checks, classroom, cli
from gspo_edu.lesson_files import lesson_sources


def test_the_zip_holds_notebooks_points_and_a_word(tmp_path: Path) -> None:
    target = tmp_path / "class" / "exercises.zip"
    assert cli.main(["classroom", "export", str(target), "05", "02"]) == 0
    with zipfile.ZipFile(target) as file:
        names = file.namelist()
        text = "\n".join(file.read(name).decode() for name in names)
        table = list(csv.DictReader(io.StringIO(file.read("exercises/points.csv").decode())))
    assert [Path(name).name for name in names] == [
        "02_ppo.ipynb",
        "05_gspo.ipynb",
        "README.txt",
        "points.csv",
    ]
    assert not any(secret in text for secret in (*classroom.SECRETS, "A model answer"))
    of_gspo = [row for row in table if row["exercise"] == "05"]
    checked = sum(int(row["points"]) for row in of_gspo if row["graded by"] == "the check")
    assert checked == checks.exercises()["05"].points


def test_equal_content_makes_an_equal_file(tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        classroom.export(tmp_path / name, [])
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_solved_notebook_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    solved = tmp_path / "05_gspo.ipynb"
    cell = {"cell_type": "code", "source": ["### BEGIN SOLUTION"], "outputs": []}
    solved.write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    monkeypatch.setattr(classroom, "lesson_sources", lambda: {"exercises/05_gspo.ipynb": solved})
    with pytest.raises(ValueError, match="no student version"):
        classroom.export(tmp_path / "x.zip", [])
    assert not (tmp_path / "x.zip").exists()


def test_mistakes_are_answered_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "x.zip"
    assert cli.main(["classroom", "export", str(target), "98"]) == 2
    assert "fits no exercise" in capsys.readouterr().err
    target.write_text("mine")
    assert cli.main(["classroom", "export", str(target)]) == 2
    assert target.read_text() == "mine"
    assert cli.main(["classroom", "export", str(target), "--overwrite"]) == 0
    assert cli.main(["classroom", "export", str(target / "y.zip")]) == 1
    exercises = [name for name in lesson_sources() if name.startswith("exercises/")]
    assert f"{len(exercises)} exercises" in capsys.readouterr().out


def test_progress_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "exercises"
    folder.mkdir()
    monkeypatch.setenv("GSPO_EDU_PROGRESS", str(folder / ".progress.json"))
    assert cli.main(["progress", str(tmp_path)]) == 0
    assert "Nothing tried yet" in capsys.readouterr().out
    checks.begin("05")
    checks.number("05 four tokens", 1.188)
    checks.number("05 four tokens", 1.044)
    capsys.readouterr()
    assert cli.main(["progress", str(tmp_path)]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("05")]
    assert line.split()[-3:] == ["1/11", "1/16", "1"]


def test_damaged_progress_is_kept_beside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".progress.json").write_text("{ half", encoding="utf-8")
    assert cli.main(["progress", str(tmp_path)]) == 0
    assert "kept as .progress.json.backup-1" in capsys.readouterr().out
    assert (tmp_path / ".progress.json.backup-1").read_text(encoding="utf-8") == "{ half"


def tried(answer: float) -> None:
    """Exercise 05 begun, and its first task answered."""
    checks.begin("05")
    checks.number("05 four tokens", answer)


def points_of_05(capsys: pytest.CaptureFixture[str], folder: Path) -> list[str]:
    """The last three columns that `progress` shows for exercise 05."""
    capsys.readouterr()
    assert cli.main(["progress", str(folder)]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("05")]
    return line.split()[-3:]


def test_progress_finds_exercises_that_were_fetched_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, answer in (("05_gspo", 1.044), ("second_try", 1.188)):
        (tmp_path / name).mkdir()
        monkeypatch.setenv("GSPO_EDU_PROGRESS", str(tmp_path / name / ".progress.json"))
        tried(answer)
    monkeypatch.delenv("GSPO_EDU_PROGRESS")
    assert points_of_05(capsys, tmp_path) == ["1/11", "1/16", "0"]


def test_progress_reads_the_file_that_the_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GSPO_EDU_PROGRESS", str(tmp_path / "mine.json"))
    tried(1.044)
    elsewhere = tmp_path / "my_lessons"
    assert points_of_05(capsys, elsewhere) == ["1/11", "1/16", "0"]


def test_progress_inside_the_lessons_folder_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GSPO_EDU_PROGRESS", raising=False)
    (tmp_path / "my_lessons").mkdir()
    for at in (tmp_path, tmp_path / "my_lessons"):
        monkeypatch.chdir(at)
        assert cli.main(["progress"]) == 0
        assert f"Nothing tried yet in {tmp_path / 'my_lessons'}." in capsys.readouterr().out
    assert cli.main(["progress", "nowhere"]) == 2
    assert "dir is nowhere; expected an existing folder" in capsys.readouterr().err


def test_without_progress_the_folder_is_named_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GSPO_EDU_PROGRESS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["progress", "."]) == 0
    assert f"Nothing tried yet in {tmp_path.resolve()}." in capsys.readouterr().out
