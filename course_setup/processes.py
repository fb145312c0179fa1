"""Run one step of the set-up in the open, and say how to go on when it stops."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOG = "course-install.log"
CAUSES = [
    (r"No space left on device|not enough space on the disk", "The disk is full."),
    (
        r"NewConnectionError|NameResolutionError|getaddrinfo|Network is unreachable"
        r"|Read timed out|ConnectTimeout|ProxyError|RemoteDisconnected|IncompleteRead",
        "The network did not answer.",
    ),
    (r"CERTIFICATE_VERIFY_FAILED", "This Python does not trust the network's certificate."),
    (r"Permission denied|Access is denied", "A file could not be written."),
]


class Stop(Exception):
    """Ends the program with a sentence for the user and an exit status (2 usage, 1 failure)."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def python_of(env: Path) -> Path:
    return env / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def child_variables(env: Path) -> dict[str, str]:
    """The environment variables of everything that is started in `env`."""
    variables = dict(os.environ)
    variables.pop("PYTHONHOME", None)
    # A shared environment knows the checkout it was made from; the one at hand must win.
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    variables["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    variables["VIRTUAL_ENV"] = str(env)
    variables["PATH"] = os.pathsep.join([str(python_of(env).parent), os.environ.get("PATH", "")])
    variables["PIP_USER"] = "0"  # some machines set it, and pip then refuses an environment
    variables["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    return variables


def run_step(env: Path, command: list[str], hint: str = "") -> None:
    """Run `command` in the project's folder, its output visible.

    Raises:
        Stop: it failed; the message gives a likely cause, `hint`, and how to go on.
        KeyboardInterrupt: the user stopped it; the command has ended by then.
    """
    process = subprocess.Popen(command, env=child_variables(env), cwd=ROOT)
    try:
        status = process.wait()
    except KeyboardInterrupt:
        # The terminal has told the command as well: let it clean up, but not for ever.
        for end in (process.terminate, process.kill):
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(timeout=5)
                break
            end()
        process.wait()
        raise
    if status != 0:
        log = env / LOG
        text = log.read_text(encoding="utf-8", errors="replace")[-20_000:] if log.exists() else ""
        reasons = [words for pattern, words in CAUSES if re.search(pattern, text)][:1]
        said = ["The installation stopped.", *reasons, *([hint] if hint else [])]
        said.append("Call the same command again once this is mended: it goes on from here.")
        said += [f"The full log is {log}."] if text else []
        raise Stop(" ".join(said))


def pip_install(env: Path, *arguments: str) -> None:
    """`pip install` with the user's own pip settings; everything is also written to the log."""
    pip = [str(python_of(env)), "-m", "pip", "--log", str(env / LOG)]
    try:
        run_step(env, [*pip, "install", *arguments])
    finally:
        shorten_log(env / LOG)


def shorten_log(log: Path) -> None:
    """Drop pip's lists of every file that every index holds: nine tenths of its log."""
    if log.exists():
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        kept = [line for line in lines if not re.search(r"Skipping link|Found link", line)]
        log.write_text("".join(kept), encoding="utf-8")
