"""What `cudal1 train` writes where there is no terminal."""

from __future__ import annotations

import io
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
        assert "s, actors: waiting for rollout to start\n" in log.getvalue()
        progress.role("actors", "")
        said = log.getvalue()
        time.sleep(0.5)
        assert log.getvalue() == said  # no role is busy
        progress.role("learner", "publishing weights")
        time.sleep(0.5)
        assert "s, learner: publishing weights\n" in log.getvalue()
    said = log.getvalue()
    time.sleep(0.5)
    assert log.getvalue() == said
