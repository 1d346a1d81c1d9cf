"""Turns on a device that several evaluators share: all may prepare and check, but only one at a time measures. A
candidate that needs all of the device's memory runs without others from its beginning to its end.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from cudal1_ray.files import lock_file, unlock_file

# Seconds for which other evaluators wait for code to answer: an answer takes some milliseconds; code that takes longer
# compiles or hangs.
LONGEST_TURN_S = 3.0


class _Room:
    """A lock between processes that many may hold together, or one exclusively. A process that waits for the exclusive
    lock keeps newcomers out; the kernel releases the lock of a holder that dies.
    """

    def __init__(self, path: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._room, self._door = (os.open(path + suffix, flags, 0o600) for suffix in ("", ".door"))
        self._holder: object | None = None
        self._letting_go = threading.Lock()

    @contextmanager
    def held(self, *, alone: bool, longest_s: float = threading.TIMEOUT_MAX) -> Iterator[None]:
        """Hold the lock within the context, but at most for `longest_s`."""
        lock_file(self._door)
        try:
            lock_file(self._room, shared=not alone)
        finally:
            unlock_file(self._door)
        holder = self._holder = object()
        end = threading.Timer(longest_s, self._release, (holder,))
        end.daemon = True
        if longest_s < threading.TIMEOUT_MAX:
            end.start()
        try:
            yield
        finally:
            end.cancel()
            self._release(holder)

    def _release(self, holder: object) -> None:
        with self._letting_go:
            if self._holder is holder:  # and no later holder
                self._holder = None
                unlock_file(self._room)

    def close(self) -> None:
        os.close(self._room)
        os.close(self._door)


class Turns:
    """Turns on a device, shared by its evaluators through files beside one path.

    Args:
        lock_file: a path that all of them use; empty where there is only one evaluator.
    """

    def __init__(self, lock_file: str = "") -> None:
        self._measuring, self._candidates = (
            _Room(lock_file + suffix) if lock_file else None for suffix in ("", ".candidates")
        )
        self._alone = False
        self._kept: ExitStack | None = None  # holds the turn within `keeping`
        self._keep_s, self._keep_until = 0.0, 0.0  # seconds, and the time at which they end; 0.0 = no turn is held

    @property
    def shared(self) -> bool:
        """Return whether other evaluators may use the device."""
        return self._candidates is not None

    def candidate(self, *, without_others: bool = False) -> AbstractContextManager[None]:
        """Return the turn around all work for one candidate. `without_others` waits until every other candidate has
        ended, and none begins meanwhile. Enter it before any other turn, never within one.
        """
        return _held(self._candidates, alone=without_others)

    @contextmanager
    def beside_others(self, longest_s: float = LONGEST_TURN_S) -> Iterator[None]:
        """Wait while another evaluator measures, and keep all from measuring until the block ends or `longest_s` have
        passed: a call that hangs may spoil others' measurements, but not hold them up. Within `alone` it does nothing.
        """
        if self._alone or self._measuring is None:
            yield
        elif self._kept is None:
            with self._measuring.held(alone=False, longest_s=longest_s):
                yield
        else:
            if not self._keep_until:
                self._kept.enter_context(self._measuring.held(alone=False, longest_s=longest_s))
                self._keep_until = time.monotonic() + self._keep_s
            yield
            if time.monotonic() > self._keep_until:
                self._keep_until = 0.0
                self._kept.close()

    @contextmanager
    def keeping(self, most_s: float) -> Iterator[None]:
        """Keep one turn beside others, for up to `most_s`, for all `beside_others` within the block: for questions that
        are answered sooner than a turn comes.
        """
        with ExitStack() as kept:
            self._kept, self._keep_s = kept, most_s
            try:
                yield
            finally:
                self._kept, self._keep_until = None, 0.0

    @contextmanager
    def alone(self, longest_s: float = threading.TIMEOUT_MAX, rest_s: float = 0.0) -> Iterator[None]:
        """Wait until no other evaluator uses the device, and keep all off it until the block ends or `longest_s` have
        passed. Never enter it within `beside_others`. `rest_s`: seconds of rest before the block, so that the device
        cools down.
        """
        with _held(self._measuring, alone=True, longest_s=longest_s):
            self._alone = True
            try:
                time.sleep(rest_s)
                yield
            finally:
                self._alone = False

    def close(self) -> None:
        """Close the locks; a second call does nothing."""
        for room in (self._measuring, self._candidates):
            if room is not None:
                room.close()
        self._measuring = self._candidates = None


def _held(room: _Room | None, *, alone: bool, longest_s: float = threading.TIMEOUT_MAX) -> AbstractContextManager[None]:
    return nullcontext() if room is None else room.held(alone=alone, longest_s=longest_s)
