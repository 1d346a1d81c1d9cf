"""Candidates go to the process that has their problem open, and wait for the first of it for a limited time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest

from cudal1_ray.evaluation import slots as slots_module
from cudal1_ray.evaluation.slots import Slots


def start() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def nap(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


@pytest.fixture
def two():
    made = Slots(2, start, remembered=2)
    for slot in made._slots:  # up before anything is timed: on busy cores a process takes a second to start
        slot.worker.submit(os.getpid).result()
    yield made
    made.close()


def together(slots: Slots, work: list[tuple[str, float]]) -> list[tuple[str, int]]:
    """(problem, pid) of each piece of work, in the order in which they end; all are asked for at once, in order."""
    ended: list[tuple[str, int]] = []

    def one(problem: str, seconds: float) -> None:
        ended.append((problem, slots.run(problem, nap, seconds)))

    threads = [threading.Thread(target=one, args=piece) for piece in work]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    return ended


def test_a_free_process_that_has_the_problem_open_is_preferred(two):
    of = dict(together(two, [("a", 0.3), ("b", 0.3)]))
    assert of["a"] != of["b"]
    for problem in "abba":
        assert two.run(problem, nap, 0.0) == of[problem]


def test_many_candidates_of_one_problem_are_spread(two):
    assert len({pid for _, pid in together(two, [("a", 0.2)] * 8)}) == 2


def test_a_problem_that_was_long_ago_is_no_longer_known():
    one = Slots(1, start, remembered=2)
    for problem in ("a", "b", "a", "c"):
        one.run(problem, nap, 0.0)
    assert list(one._slots[0].known) == ["a", "c"]
    one.close()


def test_candidates_of_a_problem_when_it_is_being_opened_wait_for_that(two):
    start = time.monotonic()
    ended = together(two, [("a", 0.8), ("a", 0.0), ("b", 0.0)])
    assert [problem for problem, _ in ended] == ["b", "a", "a"]
    assert time.monotonic() - start > 0.8


def test_candidates_of_an_opened_problem_go_to_any_free_process(two):
    two.run("a", nap, 0.1)
    assert len({pid for _, pid in together(two, [("a", 0.3)] * 6)}) == 2


def test_who_was_judged_without_its_problem_has_not_opened_it():
    one = Slots(1, start, remembered=2, opens=lambda pid: False)
    one.run("a", nap, 0.0)
    assert not one._slots[0].known
    one.close()


def test_who_opens_a_problem_beside_another_does_so_one_at_a_time(monkeypatch):
    monkeypatch.setattr(slots_module, "_PATIENCE_S", 0.4)
    slots = Slots(4, start, remembered=2)
    began: list[float] = []

    def open_for_long() -> None:
        slots.run("a", nap, 1.1)

    assign = slots._assign

    def noted() -> None:
        before = sum(slot.busy for slot in slots._slots)
        assign()
        began.extend([time.monotonic()] * (sum(slot.busy for slot in slots._slots) - before))

    slots._assign = noted
    threads = [threading.Thread(target=open_for_long) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    slots.close()
    assert began[1] - began[0] > 0.35 and began[2] - began[1] > 0.35


def test_an_endless_candidate_does_not_keep_others_of_its_problem(two, monkeypatch):
    monkeypatch.setattr(slots_module, "_PATIENCE_S", 0.3)
    ended = together(two, [("a", 2.0), ("a", 0.0)])
    assert ended[0][1] != ended[1][1]


def test_who_takes_its_process_down_takes_no_other(two):
    with pytest.raises(BrokenProcessPool):
        two.run("a", os._exit, 3)
    assert {pid for _, pid in together(two, [("a", 0.3), ("b", 0.3)])} == two.pids()


def test_a_process_that_died_while_it_was_idle_costs_nobody_an_attempt(two):
    victims = two.pids()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while any(not slot.worker._broken for slot in two._slots) and time.monotonic() < deadline:
        time.sleep(0.05)
    found = {pid for _, pid in together(two, [("a", 0.5), ("b", 0.5)])}
    assert len(found) == 2 and found.isdisjoint(victims)


def test_a_stream_of_known_candidates_does_not_keep_a_new_problem_waiting(monkeypatch):
    monkeypatch.setattr(slots_module, "_FAIR_S", 0.3)
    one = Slots(1, start, remembered=1)
    one.run("a", nap, 0.0)
    ended = together(one, [("a", 0.2), ("b", 0.0), *[("a", 0.2)] * 6])
    assert [problem for problem, _ in ended].index("b") < 4
    one.close()
