"""One process per folder: a lock of the operating system, which ends with its process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gspo_edu.files import locked

LOCK = "run.lock"


class RunFolderError(ValueError):
    """A folder that cannot be used as asked."""


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder``, which is made if needed.

    The empty file ``run.lock`` stays behind. It means nothing by itself: whatever ends a process
    releases its lock.

    Raises:
        RunFolderError: if another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("ab") as file:
        if not locked(file):
            raise RunFolderError(
                f"another process trains in {folder}; wait for its end, or choose another --out."
            )
        yield
