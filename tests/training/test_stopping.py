"""A run that has to end before its last step: by a signal, or by its budget of minutes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from cudal1_ray.config import load_config
from cudal1_ray.training.stages.contrastive import run_contrastive
from cudal1_ray.training.stopping import RunStopped, Stopper
from cudal1_ray.training.train import train
from tests.training.scripted_run import check_complete, open_session, rows_of, run_stage


@pytest.mark.parametrize("staleness", [0, 1])
def test_run_when_it_has_to_end_finishes_and_saves_its_step_and_goes_on_later(tmp_path, staleness):
    overrides = (f"contrastive.staleness={staleness}", "checkpoint.every_steps=10")
    first = open_session(tmp_path, *overrides)
    first.stopper.listen()
    before = signal.getsignal(signal.SIGTERM)
    take = first.crew.learner.train_policy_gradient

    def taken_away(sequences, algorithm):
        if first.crew.learner.version == 1:  # in the middle of step 2
            os.kill(os.getpid(), signal.SIGTERM)
        return take(sequences, algorithm)

    first.crew.learner.train_policy_gradient = taken_away
    try:
        with pytest.raises(RunStopped, match="SIGTERM"):
            run_stage(first)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert before != signal.SIG_DFL
    assert [row["step"] for row in rows_of(first)] == [1, 2] and first.store.latest().step == 2
    second = run_stage(open_session(tmp_path, *overrides))
    assert [version for version, _ in second.crew.learner.taken] == [2, 3, 4]
    check_complete(second)


def test_run_when_the_next_step_would_exceed_the_budget_ends_before_it(tmp_path):
    session = open_session(tmp_path)
    session.stopper = Stopper(max_minutes=10.0)
    session.last_step_s = 601.0
    with pytest.raises(RunStopped, match="max_minutes=10"):
        run_stage(session)
    assert not rows_of(session) and session.store.latest() is None  # nothing was done, nothing is saved
    session.last_step_s = 1.0
    run_stage(session)
    check_complete(session)


@pytest.mark.parametrize(("ending", "steps"), [("max_minutes", 2), ("SIGTERM", 2), ("Ctrl-C", None)])
def test_run_when_it_has_to_end_at_a_look_in_between_saves_the_step_before(tmp_path, ending, steps):
    session = open_session(tmp_path, "assessment.every_steps=2", "checkpoint.every_steps=10", "algorithm.kl_coef=0")
    session.crew.learner.start_stage = lambda *arguments, **names: None

    def look(session, stage, step):
        if ending == "max_minutes":
            session.stopper, session.last_assessment_s = Stopper(max_minutes=1.0), 61.0
            session.stopper.check(session.last_assessment_s)
        if ending == "SIGTERM":
            session.stopper.terminated = True
        raise KeyboardInterrupt

    with pytest.raises((RunStopped, KeyboardInterrupt)):
        run_contrastive(session, look)
    latest = session.store.latest()
    assert (latest.step if latest else None) == steps


WAITING = """
import os, signal, threading, time
import ray
from cudal1_ray.actors.config import ClusterConfig
from cudal1_ray.actors.placement import connect
from cudal1_ray.training.stopping import Stopper

@ray.remote
def forever():
    time.sleep(600)

stopper = Stopper()
try:
    with stopper.while_ray_starts():
        connect(ClusterConfig(num_cpus=1, object_store_mib=80))
        {in_ray}
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    ray.get(forever.remote(), timeout=500)
except KeyboardInterrupt:
    print("ended by", stopper.reason())
"""


@pytest.mark.parametrize("in_ray", ["pass", "os.kill(os.getpid(), signal.SIGTERM)"])
def test_sigterm_when_ray_starts_or_is_waited_for_ends_the_run(in_ray):
    """Ray's own handler exits with 15; while it waits, it turns any exception but Ctrl-C's into a SystemError."""
    script = WAITING.replace("{in_ray}", in_ray)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=400)
    assert done.stdout.splitlines()[-1:] == ["ended by SIGTERM"], done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_run_when_a_signal_comes_between_steps_ends_with_its_exit_code(tmp_path, monkeypatch, capsys, number, code):
    def stages(config, run, problems, stages, progress, stopper):
        stopper.listen()
        os.kill(os.getpid(), number)
        signal.pause()

    monkeypatch.setattr("cudal1_ray.training.train._run_stages", stages)
    try:
        assert train(load_config([f"runs_dir={tmp_path}"]), "cudal1 train") == code
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ended = "ended early (SIGTERM); all that is finished is kept. To continue: cudal1 train"
    assert (ended in " ".join(capsys.readouterr().out.split())) == (code == 0)
