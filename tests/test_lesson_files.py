"""The learner's copies of the lessons: made, refreshed, never overwritten after a change."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gspo_edu import lesson_files
from gspo_edu.lesson_files import copy_lessons, find_lesson, reset_lesson

ROOT = Path(__file__).resolve().parents[1]
NAME, OTHER = "02_ppo.ipynb", "05_gspo.ipynb"


def notebook(*sources: str) -> dict:
    """A notebook that ran, as JupyterLab and jupytext would have stored it."""
    cells = [
        {
            "cell_type": "code",
            "execution_count": number,
            "id": f"cell-{number}",
            "metadata": {"execution": {"iopub.status.busy": "now"}, "tags": ["predict"]},
            "outputs": [{"output_type": "stream", "name": "stdout", "text": ["the answer"]}],
            "source": [source],
        }
        for number, source in enumerate(sources, 1)
    ]
    text = {"cell_type": "markdown", "id": "words", "metadata": {}, "source": ["# Größe"]}
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
        "jupytext": {"formats": "ipynb,text//py:percent"},
        "widgets": {"state": "large"},
    }
    return {"cells": [text, *cells], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


class Course:
    """A checkout with lessons, and a learner's folder."""

    def __init__(self, folder: Path) -> None:
        self.lessons, self.mine = folder / "lessons", folder / "my_lessons"
        self.lessons.mkdir()
        self.publish(NAME, "1 + 1")
        self.publish(OTHER, "2 ** 0.5")

    def publish(self, name: str, *sources: str) -> None:
        path = self.lessons.parent / name if "/" in name else self.lessons / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(notebook(*sources)), encoding="utf-8")

    def code(self, name: str) -> list[str]:
        cells = json.loads((self.mine / name).read_text(encoding="utf-8"))["cells"]
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]

    def edit(self, name: str, *sources: str) -> bytes:
        (self.mine / name).write_text(json.dumps(notebook(*sources)), encoding="utf-8")
        return (self.mine / name).read_bytes()

    def names(self) -> list[str]:
        return sorted(path.name for path in self.mine.rglob("*") if path.is_file())


@pytest.fixture
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setattr(lesson_files, "PACKAGE", tmp_path / "gspo_edu")
    return Course(tmp_path)


def test_copies_give_nothing_away(learner: Course) -> None:
    report = copy_lessons(learner.mine)
    assert report.made == [NAME, OTHER]
    text = (learner.mine / NAME).read_text(encoding="utf-8")
    copy = json.loads(text)
    assert "the answer" not in text
    assert "Größe" in text
    code = copy["cells"][1]
    assert (code["outputs"], code["execution_count"]) == ([], None)
    assert code["metadata"] == {"tags": ["predict"]}
    assert set(copy["metadata"]) == {"kernelspec"}  # no pairing, no widget state
    assert "the answer" in (learner.lessons / NAME).read_text(encoding="utf-8")


def test_second_copy_writes_nothing(learner: Course) -> None:
    copy_lessons(learner.mine)
    before = {path: path.stat().st_mtime_ns for path in learner.mine.iterdir()}
    report = copy_lessons(learner.mine)
    assert report.kept == [NAME, OTHER]
    assert report.sentences(learner.mine) == []
    assert {path: path.stat().st_mtime_ns for path in learner.mine.iterdir()} == before


def test_untouched_copy_follows_a_newer_lesson(learner: Course) -> None:
    copy_lessons(learner.mine)
    learner.publish(NAME, "1 + 1", "a new cell")
    report = copy_lessons(learner.mine)
    assert (report.refreshed, report.beside) == ([NAME], [])
    assert learner.code(NAME) == ["1 + 1", "a new cell"]


def test_opening_without_a_change_is_not_a_change(learner: Course) -> None:
    copy_lessons(learner.mine)
    saved = json.loads((learner.mine / NAME).read_text(encoding="utf-8"))
    saved["metadata"]["language_info"] = {"name": "python", "version": "3.13.0"}
    saved["cells"][0]["id"] = "another"
    (learner.mine / NAME).write_text(json.dumps(saved), encoding="utf-8")
    learner.publish(NAME, "new")
    assert copy_lessons(learner.mine).refreshed == [NAME]


@pytest.mark.parametrize("work", ["edited", "ran", "spoilt"])
def test_changed_copy_is_never_overwritten(learner: Course, work: str) -> None:
    copy_lessons(learner.mine)
    if work == "edited":
        mine = learner.edit(NAME, "my own")
    elif work == "ran":  # the outputs are the learner's
        mine = learner.edit(NAME, "1 + 1")
    else:
        mine = b"{ half a noteb"
        (learner.mine / NAME).write_bytes(mine)
    assert copy_lessons(learner.mine).kept == [NAME, OTHER]  # the lesson is still the same

    learner.publish(NAME, "newer")
    report = copy_lessons(learner.mine)
    assert report.beside == ["02_ppo.new.ipynb"]
    assert (learner.mine / NAME).read_bytes() == mine
    assert learner.code("02_ppo.new.ipynb") == ["newer"]


def test_newer_versions_do_not_pile_up_or_return(learner: Course) -> None:
    copy_lessons(learner.mine)
    learner.edit(NAME, "my own")
    learner.publish(NAME, "newer")
    copy_lessons(learner.mine)
    learner.publish(NAME, "newest")
    copy_lessons(learner.mine)  # the untouched newer copy gives way
    assert learner.code("02_ppo.new.ipynb") == ["newest"]
    (learner.mine / "02_ppo.new.ipynb").unlink()  # read, taken over, thrown away
    assert copy_lessons(learner.mine).beside == []
    assert learner.names() == [".lessons.json", NAME, OTHER]


def test_changed_newer_copy_is_not_overwritten_either(learner: Course) -> None:
    copy_lessons(learner.mine)
    learner.edit(NAME, "my own")
    learner.publish(NAME, "newer")
    copy_lessons(learner.mine)
    second = learner.edit("02_ppo.new.ipynb", "my own in the newer one")
    learner.publish(NAME, "newest")
    assert copy_lessons(learner.mine).beside == ["02_ppo.new-2.ipynb"]
    assert (learner.mine / "02_ppo.new.ipynb").read_bytes() == second


def test_deleted_copy_comes_back(learner: Course) -> None:
    copy_lessons(learner.mine)
    (learner.mine / NAME).unlink()
    assert copy_lessons(learner.mine).made == [NAME]


@pytest.mark.parametrize("record", [None, "", "{}", '{"versions": 1, "copies": []}'])
def test_without_its_record_nothing_is_lost(learner: Course, record: str | None) -> None:
    copy_lessons(learner.mine)
    mine = learner.edit(NAME, "my own")
    path = learner.mine / lesson_files.RECORD_NAME
    path.unlink() if record is None else path.write_text(record)
    report = copy_lessons(learner.mine)
    assert (learner.mine / NAME).read_bytes() == mine
    assert report.kept == [OTHER]
    learner.publish(OTHER, "newer")  # an equal copy is known again
    assert copy_lessons(learner.mine).refreshed == [OTHER]


def test_without_its_record_no_newer_version_comes_twice(learner: Course) -> None:
    copy_lessons(learner.mine)
    mine = learner.edit(NAME, "my own")
    learner.publish(NAME, "newer")
    copy_lessons(learner.mine)
    names = learner.names()
    assert "02_ppo.new.ipynb" in names
    (learner.mine / lesson_files.RECORD_NAME).unlink()
    assert copy_lessons(learner.mine).beside == []
    assert learner.names() == names
    learner.publish(NAME, "newest")  # the newer copy is known again, and gives way
    assert copy_lessons(learner.mine).beside == ["02_ppo.new.ipynb"]
    assert learner.code("02_ppo.new.ipynb") == ["newest"]
    assert (learner.mine / NAME).read_bytes() == mine


def test_without_its_record_a_copy_that_only_ran_is_the_lesson(learner: Course) -> None:
    copy_lessons(learner.mine)
    mine = learner.edit(NAME, "1 + 1")  # the same text, with outputs
    (learner.mine / lesson_files.RECORD_NAME).unlink()
    report = copy_lessons(learner.mine)
    assert (report.kept, report.beside) == ([NAME, OTHER], [])
    learner.publish(NAME, "newer")  # the outputs are still the learner's
    assert copy_lessons(learner.mine).beside == ["02_ppo.new.ipynb"]
    assert (learner.mine / NAME).read_bytes() == mine


def test_a_newer_version_taken_over_is_not_delivered_again(learner: Course) -> None:
    copy_lessons(learner.mine)
    learner.edit(NAME, "newer")
    learner.publish(NAME, "newer")
    assert copy_lessons(learner.mine).beside == []


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"cells": [1]}', '{"cells": null}'])
def test_a_damaged_lesson_of_the_course_is_named(
    learner: Course, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (learner.lessons / NAME).write_text(content)
    assert run_lessons("copy", str(learner.mine)) == 1
    assert f"{learner.lessons / NAME} is damaged" in capsys.readouterr().err
    assert run_lessons("reset", "2", "--dir", str(learner.mine)) == 1
    assert f"{learner.lessons / NAME} is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["", " "])
def test_an_empty_name_is_no_folder(
    learner: Course, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    assert run_lessons("copy", folder) == 2
    assert run_lessons("reset", "2", "--dir", folder) == 2
    assert "is empty; give a folder" in capsys.readouterr().err


def test_exercises_get_a_folder_of_their_own(learner: Course) -> None:
    learner.publish(f"exercises/{OTHER}", "blank")
    learner.publish(f"exercises/solved_{OTHER}".replace("exercises/", "solved/"), "solution")
    assert copy_lessons(learner.mine).made == [NAME, OTHER, f"exercises/{OTHER}"]
    assert learner.code(f"exercises/{OTHER}") == ["blank"]
    assert find_lesson("05", learner.mine) == OTHER
    assert find_lesson("exercises/05", learner.mine) == f"exercises/{OTHER}"


def test_failed_write_leaves_nothing_half_written(
    learner: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_lessons(learner.mine)
    before = (learner.mine / NAME).read_bytes()
    learner.publish(NAME, "newer")

    def full_disk(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError, match="No space"):
        copy_lessons(learner.mine)
    assert (learner.mine / NAME).read_bytes() == before
    assert learner.names() == [".lessons.json", NAME, OTHER]


def test_the_courses_own_folder_and_files_are_refused(learner: Course) -> None:
    for folder in (learner.lessons, learner.lessons / "below"):
        with pytest.raises(ValueError, match="course's own folder"):
            copy_lessons(folder)
    assert "the answer" in (learner.lessons / NAME).read_text(encoding="utf-8")
    learner.mine.write_text("")
    with pytest.raises(NotADirectoryError, match="is a file"):
        copy_lessons(learner.mine)


def test_reset_keeps_every_backup(learner: Course) -> None:
    copy_lessons(learner.mine)
    first = learner.edit(NAME, "first try")
    assert reset_lesson("02", learner.mine) == (
        learner.mine / NAME,
        learner.mine / "02_ppo.backup-1.ipynb",
    )
    assert learner.code(NAME) == ["1 + 1"]
    second = learner.edit(NAME, "second try")
    assert reset_lesson("2", learner.mine)[1] == learner.mine / "02_ppo.backup-2.ipynb"
    assert (learner.mine / "02_ppo.backup-1.ipynb").read_bytes() == first
    assert (learner.mine / "02_ppo.backup-2.ipynb").read_bytes() == second
    assert reset_lesson("2", learner.mine)[1] is None  # nothing of the learner's to keep
    learner.publish(NAME, "newer")
    assert copy_lessons(learner.mine).refreshed == [NAME]  # a fresh copy counts as untouched


@pytest.mark.parametrize(
    "lesson",
    ["2", "02", "02_ppo", "02_ppo.ipynb", "02_p", "my_lessons/02_ppo.ipynb", "lessons\\02_ppo"],
)
def test_a_lesson_goes_by_many_names(learner: Course, lesson: str) -> None:
    assert find_lesson(lesson, learner.mine) == NAME


@pytest.mark.parametrize("lesson", ["3", "", "0", "ppo", "../02_ppo", "²"])
def test_other_names_are_refused_with_the_choice(learner: Course, lesson: str) -> None:
    with pytest.raises(ValueError, match=r"choose one of: 02_ppo, 05_gspo"):
        reset_lesson(lesson, learner.mine)
    assert not learner.mine.exists()


def test_missing_lessons_are_named(learner: Course) -> None:
    shutil.rmtree(learner.lessons)
    with pytest.raises(FileNotFoundError, match="no lessons found"):
        copy_lessons(learner.mine)


def run_lessons(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    lesson_files.add_arguments(parser)
    return lesson_files.run(parser.parse_args(arguments))


def test_command_line(learner: Course, capsys: pytest.CaptureFixture[str]) -> None:
    mine = str(learner.mine)
    assert run_lessons("list") == 0
    assert capsys.readouterr().out == "02_ppo\n05_gspo\n"
    assert run_lessons("copy", mine) == 0
    assert "Copied 2 notebooks" in capsys.readouterr().out
    assert run_lessons("copy", mine) == 0
    assert "up to date" in capsys.readouterr().out
    assert run_lessons("reset", "5", "--dir", mine) == 0
    assert "no change to keep" in capsys.readouterr().out
    assert run_lessons("reset", "9", "--dir", mine) == 2
    assert "choose one of" in capsys.readouterr().err
    assert run_lessons("copy", str(learner.lessons / NAME)) == 2
    assert run_lessons("copy", str(learner.mine / NAME)) == 1
    assert "is a file" in capsys.readouterr().err


def test_the_module_needs_only_the_standard_library() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import gspo_edu.lesson_files"
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(ROOT)], check=True)


@pytest.mark.parametrize("by_way_of", ["wheel", "sdist"])
def test_the_wheel_carries_the_lessons(learner: Course, tmp_path: Path, by_way_of: str) -> None:
    pytest.importorskip("hatchling", reason="builds the wheel; comes with the extra `dev`")
    project = tmp_path / "project"
    shutil.copytree(ROOT / "gspo_edu", project / "gspo_edu")
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, project)
    shutil.copytree(learner.lessons, project / "lessons")
    (project / "lessons" / "text").mkdir()
    (project / "lessons" / "text" / "02_ppo.py").write_text("# %%")
    build = [sys.executable, "-m", "hatchling", "build"]
    if by_way_of == "sdist":
        subprocess.run([*build, "-t", "sdist"], cwd=project, check=True, capture_output=True)
        shutil.unpack_archive(next((project / "dist").glob("*.tar.gz")), tmp_path / "unpacked")
        project = next((tmp_path / "unpacked").iterdir())
    subprocess.run([*build, "-t", "wheel"], cwd=project, check=True, capture_output=True)
    with zipfile.ZipFile(next((project / "dist").glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    inside = {path.name for path in (tmp_path / "site" / "gspo_edu" / "_lessons").rglob("*")}
    assert inside == {NAME, OTHER}
    assert (tmp_path / "site" / "gspo_edu" / "py.typed").exists()

    code = "import sys; from gspo_edu.lesson_files import copy_lessons; copy_lessons(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", code, str(learner.mine)],
        cwd=tmp_path / "site",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        check=True,
    )
    assert learner.code(OTHER) == ["2 ** 0.5"]
