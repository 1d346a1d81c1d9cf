"""Which worker evaluates which candidate next, for processes side by side on a device and for a cluster.

Opening a problem (its inputs, its reference in two precisions) takes longer than most candidates, and a training step
asks about few problems many times. So each problem's first candidate goes before others, and further ones go to a
worker that has their problem open, if there is one.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf

# Most attempts at one candidate when the evaluator's own processes die.
ATTEMPTS = 3
# Seconds for which candidates wait for their problem's first one, which may hang; openings take up to 15 s.
PATIENCE_S = 20.0
# Seconds after which a waiting candidate is due, whatever another order would save.
FAIR_S = 60.0
# Most problems that are remembered as being in the store.
_MOST_OPENED = 4096
# Waiting candidates among which the next one is chosen.
_MOST_COMPARED = 64


@dataclass(eq=False)
class Work:
    """A candidate that waits, or that a worker has.

    Attributes:
        problem: the key of its problem.
        worker: the worker that has it; None while it waits.
        attempts: workers that it was given to since its last measurement.
        suspect: a worker that had it died; it goes to a worker without other candidates.
        measured: it needs another measurement, and goes before candidates without any.
    """

    work_id: str
    problem: str
    worker: int | None = None
    attempts: int = 0
    suspect: bool = False
    measured: bool = False
    since: float = field(default_factory=time.monotonic)


class Schedule:
    """Candidates that wait, and what each worker has; not for several threads at once. A back end hands assigned
    candidates to the workers and reports their results here.

    Args:
        room: most candidates that a worker takes at once.
        familiar: a worker that has a problem open is preferred to one with this many candidates fewer.
        remembered: problems that a worker keeps open.
        patience_s: seconds for which a problem's candidates wait until its first one is done, or `opened` reports that
            every worker can read the problem from a store; 0.0 where workers share no store.
        may: whether a worker may have a candidate.
    """

    def __init__(
        self, *, room: int = 1, familiar: int = 1, remembered: int = 1, patience_s: float = 0.0,
        may: Callable[[Work, int], bool] = lambda work, worker: True,
    ) -> None:  # fmt: skip
        self._room, self._familiar, self._remembered = room, familiar, max(1, remembered)
        self._patience_s, self._may = patience_s, may
        self._waiting: list[Work] = []
        self._held: dict[int, list[Work]] = {}
        self._known: dict[int, OrderedDict[str, None]] = {}  # worker -> problems that it has open, the latest last
        self._opening: dict[str, float] = {}  # problem -> when the latest of its first candidates was assigned
        self._opened: OrderedDict[str, None] = OrderedDict()

    def submit(self, work: Work) -> None:
        self._waiting.append(work)

    def load(self, worker: int) -> int:
        """Return the number of candidates that a worker has."""
        return len(self._held.get(worker, ()))

    def assign(self, workers: Iterable[int]) -> list[Work]:
        """Give waiting candidates to those of `workers` that have room and suit them, and return these candidates.
        Suspects go first: other candidates wait until each suspect has a worker without others.
        """
        assigned: list[Work] = []
        workers = list(workers)
        while True:
            now = time.monotonic()
            next_ones = [work for work in self._waiting if work.suspect] or self._waiting[:_MOST_COMPARED]
            begun = {work.problem for held in self._held.values() for work in held}
            begun |= {work.problem for work in self._waiting if work.problem in self._opened}
            more = len(begun) < self._familiar * len(workers)
            pairs = [
                (self._cost(work, worker, now, first=more and work.problem not in begun), work, worker)
                for work in next_ones
                for worker in workers
                if self._suits(work, worker, now)
            ]
            if not pairs:
                return assigned
            _, work, worker = min(pairs, key=lambda pair: pair[0])
            self._give(work, worker, now)
            assigned.append(work)

    def done(self, work: Work, *, opened: bool = True) -> None:
        """Take back a candidate that has its verdict or was cancelled. `opened`: its problem was opened for it."""
        self._take_back(work)
        if opened:
            self.opened(work.problem)

    def opened(self, problem: str) -> None:
        """Record that every worker can read this problem, although its first candidate is not done."""
        _remember(self._opened, problem, _MOST_OPENED)

    def again(self, work: Work) -> None:
        """Take back a candidate that has to be measured once more."""
        self._take_back(work)
        work.measured, work.attempts = True, 0
        self._waiting.append(work)

    def lost(self, worker: int) -> list[Work]:
        """Take back what a dead worker had; return the candidates that are given up after `ATTEMPTS` attempts."""
        self._known.pop(worker, None)
        held = list(self._held.get(worker, ()))
        for work in held:
            self._take_back(work)
            work.suspect = True
        self._waiting[:0] = [work for work in held if work.attempts < ATTEMPTS]
        return [work for work in held if work.attempts >= ATTEMPTS]

    def _suits(self, work: Work, worker: int, now: float) -> bool:
        held = self._held.get(worker, ())
        alone = work.suspect or any(other.suspect for other in held)
        if len(held) >= (1 if alone else self._room) or not self._may(work, worker):
            return False
        familiar = work.problem in self._opened or work.problem in self._known.get(worker, ())
        return familiar or now - self._opening.get(work.problem, -inf) >= self._patience_s

    def _cost(self, work: Work, worker: int, now: float, *, first: bool) -> tuple[bool, bool, int]:
        """Return a key that is smaller the better they suit each other; the first candidate wins a tie. `first`: its
        problem is to be opened now.
        """
        due = now - work.since > FAIR_S
        preferred = work.problem in self._known.get(worker, ()) or due
        return not work.measured, not (first or due), self.load(worker) - (self._familiar if preferred else 0)

    def _give(self, work: Work, worker: int, now: float) -> None:
        self._waiting.remove(work)
        self._held.setdefault(worker, []).append(work)
        work.worker, work.attempts = worker, work.attempts + 1
        _remember(self._known.setdefault(worker, OrderedDict()), work.problem, self._remembered)
        if work.problem not in self._opened:
            self._opening[work.problem] = now

    def _take_back(self, work: Work) -> None:
        if work.worker is not None:
            self._held[work.worker].remove(work)
            self._opening.pop(work.problem, None)
            work.worker, work.suspect = None, False
        elif work in self._waiting:
            self._waiting.remove(work)


def _remember(problems: OrderedDict[str, None], problem: str, most: int) -> None:
    problems[problem] = None
    problems.move_to_end(problem)
    if len(problems) > most:
        problems.popitem(last=False)
