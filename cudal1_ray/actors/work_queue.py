"""Stateless work over a fleet: each piece goes to whichever member is idle, and again to another if that one dies."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from cudal1_ray.actors.fleet import Fleet


@dataclass(frozen=True)
class WorkResult:
    """A finished piece of work: `value`, or `error` when every attempt lost its member."""

    work_id: str
    value: Any = None
    error: str = ""


class WorkQueue:
    """Runs `method(*args)` on the members of a fleet.

    Work whose member died is issued again, up to `max_attempts` times: a candidate that takes its evaluator down
    each time ends as an error of its own, and costs the others nothing.
    """

    def __init__(self, fleet: Fleet, method: str, max_attempts: int = 3):
        self.fleet, self.busy_s = fleet, 0.0
        self._method, self._max_attempts = method, max_attempts
        self._waiting: deque[str] = deque()
        self._args: dict[str, tuple[Any, ...]] = {}
        self._attempts: dict[str, int] = {}

    def submit(self, work_id: str, *args: Any) -> None:
        self._args[work_id], self._attempts[work_id] = args, 0
        self._waiting.append(work_id)

    @property
    def outstanding(self) -> int:
        """Return the number of pieces submitted and not yet collected."""
        return len(self._args)

    def collect(self, timeout_s: float = 0.02) -> list[WorkResult]:
        """Hand out waiting work, then return what is finished, waiting at most `timeout_s` for it."""
        self._hand_out()
        done = []
        for reply in self.fleet.replies(timeout_s) if self._args else []:
            self.busy_s += reply.busy_s
            if reply.error and self._attempts[reply.call_id] < self._max_attempts:
                self._waiting.appendleft(reply.call_id)
                continue
            del self._args[reply.call_id], self._attempts[reply.call_id]
            done.append(WorkResult(reply.call_id, reply.value, reply.error))
        self._hand_out()
        return done

    def _hand_out(self) -> None:
        for member in self.fleet.idle:
            if not self._waiting:
                return
            work_id = self._waiting.popleft()
            self._attempts[work_id] += 1
            self.fleet.send(member, work_id, self._method, *self._args[work_id])
