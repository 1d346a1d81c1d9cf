"""Evaluators that hold several candidates at once, as real actors that really die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import ray
from ray.actor import ActorHandle

from cudal1_ray.actors.config import ClusterConfig, RoleConfig
from cudal1_ray.actors.evaluation import EvaluatorActor
from cudal1_ray.actors.evaluation_queue import EvaluationQueue
from cudal1_ray.actors.evaluator_pools import evaluate_on_cluster
from cudal1_ray.actors.fleet import Fleet
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig
from cudal1_ray.evaluation.scrutiny.confirmation import BestSpeedups
from cudal1_ray.evaluation.verdict import candidate_hash
from cudal1_ray.problems import Problem

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

PROBLEM = Problem(
    "test/tanh",
    """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(torch.relu(x) * 2 + 1)


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []
""",
    "tanh",
)
HONEST = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x).mul_(2).add_(1).tanh_()
"""


def quick(slots: int) -> EvaluationConfig:
    config = EvaluationConfig(slots=slots)
    config.timing.budget_s, config.timing.min_pairs, config.timing.half_width = 0.3, 6, 0.1
    config.timing.contestants = 1
    config.timing.remeasure_difference = 5.0  # on busy cores two measurements differ by far
    return config


def make_fleet(config: EvaluationConfig, count: int = 1, idle: list[ActorHandle] | None = None) -> Fleet:
    """Start a fleet, whose first members are `idle` actors as far as there are any; a replacement is a new one."""
    role = RoleConfig(count=count, num_cpus=0.1, call_timeout_s=200, start_timeout_s=200)
    actor = ray.remote(EvaluatorActor).options(num_cpus=0.1)

    def start(number: int) -> ActorHandle:
        return idle.pop() if idle and number < count else actor.remote(config)

    return Fleet("evaluator", start, role, max_replacements=3)


@pytest.fixture(scope="module")
def fleet_of(ray_cluster):
    """Yield fleets of evaluators with two slots, one after the other.

    An actor is five processes that import torch: those that live at the end of a fleet serve in the next.
    """
    idle: list[ActorHandle] = []

    @contextmanager
    def started(count: int) -> Iterator[Fleet]:
        fleet = make_fleet(quick(2), count, idle)
        fleet.wait_until_ready()
        yield fleet
        idle.extend(fleet.handle(member) for member in fleet.members)

    yield started
    ray.get([actor.close.remote() for actor in idle])


def drain(queue: EvaluationQueue, deadline_s: float = 250.0) -> dict:
    results, deadline = {}, time.monotonic() + deadline_s
    while queue.outstanding:
        assert time.monotonic() < deadline, f"{queue.outstanding} candidates never came back"
        results.update({done.work_id: done for done in queue.collect(0.1)})
    return results


def test_candidates_when_a_member_has_their_problem_go_there(fleet_of):
    with fleet_of(2) as fleet:
        queue, other = EvaluationQueue(fleet, quick(2)), replace(PROBLEM, problem_id="test/other")
        for number, problem in enumerate([PROBLEM, other, other, PROBLEM, PROBLEM, other]):
            queue.submit(f"{problem.problem_id}#{number}", problem, f"{HONEST}\n# {number}\n", 0.0)
        queue.collect(0.0)
        held = [{work.problem for work in works} for works in queue._schedule._held.values()]
        assert sorted(map(sorted, held)) == [["test/other"], ["test/tanh"]]
        assert all(done.value.accepted for done in drain(queue).values())


def test_candidates_when_their_evaluator_dies_get_their_verdicts(fleet_of):
    with fleet_of(1) as fleet:
        victim = ray.get(fleet.handle(fleet.members[0]).pid.remote())
        queue = EvaluationQueue(fleet, quick(2))
        for number in range(3):
            queue.submit(f"good{number}", PROBLEM, f"{HONEST}\n# {number}\n", 0.0)
        queue.submit("wrong", PROBLEM, HONEST.replace("tanh_", "sin_"))
        queue.collect(0.0)
        assert queue._schedule.load(fleet.members[0]) == 4
        os.kill(victim, signal.SIGKILL)
        results = drain(queue)
        assert {name: done.value.reasons for name, done in results.items()} == {
            "good0": (), "good1": (), "good2": (), "wrong": ("wrong_output",),
        }  # fmt: skip
        assert len(fleet.replacements) == 1 and not any(done.error for done in results.values())


def test_pairs_when_a_cluster_has_several_nodes_are_evaluated_over_them():
    pairs = [("good", PROBLEM, HONEST), ("wrong", PROBLEM, HONEST.replace("tanh_", "sin_"))]
    best = BestSpeedups([{"problem_hash": candidate_hash(PROBLEM.source), "credited_speedup": 0.01}])
    verdicts = dict(evaluate_on_cluster(pairs, quick(2), ClusterConfig(), best))
    assert verdicts["good"].accepted and verdicts["wrong"].reasons == ("wrong_output",)
    assert len(verdicts["good"].remeasured) >= 2  # far above the best of its problem
    assert best.of(PROBLEM) == verdicts["good"].credited_speedup


@pytest.mark.parametrize(
    ("cluster", "named"),
    [
        (ClusterConfig(evaluator=RoleConfig(accelerator_type="NONE")), "has a GPU of type NONE"),
        (ClusterConfig(address="127.0.0.1:1"), "--ray 127.0.0.1:1: no cluster answers there"),
    ],
)
def test_cluster_when_it_lacks_the_device_is_named(cluster, named):
    with pytest.raises(UserError, match=named):
        next(evaluate_on_cluster([("good", PROBLEM, HONEST)], EvaluationConfig(device="cuda"), cluster))
