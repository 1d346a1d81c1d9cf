"""Which of several evaluators side by side gets a candidate: one that has its problem open already, if there is one.

Opening a problem (its inputs, its reference in two precisions) takes longer than judging most candidates, and a step of
training asks about few problems many times. On a GPU several that open at once hold each other up, so candidates wait
for the first to have opened their problem, and only where that would take longer another one opens it as well.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_PATIENCE_S = 5.0  # for which a candidate waits for who knows its problem, even where opening it takes less
_PATIENT = 2.0  # times as long as opening it usually takes: the first candidate may be endless
_OPENING_S = 10.0  # which is so long until it was seen
_MOST_DURATIONS = 4096  # problems of which it is remembered
_FAIR_S = 60.0  # after which a candidate's turn has come, whatever others would save


@dataclass(eq=False)
class _Slot:
    worker: ProcessPoolExecutor  # of one process
    busy: bool = False
    # problem -> since when it is being opened, 0.0 once it is open; the last used one last
    known: OrderedDict[str, float] = field(default_factory=OrderedDict)


@dataclass(eq=False)
class _Ticket:
    problem: str
    since: float
    slot: _Slot | None = None


@dataclass
class _Durations:
    """What a problem's candidates take, seconds: the first in a process, with which it is opened, and any other."""

    opening: float = 0.0
    judging: float = 0.0

    def see(self, seconds: float, opened: bool) -> None:
        """The latest counts half: how long it takes depends on who else is at work."""
        name = "opening" if opened else "judging"
        before = getattr(self, name)
        setattr(self, name, (before + seconds) / 2 if before else seconds)


class Slots:
    """Worker processes, each of which does one thing at a time and remembers the problems it has seen.

    Args:
        count: of processes.
        start: makes an executor of one process.
        remembered: problems that a process keeps open.
        opens: of what a function returned, whether its problem was opened for that.
    """

    def __init__(
        self, count: int, start: Callable[[], ProcessPoolExecutor], remembered: int,
        opens: Callable[[Any], bool] = lambda result: True,
    ) -> None:  # fmt: skip
        self._start, self._remembered, self._opens = start, max(1, remembered), opens
        self._slots = [_Slot(start()) for _ in range(count)]
        for slot in self._slots:
            slot.worker.submit(os.getpid)  # so that all start now, side by side
        self._waiting: list[_Ticket] = []
        self._durations: OrderedDict[str, _Durations] = OrderedDict()
        self._usual = _Durations(_OPENING_S)  # of problems about which nothing is known yet
        self._change = threading.Condition()

    def run(self, problem: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """The function's result, from the process that suits the problem best; blocks until that is free.

        Raises:
            BrokenProcessPool: the process died of it; a new one has taken its place.
        """
        with self._taken(problem) as slot:
            started = time.monotonic()
            try:
                future = slot.worker.submit(function, *arguments)
            except BrokenProcessPool:  # it died while it had nothing to do: nobody's attempt
                with self._change:
                    self._replace(slot)
                    slot.known[problem] = started
                future = slot.worker.submit(function, *arguments)
            try:
                result = future.result()
            except BrokenProcessPool:
                with self._change:
                    self._replace(slot)
                raise
            if self._opens(result):
                with self._change:
                    self._learn(slot, problem, time.monotonic() - started)
            return result

    def _replace(self, slot: _Slot) -> None:
        slot.worker.shutdown(wait=False, cancel_futures=True)
        slot.worker = self._start()
        slot.known.clear()

    def pids(self) -> set[int]:
        """Of the processes that have been started."""
        return {pid for slot in self._slots for pid in list(slot.worker._processes or ())}

    def close(self) -> None:
        """Ends every process; calling it twice is fine."""
        for slot in self._slots:
            slot.worker.shutdown(wait=True, cancel_futures=True)

    @contextmanager
    def _taken(self, problem: str) -> Iterator[_Slot]:
        ticket = _Ticket(problem, time.monotonic())
        try:
            with self._change:
                self._waiting.append(ticket)
                while ticket.slot is None:
                    self._assign()
                    if ticket.slot is None:
                        self._change.wait(_PATIENCE_S / 5)
            yield ticket.slot
        finally:
            with self._change:
                if ticket.slot is None:  # interrupted before its turn
                    self._waiting.remove(ticket)
                else:
                    ticket.slot.busy = False
                    if ticket.slot.known.get(problem):  # it never came to that
                        del ticket.slot.known[problem]
                self._change.notify_all()

    def _learn(self, slot: _Slot, problem: str, seconds: float) -> None:
        for one in (self._durations.setdefault(problem, _Durations()), self._usual):
            one.see(seconds, opened=slot.known[problem] > 0)
        self._durations.move_to_end(problem)
        if len(self._durations) > _MOST_DURATIONS:
            self._durations.popitem(last=False)
        slot.known[problem] = 0.0

    def _assign(self) -> None:
        """Gives free processes to whom they suit, as far as that goes."""
        while free := [slot for slot in self._slots if not slot.busy]:
            pairs = [(self._rank(slot, one), one.since, slot, one) for slot in free for one in self._waiting]
            rank, _, slot, ticket = min(pairs, key=lambda pair: pair[:2], default=(3, 0.0, None, None))
            if rank > 2:
                return
            self._waiting.remove(ticket)
            ticket.slot, slot.busy = slot, True
            slot.known.setdefault(ticket.problem, time.monotonic())
            slot.known.move_to_end(ticket.problem)
            while len(slot.known) > self._remembered:
                slot.known.popitem(last=False)
            self._change.notify_all()

    def _rank(self, slot: _Slot, ticket: _Ticket) -> int:
        """How well they suit each other: 0 best, above 2 not yet."""
        now = time.monotonic()
        if ticket.problem in slot.known:
            return 0
        knowing = [other.known[ticket.problem] for other in self._slots if ticket.problem in other.known]
        if not knowing:
            return 0 if now - ticket.since > _FAIR_S else 1
        took = self._durations.get(ticket.problem, self._usual)
        patience = max(_PATIENCE_S, _PATIENT * took.opening)
        if any(knowing):  # somebody is opening it; the next one does so only when that takes long
            return 3 if now - max(knowing) <= patience else 2
        if now - ticket.since > _FAIR_S:
            return 0
        queue = sum(other.problem == ticket.problem for other in self._waiting)
        soon = queue * took.judging / len(knowing) <= took.opening and now - ticket.since <= patience
        return 3 if soon else 2
