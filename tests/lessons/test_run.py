"""Every lesson runs again, prints what is stored, and does so in less than a minute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CPU_SECONDS = 60
SANITIZE = Path(__file__).with_name("sanitize.cfg")


@pytest.mark.slow
def test_lesson_prints_what_is_stored(lesson: Path, tmp_path: Path) -> None:
    if "from trl import" in lesson.read_text(encoding="utf-8"):
        pytest.importorskip("trl", reason="the extra 'real' is not installed")
    environment = {**os.environ, "GSPO_EDU_PREDICTIONS": str(tmp_path / "predictions.json")}
    command = [
        *(sys.executable, "-m", "pytest", "--nbval", f"--nbval-sanitize-with={SANITIZE}"),
        *("--nbval-cell-timeout=120", "-p", "no:cacheprovider", "-q", "--tb=short", str(lesson)),
    ]
    before = os.times()
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    after = os.times()
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    # Processor time, because the machine may be busy; it is 0 on Windows.
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    assert used < CPU_SECONDS
    assert not (tmp_path / "predictions.json").exists(), "a lesson is stored with a prediction"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("printed", "stored", "passes"),
    [("1.044009", "1.044009", True), ("1.044009", "1.044008", False)],
)
def test_a_changed_number_is_noticed(
    printed: str, stored: str, passes: bool, tmp_path: Path
) -> None:
    import nbformat

    notebook = nbformat.v4.new_notebook()
    output = nbformat.v4.new_output("stream", name="stdout", text=f"{stored}\n")
    cell = nbformat.v4.new_code_cell(f"print({printed})", execution_count=1, outputs=[output])
    notebook.cells = [cell]
    nbformat.write(notebook, tmp_path / "00_changed.ipynb")
    command = [sys.executable, "-m", "pytest", "--nbval", f"--nbval-sanitize-with={SANITIZE}"]
    command += ["-p", "no:cacheprovider", "-q", str(tmp_path / "00_changed.ipynb")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == passes, done.stdout
