"""What a learner has solved and missed, in one local file that is sent nowhere.

The file is ``.progress.json`` in the notebook's folder, or what the environment variable
``GSPO_EDU_PROGRESS`` names. It is written when something has been tried. One that cannot be read,
or has the form of an older version, is kept beside the new one as a backup.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from gspo_edu.files import write_atomically

FILE_NAME = ".progress.json"
VERSION = 1


@dataclass
class Memory:
    """How one task went.

    Attributes:
        exercise: number of the exercise it was first tried in.
        tries: how often it was checked.
        first_right: whether the first try was right.
        solved: whether a try has been right.
    """

    exercise: str
    tries: int = 0
    first_right: bool = False
    solved: bool = False


def progress_file() -> Path:
    """Where this notebook's progress is kept."""
    return Path(os.environ.get("GSPO_EDU_PROGRESS") or FILE_NAME)


def memories(path: Path | None = None) -> dict[str, Memory]:
    """What is kept, by task; empty if there is nothing that can be read."""
    try:
        return parsed((path or progress_file()).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def parsed(text: str) -> dict[str, Memory]:
    """The tasks of a progress file.

    Raises:
        ValueError: if this is no progress file of this version.
    """
    stored: Any = json.loads(text)
    if not isinstance(stored, dict) or stored.get("version") != VERSION:
        raise ValueError("no progress file of this version")
    tasks = stored.get("tasks")
    if not isinstance(tasks, dict):
        raise ValueError("no tasks in the progress file")
    found = {}
    for name, entry in tasks.items():
        kinds = {"exercise": str, "tries": int, "first_right": bool, "solved": bool}
        if not isinstance(entry, dict) or {k: type(v) for k, v in entry.items()} != kinds:
            raise ValueError(f"task {name!r} is not as expected")
        found[name] = Memory(**entry)
    return found


def remember(task: str, exercise: str, *, right: bool) -> None:
    """Note a try. A file that cannot be written changes nothing for the learner."""
    path = progress_file()
    with contextlib.suppress(OSError):
        set_aside_if_damaged(path)
        kept = memories(path)
        memory = kept.setdefault(task, Memory(exercise, first_right=right))
        memory.tries += 1
        memory.solved = memory.solved or right
        content = {"version": VERSION, "tasks": {name: asdict(m) for name, m in kept.items()}}
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        write_atomically(path, text.encode())


def set_aside_if_damaged(path: Path | None = None) -> Path | None:
    """Move a file that cannot be used to a backup's name; the backup, or None if all is well.

    Raises:
        OSError: if it cannot be read or moved.
    """
    path = path or progress_file()
    if not path.is_file():
        return None
    try:
        parsed(path.read_bytes().decode("utf-8"))
        return None
    except ValueError:
        names = (path.with_name(f"{path.name}.backup-{n}") for n in count(1))
        backup = next(name for name in names if not name.exists())
        os.replace(path, backup)
        return backup


def missed_before(exercise: str, order: list[str]) -> list[str]:
    """Tasks whose first try was wrong, from one and from three exercises before this one."""
    if exercise not in order:
        return []
    here = order.index(exercise)
    earlier = {order[here - back] for back in (1, 3) if here >= back}
    return [
        name
        for name, memory in memories().items()
        if memory.exercise in earlier and not memory.first_right
    ]
