"""What `cudal1 train` writes where there is no terminal."""

from __future__ import annotations

import io
import re
import time

from rich.console import Console

from cudal1_ray.training import progress as module
from cudal1_ray.training.progress import Progress


def test_a_log_says_what_each_role_is_doing_while_nothing_is_finished(monkeypatch):
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.2)
    log = io.StringIO()
    with Progress("run", "runs/run", Console(file=log, force_terminal=False)) as progress:
        progress.role("actors", "waiting for rollout to start")
        time.sleep(0.5)
        assert "... actors: waiting for rollout to start\n" in log.getvalue()
        progress.role("actors", "")
        said = log.getvalue()
        time.sleep(0.5)
        assert log.getvalue() == said  # no role is busy
        progress.role("learner", "publishing weights")
        time.sleep(0.5)
        assert "... learner: publishing weights\n" in log.getvalue()
    said = log.getvalue()
    time.sleep(0.5)
    assert log.getvalue() == said


def logged(act) -> list[str]:
    """The lines of a log in which `act` was called with a Progress."""
    log = io.StringIO()
    with Progress("run", "runs/run", Console(file=log, force_terminal=False)) as progress:
        act(progress)
    return log.getvalue().splitlines()[1:]


def test_a_finished_step_is_printed_with_its_total_and_the_time_left():
    def act(progress):
        progress.stage("contrastive", 32)
        time.sleep(0.2)
        progress.step({"stage": "contrastive", "step": 2, "loss": 0.5})

    first, second = logged(act)
    assert first.endswith("] contrastive begins of 32 steps")
    assert re.search(r"\] contrastive step 2/32, [3-9] s left in this stage  loss 0.5$", second)


def test_a_continued_stage_estimates_from_the_steps_done_here():
    def act(progress):
        progress.stage("contrastive", 32, 30)
        time.sleep(0.2)
        progress.step({"stage": "contrastive", "step": 31})
        progress.step({"stage": "contrastive", "step": 32})

    begins, before_last, last = logged(act)
    assert begins.endswith("contrastive begins, from step 31 of 32")
    assert re.search(r"step 31/32, [01] s left in this stage$", before_last) and last.endswith("step 32/32")


def test_a_stage_that_ends_is_printed_with_its_note():
    def act(progress):
        progress.stage("assess sft", 1)
        progress.advance("assess sft", "5/8 accepted")

    begins, ends = logged(act)
    assert begins.endswith("] assess sft begins") and ends.endswith("] assess sft ends after 0 s: 5/8 accepted")


def test_idle_roles_are_left_out_of_a_log(monkeypatch):
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.2)

    def act(progress):
        progress.stage("corpus", 288)
        progress.role("rollout", "idle")
        progress.role("evaluator", "3 candidates to go")
        time.sleep(0.5)

    lines = logged(act)
    assert lines[1].endswith("] ... corpus, evaluator: 3 candidates to go")
