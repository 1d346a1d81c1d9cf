"""The runs of the ablation: ordinary `cudal1 train` commands, each skipped when finished and continued when broken."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console

from benchmarks.common.results import current_commit
from cudal1_ray.config import load_config, read_settings, to_dict
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars.hardware_buffers import copy_exemplars
from cudal1_ray.files import JsonLines, read_json_lines, replacing_folder, write_atomically

BASE_STAGES = ("sft", "self_supervised")
STAGE = "contrastive"
# What of a configuration the policy of the first two stages depends on.
_BASE_SECTIONS = ("seed", "problems", "policy", "prompting", "exemplars", "sft", "self_supervised")
# Seconds that a run has to end after a signal, before it gets the next one.
_STOP_S = 60.0


def assessed_stages(run: Path) -> set[str]:
    path = run / "assessments.jsonl"
    return {row["stage"] for row in read_json_lines(path)}


def is_assessed(run: Path, stage: str) -> bool:
    """Return whether a stage of the run has ended and was assessed."""
    return (run / "checkpoints" / f"{stage}-final" / "state").is_dir() and stage in assessed_stages(run)


def is_finished(run: Path, stage: str) -> bool:
    """Return whether a stage of the run has ended and was assessed, stage 3 with its control where one is due."""
    if stage != STAGE or not is_assessed(run, stage):
        return is_assessed(run, stage)
    from cudal1_ray.training.assessment import is_control_due, lacks_control  # Ray takes seconds to import
    from cudal1_ray.training.policy_assessment import read_config
    from cudal1_ray.training.run_folder import RunFolder

    return not (lacks_control(assessed_stages(run)) and is_control_due(read_config(run, []), RunFolder(run)))


@dataclass
class Runner:
    """Starts runs one after another, and remembers what became of each.

    Attributes:
        folder: the runs' folder. `attempts.jsonl` there has one row for every process; `logs/` has what they printed.
        deadline: `time.monotonic()` after which no run is started.
        overrides: settings that all runs share.
        failed: by run, why its last attempt by this command failed.
    """

    folder: Path
    deadline: float
    overrides: list[str]
    console: Console
    failed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        self._attempts = JsonLines(self.folder / "attempts.jsonl")
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    @property
    def late(self) -> bool:
        return time.monotonic() >= self.deadline

    def minutes(self, name: str, what: str | None = None) -> float | None:
        """Return the wall time of all attempts at a run, starting up included; None where an attempt has no row: it was
        not made from here, or was killed together with this command.

        Args:
            what: counts these attempts alone, as `process` was given it; None: all, assessments too.
        """
        rows = [row for row in self._attempts if row["run"] == name]
        trained = [row for row in rows if shlex.split(row["command"])[1] == "train"]
        chosen = [row for row in rows if what in (None, row["stage"])]
        starts = sum(1 for _ in read_json_lines(self.folder / name / "environment.jsonl"))
        if not chosen or (len(trained) < starts and any(row in trained for row in chosen)):
            return None
        return round(sum(row["minutes"] for row in chosen), 2)

    def run(self, name: str, stage: str, seed: int, *overrides: str) -> bool:
        """Take a run through a stage; return whether the stage is finished."""
        path = self.folder / name
        if is_finished(path, stage):
            return True
        if self.late:
            return False
        place = [f"name={name}", f"runs_dir={self.folder}", f"seed={seed}", f"stage={stage}"]
        ended = self.process(name, ["train", *place, *self.overrides, *overrides], stage)
        if ended and not is_finished(path, stage):
            self.fail(name, f"{stage}: ended before it was finished")
        return ended and is_finished(path, stage)

    @property
    def minutes_left(self) -> float:
        return (self.deadline - time.monotonic()) / 60

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds that processes may still run before `stop` is due; None: no limit, or it was done."""
        return None if self._stopped or self.deadline == math.inf else max(0.0, self.deadline - time.monotonic())

    def process(self, name: str, command: list[str], what: str = "", gpu: str = "") -> bool:
        """Run one `cudal1` command for a run; return whether its exit code is 0.

        Args:
            what: names it in the log.
            gpu: that it sees, as in CUDA_VISIBLE_DEVICES; empty: what this process sees.
        """
        what = what or command[0]
        verb = "continued" if (self.folder / name / "config.yaml").exists() else "started"
        self.console.print(f"{time.strftime('%H:%M')} {name}, {what}: {verb}", highlight=False)
        started, load = time.monotonic(), os.getloadavg()[0]
        code, cause = self._process(name, command, gpu)
        minutes = (time.monotonic() - started) / 60
        self._attempts.append(
            {"run": name, "stage": what, "minutes": round(minutes, 3), "exit_code": code}
            | {"command": shlex.join(["cudal1", *command]), "commit": current_commit()}
            | ({"gpu": gpu} if gpu else {})
            | {"load_before": load, "load_after": os.getloadavg()[0], "at": time.time()}
        )
        self.failed.pop(name, None)
        if code == 0:
            self.console.print(f"      {name}: {what} ended after {minutes:.1f} minutes", highlight=False)
        else:
            self.fail(name, f"{what}, exit code {code}: {cause}")
        return code == 0

    def fail(self, name: str, reason: str) -> None:
        """Note why a run cannot be had, and print it the first time."""
        if self.failed.get(name) != reason:
            self.console.print(f"      {name} failed: {reason}", highlight=False, markup=False)
        self.failed[name] = reason

    def stop(self) -> None:
        """End the processes that run: after the step under way, a minute later within it, at last by force.

        The first SIGTERM lets `cudal1 train` end its step and write a checkpoint, a second one ends it at once. SIGINT
        would do neither where a shell has started this in the background: what it starts ignores interrupts.
        """
        self._stopped, self.deadline = True, min(self.deadline, time.monotonic())
        running = list(self._running)
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            for process in running:
                process.send_signal(number)
            until = time.monotonic() + _STOP_S
            running = [process for process in running if not _has_ended(process, until)]

    def _process(self, name: str, command: list[str], gpu: str = "") -> tuple[int, str]:
        """Run a `cudal1` command in its own process; return its exit code and the line that explains it."""
        log = self.folder / "logs" / f"{name}.log"
        environment = os.environ | ({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})
        with open(log, "ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "cudal1_ray.cli", *command], stdout=output, stderr=output, env=environment
            )
            self._running.add(process)
            if self.late:  # stopped while it was being started
                process.terminate()
            try:
                code = process.wait()
            except BaseException:  # no other process knows of it, so it is stopped here
                self.stop()
                raise
            finally:
                self._running.discard(process)
        if code < 0:
            return code, f"killed by {signal.Signals(-code).name}"
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return code, lines[-1].strip()[:300] if lines else "nothing printed"


def _has_ended(process: subprocess.Popen[bytes], until: float) -> bool:
    """Return whether a process has ended before `until`, on the clock of `time.monotonic`, and wait for that."""
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def adopt_base(source: Path, target: Path, seed: int, overrides: list[str]) -> None:
    """Copy from a run what its first two stages left, as they left it; nothing when `target` is there already.

    A run that went on has candidates of its third stage in its buffer. They would be shown to the arms, so the copy
    does without them: a candidate of the first two stages was written by a policy version that wrote rollouts of the
    second, and every later one by a higher version.

    Raises:
        UserError: when the run has not finished those stages, was started with other settings, or cannot be read.
    """
    if (target / "config.yaml").exists():
        return
    missing = [stage for stage in BASE_STAGES if not is_finished(source, stage)]
    if missing:
        raise UserError(f"{source}: has no finished and assessed {' and '.join(missing)} to start from")
    ours = to_dict(load_config([f"seed={seed}", *overrides]))
    theirs = read_settings(source)
    for section in _BASE_SECTIONS:
        if difference := _difference(theirs.get(section), ours[section], section):
            raise UserError(
                f"{source}: was started with other settings: {difference}; give the former, or no --base-runs"
            )
    with replacing_folder(target) as partial:
        _copy_base(source, partial)


def _copy_base(source: Path, target: Path) -> None:
    """Copy a run without what came after its first two stages."""
    later = shutil.ignore_patterns(f"{STAGE}-*", "report", "tb", "in_flight")
    shutil.copytree(source, target, ignore=later, dirs_exist_ok=True)
    for name in ("assessments.jsonl", "metrics.jsonl"):
        lines = (source / name).read_text().splitlines(keepends=True)
        write_atomically(target / name, "".join(line for line in lines if json.loads(line)["stage"] != STAGE))
    rounds = sorted((source / "rollouts").glob(f"{BASE_STAGES[1]}-*.parquet"))
    last = max(max(pq.read_table(file, columns=["policy_version"])["policy_version"].to_pylist()) for file in rounds)
    shutil.rmtree(target / "exemplars")
    copy_exemplars(source / "exemplars", target / "exemplars", lambda exemplar: exemplar.policy_version <= last)


def _difference(theirs: Any, ours: Any, key: str) -> str:
    """Return the first setting that both have and that differs; one newer than the run cannot have been another."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        shared = (name for name in theirs if name in ours)
        return next(
            (difference for name in shared if (difference := _difference(theirs[name], ours[name], f"{key}.{name}"))),
            "",
        )
    return "" if theirs == ours else f"{key} was {theirs!r}, is {ours!r}"
