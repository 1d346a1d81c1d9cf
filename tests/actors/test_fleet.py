"""Fleets against real Ray actors that really die."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
import ray

from cudal1_ray.actors.causes import cause_of, last_exception
from cudal1_ray.actors.config import RoleConfig
from cudal1_ray.actors.evaluation_queue import EvaluationQueue
from cudal1_ray.actors.fleet import Fleet, FleetLost
from cudal1_ray.actors.member import FleetMember, MethodCall
from cudal1_ray.actors.work_queue import WorkQueue
from cudal1_ray.evaluation import EvaluationConfig
from cudal1_ray.problems import Problem

pytestmark = pytest.mark.usefixtures("ray_cluster")
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # actor processes cannot import a test module


class Worker(FleetMember):
    def __init__(self, number: int):
        if number < 0:
            raise ValueError("this member cannot start\n    For further information see a page")
        self.number, self.level = number, 0

    def square(self, value: int, after: str = "") -> int:
        """Return the square, not before the file `after` exists."""
        while after and not os.path.exists(after):
            time.sleep(0.01)
        return value * value

    def first_on_path(self, _: int) -> str:
        return sys.path[0]

    def fatal(self, value: int) -> int:
        if value == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    def exchange(self, work: object, wait_s: float, limit_s: float) -> None:
        """Die of every candidate."""
        if work:
            os.kill(os.getpid(), signal.SIGKILL)

    def set_level(self, level: int) -> None:
        self.level = level

    def get_level(self) -> int:
        return self.level

    def hang(self) -> None:
        time.sleep(1000)


def make_fleet(count: int, max_replacements: int = 10, call_timeout_s: float = 60.0, **options) -> Fleet:
    role = RoleConfig(count=count, num_cpus=0.1, call_timeout_s=call_timeout_s, start_timeout_s=300)
    start = options.pop("start", lambda number: ray.remote(Worker).options(num_cpus=0.1).remote(number))
    return Fleet("worker", start, role, max_replacements, **options)


def drain(queue: WorkQueue | EvaluationQueue, deadline_s: float = 300.0) -> dict[str, object]:
    results, deadline = {}, time.monotonic() + deadline_s
    while queue.outstanding:
        assert time.monotonic() < deadline, f"{queue.outstanding} pieces never came back"
        results.update({done.work_id: done for done in queue.collect()})
    return results


def test_work_when_submitted_comes_back_once():
    fleet = make_fleet(2)
    queue = WorkQueue(fleet, "square")
    for value in range(20):
        queue.submit(f"w{value}", value)
    results = drain(queue)
    assert {work_id: done.value for work_id, done in results.items()} == {f"w{v}": v * v for v in range(20)}
    queue = WorkQueue(fleet, "first_on_path")
    queue.submit("path", 0)
    assert drain(queue)["path"].value != os.getcwd()  # a user's h2.py there is no module of a member
    assert queue.busy_s > 0
    fleet.stop()


def test_member_when_killed_is_replaced_and_its_work_issued_again(tmp_path):
    fleet = make_fleet(2)
    fleet.wait_until_ready()
    pids = [ray.get(fleet.handle(member).pid.remote()) for member in fleet.members]
    queue = WorkQueue(fleet, "square")
    for value in range(6):
        queue.submit(f"w{value}", value, str(tmp_path / "killed"))
    queue.collect()
    os.kill(pids[0], signal.SIGKILL)
    (tmp_path / "killed").touch()
    results = drain(queue)
    assert {done.value for done in results.values()} == {v * v for v in range(6)}
    assert len(fleet.replacements) == 1 and len(fleet.members) == 2
    fleet.stop()


def test_work_when_it_kills_every_member_ends_as_its_own_error():
    fleet = make_fleet(1)
    queue = WorkQueue(fleet, "fatal", max_attempts=2)
    for value in (12, 13, 14):
        queue.submit(f"w{value}", value)
    results = drain(queue)
    assert results["w12"].value == 12 and results["w14"].value == 14
    assert results["w13"].value is None and results["w13"].error
    assert len(fleet.replacements) == 2
    fleet.stop()


def test_member_when_hung_is_replaced_after_the_call_timeout():
    fleet = make_fleet(1, call_timeout_s=1.0)
    queue = WorkQueue(fleet, "hang", max_attempts=1)
    queue.submit("stuck")
    assert "call_timeout_s=1" in drain(queue)["stuck"].error
    (member,) = fleet.members
    assert ray.get(fleet.handle(member).get_level.remote(), timeout=60) == 0
    fleet.stop()


def test_replacement_when_started_is_brought_up_to_date():
    fleet = make_fleet(1, bring_up=lambda: (MethodCall("set_level", (7,)),))
    fleet.wait_until_ready()
    os.kill(ray.get(fleet.handle(fleet.members[0]).pid.remote()), signal.SIGKILL)
    queue = WorkQueue(fleet, "get_level")
    queue.submit("level")
    assert drain(queue)["level"].value == 7
    fleet.stop()


def test_member_when_it_cannot_start_reports_why():
    fleet = make_fleet(1, start=lambda _: ray.remote(Worker).options(num_cpus=0.1).remote(-1))
    with pytest.raises(FleetLost, match="ValueError: this member cannot start For further information"):
        fleet.wait_until_ready()


def test_fleet_when_members_keep_dying_gives_up_with_the_last_cause():
    fleet = make_fleet(1, max_replacements=1)
    queue = WorkQueue(fleet, "fatal", max_attempts=5)
    queue.submit("w", 13)
    with pytest.raises(FleetLost, match="max_replacements=1"):
        drain(queue)
    fleet.stop()


def test_cause_when_memory_ran_out_is_what_to_do():
    assert "lower a role's count" in cause_of(ray.exceptions.OutOfMemoryError("killed\n\nRefer to https://docs.ray.io"))


def test_exception_when_its_message_has_several_lines_is_given_whole():
    text = "failed:\n  File x\npydantic_core.ValidationError: 1 error\n  no such model type\n    For information visit"
    assert last_exception(text) == "pydantic_core.ValidationError: 1 error no such model type For information visit"
    assert last_exception("not up after 600 s\n") == "not up after 600 s" and last_exception("") == ""


def test_candidate_when_it_takes_its_evaluator_down_every_time_gets_a_verdict_on_the_evaluator():
    fleet = make_fleet(1)
    queue = EvaluationQueue(fleet, EvaluationConfig(device="cpu"))
    queue.submit("deadly", Problem("p", "class Model: ...", "family"), "class ModelNew: ...")
    done = drain(queue)["deadly"]
    assert (done.value.problem_id, done.value.reasons, done.value.device) == ("p", ("evaluator_error",), "cpu")
    assert done.error and "ActorDiedError" in done.value.detail and len(fleet.replacements) == 3
    fleet.stop()
