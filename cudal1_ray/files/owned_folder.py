"""Folders in the system's temporary one that end with their owner; what a killed one left, the next one removes."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from cudal1_ray.closable import Closable
from cudal1_ray.files.locks import lock_file

_PREFIX = "cudal1-"
# File that is locked for as long as the process lives that made the folder.
_MARK = ".owner"


class OwnedFolder(Closable):
    """A new folder, `cudal1-<kind>-...`, open to its owner alone; a context manager.

    Args:
        kind: part of the folder's name. Folders of any kind that ended processes left are removed first.
    """

    def __init__(self, kind: str) -> None:
        _remove_left()
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
        unlocked = self.path / f"{_MARK}.new"
        self._lock = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        lock_file(self._lock)
        os.rename(unlocked, self.path / _MARK)  # visible to others only once it is locked

    def close(self) -> None:
        """Remove the folder with its content; a second call does nothing."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _remove_left() -> None:
    with suppress(OSError):
        for name in os.listdir(tempfile.gettempdir()):
            if name.startswith(_PREFIX):
                _remove_if_left(os.path.join(tempfile.gettempdir(), name))


def _remove_if_left(folder: str) -> None:
    """Remove a folder unless it has an owner, belongs to another user, or is none of ours."""
    with suppress(OSError):
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return
        lock = os.open(os.path.join(folder, _MARK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if lock_file(lock, wait=False):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
