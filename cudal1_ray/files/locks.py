"""Locks between processes, on open files: the kernel releases them when their holder ends, however that ends."""

from __future__ import annotations

import fcntl
from typing import IO, Any


def lock_file(file: int | IO[Any], *, shared: bool = False, wait: bool = True) -> bool:
    """Lock an open file; return whether it is locked, which it always is after waiting.

    Args:
        file: the open file, or its descriptor. The lock ends with it, or with `unlock_file`.
        shared: whether others may hold it at the same time, shared as well.
        wait: False: return False where another holder, or a file system without locks, stands in the way.

    Raises:
        OSError: when waiting is impossible: a file system without locks.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        if wait:
            raise
        return False
    return True


def claim_file(file: int | IO[Any]) -> bool:
    """Lock an open file without waiting; return False where another holder stands in the way.

    A file system without locks stands in nothing's way: what is claimed there is not protected.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def unlock_file(file: int | IO[Any]) -> None:
    """Release the lock of an open file."""
    fcntl.flock(file, fcntl.LOCK_UN)
