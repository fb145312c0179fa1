"""Files of JSON lines: one object per answer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json

from gspo_edu.inspection.columns import (
    COLUMNS,
    OF_ROUTES,
    OF_TOKENS,
    RecordedRun,
    RunFileError,
    check_present,
    checked,
    run_settings,
)
from gspo_edu.inspection.parts import Parts
from gspo_edu.inspection.rows import add_rows, check_type

BLOCK = 2**24
SETTINGS_KEY = "gspo_edu"  # the first line may carry {"gspo_edu": {settings}, …}


def read_json_lines(path: Path) -> RecordedRun:
    """The run in a file of JSON lines.

    Raises:
        RunFileError: naming the line (counted from 1) and the column that does not fit.
    """
    number, first = next(objects(path), (0, None))
    if first is None:
        raise RunFileError("the file holds no line.")
    columns = [name for name in first if name in COLUMNS]
    check_present(set(columns), known_rows=True)
    schema = pa.schema([(name, type_of(name, first[name], number)) for name in columns])
    parts, done = Parts(), 0
    try:
        stream = pyarrow.json.open_json(
            path,
            read_options=pyarrow.json.ReadOptions(block_size=BLOCK),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
        for batch in stream:
            begin = done

            def name_of(row: int, begin: int = begin) -> str:
                return line_name(path, begin + row)

            add_rows({name: batch.column(name) for name in columns}, parts, name_of)
            done += len(batch)
    except pa.ArrowInvalid as error:
        find_fault(path, schema)
        raise RunFileError(
            f"after line {done} something cannot be read ({str(error)[:100]}). If one answer takes "
            f"more than {BLOCK // 2**20} MB, write Parquet instead."
        ) from None
    settings = run_settings(first.get(SETTINGS_KEY, {}))
    return checked(parts.run(settings), lambda row: line_name(path, row))


def objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number, from 1, and object of each line that is not blank.

    Raises:
        RunFileError: at the first line that is no JSON object.
    """
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, one_object(line, number)
    except UnicodeDecodeError as error:
        raise RunFileError(f"this is no text in UTF-8 (byte {error.start}).") from None


def one_object(line: str, number: int) -> dict[str, Any]:
    """The object of one line."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        if not line.endswith("\n"):
            raise RunFileError(
                f"line {number} ends in the middle: the file is cut off there, as when a run is "
                "stopped while it writes. Delete that line."
            ) from None
        raise RunFileError(
            f"line {number} is no JSON ({error.msg}, column {error.colno})."
        ) from None
    if not isinstance(found, dict):
        raise RunFileError(
            f"line {number} holds {type(found).__name__}; expected one object per line, with the "
            "columns as keys."
        )
    return found


def line_name(path: Path, row: int) -> str:
    """The line that holds the ``row``-th answer; blank lines hold none."""
    with path.open(encoding="utf-8", errors="replace") as file:
        filled = (number for number, line in enumerate(file, start=1) if line.strip())
        for place, number in enumerate(filled):
            if place == row:
                return f"line {number}"
    return f"answer {row}"


def type_of(name: str, value: Any, number: int) -> pa.DataType:
    """The Arrow type of a column, from what the first line holds.

    Raises:
        RunFileError: if that cannot be a value of this column.
    """
    if value is None and name not in ("rewards", "advantages"):
        raise RunFileError(f"{name}, line {number}: null; expected {COLUMNS[name].wanted}.")
    try:
        kind = pa.array([value]).type
    except (pa.ArrowException, TypeError):
        kind = pa.null()
    fixed: dict[str, pa.DataType] = {
        "rewards": pa.float64(),
        "advantages": pa.float64(),
        **{key: pa.list_(pa.float64()) for key in OF_TOKENS},
        **{key: pa.list_(pa.list_(pa.list_(pa.int16()))) for key in OF_ROUTES},
    }
    if name == "mask" and pa.types.is_list(kind) and pa.types.is_boolean(kind.value_type):
        return kind
    if name == "rewards" and isinstance(value, bool):
        return kind
    # JSON writes 0.0 as 0, and an empty list says nothing about its type.
    plain = isinstance(value, list) and all(v is None or is_number(v) for v in value)
    if name in ("rewards", "advantages") and (value is None or is_number(value)):
        return fixed[name]
    if name in OF_TOKENS and plain:
        return fixed[name]
    check_type(name, kind)
    return fixed.get(name, kind)


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def find_fault(path: Path, schema: pa.Schema) -> None:
    """Read slowly what could not be read fast, to name line and column of the first fault."""
    for number, found in objects(path):
        for name in schema.names:
            wanted = schema.field(name).type
            value = found.get(name)
            try:
                pa.array([value], type=wanted)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                shown = json.dumps(value)
                shown = shown if len(shown) < 40 else shown[:40] + "…"
                raise RunFileError(
                    f"{name}, line {number}: holds {shown}; expected {COLUMNS[name].wanted}, "
                    "as in the first line."
                ) from None
            if isinstance(value, float) and math.isinf(value) and name == "rewards":
                raise RunFileError(f"rewards, line {number}: {value}; expected a finite number.")
