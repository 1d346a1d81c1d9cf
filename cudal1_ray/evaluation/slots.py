"""Which of several evaluators side by side gets a candidate: one that has its problem open already, if there is one.

Opening a problem (its inputs, its reference in two precisions) takes longer than judging most candidates, and a step of
training asks about few problems many times.
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

_QUEUE = 2  # candidates that wait for each evaluator that knows their problem, before another opens it as well
_PATIENCE_S = 5.0  # so long at most: who knows the problem may be busy with something endless
_FAIR_S = 30.0  # after which a candidate's turn has come, whatever others would save


@dataclass(eq=False)
class _Slot:
    worker: ProcessPoolExecutor  # of one process
    busy: bool = False
    known: OrderedDict[str, None] = field(default_factory=OrderedDict)  # problems, the last used one last


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
    """

    def __init__(self, count: int, start: Callable[[], ProcessPoolExecutor], remembered: int) -> None:
        self._start, self._remembered = start, max(1, remembered)
        self._slots = [_Slot(start()) for _ in range(count)]
        for slot in self._slots:
            slot.worker.submit(os.getpid)  # so that all start now, side by side
        self._waiting: list[_Ticket] = []
        self._change = threading.Condition()

    def run(self, problem: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """The function's result, from the process that suits the problem best; blocks until that is free.

        Raises:
            BrokenProcessPool: the process died of it; a new one has taken its place.
        """
        with self._taken(problem) as slot:
            try:
                future = slot.worker.submit(function, *arguments)
            except BrokenProcessPool:  # it died while it had nothing to do: nobody's attempt
                self._replace(slot)
                slot.known[problem] = None
                future = slot.worker.submit(function, *arguments)
            try:
                return future.result()
            except BrokenProcessPool:
                self._replace(slot)
                raise

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
                self._change.notify_all()

    def _assign(self) -> None:
        """Gives free processes to whom they suit, as far as that goes."""
        while free := [slot for slot in self._slots if not slot.busy]:
            pairs = [(self._rank(slot, one), one.since, slot, one) for slot in free for one in self._waiting]
            rank, _, slot, ticket = min(pairs, key=lambda pair: pair[:2], default=(3, 0.0, None, None))
            if rank > 2:
                return
            self._waiting.remove(ticket)
            ticket.slot, slot.busy = slot, True
            slot.known[ticket.problem] = None
            slot.known.move_to_end(ticket.problem)
            while len(slot.known) > self._remembered:
                slot.known.popitem(last=False)
            self._change.notify_all()

    def _rank(self, slot: _Slot, ticket: _Ticket) -> int:
        """How well they suit each other: 0 best, above 2 not yet."""
        waited = time.monotonic() - ticket.since
        if ticket.problem in slot.known or waited > _FAIR_S:
            return 0
        knowing = sum(ticket.problem in other.known for other in self._slots)
        if not knowing:
            return 1
        queue = sum(other.problem == ticket.problem for other in self._waiting)
        return 2 if queue > _QUEUE * knowing or waited > _PATIENCE_S else 3
