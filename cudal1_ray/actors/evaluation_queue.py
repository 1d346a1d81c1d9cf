"""Candidates over a fleet of evaluators, several of them in flight at each, so that no device waits for its work."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from cudal1_ray.actors.confirmations import Confirmations
from cudal1_ray.actors.fleet import Fleet
from cudal1_ray.actors.work_queue import Done
from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.evaluation.confirmation import BestSpeedups
from cudal1_ray.problems import Problem

EXCHANGE_S = 0.25  # longest that new work waits at the door of an evaluator that has a free slot
FULL_S = 5.0  # one without a free slot need not be asked so often: it answers as soon as a verdict is there


class EvaluationQueue:
    """A `WorkQueue` for evaluators that hold several candidates at once.

    A member gets one call at a time, which hands candidates in and verdicts out. Candidates go to a member that has had
    their problem lately, unless another holds fewer by `slots`. If a member dies, what it held is issued again, each
    candidate alone (it may have been the one that did it) and up to `max_attempts` times in all. A candidate
    that seems very fast is measured by another member as well, see `Confirmations`.

    Args:
        best: of each problem; candidates are held against it as it is when they are handed out, and it is told of every
            verdict. Without it what `submit` says counts.
    """

    def __init__(
        self, fleet: Fleet, config: EvaluationConfig, max_attempts: int = 3, best: BestSpeedups | None = None
    ) -> None:
        self.fleet, self.busy_s = fleet, 0.0
        self._room = config.in_flight if config.slots > 1 else 1
        self._familiar, self._remembered = max(1, config.slots), max(1, config.live_references)
        self._max_attempts, self._best = max_attempts, best
        self._waiting: deque[str] = deque()
        self._suspects: deque[str] = deque()  # they were with a member that died
        self._doubted: deque[str] = deque()  # to be measured again, by another member
        self._confirmations = Confirmations(config, fleet.role.count)
        self._work: dict[str, tuple[Problem, str, float]] = {}
        self._attempts: Counter[str] = Counter()
        self._held: dict[int, set[str]] = {}  # member -> the work that it has
        self._known: dict[int, dict[str, None]] = {}  # member -> problems that it has had, the latest last

    def submit(self, work_id: str, problem: Problem, code: str, best_speedup: float = 0.0) -> None:
        self._work[work_id] = (problem, code, best_speedup)
        self._waiting.append(work_id)

    @property
    def outstanding(self) -> int:
        """Candidates submitted and not yet collected."""
        return len(self._work)

    def collect(self, timeout_s: float = 0.02) -> list[Done]:
        """Hands out waiting candidates, then returns verdicts that came in, waiting at most `timeout_s` for them."""
        self._hand_out()
        done: list[Done] = []
        for reply in self.fleet.replies(timeout_s) if self._work else []:
            self.busy_s += reply.busy_s
            if reply.error:
                self._known.pop(reply.member, None)
                done += self._lost(self._held.pop(reply.member, set()), reply.error)
                continue
            for work_id, verdict in reply.value:
                self._held[reply.member].discard(work_id)
                stands = self._confirmations.settle(work_id, reply.member, verdict, self._best_of(work_id))
                if stands is None:
                    self._attempts[work_id] = 0
                    self._doubted.append(work_id)
                else:
                    done.append(self._finish(work_id, stands))
        self._hand_out()
        return done

    def _lost(self, held: set[str], error: str) -> Iterator[Done]:
        for work_id in held:
            if self._attempts[work_id] < self._max_attempts:
                self._suspects.append(work_id)
            else:
                yield self._finish(work_id, None, error)

    def _finish(self, work_id: str, verdict: Verdict | None, error: str = "") -> Done:
        problem, _, _ = self._work.pop(work_id)
        del self._attempts[work_id]
        if self._best is not None and verdict is not None:
            self._best.saw(problem, verdict)
        return Done(work_id, verdict, error)

    def _hand_out(self) -> None:
        idle = self.fleet.idle
        given = {member: self._take(member) for member in idle if not self._held.get(member)} if self._suspects else {}
        for work_id in [] if self._suspects else list(self._doubted):
            member = self._nearest(work_id, idle)
            if member is not None:
                self._doubted.remove(work_id)
                given.setdefault(member, []).append(self._give(member, work_id))
        while self._waiting and not self._suspects:  # one each in turn: a short queue is spread over all members
            member = self._nearest(self._waiting[0], idle)
            if member is None:
                break
            given.setdefault(member, []).append(self._give(member, self._waiting.popleft()))
        for member in idle:
            if self._load(member):
                work = [(one, *self._work[one][:2], self._best_of(one)) for one in given.get(member, ())]
                wait_s = EXCHANGE_S if self._load(member) < self._room else FULL_S
                limit_s = self.fleet.role.call_timeout_s
                self.fleet.send(member, f"exchange@{member}", "exchange", work, wait_s, limit_s)

    def _best_of(self, work_id: str) -> float:
        problem, _, best_speedup = self._work[work_id]
        return best_speedup if self._best is None else max(best_speedup, self._best.of(problem))

    def _nearest(self, work_id: str, idle: list[int]) -> int | None:
        """Of those that have room, and may have it."""
        problem_id = self._work[work_id][0].problem_id
        free = [member for member in idle if self._load(member) < self._room and self._may(work_id, member)]
        return min(free, key=lambda one: self._distance(one, problem_id), default=None)

    def _may(self, work_id: str, member: int) -> bool:
        return self._confirmations.may(work_id, member, self.fleet.members)

    def _load(self, member: int) -> int:
        return len(self._held.get(member, ()))

    def _distance(self, member: int, problem_id: str) -> int:
        return self._load(member) - (self._familiar if problem_id in self._known.get(member, ()) else 0)

    def _take(self, member: int) -> list[str]:
        work_id = next((one for one in self._suspects if self._may(one, member)), None)
        if work_id is None:
            return []
        self._suspects.remove(work_id)
        return [self._give(member, work_id)]

    def _give(self, member: int, work_id: str) -> str:
        self._attempts[work_id] += 1
        self._held.setdefault(member, set()).add(work_id)
        known = self._known.setdefault(member, {})
        problem_id = self._work[work_id][0].problem_id
        known.pop(problem_id, None)
        known[problem_id] = None
        if len(known) > self._remembered:
            del known[next(iter(known))]
        return work_id
