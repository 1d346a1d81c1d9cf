"""Which of several evaluators side by side gets a candidate: one that has its problem open, if there is one.

Opening a problem (its inputs, its reference in two precisions) takes longer than judging most candidates, and a step of
training asks about few problems many times. So candidates wait for the first one of their problem to have opened it;
after that every evaluator can read it from the store that they share, in a fraction of that time.
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

# Seconds for which candidates wait for the first of their problem: that one may be endless, and openings take up to 15.
_PATIENCE_S = 20.0
_FAIR_S = 60.0  # seconds after which a candidate's turn has come, whatever others would save
_MOST_OPENED = 4096  # problems of which it is remembered that they are in the store


@dataclass(eq=False)
class _Slot:
    worker: ProcessPoolExecutor  # of one process
    busy: bool = False
    known: OrderedDict[str, None] = field(default_factory=OrderedDict)  # problems that it has open, the latest last


@dataclass(eq=False)
class _Ticket:
    problem: str
    since: float
    slot: _Slot | None = None


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
        self._opening: dict[str, float] = {}  # problem -> since when the last of its first candidates is judged
        self._opened: OrderedDict[str, None] = OrderedDict()
        self._change = threading.Condition()

    def run(self, problem: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """The function's result, from the process that suits the problem best; blocks until that is free.

        Raises:
            BrokenProcessPool: the process died of it; a new one has taken its place.
        """
        with self._taken(problem) as slot:
            try:
                future = slot.worker.submit(function, *arguments)
            except BrokenProcessPool:  # it died while it had nothing to do: that is no attempt
                self._replace(slot)
                future = slot.worker.submit(function, *arguments)
            try:
                result = future.result()
            except BrokenProcessPool:
                self._replace(slot)
                raise
            if self._opens(result):
                self._learn(slot, problem)
            return result

    def _replace(self, slot: _Slot) -> None:
        with self._change:
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
                    self._opening.pop(problem, None)
                self._change.notify_all()

    def _learn(self, slot: _Slot, problem: str) -> None:
        with self._change:
            for known, most in ((slot.known, self._remembered), (self._opened, _MOST_OPENED)):
                known[problem] = None
                known.move_to_end(problem)
                if len(known) > most:
                    known.popitem(last=False)

    def _assign(self) -> None:
        """Gives free processes to the candidates that they suit, as far as that goes."""
        while free := [slot for slot in self._slots if not slot.busy]:
            pairs = [(self._rank(slot, one), one.since, slot, one) for slot in free for one in self._waiting]
            rank, _, slot, ticket = min(pairs, key=lambda pair: pair[:2], default=(3, 0.0, None, None))
            if rank > 2:
                return
            self._waiting.remove(ticket)
            ticket.slot, slot.busy = slot, True
            if ticket.problem not in self._opened:
                self._opening[ticket.problem] = time.monotonic()
            self._change.notify_all()

    def _rank(self, slot: _Slot, ticket: _Ticket) -> int:
        """How well they suit each other: 0 best, above 2 not yet."""
        now = time.monotonic()
        if ticket.problem in slot.known:
            return 0
        if ticket.problem not in self._opened and now - self._opening.get(ticket.problem, -_PATIENCE_S) < _PATIENCE_S:
            return 3
        if now - ticket.since > _FAIR_S:
            return 0
        return 2 if ticket.problem in self._opened else 1
