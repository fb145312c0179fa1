"""The progress file: kept, rebuilt when damaged, and read back one and three exercises later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gspo_edu import checks
from gspo_edu.checks import board, memory


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A progress file of its own, and no exercise begun."""
    path = tmp_path / "progress.json"
    monkeypatch.setenv("GSPO_EDU_PROGRESS", str(path))
    monkeypatch.setattr(board, "_board", board._Board())
    return path


def test_nothing_is_written_before_something_was_tried(file: Path) -> None:
    checks.number("05 four tokens", 1.188)  # no exercise has begun
    checks.begin("05")
    checks.number("05 four tokens", None)
    assert not file.exists()


def test_tries_are_kept(file: Path) -> None:
    checks.begin("05")
    for value in (1.188, 1.05, 1.044):
        checks.number("05 four tokens", value)
    kept = memory.memories()["05 four tokens"]
    assert (kept.tries, kept.first_right, kept.solved) == (3, False, True)
    assert json.loads(file.read_text(encoding="utf-8"))["version"] == memory.VERSION


@pytest.mark.parametrize(
    ("exercise", "returns"), [("06", True), ("07", False), ("08", True), ("09", False)]
)
def test_missed_tasks_return_one_and_three_exercises_later(
    exercise: str, returns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    checks.begin("05")
    checks.number("05 four tokens", 1.188)
    checks.number("05 loud token", 10 ** (1 / 100))
    capsys.readouterr()
    checks.begin(exercise)
    said = capsys.readouterr().out
    assert ('checks.again("05 four tokens")' in said) == returns
    assert "05 loud token" not in said


def test_an_old_task_can_be_checked_anew(capsys: pytest.CaptureFixture[str]) -> None:
    checks.begin("06")
    for item in (item for e in checks.exercises().values() for item in e.items):
        if not item.by_hand:
            checks.again(item.name)
            said = capsys.readouterr().out
            assert "Then: checks." in said
    assert checks.number("05 four tokens", 1.044).passed
    with pytest.raises(ValueError, match="expected the name of a checked task"):
        checks.again("05 open question")


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{ half",
        "[]",
        "3",
        '{"version": 0, "tasks": {}}',
        '{"version": 1}',
        '{"version": 1, "tasks": {"a": 3}}',
        '{"version": 1, "tasks": {"a": {"exercise": "05", "tries": "many"}}}',
        "\udcff",
    ],
)
def test_a_damaged_or_old_file_is_backed_up_and_rebuilt(file: Path, damage: str) -> None:
    content = damage.encode("utf-8", "surrogateescape")
    file.write_bytes(content)
    checks.begin("05")
    checks.number("05 four tokens", 1.044)
    assert memory.memories()["05 four tokens"].solved
    assert file.with_name("progress.json.backup-1").read_bytes() == content


def test_a_notebook_says_that_a_damaged_file_was_set_aside(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("{", encoding="utf-8")
    checks.begin("02")
    assert f"it is kept as {file.name}.backup-1." in capsys.readouterr().out


def test_a_second_damage_gets_a_second_backup(file: Path) -> None:
    checks.begin("05")
    for number in (1, 2):
        file.write_text("broken", encoding="utf-8")
        checks.number("05 four tokens", 1.044)
        assert file.with_name(f"progress.json.backup-{number}").exists()


def test_a_folder_that_cannot_be_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GSPO_EDU_PROGRESS", str(tmp_path / "missing" / "progress.json"))
    checks.begin("05")
    assert checks.number("05 four tokens", 1.044).passed
    assert checks.points("05 four tokens") == 1


def test_points_need_every_recorded_result() -> None:
    from gspo_edu.ratios import product_ratio, sequence_ratio

    checks.begin("05")
    assert checks.points("sequence_ratio") == 0
    checks.sequence_ratio(sequence_ratio)
    assert checks.points("sequence_ratio") == 2
    checks.sequence_ratio(product_ratio, seed=1)  # the hidden test
    assert checks.points("sequence_ratio") == 0
    checks.sequence_ratio(sequence_ratio)
    assert checks.points("sequence_ratio") == 2


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="no exercise has begun"):
        checks.points("sequence_ratio")
    with pytest.raises(ValueError, match="expected one of"):
        checks.begin("98")
    with pytest.raises(ValueError, match="expected one of"):
        checks.function("no such task", len)
    with pytest.raises(ValueError, match="expected one of"):
        checks.number("no such question", 1)
    checks.begin("05")
    with pytest.raises(ValueError, match="has no task"):
        checks.points("grpo_loss")


def test_the_class_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GSPO_EDU_CLASS_SEED", raising=False)
    assert checks.class_seed() == 0
    monkeypatch.setenv("GSPO_EDU_CLASS_SEED", "12")
    assert checks.class_seed() == 12
    monkeypatch.setenv("GSPO_EDU_CLASS_SEED", "twelve")
    with pytest.raises(ValueError, match="expected a whole number"):
        checks.class_seed()


def test_the_summary_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    checks.begin("05")
    checks.number("05 four tokens", 1.044)
    capsys.readouterr()
    assert checks.summary() == 1
    said = capsys.readouterr().out
    assert "05 four tokens                  1 / 1" in said
    assert "1 / 16" in said
