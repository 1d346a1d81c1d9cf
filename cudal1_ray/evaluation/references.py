"""The references that candidates are timed against: which process runs them, and what is kept of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .config import EvaluationConfig
from .contestants.handles import ForkServer, Misbehaviour
from .contestants.kept import KeptProcess
from .cores import Cores, launching_from_one_core
from .referee.inputs import Inputs
from .referee.judge import ask_trial, first_turn
from .referee.session import ProblemFault, ProblemSession
from .referee.timed_contestant import TimedContestant
from .timing.pairs import measure_overhead, warm_up
from .turns import LONGEST_TURN_S, Turns


@contextmanager
def favoured(config: EvaluationConfig, *contestants: TimedContestant) -> Iterator[int]:
    """They go before others; on a GPU, where launches count, from one core, whose number is given (else -1)."""
    watches = [contestant.handle.watch for contestant in contestants]
    for watch in watches:
        watch.prioritise()
    if config.device == "cpu":
        yield -1
    else:
        with launching_from_one_core(watches, config.measuring_core) as core:
            yield core


class References:
    """The timed reference of any session: same fork, same locks, same state of memory as the candidate.

    A compiled baseline is kept from candidate to candidate (it takes long to make), and given its first state back. On
    a GPU the eager one lives in the process of those before it (``keeps``), or in one of its own: nobody's place in
    memory is to count for one side in all of a measurement.
    """

    def __init__(
        self, config: EvaluationConfig, server: ForkServer, cores: Cores, chance: random.Random, turns: Turns,
        keeps: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._config, self._server, self._cores = config, server, cores
        self._chance, self._turns, self._keeps = chance, turns, keeps
        self._process = KeptProcess(server, "reference")

    def take(self, session: ProblemSession, *, fresh: bool = False) -> TimedContestant:
        """A reference that is ready to be timed; `release` takes it back.

        Args:
            fresh: in a process of its own, where it is the eager one.

        Raises ProblemFault where it fails, in a process that nobody has used before it, too.
        """
        kept = self._kept(session, fresh)
        lent = self._keeps() and self._eager and not fresh
        try:
            if kept is not None:
                kept.reset()
                return kept
            return self._start(session, self._process if lent else None)
        except Misbehaviour as error:
            if kept is None and not lent:
                raise ProblemFault("reference_error", f"{error.reason}: {error.detail}") from None
        if kept is not None:
            kept.close()
        return self.take(session, fresh=True)  # what others left behind in a process is not its fault

    def renew(self, session: ProblemSession) -> None:
        """Makes a fresh one, which the next `take` gives. Errors as there."""
        session.reference = self.take(session, fresh=True)

    def release(self, session: ProblemSession, reference: TimedContestant) -> None:
        """Keeps what may serve again."""
        if reference.failed or (self._eager and reference.process is None):
            reference.close()
        else:
            session.reference = reference

    def forget(self) -> None:
        """The server has died."""
        self._process.forget()

    def drop(self) -> None:
        """Ends the process that lives on; calling it twice is fine."""
        self._process.drop()

    @property
    def _eager(self) -> bool:
        return self._config.against == "eager"

    def _kept(self, session: ProblemSession, fresh: bool) -> TimedContestant | None:
        kept, session.reference = session.reference, None
        if kept is None:
            return None
        if (fresh and self._eager) or kept.generation != self._server.generation or not self._server.alive:
            kept.close()
            return None
        return kept

    def _start(self, session: ProblemSession, process: KeptProcess | None) -> TimedContestant:
        source, cores, config = session.source, self._cores.numbers, self._config
        reference = TimedContestant(self._server, session, source, "reference", cores, process=process)
        try:
            reference.call_limit_s = config.limits.first_call_timeout_s
            inputs = Inputs(session, self._chance)
            # It answers a question, as every candidate has when it is timed: what a process did before shows.
            turn, asked = first_turn(session, self._turns), session.ask(session.own[0])
            ask_trial(reference, session.own[0], asked, self._chance, briefly=True, turn=turn)
            with self._turns.beside_others(LONGEST_TURN_S):  # a compiled one takes longer, and hardly of the device
                seconds = warm_up(reference, inputs, config.timing.warmup_calls)
                if not session.reference_seen:
                    last = reference.fetch(0, [0.0])
                    reference.fetch_inputs(0, [0.0], last)
                    session.saw_reference(last.aliased, bool(last.borrowed))
            reference.ask({"op": "lock"}, 30.0, "locking")
            if not session.reference_ms:  # no candidate has run beside it yet
                session.solo_ms = 1e3 * seconds
                session.overhead_s = measure_overhead(reference, inputs).cpu
            session.reference_ms = 1e3 * seconds
        except BaseException:
            reference.close()
            raise
        return reference
