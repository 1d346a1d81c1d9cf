"""Parquet tables that users have: their files, their rows, and one line for what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cudal1_ray.errors import UserError


def table_files(root: Path) -> list[Path]:
    """Return the Parquet files of a folder, searched in depth; hidden ones and hidden folders are left out."""
    files = (file for file in root.rglob("*.parquet") if not file.is_dir())
    return sorted(file for file in files if not any(part.startswith(".") for part in file.relative_to(root).parts))


def column_names(file: Path) -> list[str]:
    """Return the names of a table's columns.

    Raises:
        UserError: naming the file when it is no Parquet.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        return list(pyarrow.parquet.read_schema(file).names)
    except (OSError, pyarrow.ArrowException) as error:
        raise _unreadable(file, error) from error


def read_rows(file: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table, each with these columns (None: all).

    Raises:
        UserError: naming the file when it cannot be read to its end.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        chosen = None if columns is None else list(columns)
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(file, columns=chosen, partitioning=None).to_pylist()
        return rows
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from error


def text_of(row: dict[str, Any], column: str, origin: str) -> str:
    """Return a text of a row. Raises UserError naming `origin` and the column for anything else."""
    value = row[column]
    if not isinstance(value, str):
        raise UserError(f"{origin}: column {column!r} holds {value!r:.60}; it must be a string")
    return value


def whole_number_of(row: dict[str, Any], column: str, origin: str) -> int:
    """Return a whole number of 0 or more, which may be written as a float or as a text: tables with gaps have these.

    Raises:
        UserError: naming `origin` and the column for anything else.
    """
    value = row[column]
    try:
        number = -1 if isinstance(value, bool) else int(value)
        if number >= 0 and (isinstance(value, str) or number == value):
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise UserError(f"{origin}: column {column!r} holds {value!r:.60}; it must be an integer of 0 or more")


def _unreadable(file: Path, error: Exception) -> UserError:
    return UserError(f"{file}: cannot be read as Parquet: {' '.join(str(error).split())[:200]}")
