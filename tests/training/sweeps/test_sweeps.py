"""Sweeps as a user runs them: real runs on a real Ray, side by side, with failures, Ctrl-C and kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.family import living_below
from tests.small_stage import STAGE_1

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
# A driver and its six actors ask for 5.5 logical CPUs.
QUICK = [*STAGE_1, "sft.epochs=3"]


def start(folder: Path, *overrides: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cudal1_ray.cli", "train", "-m", f"runs_dir={folder}", *QUICK, *overrides]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen[str], code: int = 0, timeout: float = 400.0) -> str:
    output, _ = process.communicate(timeout=timeout)
    assert process.returncode == code, output
    return output


def journal(folder: Path) -> list[tuple[str, str]]:
    """Return (state, job) of every row of the sweep's journal, in order."""
    path = folder / "sweep" / "jobs.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [(row["state"], row["job"]) for row in map(json.loads, lines)]


def at_work(folder: Path, job: str, process: subprocess.Popen[str], timeout: float = 300.0) -> None:
    """Return when the job's learner has made a step."""
    metrics = folder / "sweep" / job / "metrics.jsonl"
    deadline = time.monotonic() + timeout
    while not (metrics.exists() and metrics.read_text().count("\n")):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline, f"{job} never made a step; {journal(folder)}"
        time.sleep(0.05)


def most_at_once(states: list[tuple[str, str]]) -> int:
    running = most = 0
    for state, _ in states:
        running += 1 if state == "started" else -1
        most = max(most, running)
    return most


def test_sweep_when_jobs_fail_and_it_is_interrupted_or_killed_goes_on(tmp_path):
    """Two seeds that work and two whose origin is not there, in this order; stopped twice, then left to itself."""
    sweep = ["seed=1,2", "init_from=null,nowhere"]
    first, bad_first, second, bad_second = [f"seed={s},init_from={o}" for s in (1, 2) for o in ("null", "nowhere")]

    process = start(tmp_path, *sweep)
    at_work(tmp_path, first, process)
    process.send_signal(signal.SIGINT)
    output = finish(process, code=130)
    assert "Traceback" not in output
    assert journal(tmp_path) == [("started", first), ("interrupted", first)]  # 8 logical CPUs: one at a time
    log = tmp_path / "sweep" / "logs" / f"{first}.log"
    assert "interrupted; the same command continues this run" in log.read_text()

    before = len(journal(tmp_path))
    process = start(tmp_path, *sweep)
    at_work(tmp_path, second, process)
    children = living_below(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive, "left behind by the killed sweep"
    states = journal(tmp_path)[before:]
    assert states[:2] == [("started", first), ("finished", first)] and states[-1] == ("started", second)
    assert ("failed", bad_first) in states
    assert "continuing from" in log.read_text()

    before = len(journal(tmp_path))
    output = finish(start(tmp_path, *sweep, "cluster.num_cpus=11"), code=1)
    assert "1 of them finished before" in output and "nowhere: no run, checkpoint or adapter is there" in output
    states = journal(tmp_path)[before:]
    assert ("started", first) not in states
    assert {job for state, job in states if state == "finished"} == {second}
    assert {job for state, job in states if state == "failed"} == {bad_first, bad_second}
    assert most_at_once(states) == 2  # 11 CPUs: as many as fit, and no more
    for job in (first, second):
        assert (tmp_path / "sweep" / job / "checkpoints" / "sft-final" / "policy").is_dir()
        steps = [
            json.loads(row)["step"] for row in (tmp_path / "sweep" / job / "metrics.jsonl").read_text().splitlines()
        ]
        assert steps == sorted(set(steps))  # no step twice

    summary = json.loads((tmp_path / "sweep" / "report" / "sweep.json").read_text())
    assert list(summary["settings"]) == ["null"] and summary["settings"]["null"]["seeds"] == ["1", "2"]
    assert set(summary["unfinished"]) == {bad_first, bad_second}


def test_sweep_when_terminated_ends_after_its_steps_and_goes_on(tmp_path):
    first, second = "seed=1", "seed=2"
    process = start(tmp_path, "seed=1,2", "sft.epochs=6")
    at_work(tmp_path, first, process)
    process.send_signal(signal.SIGTERM)
    output = finish(process)
    assert "Traceback" not in output and "ended early (SIGTERM)" in output
    assert journal(tmp_path) == [("started", first), ("stopped", first)]
    steps = (tmp_path / "sweep" / first / "metrics.jsonl").read_text()
    last = json.loads(steps.splitlines()[-1])["step"]
    assert last < 6 and (tmp_path / "sweep" / first / "checkpoints" / f"sft-{last:06d}").is_dir()

    finish(start(tmp_path, "seed=1,2", "sft.epochs=6"))
    log = (tmp_path / "sweep" / "logs" / f"{first}.log").read_text()
    assert "ended early (SIGTERM)" in log and "continuing from" in log
    assert (tmp_path / "sweep" / first / "metrics.jsonl").read_text().startswith(steps)
    assert [job for state, job in journal(tmp_path) if state == "finished"] == [first, second]


@pytest.mark.parametrize(
    ("number", "code", "state"), [(signal.SIGTERM, 0, "stopped"), (signal.SIGINT, 130, "interrupted")]
)
def test_batch_when_an_earlier_one_was_ended_does_not_begin(tmp_path, number, code, state):
    process = start(tmp_path, "seed=1,2", "sft.epochs=6", "hydra.sweeper.max_batch_size=1")
    at_work(tmp_path, "seed=1", process)
    process.send_signal(number)
    finish(process, code)
    assert journal(tmp_path) == [("started", "seed=1"), (state, "seed=1")]


def test_job_when_no_machine_can_hold_it_is_given_up_with_its_sum(tmp_path):
    roomless = ["cluster.compiler.num_gpus=2", "cluster.compiler.accelerator_type=A100"]
    output = finish(start(tmp_path, "seed=1,2", "hydra.launcher.room_timeout_s=1", *roomless), code=1)
    assert "no room: it asks for CPU 5.5, GPU 2, accelerator_type:A100" in output and "the cluster has CPU 8" in output
    assert {state for state, _ in journal(tmp_path)} == {"failed"}
