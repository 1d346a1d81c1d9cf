"""A signal to the whole process group of a command: the command gets it, the Ray that it started does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from cudal1_ray.actors.process_group import separate_group
from tests.family import living_below

# A driver that closes properly: on SIGTERM it asks an actor once more, as a run does for its checkpoint.
DRIVER = """
import os, signal, sys, threading
import ray
from cudal1_ray.actors.config import ClusterConfig
from cudal1_ray.actors.placement import connect

before = os.getpgrp()
connect(ClusterConfig(num_cpus=1, object_store_mib=80))
assert os.getpgrp() == before, "not back in its own group"
port = ray._private.worker.global_worker.node.dashboard_agent_listen_port
assert port != 52365, "Ray's agent waits for this one where another Ray has it"
told = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())

@ray.remote
class Keeper:
    def answer(self):
        return "an answer"

keeper = Keeper.remote()
ray.get(keeper.answer.remote())
print("ready", flush=True)
told.wait()
print("closed with", ray.get(keeper.answer.remote(), timeout=60), flush=True)
ray.shutdown()
"""


def start(**group) -> subprocess.Popen[str]:
    """Return a driver that is ready."""
    process = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True, **group)
    assert process.stdout.readline() == "ready\n"
    return process


def groups_of(processes: list[psutil.Process]) -> set[int]:
    return {os.getpgid(process.pid) for process in processes}


@pytest.mark.timeout(300)
def test_sigterm_to_the_group_when_a_driver_closes_leaves_it_its_actors():
    process = start(process_group=0)
    lines_of = living_below(process.pid)
    below, commands = list(lines_of), " ".join(lines_of.values())
    assert len(below) >= 3  # Ray's head, its node and the actor
    assert "raylet" in commands and "monitor.py" not in commands and "dashboard.py" not in commands
    assert os.getpgid(process.pid) == process.pid not in groups_of(below)
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and "closed with an answer" in output
    _, alive = psutil.wait_procs(below, timeout=60)
    assert not alive


@pytest.mark.timeout(300)
def test_driver_when_killed_leaves_no_process_of_its_ray():
    process = start(process_group=0)
    below = list(living_below(process.pid))
    process.kill()
    process.communicate(timeout=60)
    _, alive = psutil.wait_procs(below, timeout=60)
    assert not alive


@pytest.mark.timeout(300)
def test_session_leader_when_it_starts_ray_keeps_it_in_its_group_and_closes():
    process = start(start_new_session=True)
    assert process.pid in groups_of(list(living_below(process.pid)))
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and "closed with an answer" in output


def test_separate_group_when_left_ends_with_what_was_started_in_it():
    own = os.getpgrp()
    with separate_group():
        child = subprocess.Popen(["sleep", "60"])
    try:
        group = os.getpgid(child.pid)
        assert os.getpgrp() == own != group
        deadline = time.monotonic() + 60
        while [p.pid for p in psutil.process_iter() if _group(p) == group] != [child.pid]:
            assert time.monotonic() < deadline, "the group's holder lives on"
            time.sleep(0.05)
    finally:
        child.kill()
        child.wait()


def _group(process: psutil.Process) -> int:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return 0
