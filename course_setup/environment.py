"""Make the course's environment, mend it, bring it up to date.

Ready means: a stamp in the environment names the present `pyproject.toml` and `constraints.txt`,
and its Python starts. The stamp goes before the first step and comes back after the last one, so
that whatever stops in between is gone over again by the next call.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course_setup import torch_build
from course_setup.processes import LOG, ROOT, Stop, pip_install, python_of, run_step, say
from gspo_edu.files import locked, write_atomically

STAMP, LOCK = "course-stamp.json", "course.lock"
# By gpu or not: what comes, in words, and the free disk it needs in GB.
DOWNLOADS = {
    False: ("PyTorch {torch} for the CPU and about 160 packages, about 0.5 GB", 3.0),
    True: ("PyTorch {torch} with GPU libraries and about 160 packages, about 3 GB", 12.0),
}
UPDATE_NEEDS = 1.0
# JupyterLab would ask every learner about news and look for updates on the internet.
LAB_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"checkForUpdates": False, "fetchNews": "false"}
}
CHECK = "import torch, numpy, matplotlib, jupyterlab; print('PyTorch', torch.__version__, 'works')"


def ensure_environment(env: Path, gpu: bool) -> Path:
    """Install what is missing, once. Returns the environment's Python.

    Raises:
        Stop: it cannot be made, or a step failed; the message says how to go on.
        KeyboardInterrupt: the user stopped it; the next call goes on.
    """
    if is_ready(env, gpu):
        return python_of(env)
    if read_stamp(env) and not os.access(env, os.W_OK):
        say(
            f"Note: {env} was made for another version of the course, and you cannot write there. "
            f"Its owner brings it up to date with: python course.py install --env {env}"
        )
        return python_of(env)
    with only_one_install(env):
        if not is_ready(env, gpu):
            install(env, gpu or read_stamp(env).get("gpu") is True)
    return python_of(env)


def is_ready(env: Path, gpu: bool) -> bool:
    stamp = read_stamp(env)
    return (
        stamp.get("fingerprint") == fingerprint()
        and (stamp.get("gpu") is True or not gpu)
        and stamp.get("python") == python_version(python_of(env))
    )


def fingerprint() -> str:
    """Changes when the environment must be brought up to date."""
    files = [ROOT / "pyproject.toml", ROOT / "constraints.txt"]
    content = b"\0".join(path.read_bytes().replace(b"\r\n", b"\n") for path in files)
    return hashlib.sha256(content).hexdigest()


def read_stamp(env: Path) -> dict[str, Any]:
    try:
        stamp = json.loads((env / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def python_version(python: Path) -> str | None:
    """'3.11' for a Python that starts, None for one that does not."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-I", "-S", "-c", code], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None


@contextlib.contextmanager
def only_one_install(env: Path) -> Iterator[None]:
    """Hold the environment's lock; a second course.py waits for the first."""
    ours = not env.exists() or (env.is_dir() and not any(env.iterdir()))
    if not ours and not (env / LOCK).exists() and not (env / "pyvenv.cfg").exists():
        raise Stop(f"{env} is not empty and holds no environment: give --env a new folder.", 2)
    try:
        env.mkdir(parents=True, exist_ok=True)
        file = open(env / LOCK, "a+", encoding="utf-8")  # noqa: SIM115 (closed by `with` below)
    except OSError as error:
        raise Stop(f"Cannot write in {env} ({error.strerror}): choose another --env.") from None
    with file:
        told = False
        while not locked(file):
            if not told:
                say(f"Another course.py is installing in {env}; waiting for it.")
            told = True
            time.sleep(0.2)
        if ours:
            file.write("Made by course.py, which may empty this folder to mend it.\n")
            file.flush()
        yield


def install(env: Path, gpu: bool) -> None:
    """Make, mend or update the environment; PyTorch comes first. The lock must be held."""
    what, disk = DOWNLOADS[gpu]
    if torch_build.installed_version(site_packages(env)) and not gpu:
        say(f"Bringing {env} up to date.")
        disk = UPDATE_NEEDS
    else:
        say(f"Setting up {env}: {what.format(torch=torch_build.pinned_version())} to download.")
    check_disk(env, disk)
    (env / STAMP).unlink(missing_ok=True)
    (env / LOG).unlink(missing_ok=True)
    make_venv(env)
    forget_unfinished_packages(env)
    torch = torch_build.arguments(env, site_packages(env), gpu)
    if torch:
        pip_install(env, *torch)
    pip_install(env, "-e", ".[lab,dev,real]", "-c", "constraints.txt")
    write_json(env / "share/jupyter/lab/settings/overrides.json", LAB_SETTINGS)
    hint = "On Windows, PyTorch needs the Microsoft Visual C++ Redistributable (x64)."
    run_step(env, [str(python_of(env)), "-c", CHECK], hint if os.name == "nt" else "")
    version = python_version(python_of(env))
    write_json(env / STAMP, {"fingerprint": fingerprint(), "gpu": gpu, "python": version})
    say(f"{env} is ready; the next call starts at once.")


def check_disk(env: Path, needed: float) -> None:
    """Raise Stop unless `needed` GB are free for `env` and half of that for temporary files."""
    temporary = Path(tempfile.gettempdir())
    for folder, share, way_out in (
        (env, needed, "give --env a folder elsewhere"),
        (temporary, needed / 2, "point TMPDIR (on Windows TEMP) elsewhere"),
    ):
        free = shutil.disk_usage(folder).free / 1e9
        if free < share:
            raise Stop(
                f"Setting up needs {share:.1f} GB of free disk in {folder}, which has {free:.1f} "
                f"GB. Make room or {way_out}, then call the same command again."
            )


def make_venv(env: Path) -> None:
    """Leave a working Python with pip in `env`; a broken one is emptied first if it is ours."""
    python = python_of(env)
    if python_version(python) is not None:
        asked = subprocess.run([python, "-m", "pip", "--version"], capture_output=True)
        if asked.returncode == 0:
            return
    left = [path for path in env.iterdir() if path.name != LOCK]
    if left and not (env / LOCK).read_text(encoding="utf-8"):
        raise Stop(f"The Python in {env} does not work: delete that folder, then call this again.")
    for path in left:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    hint = f"On Debian and Ubuntu: apt install python3.{sys.version_info[1]}-venv."
    linux = platform.system() == "Linux"
    run_step(env, [sys.executable, "-m", "venv", str(env)], hint if linux else "")


def site_packages(env: Path) -> Path:
    windows = env / "Lib" / "site-packages"
    return next(env.glob("lib/python3*/site-packages"), windows)


def forget_unfinished_packages(env: Path) -> None:
    """Make pip install again what an interrupted run left half-written.

    pip takes a package for installed once its metadata lie there. A finished one also has the
    file INSTALLER, and each file of its RECORD in the recorded size.
    """
    for half in site_packages(env).glob("~*"):
        shutil.rmtree(half) if half.is_dir() else half.unlink()
    for metadata in site_packages(env).glob("*.dist-info"):
        if not is_complete(metadata):
            shutil.rmtree(metadata)


def is_complete(metadata: Path) -> bool:
    """Whether the package of this `.dist-info` folder was installed to its end."""
    try:
        with open(metadata / "RECORD", encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
        sizes = {name: size for name, _, size in rows if not name.endswith(".pyc")}
        return (metadata / "INSTALLER").exists() and all(
            (metadata.parent / name).stat().st_size == int(size)
            if size
            else (metadata.parent / name).exists()
            for name, size in sizes.items()
        )
    except (OSError, ValueError):
        return False


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())
