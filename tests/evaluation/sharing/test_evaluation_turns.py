"""Turns on a shared device: their order, their limits, and what a killed process leaves."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import time

import pytest
from turn_holder import hold

from cudal1_ray.evaluation.sharing.turns import Turns

# A lock that is never released fails a test by its own limit, in seconds: within one process, and between processes,
# of which each takes a second or more to start, on a busy machine ten.
LOCKED, BETWEEN_PROCESSES = pytest.mark.timeout(60), pytest.mark.timeout(300)
PATIENCE_S = 100.0  # to start, to get its turn or to end


@BETWEEN_PROCESSES
@pytest.mark.parametrize(("held", "next_turn", "waits"), [
    ("prepare", "prepare", False), ("prepare", "measure", True), ("measure", "prepare", True),
    ("measure", "measure", True), ("candidate", "candidate", False), ("candidate", "alone", True),
    ("alone", "candidate", True),
])  # fmt: skip
def test_turns_when_one_is_exclusive_admit_it_alone_and_shared_ones_together(tmp_path, held, next_turn, waits):
    context = multiprocessing.get_context("spawn")
    path, events = str(tmp_path / "turns"), [context.Event() for _ in range(6)]
    first = context.Process(target=hold, args=(path, held, events[0], events[1], events[4]))
    second = context.Process(target=hold, args=(path, next_turn, events[2], events[3], events[5]))
    first.start()
    assert events[0].wait(PATIENCE_S)
    second.start()
    assert events[5].wait(PATIENCE_S)
    if waits:
        assert not events[2].wait(1.0)
        events[1].set()
    assert events[2].wait(PATIENCE_S)
    events[1].set(), events[3].set()
    first.join(PATIENCE_S), second.join(PATIENCE_S)
    assert (first.exitcode, second.exitcode) == (0, 0)


@BETWEEN_PROCESSES
def test_exclusive_turn_when_waiting_is_not_overtaken(tmp_path):
    context, path = multiprocessing.get_context("spawn"), str(tmp_path / "turns")
    events = [[context.Event() for _ in range(3)] for _ in range(3)]  # of each process: entered, may leave, tries
    holder, waiter, late = (
        context.Process(target=hold, args=(path, way, *of_one))
        for way, of_one in zip(("prepare", "measure", "prepare"), events, strict=True)
    )
    holder.start()
    assert events[0][0].wait(PATIENCE_S)
    for process, (entered, _, trying) in ((waiter, events[1]), (late, events[2])):
        process.start()
        assert trying.wait(PATIENCE_S) and not entered.wait(1.0)
    events[0][1].set()
    assert events[1][0].wait(PATIENCE_S) and not events[2][0].wait(1.0)
    events[1][1].set()
    assert events[2][0].wait(PATIENCE_S)
    events[2][1].set()
    for process in (holder, waiter, late):
        process.join(PATIENCE_S)
        assert process.exitcode == 0


@LOCKED
def test_shared_turn_when_beyond_its_limit_does_not_block_others(tmp_path):
    slow, other = (Turns(str(tmp_path / "turns")) for _ in range(2))
    with slow.beside_others(longest_s=0.1):
        with other.alone():  # enters although the slow turn has not ended
            pass
    with slow.alone():
        pass
    slow.close(), other.close()


@LOCKED
def test_turn_when_questions_follow_is_kept_for_them(tmp_path):
    mine, other = (Turns(str(tmp_path / "turns")) for _ in range(2))
    room = mine._measuring

    def ask() -> bool:
        with mine.beside_others(longest_s=600.0):
            assert room._holder is not None
        return room._holder is not None

    assert not ask()
    with mine.keeping(60.0):
        assert room._holder is None  # before the first turn
        assert ask() and ask()
    assert room._holder is None and not ask()
    with mine.keeping(0.0):
        assert not ask() and not ask()  # each turn has taken longer than 0 s
        with other.alone():
            pass
    with pytest.raises(ValueError), mine.keeping(60.0), mine.beside_others():
        raise ValueError
    with mine.alone():  # would wait for a turn that was still held
        pass
    mine.close(), other.close()


@LOCKED
def test_device_when_it_rests_is_not_used(tmp_path, monkeypatch):
    mine, steps = Turns(str(tmp_path / "turns")), []

    def is_free() -> bool:
        with open(tmp_path / "turns") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    with monkeypatch.context() as patched:
        patched.setattr(time, "sleep", lambda rest_s: steps.append((rest_s, is_free())))
        with mine.alone(rest_s=0.5):
            steps.append("measures")
    assert steps == [(0.5, False), "measures"] and is_free()
    mine.close()


@BETWEEN_PROCESSES
def test_turn_when_its_holder_is_killed_is_free(tmp_path):
    context = multiprocessing.get_context("spawn")
    path, (entered, never, trying) = str(tmp_path / "turns"), (context.Event() for _ in range(3))
    holder = context.Process(target=hold, args=(path, "measure", entered, never, trying))
    holder.start()
    assert entered.wait(PATIENCE_S)
    os.kill(holder.pid, signal.SIGKILL)
    holder.join(PATIENCE_S)
    turns = Turns(path)
    with turns.alone(), turns.beside_others():  # an evaluator that measures does not wait for itself
        pass
    turns.close()


@LOCKED
def test_exclusive_turn_when_beyond_its_limit_does_not_block_others(tmp_path):
    slow, other = (Turns(str(tmp_path / "turns")) for _ in range(2))
    with slow.alone(longest_s=0.1), other.alone():
        pass
    slow.close(), other.close()
