"""One process per folder: a lock of the operating system, which ends with its process."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

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


def locked(file: IO[bytes]) -> bool:
    """Lock an open file until it is closed; False while somebody else holds it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Some network folders know no locks: going on is better there than never starting.
        return error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
    return True
