"""Which worker gets which candidate: one that has its problem open, soon, and never one that it could take down."""

from __future__ import annotations

import pytest

from cudal1_ray.evaluation.sharing import schedule as schedule_module
from cudal1_ray.evaluation.sharing.schedule import Schedule, Work


@pytest.fixture
def clock(monkeypatch):
    """Return the seconds, set by tests, that the schedule and new work read as the time."""
    now = [0.0]
    monkeypatch.setattr(schedule_module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def slots(clock):
    """Return a schedule as the processes of one device have it."""
    return Schedule(remembered=2, patience_s=20.0)


def submit(schedule: Schedule, problems: str, since: float = 0.0) -> list[Work]:
    """Submit a candidate for each letter, which names its problem, and return them in their order."""
    works = [Work(f"{problem}{number}", problem, since=since) for number, problem in enumerate(problems)]
    for work in works:
        schedule.submit(work)
    return works


def evaluated(schedule: Schedule, problem: str, workers: list[int], **how: bool) -> int:
    """Have one candidate of the problem evaluated, and return the worker that it was given to."""
    (work,) = submit(schedule, problem)
    schedule.assign(workers)
    worker = work.worker
    schedule.done(work, **how)
    return worker


def test_candidate_when_a_free_worker_has_its_problem_goes_there(slots):
    a, b = submit(slots, "ab")
    slots.assign([0, 1])
    assert (a.worker, b.worker) == (0, 1)
    slots.done(a), slots.done(b)
    assert [evaluated(slots, problem, [0, 1]) for problem in "abba"] == [0, 1, 1, 0]


def test_worker_when_it_has_a_problem_gets_its_candidate_before_older_ones(slots, clock):
    evaluated(slots, "a", [0])
    b, a = submit(slots, "ba")
    assert slots.assign([0]) == [a] and b.worker is None


def test_stream_of_candidates_when_of_one_problem_does_not_keep_another_waiting(slots, clock):
    evaluated(slots, "a", [0])
    b, a = submit(slots, "ba")
    clock[0] = schedule_module.FAIR_S + 1.0
    assert slots.assign([0]) == [b]


def test_worker_when_problems_are_long_ago_forgets_them(slots):
    for problem in "abac":
        evaluated(slots, problem, [0])
    assert list(slots._known[0]) == ["a", "c"]


def test_candidates_when_their_problem_is_being_opened_wait(slots):
    first, second, other = submit(slots, "aab")
    assert slots.assign([0, 1]) == [first, other]
    slots.done(other)
    assert slots.assign([1]) == []
    slots.done(first)
    assert slots.assign([1]) == [second]


def test_candidates_when_their_problem_can_be_read_begin_beside_its_first(slots):
    first, second = submit(slots, "aa")
    assert slots.assign([0, 1]) == [first]
    slots.opened("a")
    assert slots.assign([1]) == [second]


def test_first_candidates_when_problems_wait_go_before_the_others(clock):
    schedule = Schedule(room=5, familiar=6)
    works = submit(schedule, "aaaabbbc")
    schedule.assign([0])
    assert [work.problem for work in works if work.worker is None] == ["a", "b", "b"]


def test_problems_when_there_are_slots_are_begun_first_up_to_their_number(clock):
    schedule = Schedule(room=3, familiar=2, remembered=2)
    works = submit(schedule, "aaabbc")
    schedule.assign([0])
    assert [work.work_id for work in works if work.worker == 0] == ["a0", "a1", "b3"]


def test_candidate_when_endless_holds_up_its_problem_one_at_a_time_for_a_while(slots, clock):
    _, second, third = submit(slots, "aaa")
    slots.assign([0])
    clock[0] = 21.0
    assert slots.assign([1, 2]) == [second]
    clock[0] = 42.0
    assert slots.assign([2]) == [third]


def test_problem_when_its_first_candidate_was_refused_is_opened_by_the_next(slots):
    evaluated(slots, "a", [0], opened=False)
    _, second = submit(slots, "aa")
    slots.assign([0, 1])
    assert second.worker is None


def test_candidates_when_their_problem_is_open_go_to_any_free_worker(slots):
    evaluated(slots, "a", [0])
    works = submit(slots, "aa")
    slots.assign([0, 1])
    assert {work.worker for work in works} == {0, 1}


def test_candidates_when_their_worker_died_go_alone_to_empty_workers(clock):
    schedule = Schedule(room=3)
    works = submit(schedule, "abc")
    schedule.assign([0])
    assert schedule.lost(0) == [] and all(work.suspect for work in works)
    (late,) = submit(schedule, "d")
    assert schedule.assign([0, 1]) == works[:2] and schedule.load(0) == schedule.load(1) == 1
    assert schedule.assign([0, 1]) == [] and late.worker is None  # it waits for the last suspect
    schedule.done(works[0])
    assert schedule.assign([0, 1]) == [works[2]] and late.worker is None
    schedule.done(works[2])
    assert schedule.assign([0, 1]) == [late]


def test_candidate_when_it_takes_every_worker_down_is_given_up():
    schedule, (work,) = Schedule(), [Work("a", "a")]
    schedule.submit(work)
    ends = []
    for _ in range(3):
        schedule.assign([0])
        ends.append(schedule.lost(0))
    assert ends == [[], [], [work]] and schedule.assign([0]) == []
    schedule.done(work)


def test_candidate_when_measured_again_goes_first_and_only_where_it_may():
    schedule = Schedule(may=lambda work, worker: not (work.measured and worker == 0))
    fast, *_ = submit(schedule, "abc")
    schedule.assign([0])
    schedule.again(fast)
    (assignment,) = schedule.assign([0])
    assert assignment is not fast
    assert schedule.assign([1]) == [fast]


def test_members_when_a_fleet_is_filled_are_filled_evenly_and_by_problem(clock):
    schedule = Schedule(room=5, familiar=2)
    works = submit(schedule, "abbaab")
    schedule.assign([0, 1])
    assert {(work.problem, work.worker) for work in works} == {("a", 0), ("b", 1)}
    many = submit(schedule, "aaaaa")
    schedule.assign([0, 1])
    assert [schedule.load(worker) for worker in (0, 1)] == [5, 5] and sum(work.worker is None for work in many) == 1


def test_candidate_when_no_longer_wanted_leaves_the_queue(slots):
    (work,) = submit(slots, "a")
    slots.done(work, opened=False)
    assert slots.assign([0]) == []
