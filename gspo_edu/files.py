"""Files that are whole or not there, and locks that end with their process (standard library only).

The set-up, the copies of the lessons, predictions, checkpoints and run folders all write with this.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put ``path`` into an OSError that names no file, as of a full disk, or a temporary one."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that the path holds either the old or the new content.

    A device such as ``os.devnull`` is written to as it is: renaming a file over it would, for root,
    take it from every program on the machine.
    """
    if path.is_char_device():
        path.write_bytes(data)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with naming(path):
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def locked(file: IO[Any]) -> bool:
    """Lock an open file until it is closed; False while another process holds it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(1_000_000)  # past any text, which others may go on reading
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Some network folders know no locks: going on is better there than never starting.
        return error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
    return True
