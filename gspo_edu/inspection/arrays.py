"""Files of whole arrays: NPZ and safetensors, padded (B, T) or flat with lengths."""

from __future__ import annotations

import json
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gspo_edu.inspection.columns import (
    COLUMNS,
    LATER,
    OF_ANSWERS,
    OF_ROUTES,
    OF_TOKENS,
    Array,
    RecordedRun,
    RunFileError,
    check_count,
    check_present,
    checked,
    row_name,
    run_settings,
)
from gspo_edu.inspection.parts import Parts

MOST_BYTES = 2**34  # of one array
Load = Callable[[str], Array]
SETTINGS_KEY = "gspo_edu"
# What zipfile and NumPy raise for files that are damaged, encrypted or from another program.
NO_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,
    SyntaxError,
    UnicodeError,
    tokenize.TokenError,
)


def read_npz(path: Path) -> RecordedRun:
    """The run in an .npz file of NumPy.

    Raises:
        RunFileError: if it is no such file, or something in it does not fit.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            shapes = {
                name.removesuffix(".npy"): npy_header(archive, name)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
        with np.load(path, allow_pickle=False) as file:
            settings = settings_array(file[SETTINGS_KEY]) if SETTINGS_KEY in shapes else "{}"
            return from_arrays(shapes, lambda name: file[name], settings_from(settings))
    except NO_ARCHIVE as error:
        reason = "it is empty" if path.stat().st_size == 0 else str(error)[:100]
        raise RunFileError(
            f"this is no whole .npz file ({reason}). Copy it again, or write it with numpy.savez."
        ) from None


def npy_header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of one array, without reading it.

    Raises:
        RunFileError: if the header is none, or promises more than there is or may be.
    """
    with archive.open(name) as file:
        try:
            version = np.lib.format.read_magic(file)
            read = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            shape, _, kind = read(file)
        except (ValueError, KeyError, EOFError):
            raise RunFileError(f"array {name} has no header that NumPy knows.") from None
    if kind.hasobject:
        raise RunFileError(
            f"array {name.removesuffix('.npy')} holds Python objects (pickled, or ragged rows), "
            "which are not read. Pad the rows to one (B, T) array and add mask or lengths."
        )
    check_size(name.removesuffix(".npy"), shape, kind.itemsize)
    return tuple(shape), kind


def check_size(name: str, shape: tuple[int, ...], itemsize: int) -> None:
    """Raise RunFileError if an array is too large to be read."""
    if any(side < 0 for side in shape):
        raise RunFileError(f"array {name} has the impossible shape {shape}.")
    size = itemsize
    for side in shape:
        size *= side
    if size > MOST_BYTES:
        raise RunFileError(
            f"array {name} of shape {shape} takes {size / 1e9:,.0f} GB; inspect reads arrays of up "
            f"to {MOST_BYTES / 1e9:.0f} GB: {LATER}, or write Parquet, which is read in parts."
        )
    if name in OF_TOKENS:
        check_count(int(np.prod(shape, dtype=object)) if shape else 0)


def settings_array(given: Array) -> Any:
    """The JSON text in NPZ's array of settings.

    Raises:
        RunFileError: if it holds more than one value.
    """
    if given.size != 1:
        raise RunFileError(
            f"array {SETTINGS_KEY} has shape {given.shape}; expected one JSON text, shape ()."
        )
    return given.item()


def settings_from(text: Any) -> dict[str, Any]:
    """The settings in a JSON text."""
    try:
        return run_settings(json.loads(text))
    except (ValueError, TypeError) as error:
        raise RunFileError(f"{SETTINGS_KEY}: {error}") from None


def read_safetensors(path: Path) -> RecordedRun:
    """The run in a .safetensors file.

    Raises:
        RunFileError: if it is no such file, or something in it does not fit.
    """
    from safetensors import SafetensorError, safe_open

    if path.stat().st_size == 0:
        raise RunFileError("the file is empty (0 bytes).")
    try:
        with safe_open(path, framework="pt") as file:
            settings = settings_from((file.metadata() or {}).get(SETTINGS_KEY, "{}"))
            shapes = {}
            for name in file.keys():  # noqa: SIM118 (not a mapping)
                shape = tuple(file.get_slice(name).get_shape())
                check_size(name, shape, 1)
                shapes[name] = shape, np.dtype(np.float32)

            def load(name: str) -> Array:
                import torch

                tensor = file.get_tensor(name)
                known = tensor.dtype != torch.bfloat16  # NumPy has none
                found: Array = (tensor if known else tensor.float()).numpy()
                return found

            return from_arrays(shapes, load, settings)
    except (SafetensorError, OSError) as error:
        raise RunFileError(
            f"this is no whole .safetensors file ({str(error)[:100]}). Copy it again."
        ) from None


def from_arrays(
    shapes: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
    load: Load,
    settings: dict[str, Any],
) -> RecordedRun:
    """The run in arrays, each loaded when its turn comes and cut down to response tokens."""
    names = {name for name in shapes if name in COLUMNS}
    check_present(names, known_rows=False)
    shape = shapes["logp"][0]
    lengths = loaded("lengths", load, "iu", (None,)) if "lengths" in names else None
    counts, inside = layout(shape, lengths, "mask" in names)
    rows = len(counts)
    check_shapes({name: shapes[name][0] for name in names}, shape, rows)

    def flat(name: str, kinds: str) -> Array:
        values = loaded(name, load, kinds, None)
        if len(shape) == 1:
            return values
        return values[inside] if inside is not None else values.reshape(-1, *values.shape[2:])

    tokens = {
        name: flat(name, "fbiu" if name == "mask" else "f") for name in OF_TOKENS if name in names
    }
    routes = None
    if "routes" in names:
        routes = flat("routes", "iu"), flat("routes_reference", "iu")
    kinds = {"rewards": "fiub", "advantages": "fiu", "group": "iuU", "finished": "b"}
    answers = {
        name: loaded(name, load, kinds.get(name, "iu"), (rows,))
        for name in OF_ANSWERS
        if name in names
    }
    for name in ("rewards", "advantages"):
        if name in answers:
            answers[name] = answers[name].astype(np.float64)
    parts = Parts()
    parts.add(counts, tokens, answers, routes, row_name)
    return checked(parts.run(settings))


def loaded(name: str, load: Load, kinds: str, shape: tuple[int | None, ...] | None) -> Array:
    """An array whose type is among NumPy's ``kinds``; ``shape`` is None where it was checked.

    Raises:
        RunFileError: if the type does not fit.
    """
    try:
        found = load(name)
    except ValueError as error:
        raise RunFileError(f"array {name} cannot be read ({str(error)[:100]}).") from None
    if found.dtype.kind not in kinds:
        words = {"f": "floating-point numbers", "i": "integers", "b": "true and false", "U": "text"}
        wanted = " or ".join(words[kind] for kind in kinds if kind in words)
        ids = (
            " Are these token ids?" if name.startswith("logp") and found.dtype.kind in "iu" else ""
        )
        raise RunFileError(f"array {name} is of type {found.dtype}; expected {wanted}.{ids}")
    if shape is not None and len(shape) != found.ndim:
        raise RunFileError(
            f"array {name} has shape {found.shape}; expected {COLUMNS[name].in_arrays}."
        )
    return found


def layout(
    shape: tuple[int, ...], lengths: Array | None, masked: bool
) -> tuple[Array, Array | None]:
    """Positions of each answer, and (B, T) which ones they are in a padded array (None: all).

    Raises:
        RunFileError: if arrays of this shape need what is not there.
    """
    if len(shape) == 1:
        if lengths is None:
            raise RunFileError(
                f"array logp has shape {shape}, so it is flat, and lengths is missing. Add lengths "
                "(B,), or store padded arrays (B, T)."
            )
        counts = lengths.astype(np.int64)
        if (counts < 0).any() or counts.sum() != shape[0]:
            raise RunFileError(
                f"lengths add up to {int(counts.sum())}, but logp has {shape[0]} entries; each "
                "answer's length must count all its entries."
            )
        return counts, None
    if len(shape) != 2:
        raise RunFileError(f"array logp has shape {shape}; expected (B, T), or (tokens,).")
    rows, width = shape
    if lengths is None:
        if not masked:
            raise RunFileError(
                f"array logp has shape {shape}, so it is padded, and nothing says where answers "
                "end: add mask (B, T) or lengths (B,)."
            )
        return np.full(rows, width, np.int64), None
    counts = lengths.astype(np.int64)
    if len(counts) != rows or (counts < 0).any() or (counts > width).any():
        wrong = len(counts) == rows
        where = f": {row_name(int(((counts < 0) | (counts > width)).argmax()))}" if wrong else ""
        raise RunFileError(
            f"array lengths does not fit logp of shape {shape}{where}; expected {rows} numbers "
            f"from 0 to {width}."
        )
    return counts, np.arange(width) < counts[:, None]


def check_shapes(given: Mapping[str, tuple[int, ...]], shape: tuple[int, ...], rows: int) -> None:
    """Raise RunFileError if an array's shape does not fit that of logp."""
    for name, its in given.items():
        if name in OF_TOKENS:
            fits, wanted = its == shape, f"{shape}, as logp has"
        elif name in OF_ROUTES:
            fits = its[:-2] == shape and its == given["routes"] and 0 not in its[-2:]
            wanted = f"{(*shape, 'N', 'K')}, the same for routes and routes_reference"
        elif name in OF_ANSWERS:
            fits, wanted = its == (rows,), f"({rows},), one per answer"
        else:
            continue
        if not fits:
            raise RunFileError(f"array {name} has shape {its}; expected {wanted}.")
