"""What `cudal1 train` writes where there is no terminal."""

from __future__ import annotations

import io
import re
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from cudal1_ray.evaluation import Verdict
from cudal1_ray.training import progress as module
from cudal1_ray.training.progress import Progress, batch_statistics


def wait_for(log: io.StringIO, line: str) -> None:
    """Return once the log has the line; a beat may be late on busy cores."""
    deadline = time.monotonic() + 60
    while line not in log.getvalue():
        assert time.monotonic() < deadline, log.getvalue()
        time.sleep(0.02)


def becomes_still(log: io.StringIO) -> bool:
    """Return whether the log stays the same for twice as long as between two beats, once what was begun is written."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = log.getvalue()
        time.sleep(0.4)
        if log.getvalue() == text:
            return True
    return False


def test_log_when_nothing_is_finished_names_what_each_role_does(monkeypatch):
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.2)
    log = io.StringIO()
    with Progress("run", "runs/run", Console(file=log, force_terminal=False)) as progress:
        progress.role("actors", "waiting for rollout to start")
        wait_for(log, "... actors: waiting for rollout to start\n")
        progress.role("actors", "")
        assert becomes_still(log)  # no role is busy
        progress.role("learner", "publishing weights")
        wait_for(log, "... learner: publishing weights\n")
    assert becomes_still(log)


@pytest.fixture
def clock(monkeypatch):
    """Return the clock that Progress reads; its seconds are `clock.now`."""
    fake = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: fake.now))
    return fake


def logged(act) -> list[str]:
    """Return the lines of a log in which `act` was called with a Progress."""
    log = io.StringIO()
    with Progress("run", "runs/run", Console(file=log, force_terminal=False)) as progress:
        act(progress)
    return log.getvalue().splitlines()[1:]


def test_step_when_finished_is_printed_with_its_total_and_the_time_left(clock):
    def act(progress):
        progress.stage("contrastive", 32)
        clock.now += 0.4
        progress.step({"stage": "contrastive", "step": 2, "loss": 0.5})

    first, second = logged(act)
    assert first.endswith("] contrastive begins: 32 steps")
    assert re.search(r"\] contrastive step 2/32, 6 s left in this stage  loss 0.5$", second)


def test_stage_when_continued_estimates_from_the_steps_of_this_process(clock):
    def act(progress):
        progress.stage("contrastive", 32, 30)
        clock.now += 7.0
        progress.step({"stage": "contrastive", "step": 31})
        progress.step({"stage": "contrastive", "step": 32})

    begins, before_last, last = logged(act)
    assert begins.endswith("contrastive begins, from step 31 of 32")
    assert before_last.endswith("step 31/32, 7 s left in this stage") and last.endswith("step 32/32")


def test_stage_when_it_ends_is_printed_with_its_note(clock):
    def act(progress):
        progress.stage("assess sft", 1)
        clock.now += 5.0
        progress.advance("assess sft", "5/8 accepted")

    begins, ends = logged(act)
    assert begins.endswith("] assess sft begins") and ends.endswith("] assess sft ends after 5 s: 5/8 accepted")


def test_roles_when_idle_are_left_out_of_a_log(monkeypatch):
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.2)

    log = io.StringIO()
    with Progress("run", "runs/run", Console(file=log, force_terminal=False)) as progress:
        progress.stage("corpus", 288)
        progress.role("rollout", "idle")
        progress.role("evaluator", "3 candidates to go")
        wait_for(log, "] ... corpus, evaluator: 3 candidates to go\n")


def test_note_when_it_has_brackets_is_printed_as_it_is():
    """In a log and on a terminal; a command that goes on may hold plugins=[my_additions]."""
    note = "to continue: cudal1 train name=[a]b plugins=[my_additions]"
    for terminal in (False, True):
        log = io.StringIO()
        with Progress("[a]b", "runs/[a]b", Console(file=log, force_terminal=terminal, color_system=None)) as progress:
            progress.note(note)
        assert note in log.getvalue() and "runs/[a]b" in log.getvalue()


def test_figures_of_a_step_when_verdicts_are_void_or_degenerate_leave_them_out():
    accepted = Verdict("a", "accepted", speedup=2.0, credited_speedup=2.0)
    constant = Verdict("b", "accepted", speedup=90.0, credited_speedup=90.0, degenerate=True)
    others = [constant, Verdict.rejected("b", "crash"), Verdict.rejected("a", "unstable_timing")]
    figures = batch_statistics([accepted, Verdict.rejected("a", "wrong_output"), *others])
    assert (figures["success_rate"], figures["mean_speedup"], figures["best_speedup"]) == (0.5, 1.0, 2.0)
    assert figures["geomean_speedup"] == pytest.approx(0.2**0.5)
    assert batch_statistics(others) == {}


def test_best_so_far_when_a_problem_is_degenerate_is_of_another():
    console = Console(file=io.StringIO(), force_terminal=False, width=160)
    with Progress("run", "runs/run", console) as progress:
        progress.verdict(Verdict("constant", "accepted", credited_speedup=90.0, degenerate=True))
        progress.verdict(Verdict("plain", "accepted", credited_speedup=2.0))
        console.print(progress._render())
    assert "2.00x plain" in console.file.getvalue() and "90" not in console.file.getvalue()
