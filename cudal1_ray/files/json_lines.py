"""An append-only log of JSON objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cudal1_ray.files.atomic import write_atomically


class JsonLines:
    """An append-only file of JSON objects, one a line; flushed at every append.

    A line cut short by a kill or a full disk is dropped when the file is opened: the lines before it are whole.
    """

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        rows, whole = [], 0
        if path.exists():
            data = path.read_bytes()
            whole = data.rfind(b"\n") + 1
            rows = [json.loads(line) for line in data[:whole].splitlines() if line.strip()]
        self.rows: list[dict[str, Any]] = rows
        self._file = open(path, "ab")  # noqa: SIM115 (kept open for the life of the run)
        self._file.truncate(whole)

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
