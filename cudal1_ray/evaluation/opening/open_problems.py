"""The problems that one evaluator holds open, and the faults of those that cannot be opened."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from cudal1_ray.evaluation.host.kept_process import KeptProcess
from cudal1_ray.evaluation.opening.keys import session_key
from cudal1_ray.evaluation.opening.maker_requests import NeedsRoom, open_problem
from cudal1_ray.evaluation.opening.references import Machinery, References
from cudal1_ray.evaluation.opening.session import ProblemFault, ProblemSession
from cudal1_ray.evaluation.opening.store import SessionStore
from cudal1_ray.problems import Problem


class OpenProblems:
    """Sessions by problem, as many as the configuration has room for; the least recently used one is closed first.

    A session comes from the store that evaluators of the device share (`config.problem_cache`) if it is there, else
    from a maker process, after which it is saved to the store.

    Args:
        stored: called with the key of each problem that is in the store.
    """

    def __init__(self, machinery: Machinery, references: References, stored: Callable[[str], None]) -> None:
        self._machinery, self._config = machinery, machinery.config
        self._references, self._report_stored = references, stored
        self._store = SessionStore(machinery.config)
        self._sessions: OrderedDict[str, ProblemSession] = OrderedDict()
        self._faults: dict[str, ProblemFault] = {}
        self._handed_over: set[str] = set()  # problems whose inputs other processes would draw differently
        self._maker = KeptProcess(machinery.server, "maker", lives_on=machinery.keeps)

    def find(self, problem: Problem) -> ProblemSession | None:
        """Return the problem's session, None unless it is open."""
        return self._sessions.get(session_key(problem))

    def is_degenerate(self, problem: Problem) -> bool:
        """Return whether the output is known not to depend on the inputs; False for a problem never opened."""
        fault, session = self._faults.get(session_key(problem)), self.find(problem)
        return fault is not None and fault.reason == "degenerate_input" or session is not None and session.degenerate

    def session(self, problem: Problem, *, has_room: bool) -> ProblemSession:
        """Return the problem's session, its reference timed once.

        Raises:
            ProblemFault: where it cannot be opened (remembered), or its reference fails.
            NeedsRoom: where it is too large to be evaluated beside others, without `has_room`.
            Redrawn: where another process draws different inputs from the same seed, see `hand_over`.
        """
        key = session_key(problem)
        if key in self._faults:
            raise self._faults[key]
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = self._stored(problem) or self._open(problem, has_room)
            self._drop_oldest()
        self._sessions.move_to_end(key)
        if session.alone and not has_room:  # it was opened by another evaluator
            raise NeedsRoom
        if not session.reference_ms:  # the process that is timed serves in the first measurement too
            session.reference = self._references.take(session)
            if self._store.save(session, self._draws(key)):
                self._report_stored(key)
        return session

    def _draws(self, key: str) -> bool:
        return key not in self._handed_over

    def _stored(self, problem: Problem) -> ProblemSession | None:
        key = session_key(problem)
        stored = self._store.load(problem, self._draws(key))
        if isinstance(stored, ProblemFault):
            self._faults[key] = stored
            raise stored
        if stored is not None:
            self._report_stored(key)
        return stored

    def _drop_oldest(self) -> None:
        while len(self._sessions) > 1 and (
            len(self._sessions) > self._config.live_references
            or sum(session.nbytes for session in self._sessions.values()) > self._config.live_mib << 20
        ):
            self._sessions.popitem(last=False)[1].close()

    def _open(self, problem: Problem, has_room: bool) -> ProblemSession:
        """Open a problem; raise ProblemFault, which is remembered, if a process without earlier problems fails, too."""
        key, used, maker = session_key(problem), self._maker.used, self._maker.take()
        try:
            session = open_problem(
                maker, problem, self._config, self._machinery.chance, self._machinery.turns,
                has_room=has_room, draws=self._draws(key),
            )  # fmt: skip
            maker.shares(session.shared_mib)
            return session
        except ProblemFault as fault:
            failed = fault.reason == "reference_error"
            if failed:  # the failed reference may have left the process in any state
                self._maker.drop()
            if not (failed and used):
                self._faults[key] = fault
                self._store.save_fault(problem, fault, self._draws(key))
                raise
        finally:
            self._maker.clear()
        return self._open(problem, has_room)

    def hand_over(self, problem: Problem) -> None:
        """Have the problem's inputs copied to processes from now on, instead of drawn there; close its session."""
        self._handed_over.add(session_key(problem))
        self.forget(problem)

    def forget_fault(self, problem: Problem) -> None:
        """Forget why the problem could not be used: others' work on the device may have caused it."""
        self._faults.pop(session_key(problem), None)

    def forget(self, problem: Problem) -> None:
        """Close a problem, and end the processes that may hold part of it."""
        session = self._sessions.pop(session_key(problem), None)
        if session is not None:
            session.close()
        self._maker.drop()
        self._references.drop()

    def give_up_references(self, *, all_of_them: bool = False) -> None:
        """End kept references as `References.give_up` does, those of the least recently used problems first."""
        self._references.give_up(self._sessions.values(), all_of_them=all_of_them)

    def server_died(self) -> None:
        """Forget the processes that ended with their server."""
        self._maker.drop()
        self._references.drop()
        self.give_up_references(all_of_them=True)

    def close(self) -> None:
        """Close all problems; a second call does nothing."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
        self._maker.drop()
        self._references.drop()
