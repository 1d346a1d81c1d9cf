"""An append-only log of JSON objects."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.files.atomic import naming, write_atomically

# Bytes at the end of a file in which its last line is looked for: some ten times a row of metrics.
TAIL_BYTES = 8192


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON objects, one a line, and leave the file as it is: another process may write it.

    A last line without its end is left out: it is being written, or was cut short by a kill. A file that does not exist
    has no rows.

    Raises:
        UserError: naming the file and the line that is not JSON.
    """
    rows, _ = _read(path)
    return rows


def repair_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, and cut a last line without its end off: for the one process that appends to it.

    Raises:
        UserError: naming the file and the line that is not JSON.
    """
    rows, size = _read(path)
    if path.exists() and path.stat().st_size > size:
        os.truncate(path, size)
    return rows


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of the whole lines and the bytes that these take."""
    if not path.exists():
        return [], 0
    data = path.read_bytes()
    size = data.rfind(b"\n") + 1
    rows = []
    for number, line in enumerate(data[:size].split(b"\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}, line {number}: not JSON ({error}); restore the file or remove it") from None
            if not isinstance(row, dict):
                raise UserError(f"{path}, line {number}: no JSON object; restore the file or remove it")
            rows.append(row)
    return rows, size


def salvage_json_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return what can be read of a file, its last line without an end included, and the number of unreadable lines.

    For a report about a file that may be damaged; a file that does not exist has no rows.
    """
    rows, unreadable = [], 0
    for line in path.read_bytes().split(b"\n") if path.is_file() else ():
        if line.strip():
            try:
                row = json.loads(line.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict):
                rows.append(row)
            else:
                unreadable += 1
    return rows, unreadable


def read_last_json_line(path: Path) -> dict[str, Any]:
    """Return the last whole line of a file that another process may write, without reading the file; empty without one.

    A line longer than `TAIL_BYTES` counts as none.
    """
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            row = json.loads(file.read().split(b"\n")[:-1][-1])
    except (OSError, IndexError, ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


class JsonLines:
    """An append-only file of JSON objects, one a line; flushed at every append.

    For its one writer: a line cut short by a kill or a full disk is cut off when the file is opened. Others use
    `read_json_lines`.

    Raises (constructor): UserError naming the line that is not JSON.
    """

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows = repair_json_lines(path)
        self._file = open(path, "ab")  # noqa: SIM115 (kept open for the life of the run)

    def append(self, row: dict[str, Any]) -> None:
        with naming(self.path):
            self._file.write(json.dumps(row, default=str).encode() + b"\n")
            self._file.flush()
        self.rows.append(row)

    def extend(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self.append(row)

    def keep(self, rows: list[dict[str, Any]]) -> None:
        """Replace the whole content (a rollback), atomically."""
        self._file.close()
        write_atomically(self.path, "".join(json.dumps(row, default=str) + "\n" for row in rows))
        self._file = open(self.path, "ab")  # noqa: SIM115
        self.rows = list(rows)

    def close(self) -> None:
        """Close the file; the rows stay readable, and calling it twice is fine."""
        with naming(self.path):  # what could not be written is tried again
            self._file.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)
