"""launch/local.sh starts several Ray nodes on this machine, runs a command on them, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.ports import free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def nodes_at(port: int) -> list[psutil.Process]:
    """Return the raylets of the cluster whose head listens at the port, and the head itself."""
    nodes = []
    for process in psutil.process_iter(["cmdline"]):
        if any(f":{port}" in word or word == f"--gcs_server_port={port}" for word in process.info["cmdline"] or ()):
            nodes.append(process)
    return nodes


def test_roles_when_nodes_have_types_land_on_theirs_and_jobs_wait_for_room(repository):
    """A cluster of three nodes, two of them with a pretended GPU: the placement of a job, and the room of the next."""
    port = free_port()
    nodes = ["-n", "cpus=4", "-n", "cpus=3,gpus=1,type=A100", "-n", "cpus=3,gpus=1,type=H100"]
    script = str(Path(__file__).parent / "placement.py")
    command = [str(repository / "launch" / "local.sh"), "-p", str(port), *nodes, "--", sys.executable, script]
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env={"PATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.strip().splitlines()[-1])
    assert report["types"] == ["A100", "H100", "none"]
    for kind in ("A100", "H100"):  # one node holds all of the job, and so all of it is there
        assert report["placed"][kind] == dict.fromkeys(
            ("learner", "rollout", "evaluator", "compiler", "exemplars"), [kind]
        )
    larger = report["placed"]["larger"]
    assert larger["evaluator"] == ["H100"] and len({node for on in larger.values() for node in on}) > 1
    assert report["left"] == {"CPU": 10 - 8 + 0.5, "GPU": 1}  # the driver lends its CPU out
    assert report["waited"] and report["then"]
    assert not nodes_at(port)


def test_local_when_stopped_stops_the_command_and_the_cluster(repository, tmp_path):
    port, path = free_port(), f"{Path(sys.executable).parent}:/usr/bin:/bin"
    ends = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit('told to end'))"
    waiting = f"{ends}; print('there', flush=True); time.sleep(300)"
    command = [str(repository / "launch" / "local.sh"), "-p", str(port), "-n", "cpus=1", "--", "python", "-c", waiting]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={"PATH": path})
    assert process.stdout.readline() == "there\n"
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert output == "told to end\n" and process.returncode == 143
    assert not nodes_at(port)


def test_local_when_the_command_ends_has_its_exit_code(repository):
    port = free_port()
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    command = [str(repository / "launch" / "local.sh"), "-p", str(port), "-n", "cpus=1", "--", "sh", "-c", "exit 7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={"PATH": path})
    assert done.returncode == 7, done.stdout + done.stderr
    assert not nodes_at(port)
