"""Candidates over a fleet of evaluators, several of them in flight at each, so that no device waits for its work."""

from __future__ import annotations

from cudal1_ray.actors.confirmations import Confirmations
from cudal1_ray.actors.fleet import Fleet
from cudal1_ray.actors.work_queue import WorkResult
from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.evaluation.scrutiny.confirmation import BestSpeedups
from cudal1_ray.evaluation.sharing.schedule import Schedule, Work
from cudal1_ray.problems import Problem

# Most seconds that new work waits for a call to end of an evaluator with a free slot.
EXCHANGE_S = 0.25
# The same of an evaluator without a free slot, which answers as soon as it has a verdict.
FULL_S = 5.0


def lost_verdict(problem_id: str, role: str, error: str, device: str = "") -> Verdict:
    """Return the verdict on a candidate each of whose attempts lost the actor, of that `role`, that worked on it.

    It is void: a trusted process that dies of what it is given is the evaluator's fault. `device` as in `Verdict`.
    """
    return Verdict.rejected(problem_id, "evaluator_error", f"took its {role} down every time: {error}", device=device)


class EvaluationQueue:
    """A `WorkQueue` for evaluators that hold several candidates at once.

    `Schedule` decides which member gets which candidate, as for the processes of one device; members only execute.
    A member gets one call at a time, which hands candidates in and verdicts out. A candidate that seems very fast is
    measured by another member as well, see `Confirmations`.

    Args:
        best: best speedup of each problem; candidates are held against it as it is when they are handed out, and it
            learns of every verdict. Without it the argument of `submit` counts.
    """

    def __init__(self, fleet: Fleet, config: EvaluationConfig, best: BestSpeedups | None = None) -> None:
        self.fleet, self.busy_s, self._device = fleet, 0.0, config.device
        self._room = config.in_flight if config.slots > 1 else 1
        self._best = best
        self._confirmations = Confirmations(config, fleet.role.count)
        self._schedule = Schedule(
            room=self._room, familiar=max(1, config.slots), remembered=config.live_references,
            may=lambda work, member: self._confirmations.may(work.work_id, member, fleet.members),
        )  # fmt: skip
        self._candidates: dict[str, tuple[Work, Problem, str, float]] = {}

    def submit(self, work_id: str, problem: Problem, code: str, best_speedup: float = 0.0) -> None:
        work = Work(work_id, problem.problem_id)
        self._candidates[work_id] = (work, problem, code, best_speedup)
        self._schedule.submit(work)

    @property
    def outstanding(self) -> int:
        """Return the number of candidates submitted and not yet collected."""
        return len(self._candidates)

    def collect(self, timeout_s: float = 0.02) -> list[WorkResult]:
        """Hand out waiting candidates, then return the verdicts that came in, waiting at most `timeout_s` for them.

        A candidate that took its evaluator down every time has `lost_verdict` for its value, and the error.
        """
        self._hand_out()
        done: list[WorkResult] = []
        for reply in self.fleet.replies(timeout_s) if self._candidates else []:
            self.busy_s += reply.busy_s
            if reply.error:
                given_up = self._schedule.lost(reply.member)
                for work in given_up:
                    verdict = lost_verdict(work.problem, "evaluator", reply.error, self._device)
                    done.append(self._finish(work.work_id, verdict, reply.error))
                continue
            for work_id, verdict in reply.value:
                stands = self._confirmations.settle(work_id, reply.member, verdict, self._best_of(work_id))
                if stands is None:
                    self._schedule.again(self._candidates[work_id][0])
                else:
                    done.append(self._finish(work_id, stands))
        self._hand_out()
        return done

    def _finish(self, work_id: str, verdict: Verdict, error: str = "") -> WorkResult:
        work, problem, _, _ = self._candidates.pop(work_id)
        self._schedule.done(work)
        if self._best is not None:
            self._best.saw(problem, verdict)
        return WorkResult(work_id, verdict, error)

    def _hand_out(self) -> None:
        idle = self.fleet.idle
        assigned = self._schedule.assign(idle)
        for member in idle:
            if load := self._schedule.load(member):
                ids = [work.work_id for work in assigned if work.worker == member]
                candidates = [(work_id, *self._candidates[work_id][1:3], self._best_of(work_id)) for work_id in ids]
                wait_s = EXCHANGE_S if load < self._room else FULL_S
                limit_s = self.fleet.role.call_timeout_s
                self.fleet.send(member, f"exchange@{member}", "exchange", candidates, wait_s, limit_s)

    def _best_of(self, work_id: str) -> float:
        _, problem, _, best_speedup = self._candidates[work_id]
        return best_speedup if self._best is None else max(best_speedup, self._best.of(problem))
