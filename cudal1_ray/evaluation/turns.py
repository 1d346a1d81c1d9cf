"""Turns on a device that several evaluators share: all may prepare and check, only one at a time measures; and who
needs all of the device's memory has it to itself from a candidate's beginning to its end.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager


class _Room:
    """A lock between processes that many may hold together, or one alone. Who waits to be alone keeps newcomers out;
    the kernel lets go of it when a holder dies.
    """

    def __init__(self, path: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._room, self._door = (os.open(path + suffix, flags, 0o600) for suffix in ("", ".door"))

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        fcntl.flock(self._door, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._room, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._room)
        os.close(self._door)


class Turns:
    """Shared by every evaluator of a device, through files beside one path.

    Args:
        lock_file: a path that all of them name; empty where one evaluator has the device for itself.
    """

    def __init__(self, lock_file: str = "") -> None:
        self._measuring, self._candidates = (
            _Room(lock_file + suffix) if lock_file else None for suffix in ("", ".candidates")
        )
        self._alone = False

    @property
    def shared(self) -> bool:
        """Are there other evaluators, as far as one can know?"""
        return self._candidates is not None

    @contextmanager
    def candidate(self, *, without_others: bool = False) -> Iterator[None]:
        """Around everything that is done for one candidate; ``without_others`` waits until every other one has ended,
        and none begins meanwhile. Outermost: not within any of the other turns.
        """
        with _held(self._candidates, alone=without_others):
            yield

    @contextmanager
    def beside_others(self) -> Iterator[None]:
        """Waits while somebody measures. Within `alone` it is that already."""
        if self._alone:
            yield
        else:
            with _held(self._measuring, alone=False):
                yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits until nobody else does anything on the device. Must not be entered from within `beside_others`."""
        with _held(self._measuring, alone=True):
            self._alone = True
            try:
                yield
            finally:
                self._alone = False

    def close(self) -> None:
        """Calling it twice is fine."""
        for room in (self._measuring, self._candidates):
            if room is not None:
                room.close()
        self._measuring = self._candidates = None


@contextmanager
def _held(room: _Room | None, *, alone: bool) -> Iterator[None]:
    if room is None:
        yield
    else:
        with room.held(alone=alone):
            yield
