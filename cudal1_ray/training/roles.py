"""How much of a run's time each role is busy, and how much it waits for the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cudal1_ray.training.crew import Crew

ROLES = ("rollout", "evaluation", "learner")


class RoleClock:
    """Busy seconds of every role since the last lap, whatever else went on meanwhile.

    Those of several members are added up: an evaluator that works all the time beside one that does nothing make one
    busy second a second, of two possible ones.

    Attributes:
        members: how many each role has, of the roles that the run started.
    """

    def __init__(self, crew: Crew):
        cluster = crew.config.cluster
        self._crew = crew
        counts = (cluster.rollout.count, cluster.evaluator.count, 1)
        self.members = {role: count for role, count in zip(ROLES, counts, strict=True) if count}
        self._learned_s = 0.0
        self._lock = threading.Lock()
        self._learning_since: float | None = None
        self._lap_started, self._before = time.perf_counter(), self._busy()

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Count the learner as busy within the context, which may be another thread than the one that asks for laps."""
        self._learning_since = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                since, self._learning_since = self._learning_since, None
                self._learned_s += time.perf_counter() - since

    def lap(self) -> dict[str, float]:
        """Return, since the last lap, `step_s`, and for each role `busy_<role>` in seconds and `idle_<role>` as a
        share.
        """
        now, busy = time.perf_counter(), self._busy()
        step_s = max(now - self._lap_started, 1e-9)
        spent = {role: busy[role] - self._before[role] for role in self.members}
        self._lap_started, self._before = now, busy
        figures = {"step_s": step_s} | {f"busy_{role}": seconds for role, seconds in spent.items()}
        return figures | {f"idle_{role}": share for role, share in idle_shares(spent, step_s, self.members).items()}

    def _busy(self) -> dict[str, float]:
        with self._lock:
            since = self._learning_since
            learned_s = self._learned_s + (0.0 if since is None else time.perf_counter() - since)
        return {
            "rollout": self._crew.rollouts.busy_s,
            "evaluation": self._crew.evaluations.busy_s,
            "learner": learned_s,
        }


def idle_shares(busy_s: Mapping[str, float], seconds: float, members: Mapping[str, int]) -> dict[str, float]:
    """Return the share of `seconds` in which a role's members, on average, had nothing to do, between 0 and 1."""
    return {role: min(1.0, max(0.0, 1.0 - busy / (seconds * members[role]))) for role, busy in busy_s.items()}


def idle_over_steps(rows: Iterable[Mapping[str, Any]], members: Mapping[str, int]) -> dict[str, float]:
    """Return each role's idle share over all the time that metrics rows stand for; empty without a row that has it."""
    timed = [row for row in rows if row.get("step_s") and "busy_learner" in row]
    if not timed:
        return {}
    seconds = sum(row["step_s"] for row in timed)
    return idle_shares({role: sum(row.get(f"busy_{role}", 0.0) for row in timed) for role in members}, seconds, members)


def idle_line(stage: str, rows: Iterable[Mapping[str, Any]], members: Mapping[str, int]) -> str:
    """Return one line for the end of a stage; empty when there is nothing to report."""
    shares = idle_over_steps([row for row in rows if row["stage"] == stage], members)
    text = ", ".join(f"{role} {share:.0%}" for role, share in shares.items())
    return f"{stage.replace('_', ' ')}: idle {text}" if text else ""
