"""Turns on a device that several evaluators share: all may prepare and check, only one at a time measures."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Held by every evaluator of a device, through one lock file; the kernel lets go of it when a holder dies.

    Args:
        lock_file: a path that all of them name; empty where one evaluator has the device for itself.
    """

    def __init__(self, lock_file: str = "") -> None:
        self._fd = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) if lock_file else -1
        self._alone = False

    @contextmanager
    def beside_others(self) -> Iterator[None]:
        """Waits while somebody measures. Within `alone` it is that already."""
        if self._alone:
            yield
        else:
            with self._held(fcntl.LOCK_SH):
                yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits until nobody else does anything on the device. Must not be entered from within `beside_others`."""
        with self._held(fcntl.LOCK_EX):
            self._alone = True
            try:
                yield
            finally:
                self._alone = False

    @contextmanager
    def _held(self, mode: int) -> Iterator[None]:
        if self._fd >= 0:
            fcntl.flock(self._fd, mode)
        try:
            yield
        finally:
            if self._fd >= 0:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
