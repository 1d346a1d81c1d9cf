"""From candidates to verdicts: compiled on the CPU, evaluated on a device, each distinct candidate once."""

from __future__ import annotations

import time
from collections import defaultdict

from cudal1_ray.actors.evaluation_queue import lost_verdict
from cudal1_ray.actors.work_queue import WorkResult
from cudal1_ray.evaluation import Verdict
from cudal1_ray.problems import Problem
from cudal1_ray.rewards import is_void
from cudal1_ray.training.crew import Crew
from cudal1_ray.training.journal import VerdictJournal
from cudal1_ray.training.progress import IDLE, Progress
from cudal1_ray.wording import counted


class VerdictCollector:
    """Verdicts for candidates as they come. Those that the journal knows, or that are pending already, cost nothing.

    Args:
        scope: part of the journal: verdicts of other scopes are not used.
        beside: a collector of another scope whose candidates are under way too: `collect` moves them on as well.

    Attributes:
        verdicts: by request id, filled by `submit` (known ones) and `collect`.
    """

    def __init__(
        self,
        crew: Crew,
        journal: VerdictJournal,
        progress: Progress,
        scope: str,
        beside: VerdictCollector | None = None,
    ):
        self._crew, self._journal, self._progress, self._scope = crew, journal, progress, scope
        self._beside = beside
        self.verdicts: dict[str, Verdict] = {}
        self._waiters: dict[str, list[str]] = defaultdict(list)  # work id -> request ids
        self._candidates: dict[str, tuple[str, Problem, str]] = {}  # work id -> key in the journal, problem, code
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
        work_id = f"{self._scope}/{key}"
        self._waiters[work_id].append(request_id)
        if len(self._waiters[work_id]) > 1:
            return False
        self._candidates[work_id] = (key, problem, code)
        self._held_back.append(work_id)
        return True

    def release(self) -> None:
        """Send what was submitted to the compilers. Apart from `submit` for devices that generate, then evaluate."""
        for work_id in self._held_back:
            _, problem, code = self._candidates[work_id]
            self._crew.compilations.submit(work_id, code, problem.source)
        self._held_back.clear()

    @property
    def pending(self) -> int:
        """Return the number of distinct candidates without a verdict yet."""
        return len(self._waiters)

    def collect(self) -> int:
        """Move compiled candidates on and take in verdicts, without waiting; return how many pieces moved."""
        compiled = self._crew.compilations.collect(timeout_s=0.0)
        for done in compiled:
            self._collector_of(done.work_id)._take_compiled(done)
        evaluated = self._crew.evaluations.collect(timeout_s=0.0)
        for done in evaluated:
            self._collector_of(done.work_id)._settle(done.work_id, done.value, lost=bool(done.error))
        return len(compiled) + len(evaluated)

    def _collector_of(self, work_id: str) -> VerdictCollector:
        return self if self._beside is None or work_id in self._candidates else self._beside

    def _take_compiled(self, done: WorkResult) -> None:
        _, problem, code = self._candidates[done.work_id]
        if done.error:
            self._settle(done.work_id, lost_verdict(problem.problem_id, "compiler", done.error), lost=True)
        elif not done.value.ok:
            self._settle(done.work_id, Verdict.rejected(problem.problem_id, done.value.reason, done.value.detail))
        else:
            best = self._best_speedup(problem.problem_id)
            self._crew.evaluations.submit(done.work_id, problem, code, best)

    def finish(self) -> None:
        """Release everything and block until all of it has a verdict."""
        self.release()
        while self._waiters:
            if not self.collect():
                time.sleep(0.005)  # the core belongs to the evaluator
            self.show()

    def show(self) -> None:
        pending = self.pending + (self._beside.pending if self._beside else 0)
        self._progress.role("evaluator", f"{counted(pending, 'candidate')} to go" if pending else IDLE)
        self._progress.refresh()

    def _best_speedup(self, problem_id: str) -> float:
        """Return the problem's best before this batch's candidates: what is far beyond it, the evaluator measures
        again.
        """
        if problem_id not in self._best_speedups:
            self._best_speedups |= self._crew.ask_exemplars("best_speedups", [problem_id])
        return self._best_speedups[problem_id]

    def _settle(self, work_id: str, verdict: Verdict, *, lost: bool = False) -> None:
        """Record a verdict and hand it to every completion that waits for it.

        The journal takes none that is void, which is no statement about the candidate, except where every attempt
        `lost` an actor: the same candidate again would cost as many.
        """
        key, _, _ = self._candidates.pop(work_id)
        if lost or not is_void(verdict):
            self._journal.add(self._scope, key, verdict)
        self._progress.verdict(verdict)
        for request_id in self._waiters.pop(work_id):
            self.verdicts[request_id] = verdict
