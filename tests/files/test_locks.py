"""Locks between processes: exclusive and shared, and what a killed holder leaves."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cudal1_ray
from cudal1_ray.files import claim_file, lock_file, unlock_file

pytestmark = pytest.mark.timeout(120)  # a lock that is never released fails by its own limit, not by the suite's
HOLDER = """
import sys, time
from cudal1_ray.files import lock_file
file = open(sys.argv[1], "w")
print(lock_file(file), flush=True)
time.sleep(60)
"""


def test_lock_when_held_alone_is_refused_to_others_until_it_is_released(tmp_path):
    with open(tmp_path / "lock", "w") as mine, open(tmp_path / "lock") as other:
        assert lock_file(mine)
        assert not lock_file(other, wait=False) and not lock_file(other, shared=True, wait=False)
        unlock_file(mine)
        assert lock_file(other, wait=False)


def test_claim_when_another_holds_the_file_is_refused(tmp_path):
    with open(tmp_path / "lock", "w") as mine, open(tmp_path / "lock") as other:
        assert claim_file(mine) and claim_file(mine) and not claim_file(other)
        unlock_file(mine)
        assert claim_file(other)


def test_lock_when_shared_is_had_by_several_and_by_none_alone(tmp_path):
    with open(tmp_path / "lock", "w") as mine, open(tmp_path / "lock") as other, open(tmp_path / "lock") as third:
        assert lock_file(mine, shared=True) and lock_file(other.fileno(), shared=True, wait=False)
        assert not lock_file(third, wait=False)


def test_lock_when_its_holder_is_killed_is_free(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "lock")], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"True\n"
        with open(tmp_path / "lock") as mine:
            assert not lock_file(mine, wait=False)
            os.kill(holder.pid, signal.SIGKILL)
            holder.wait()
            assert lock_file(mine, wait=False)


def test_package_when_it_locks_a_file_calls_lock_file():
    root, flocks = Path(cudal1_ray.__file__).parent, set()
    for path in root.rglob("*.py"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        if names & {"flock", "lockf"}:
            flocks.add(path.relative_to(root).as_posix())
    assert flocks == {"files/locks.py"}
