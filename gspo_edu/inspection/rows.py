"""Files with one answer per row: Parquet (a file, or a folder of parts)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gspo_edu.inspection.columns import (
    COLUMNS,
    OF_ANSWERS,
    OF_ROUTES,
    OF_TOKENS,
    Array,
    Naming,
    RecordedRun,
    RunFileError,
    check_count,
    check_present,
    checked,
    row_name,
    run_settings,
)
from gspo_edu.inspection.parts import Parts

LEAVES_AT_ONCE = 2**21
SETTINGS_KEY = b"gspo_edu"


def read_parquet(path: Path) -> RecordedRun:
    """The run in a Parquet file, or in all Parquet files of a folder in the order of their names.

    Raises:
        RunFileError: if there is none, or something in it does not fit.
    """
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise RunFileError(
            "the folder holds no .parquet file; was the run stopped before its first update ended?"
        )
    parts, settings, first = Parts(), dict[str, Any](), None
    begun: list[tuple[int, str]] = []  # where each file's rows begin
    answers = 0
    for file in files:
        label = f" of {file.name}" if path.is_dir() else ""
        begun.append((answers, label))
        try:
            with pq.ParquetFile(file) as opened:
                columns = known_columns(opened.schema_arrow)
                if first is not None and set(columns) != set(first):
                    raise RunFileError(
                        f"{file.name} has other columns ({', '.join(sorted(columns))}) than "
                        f"{files[0].name}; all parts of a folder must be of one run."
                    )
                first = columns
                settings = settings or settings_of(opened.schema_arrow)
                answers += read_file(opened, columns, parts, label)
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise RunFileError(not_parquet(file, error)) from None

    def name_of(row: int) -> str:
        start, label = max((b for b in begun if b[0] <= row), key=lambda b: b[0])
        return f"row {row - start}{label}"

    return checked(parts.run(settings), name_of)


def known_columns(schema: pa.Schema) -> list[str]:
    """The columns that mean something here.

    Raises:
        RunFileError: if one is missing, or of a type that cannot hold what it should.
    """
    columns = [name for name in schema.names if name in COLUMNS]
    check_present(set(columns), known_rows=True)
    for name in columns:
        check_type(name, schema.field(name).type)
    return columns


def not_parquet(file: Path, error: Exception) -> str:
    """Why a file cannot be opened as Parquet."""
    if file.stat().st_size == 0:
        return f"{file.name} is empty (0 bytes)."
    return (
        f"{file.name} is no whole Parquet file ({str(error).splitlines()[0][:100]}). A Parquet "
        "file can only be read once its writer has closed it: copy it again, or record one file "
        "per update, as gspo_edu.trl_recorder does."
    )


def settings_of(schema: pa.Schema) -> dict[str, Any]:
    """What the file says about its run."""
    given = (schema.metadata or {}).get(SETTINGS_KEY)
    if given is None:
        return {}
    try:
        return run_settings(json.loads(given))
    except ValueError as error:
        raise RunFileError(f"metadata gspo_edu: {error}") from None


def read_file(opened: pq.ParquetFile, columns: list[str], parts: Parts, label: str) -> int:
    """Read a file's rows into ``parts``, some at a time; returns how many there are."""
    about = opened.metadata
    leaves = dict.fromkeys(columns, 0)
    for group in range(about.num_row_groups):
        for column in range(about.num_columns):
            chunk = about.row_group(group).column(column)
            name = chunk.path_in_schema.split(".")[0]
            if name in leaves:
                leaves[name] += chunk.num_values
    check_count(leaves["logp"])
    rows = about.num_rows
    at_once = max(1, min(rows, rows * LEAVES_AT_ONCE // max(1, *leaves.values())))
    done = 0
    try:
        for batch in opened.iter_batches(batch_size=at_once, columns=columns):
            begin = done
            add_rows(
                {name: batch.column(name) for name in batch.schema.names},
                parts,
                lambda row, begin=begin: row_name(begin + row) + label,  # type: ignore[misc]
            )
            done += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise RunFileError(
            f"the rows from {done} on{label} cannot be read ({str(error).splitlines()[0][:100]}): "
            "the file is damaged. Copy it again."
        ) from None
    return done


def add_rows(columns: dict[str, pa.Array], parts: Parts, name_of: Naming) -> None:
    """Take the answers of one batch of rows in.

    Raises:
        RunFileError: naming row and column of the first value that does not fit.
    """
    counts: Array | None = None
    tokens: dict[str, Array] = {}
    routes: dict[str, Array] = {}
    for name in (n for n in (*OF_TOKENS, *OF_ROUTES) if n in columns):
        refuse_nulls(name, columns[name], name_of)
        lengths = pc.list_value_length(columns[name]).to_numpy(zero_copy_only=False)
        if counts is None:
            counts = lengths.astype(np.int64)
        elif (lengths != counts).any():
            row = int((lengths != counts).argmax())
            raise RunFileError(
                f"{name}, {name_of(row)}: has {lengths[row]} entries, but logp has {counts[row]}; "
                "all lists of a row must be of one length (cut the padding off, or mask it)."
            )
        if name in OF_ROUTES:
            routes[name] = route_values(name, columns[name], name_of)
        else:
            tokens[name] = token_values(name, columns[name], counts, name_of)
    assert counts is not None
    both = None
    if "routes" in routes and "routes_reference" in routes:
        both = routes["routes"], routes["routes_reference"]
        if both[0].shape != both[1].shape:
            raise RunFileError(
                f"routes have {both[0].shape[1:]} layers and experts per token, but "
                f"routes_reference {both[1].shape[1:]}; from {name_of(0)} on."
            )
    answers = {
        name: answer_values(name, columns[name], name_of) for name in OF_ANSWERS if name in columns
    }
    parts.add(counts, tokens, answers, both, name_of)


def check_type(name: str, kind: pa.DataType) -> None:
    """Raise RunFileError if a column is of a type that cannot hold what it should."""
    inner, depth = kind, 0
    while is_list(inner):
        inner, depth = inner.value_type, depth + 1
    floating, integer = pa.types.is_floating(inner), pa.types.is_integer(inner)
    boolean = pa.types.is_boolean(inner)
    text = pa.types.is_string(inner) or pa.types.is_large_string(inner)
    fits = {
        "logp": depth == 1 and floating,
        "logp_old": depth == 1 and floating,
        "logp_rollout": depth == 1 and floating,
        "mask": depth == 1 and (floating or integer or boolean),
        "rewards": depth == 0 and (floating or integer or boolean),
        "advantages": depth == 0 and (floating or integer),
        "group": depth == 0 and (integer or text),
        "finished": depth == 0 and boolean,
        "update": depth == 0 and integer,
        "routes": depth == 3 and integer,
        "routes_reference": depth == 3 and integer,
    }
    if fits.get(name, True):
        return
    hint = ""
    if name.startswith("logp") and integer:
        hint = " Are these token ids?"
    if name == "advantages" and depth == 1:
        hint = " One advantage per token, as from a critic, is not read."
    raise RunFileError(
        f"column {name} is of type {kind}; expected {COLUMNS[name].wanted} per row.{hint}"
    )


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's lists."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def refuse_nulls(name: str, column: pa.Array, name_of: Naming) -> None:
    """Raise RunFileError at the first row without a value."""
    if column.null_count:
        row = int(column.is_null().to_numpy(zero_copy_only=False).argmax())
        raise RunFileError(
            f"{name}, {name_of(row)}: missing (null); expected {COLUMNS[name].wanted}. Leave "
            "the row out or the column."
        )


def token_values(name: str, column: pa.Array, counts: Array, name_of: Naming) -> Array:
    """The numbers of a column of lists, one after the other."""
    values = column.flatten()
    if values.null_count and name == "logp_rollout":
        values = values.fill_null(float("nan"))
    if values.null_count:
        place = int(values.is_null().to_numpy(zero_copy_only=False).argmax())
        row = int(np.searchsorted(np.cumsum(counts), place, side="right"))
        raise RunFileError(
            f"{name}, {name_of(row)}: holds null at position "
            f"{place - int(counts[:row].sum())}; expected a number at every position."
        )
    found: Array = values.to_numpy(zero_copy_only=False)
    return found


def route_values(name: str, column: pa.Array, name_of: Naming) -> Array:
    """The experts of a column of nested lists, (positions, N, K)."""
    layers = column.flatten()
    experts = layers.flatten()
    shape = []
    for inner, what in ((layers, "layers"), (experts, "experts")):
        sizes = np.unique(pc.list_value_length(inner).to_numpy(zero_copy_only=False))
        if len(sizes) > 1 or inner.null_count:
            raise RunFileError(
                f"{name}, from {name_of(0)} on: tokens have {', '.join(map(str, sizes))} {what}; "
                "every token needs as many. Write -1 where an expert is not known."
            )
        shape.append(int(sizes[0]) if len(sizes) else 0)
    flat = experts.flatten()
    if flat.null_count:
        raise RunFileError(f"{name}, from {name_of(0)} on: holds null; write -1 instead.")
    found: Array = flat.to_numpy(zero_copy_only=False).reshape(-1, *shape)
    return found


def answer_values(name: str, column: pa.Array, name_of: Naming) -> Array:
    """One value per row."""
    if name in ("rewards", "advantages"):
        # A missing number becomes NaN, about which `checked` decides.
        found: Array = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return found
    refuse_nulls(name, column, name_of)
    found = column.to_numpy(zero_copy_only=False)
    return found
