"""Candidates over a fleet of evaluators, several of them in flight at each, so that no device waits for its work."""

from __future__ import annotations

import socket
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cudal1_ray.actors.config import ClusterConfig
from cudal1_ray.actors.evaluation import EvaluatorActor
from cudal1_ray.actors.fleet import Fleet, FleetLost
from cudal1_ray.actors.placement import actor_options, connect
from cudal1_ray.actors.work_queue import Done
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.problems import Problem

EXCHANGE_S = 0.25  # longest that new work waits at the door of an evaluator that has a free slot
CONNECT_S = 5.0
FULL_S = 5.0  # one without a free slot need not be asked so often: it answers as soon as a verdict is there


class EvaluationQueue:
    """A `WorkQueue` for evaluators that hold several candidates at once.

    A member gets one call at a time, which hands candidates in and verdicts out. If it dies, what it held is issued
    again, each candidate alone (it may have been the one that did it) and up to `max_attempts` times in all.
    """

    def __init__(self, fleet: Fleet, config: EvaluationConfig, max_attempts: int = 3):
        self.fleet, self.busy_s = fleet, 0.0
        self._room = config.in_flight if config.slots > 1 else 1
        self._max_attempts = max_attempts
        self._waiting: deque[str] = deque()
        self._suspects: deque[str] = deque()  # they were with a member that died
        self._work: dict[str, tuple[Problem, str, float]] = {}
        self._attempts: Counter[str] = Counter()
        self._held: dict[int, set[str]] = {}  # member -> the work that it has

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
                done += self._lost(self._held.pop(reply.member, set()), reply.error)
                continue
            for work_id, verdict in reply.value:
                self._held[reply.member].discard(work_id)
                done.append(self._finish(work_id, verdict))
        self._hand_out()
        return done

    def _lost(self, held: set[str], error: str) -> Iterator[Done]:
        for work_id in held:
            if self._attempts[work_id] < self._max_attempts:
                self._suspects.append(work_id)
            else:
                yield self._finish(work_id, None, error)

    def _finish(self, work_id: str, verdict: Verdict | None, error: str = "") -> Done:
        del self._work[work_id], self._attempts[work_id]
        return Done(work_id, verdict, error)

    def _hand_out(self) -> None:
        idle = self.fleet.idle
        given = {member: self._take(member) for member in idle if not self._held.get(member)} if self._suspects else {}
        while self._waiting and not self._suspects:  # one each in turn: a short queue is spread over all members
            member = min(idle, key=self._load, default=None)
            if member is None or self._load(member) >= self._room:
                break
            given.setdefault(member, []).append(self._give(member, self._waiting.popleft()))
        for member in idle:
            if self._load(member):
                work = [(work_id, *self._work[work_id]) for work_id in given.get(member, ())]
                wait_s = EXCHANGE_S if self._load(member) < self._room else FULL_S
                limit_s = self.fleet.role.call_timeout_s
                self.fleet.send(member, f"exchange@{member}", "exchange", work, wait_s, limit_s)

    def _load(self, member: int) -> int:
        return len(self._held.get(member, ()))

    def _take(self, member: int) -> list[str]:
        return [self._give(member, self._suspects.popleft())] if self._suspects else []

    def _give(self, member: int, work_id: str) -> str:
        self._attempts[work_id] += 1
        self._held.setdefault(member, set()).add(work_id)
        return work_id


def evaluate_on_cluster(
    pairs: Iterable[tuple[str, Problem, str]], evaluation: EvaluationConfig, cluster: ClusterConfig
) -> Iterator[tuple[str, Verdict]]:
    """(id, verdict) of every (id, problem, code), in the order in which they are ready, over the cluster at
    `cluster.address`: an evaluator on every GPU of the wanted type, or on every node for device cpu.

    Raises:
        UserError: when no cluster answers, none of its nodes has the device, or its evaluators cannot go on.
    """
    _check_answers(cluster.address or "auto")
    connect(cluster)
    fleet = None
    try:
        fleet = _evaluators(evaluation, cluster)
        fleet.wait_until_ready()
        queue = EvaluationQueue(fleet, evaluation)
        for identity, problem, code in pairs:
            queue.submit(identity, problem, code)
        while queue.outstanding:
            for done in queue.collect(timeout_s=0.1):
                yield done.work_id, done.value or _gave_up(done, evaluation)
    except FleetLost as error:
        raise UserError(f"--ray {cluster.address}: {error}; the same command goes on from here") from None
    finally:
        if fleet is not None:
            fleet.stop()


def _check_answers(address: str) -> None:
    """Ray itself goes on asking an address for minutes, with a page of log."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"--ray {address}: nobody answers there ({error}); `ray start --head` starts a cluster"
        ) from None


def _gave_up(done: Done, evaluation: EvaluationConfig) -> Verdict:
    detail = f"took its evaluator down every time: {done.error}"
    return Verdict.rejected(done.work_id, "evaluator_error", detail, device=evaluation.device)


def _evaluators(evaluation: EvaluationConfig, cluster: ClusterConfig) -> Fleet:
    role = cluster.evaluator
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if evaluation.device == "cpu":  # a node's evaluators must take turns, so they live in one actor
        role = replace(role, count=len(nodes), num_gpus=0)
        places = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=True) for node in nodes]
    else:
        wanted = f"accelerator_type:{role.accelerator_type}" if role.accelerator_type else "GPU"
        gpus = sum(int(node["Resources"].get("GPU", 0)) for node in nodes if node["Resources"].get(wanted))
        if not gpus:
            kind = f" of type {role.accelerator_type}" if role.accelerator_type else ""
            raise UserError(f"--device cuda: no node of the Ray cluster at {cluster.address} has a GPU{kind}")
        role, places = replace(role, count=gpus, num_gpus=1), []

    def start(number: int) -> ray.actor.ActorHandle:
        options = actor_options(role)
        if places:
            options["scheduling_strategy"] = places[number % len(places)]
        return ray.remote(EvaluatorActor).options(**options).remote(evaluation)

    return Fleet("evaluator", start, role, cluster.max_replacements)
