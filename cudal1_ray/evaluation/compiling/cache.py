"""Finished extensions on disk, by content: an entry is one candidate's, complete or not there at all."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import msgspec

from ...files import OwnedFolder

_KEY = re.compile(r"^[0-9a-f]{16,64}$")


class Entry(msgspec.Struct):
    """What became of one candidate's builds: a name of reasons.py and a detail, or libraries, by their keys, and what
    the compiler said to builds that the candidate goes on without.
    """

    reason: str = ""
    detail: str = ""
    libraries: list[str] = []
    failed: dict[str, str] = {}


class CompileCache:
    """A folder of entries ``<key>/``: ``entry.json`` and one ``<library>.so`` each.

    Entries are written by the evaluator alone, under a private name that a rename makes visible, and are never
    changed afterwards. Contestants never see the folder: they are handed open descriptors of their own entry's
    libraries.
    """

    def __init__(self, folder: str = "") -> None:
        self._temporary = None if folder else OwnedFolder("extensions")
        self.folder = Path(folder) if self._temporary is None else self._temporary.path
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> Entry | None:
        """The entry, if there is one."""
        self._check(key)
        try:
            return msgspec.json.decode((self.folder / key / "entry.json").read_bytes(), type=Entry)
        except (OSError, msgspec.MsgspecError):
            return None

    def path_of(self, key: str, library: str) -> str:
        """Where a library of an entry lies."""
        return str(self.folder / key / f"{library}.so")

    def put(self, key: str, entry: Entry, libraries: dict[str, bytes]) -> None:
        """Adds an entry; if another process was faster with the same key, its entry stays."""
        self._check(key)
        private = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder))
        try:
            for name, data in libraries.items():
                self._check(name)
                (private / f"{name}.so").write_bytes(data)
            (private / "entry.json").write_bytes(msgspec.json.encode(entry))
            os.rename(private, self.folder / key)
        except OSError:
            if not (self.folder / key / "entry.json").exists():
                raise
        finally:
            shutil.rmtree(private, ignore_errors=True)

    @staticmethod
    def _check(key: str) -> None:
        if not _KEY.fullmatch(key):
            raise ValueError(f"not a key: {key!r}")

    def close(self) -> None:
        """Removes a folder that was private to this object."""
        if self._temporary is not None:
            self._temporary.close()
