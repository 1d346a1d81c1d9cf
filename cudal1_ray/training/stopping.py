"""Ending a run between two steps: on SIGTERM, or before a time budget is over."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class RunStopped(Exception):
    """The run ends here, with all that it did on disk; the message states why, in one line."""


class Stopper:
    """Decides when a run has to end.

    Between steps a SIGTERM ends the run at once, by the exception of Ctrl-C: a call of Ray that waits passes on no
    other. Within `after_this_step` it is noted, and the loop of steps ends when it asks next. Signals reach the main
    thread only; elsewhere the budget alone counts.

    Args:
        max_minutes: wall time of this start of the run, from here on; None: no limit.

    Attributes:
        terminated: there was a SIGTERM.
    """

    def __init__(self, max_minutes: float | None = None):
        self._limit_s = None if max_minutes is None else max_minutes * 60.0
        self._started = time.monotonic()
        self.terminated = False
        self._in_steps = False

    def listen(self) -> None:
        """Handle SIGTERM from now on."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._terminate)

    @contextmanager
    def while_ray_starts(self) -> Iterator[None]:
        """Handle SIGTERM although Ray, which starts within the context, sets a handler of its own that exits."""
        try:
            yield
        except SystemExit as end:
            if end.code != signal.SIGTERM:
                raise
            self.terminated = True
            raise KeyboardInterrupt from None
        finally:
            self.listen()

    @contextmanager
    def after_this_step(self) -> Iterator[None]:
        """Let a SIGTERM within the context wait until `reason` is asked for."""
        self._in_steps = True
        try:
            yield
        finally:
            self._in_steps = False

    def reason(self, next_step_s: float = 0.0) -> str:
        """Return why no further step may begin; empty when one may.

        Args:
            next_step_s: seconds that the next step is expected to take.
        """
        if self.terminated:
            return "SIGTERM"
        if self._limit_s is not None and time.monotonic() - self._started + next_step_s > self._limit_s:
            return f"max_minutes={self._limit_s / 60:g}"
        return ""

    def check(self, next_step_s: float = 0.0) -> None:
        """Raise RunStopped where `reason` has one."""
        if reason := self.reason(next_step_s):
            raise RunStopped(reason)

    def _terminate(self, number: int, frame: object) -> None:
        at_once = self.terminated or not self._in_steps  # the second one does not wait
        self.terminated = True
        if at_once:
            raise KeyboardInterrupt
