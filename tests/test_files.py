"""Grading writes progress to the null device: it must stay a device, also for root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gspo_edu import checks
from gspo_edu.files import write_atomically


@pytest.fixture
def no_renaming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail instead of harming the machine that runs this test."""

    def refuse(*paths: object) -> None:
        raise AssertionError(f"renamed: {paths}")

    monkeypatch.setattr("os.replace", refuse)


@pytest.mark.usefixtures("no_renaming")
def test_a_device_is_written_to_and_not_replaced() -> None:
    write_atomically(Path(os.devnull), b"gone")
    assert Path(os.devnull).read_bytes() == b""


@pytest.mark.usefixtures("no_renaming")
def test_an_answer_while_grading_leaves_the_null_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSPO_EDU_PROGRESS", os.devnull)
    checks.begin("05")
    assert "Right" in str(checks.number("05 four tokens", 1.044))


def test_a_file_is_still_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    before = target.stat().st_ino
    write_atomically(target, b"new")
    assert target.read_bytes() == b"new"
    assert os.name == "nt" or target.stat().st_ino != before
