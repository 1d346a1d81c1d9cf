"""An append-only log of JSON objects."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.files.atomic import write_atomically


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
                rows.append(json.loads(line))
            except ValueError as error:
                raise UserError(f"{path}, line {number}: not JSON ({error}); restore the file or remove it") from None
    return rows, size


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
        self._file.write(json.dumps(row, default=str).encode() + b"\n")
        self._file.flush()
        self.rows.append(row)

    def extend(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self.append(row)

    def keep(self, rows: list[dict[str, Any]]) -> None:
        """Replaces the whole content (a rollback), atomically."""
        self._file.close()
        write_atomically(self.path, "".join(json.dumps(row, default=str) + "\n" for row in rows))
        self._file = open(self.path, "ab")  # noqa: SIM115
        self.rows = list(rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)
