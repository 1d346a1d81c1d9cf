"""What contestants may use up behind the sandbox, processes, memory and disk, and how one that uses more is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from evaluator_settings import quick_config, sandbox_level
from problems_for_tests import problem
from sandbox_attempts import HONEST
from sandbox_attempts import require_level as _require

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.exchange.messages import DeviceSettings, Load, Opened
from cudal1_ray.evaluation.host.handles import ContestantHandle, Misbehaviour
from cudal1_ray.evaluation.sandbox.memory_group import MemoryGroup, delegated_group
from cudal1_ray.evaluation.sandbox.process_watch import descendants
from cudal1_ray.evaluation.sandbox.walls import LEVELS


@pytest.mark.usefixtures("brief_ending")
@pytest.mark.parametrize("level", LEVELS[1:])
def test_detached_process_when_its_contestant_ends_dies_at_every_level(ungated_at, level):
    _require(level)
    daemon = (
        """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
"""
        + HONEST
    )
    evaluator = ungated_at(level)
    verdict = evaluator.evaluate(problem("chain"), daemon)
    assert verdict.reasons == ("leftover_process",), verdict
    assert descendants(evaluator._server.process.pid) == []
    assert evaluator.evaluate(problem("chain"), HONEST).accepted


def test_candidate_when_torch_is_given_many_threads_may_have_them():
    with Evaluator(quick_config(threads=40)) as evaluator:
        verdict = evaluator.evaluate(problem("chain"), HONEST)
    assert verdict.accepted, verdict


@pytest.mark.parametrize("level", ["landlock", "seccomp"])
def test_candidate_when_the_user_has_threads_elsewhere_may_start_as_many(level, ungated_at, monkeypatch):
    """Without a user namespace the kernel counts all threads of the user, such as Ray's and an inference engine's."""
    _require(level)
    code = (
        "import threading\n"
        "threads = [threading.Thread(target=threading.Event().wait, args=(600,), daemon=True) for _ in range(200)]\n"
        "[thread.start() for thread in threads]\nprint('there', flush=True)\n[thread.join() for thread in threads]"
    )
    others = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert others.stdout.readline() == "there\n"
        starts = 'import subprocess\nsubprocess.run(["/bin/true"], check=True)\n'
        evaluator = ungated_at(level)
        monkeypatch.setattr(evaluator.config.check, "static_gate", True)
        monkeypatch.setattr(evaluator.config.limits, "processes", 64)
        verdict = evaluator.evaluate(problem("chain"), starts + HONEST)
    finally:
        others.kill()
        others.wait()
    assert verdict.accepted, verdict


def test_contestant_is_what_the_kernel_ends_first_when_memory_runs_out(achieved):
    attempts = """
attempt("first", lambda: int(open("/proc/self/oom_score_adj").read()) == 1000 or 1 / 0)
attempt("last", lambda: open("/proc/self/oom_score_adj", "w").write("-1000"))
"""
    _require("landlock")
    assert achieved("landlock", attempts) == "first"


SHARED = """
import mmap
held = []
while True:
    held.append(mmap.mmap(-1, 32 << 20))
    held[-1].write(b"x" * (32 << 20))
"""
CHILDREN = """
import mmap, os, time
for _ in range(8):
    if os.fork() == 0:
        held = mmap.mmap(-1, 160 << 20)
        held.write(b"x" * (160 << 20))
        time.sleep(600)
time.sleep(600)
"""


@pytest.mark.parametrize("fill", [SHARED, CHILDREN], ids=["shared", "children"])
@pytest.mark.parametrize("level", LEVELS[:2])
def test_candidate_when_it_fills_memory_is_ended_and_the_next_is_evaluated(ungated_at, level, fill):
    _require(level)
    evaluator = ungated_at(level)
    verdict = evaluator.evaluate(problem("chain"), fill + HONEST)
    assert verdict.reasons == ("memory_limit",), verdict
    assert evaluator.evaluate(problem("chain"), HONEST).accepted


FILES_ON_DISK = """
import os, time
for number in range(24):
    with open(os.path.join(os.environ["TMPDIR"], str(number)), "wb") as file:
        file.write(b"x" * (32 << 20))
time.sleep(600)
"""


def test_candidate_when_it_fills_the_disk_is_ended_and_leaves_nothing(ungated_at):
    _require("landlock")
    evaluator = ungated_at("landlock")
    verdict = evaluator.evaluate(problem("chain"), FILES_ON_DISK + HONEST)
    assert verdict.reasons == ("resource_exhaustion",) and "512 MiB of files" in verdict.detail, verdict
    assert not list(Path(evaluator._server._folder.path, "scratch").rglob("*"))


@pytest.fixture
def loaded(server_at):
    """Yield a function that starts a contestant and one that has it import some code."""
    started = []

    def start(level: str):
        started.append(server_at(level).spawn(role="candidate", cores=[]))
        return started[-1]

    def load(contestant, code: str) -> None:
        opened = Opened([], b"", [], b"", flat=True, in_place=False, nbytes=0, io_bytes=0)
        message = Load(
            "candidate", code, [], DeviceSettings("cpu", 1), "", opened, b"", eval_mode=False, resets_tf32=False,
            outputs="fresh", in_order=False, model_seed=1, against="eager", extensions=[], failed_extensions={},
        )  # fmt: skip
        contestant.ask(message, 60.0, doing="import")

    yield start, load
    for contestant in started:
        contestant.close()


@pytest.mark.skipif(delegated_group() is None, reason="no control group may be divided here")
@pytest.mark.parametrize("fill", [SHARED, CHILDREN], ids=["shared", "children"])
def test_contestant_when_it_fills_memory_unseen_is_ended_by_the_kernel(loaded, monkeypatch, fill):
    start, load = loaded
    monkeypatch.setattr(ContestantHandle, "_look", lambda self: None)
    contestant = start(sandbox_level())
    with pytest.raises(Misbehaviour, match="1024 MiB allowed, at once") as ended:
        load(contestant, fill.replace("range(8)", "range(16)"))
    assert ended.value.reason == "memory_limit"


def test_contestant_when_its_group_exceeds_its_memory_reports_that_limit(loaded, monkeypatch):
    start, load = loaded
    contestant = start(sandbox_level())
    group = Mock(spec=MemoryGroup)
    group.exceeded.return_value = True
    monkeypatch.setattr(contestant, "group", group)
    contestant.shares(100.0)
    group.limit.assert_called_once_with(1024 + 2 * 512 + 100.0)
    os.kill(contestant.watch.pid, signal.SIGKILL)
    with pytest.raises(Misbehaviour, match="1024 MiB allowed, at once"):
        load(contestant, "")
    contestant.close()
    group.close.assert_called()
