"""A buffer whose writer dies: nothing that a finished save reported is lost, nothing half-written is seen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from cudal1_ray.exemplars import Exemplar, ExemplarBuffer, storage

WRITER = """
import os, sys
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer
buffer = ExemplarBuffer.open(sys.argv[1], shard_rows=50)
print("open", len(buffer), flush=True)
number = int(sys.argv[2])
while True:
    buffer.insert([Exemplar.new("p", f"x = {number + i}", 1.0 + i, step=number) for i in range(5)])
    number += 5
    buffer.save()
    os.write(1, f"saved {number}\\n".encode())  # a line in one call: print() can die within it
"""


def test_buffer_when_killed_at_any_moment_loses_nothing_saved(tmp_path):
    rng = np.random.default_rng(11)
    reported = 0
    for _ in range(10):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(reported)], stdout=subprocess.PIPE, text=True
        )
        lines = []
        try:
            assert writer.stdout.readline().startswith("open"), "the writer did not start"
            lines = [writer.stdout.readline() for _ in range(rng.integers(0, 16))]
            time.sleep(float(rng.uniform(0.0, 0.02)))  # somewhere in the saves that follow
        finally:
            os.kill(writer.pid, signal.SIGKILL)
            lines += writer.stdout.read().splitlines()
            writer.wait()
            writer.stdout.close()
        finished = [int(line.split()[1]) for line in lines if line.startswith("saved")]
        reported = max([reported, *finished])
        buffer = ExemplarBuffer.open(tmp_path)
        numbers = [int(e.code.removeprefix("x = ")) for e in buffer]
        assert numbers == list(range(len(numbers))), "rows are whole, once each and in order"
        assert reported <= len(numbers) <= reported + 5, "at most the save that was never reported is more"
        assert all(e.speedup == 1.0 + n % 5 and e.step == n - n % 5 for n, e in enumerate(buffer))
        reported = len(numbers)
    assert reported > 50, "the writers were killed before they wrote anything worth losing"


class Died(BaseException):
    """Stands for the death of the process: nothing in the program catches it."""


def _dies_at(monkeypatch, fatal: int) -> list[str]:
    """Make the process die just before, or just after, the n-th step that touches the disk."""
    done: list[str] = []

    def wrap(name, real):
        def step(*args, **kwargs):
            done.append(name)
            if 2 * len(done) == fatal:
                raise Died
            result = real(*args, **kwargs)
            if 2 * len(done) + 1 == fatal:
                raise Died
            return result

        return step

    monkeypatch.setattr("os.fsync", wrap("fsync", os.fsync))
    monkeypatch.setattr("os.replace", wrap("replace", os.replace))
    monkeypatch.setattr(storage.pq, "write_table", wrap("write", storage.pq.write_table))
    return done


@pytest.mark.parametrize("rollback", [False, True])
def test_save_when_killed_at_any_step_leaves_the_old_state_or_the_new(tmp_path, monkeypatch, rollback):
    old = [Exemplar.new("p", f"x = {n}", 1.0) for n in range(6)]
    new = [Exemplar.new("p", f"y = {n}", 1.0) for n in range(9)]
    outcomes = []
    for fatal in range(2, 100):
        folder = tmp_path / str(fatal)
        buffer = ExemplarBuffer.open(folder, create=True, shard_rows=4)
        buffer.insert(old[:2])
        state = buffer.state()
        buffer.insert(old[2:])
        buffer.save()
        if rollback:
            buffer = ExemplarBuffer.open(folder, state, shard_rows=4)
        buffer.insert(new)
        finished = False
        with monkeypatch.context() as patch:
            steps = _dies_at(patch, fatal)
            try:
                buffer.save()
                finished = True
            except Died:
                pass
        exemplars = list(ExemplarBuffer.open(folder))
        kept = old[:2] if rollback else old
        assert exemplars in (old, kept + new)
        outcomes.append(exemplars != old)
        if finished:
            assert len(steps) * 2 + 1 < fatal and exemplars == kept + new
            break
    else:
        pytest.fail("a save has more steps than this test tries")
    assert outcomes == sorted(outcomes) and outcomes[0] is False, "one step commits; before it nothing has changed"


def test_reader_when_beside_a_writer_sees_a_whole_state(tmp_path):
    ExemplarBuffer.open(tmp_path)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout.readline().startswith("open")
        counts, deadline = [0], time.monotonic() + 60
        while len(set(counts)) < 12 and time.monotonic() < deadline:
            numbers = [int(e.code.removeprefix("x = ")) for e in ExemplarBuffer.open(tmp_path)]
            assert numbers == list(range(len(numbers))) and len(numbers) % 5 == 0
            counts.append(len(numbers))
        assert counts == sorted(counts) and len(set(counts)) >= 12
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
