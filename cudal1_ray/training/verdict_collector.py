"""From candidates to verdicts: compiled on the CPU, evaluated on a device, each distinct candidate once."""

from __future__ import annotations

import time
from collections import defaultdict

from cudal1_ray.actors.evaluation_queue import lost_verdict
from cudal1_ray.evaluation import Verdict
from cudal1_ray.problems import Problem
from cudal1_ray.rewards import is_void
from cudal1_ray.training.crew import Crew
from cudal1_ray.training.journal import VerdictJournal
from cudal1_ray.training.progress import IDLE, Progress


class VerdictCollector:
    """Verdicts for candidates as they come. Those that the journal knows, or that are pending already, cost nothing.

    Args:
        scope: part of the journal: verdicts of other scopes are not used.

    Attributes:
        verdicts: by request id, filled by `submit` (known ones) and `collect`.
    """

    def __init__(self, crew: Crew, journal: VerdictJournal, progress: Progress, scope: str):
        self._crew, self._journal, self._progress, self._scope = crew, journal, progress, scope
        self.verdicts: dict[str, Verdict] = {}
        self._waiters: dict[str, list[str]] = defaultdict(list)  # candidate key -> request ids
        self._candidates: dict[str, tuple[Problem, str]] = {}
        self._held_back: list[str] = []
        self._best_speedups: dict[str, float] = {}

    def begin_batch(self) -> None:
        """Begin a batch, whose candidates are held against the best speedups that are known by now."""
        self._best_speedups.clear()

    def submit(self, request_id: str, problem: Problem, code: str) -> bool:
        """Take a candidate, of which nothing is sent to an actor before `release`; return whether it is one to be
        evaluated.
        """
        key = self._journal.key(problem.problem_id, code)
        if verdict := self._journal.get(self._scope, key):
            self.verdicts[request_id] = verdict
            return False
        self._waiters[key].append(request_id)
        if len(self._waiters[key]) > 1:
            return False
        self._candidates[key] = (problem, code)
        self._held_back.append(key)
        return True

    def release(self) -> None:
        """Send what was submitted to the compilers. Apart from `submit` for devices that generate, then evaluate."""
        for key in self._held_back:
            problem, code = self._candidates[key]
            self._crew.compilations.submit(key, code, problem.source)
        self._held_back.clear()

    @property
    def pending(self) -> int:
        """Return the number of distinct candidates without a verdict yet."""
        return len(self._waiters)

    def collect(self) -> int:
        """Move compiled candidates on and take in verdicts, without waiting; return how many pieces moved."""
        compiled = self._crew.compilations.collect(timeout_s=0.0)
        for done in compiled:
            problem, code = self._candidates[done.work_id]
            if done.error:
                self._settle(done.work_id, lost_verdict(problem.problem_id, "compiler", done.error), lost=True)
            elif not done.value.ok:
                result = done.value
                self._settle(done.work_id, Verdict.rejected(problem.problem_id, result.reason, result.detail))
            else:
                best = self._best_speedup(problem.problem_id)
                self._crew.evaluations.submit(done.work_id, problem, code, best)
        evaluated = self._crew.evaluations.collect(timeout_s=0.0)
        for done in evaluated:
            self._settle(done.work_id, done.value, lost=bool(done.error))
        return len(compiled) + len(evaluated)

    def finish(self) -> None:
        """Release everything and block until all of it has a verdict."""
        self.release()
        while self._waiters:
            if not self.collect():
                time.sleep(0.005)  # the core belongs to the evaluator
            self.show()

    def show(self) -> None:
        self._progress.role("evaluator", f"{self.pending} candidates to go" if self.pending else IDLE)
        self._progress.refresh()

    def _best_speedup(self, problem_id: str) -> float:
        """Return the problem's best before this batch's candidates: what is far beyond it, the evaluator measures
        again.
        """
        if problem_id not in self._best_speedups:
            self._best_speedups |= self._crew.ask_exemplars("best_speedups", [problem_id])
        return self._best_speedups[problem_id]

    def _settle(self, key: str, verdict: Verdict, *, lost: bool = False) -> None:
        """Record a verdict and hand it to every completion that waits for it.

        The journal takes none that is void, which is no statement about the candidate, except where every attempt
        `lost` an actor: the same candidate again would cost as many.
        """
        if lost or not is_void(verdict):
            self._journal.add(self._scope, key, verdict)
        self._progress.verdict(verdict)
        del self._candidates[key]
        for request_id in self._waiters.pop(key):
            self.verdicts[request_id] = verdict
