"""Any file of a run, by its name."""

from __future__ import annotations

from pathlib import Path

from gspo_edu.inspection.columns import RecordedRun, RunFileError

ENDINGS = {
    ".parquet": "parquet",
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".npz": "npz",
    ".safetensors": "safetensors",
}


def read_run(path: Path) -> RecordedRun:
    """The run in a file, or in a folder of Parquet files.

    Raises:
        RunFileError: naming the file, what is wrong with it, where, and how to mend it.
    """
    try:
        return read_known(path)
    except RunFileError as error:
        raise RunFileError(f"{path}: {error}") from None
    except MemoryError:
        raise RunFileError(
            f"{path}: there is not enough memory to read it; write every k-th update, or split it."
        ) from None


def read_known(path: Path) -> RecordedRun:
    """``read_run`` without the file's name in errors."""
    if not path.exists():
        raise RunFileError("there is no such file.")
    kind = "parquet" if path.is_dir() else ENDINGS.get(path.suffix.lower())
    if kind == "parquet":
        from gspo_edu.inspection.rows import read_parquet

        return read_parquet(path)
    if kind == "lines":
        from gspo_edu.inspection.lines import read_json_lines

        return read_json_lines(path)
    if kind == "npz":
        from gspo_edu.inspection.arrays import read_npz

        return read_npz(path)
    if kind == "safetensors":
        from gspo_edu.inspection.arrays import read_safetensors

        return read_safetensors(path)
    raise RunFileError(
        f"its name ends in {path.suffix or 'nothing'}; expected {', '.join(ENDINGS)}, or a folder "
        "of .parquet files."
    )
