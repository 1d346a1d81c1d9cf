"""Runs jobs on a Ray cluster: each a driver in a process of its own, in room set aside for it and its actors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
import traceback
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

import ray

from cudal1_ray.actors.placement import connect
from cudal1_ray.config import Config, started_cluster
from cudal1_ray.errors import UserError, first_line
from cudal1_ray.training.stopping import Stopper
from cudal1_ray.training.sweeps.jobs import JobEnding, SweepFolder, SweepJob
from cudal1_ray.training.sweeps.reservation import Reservation, inside
from cudal1_ray.training.sweeps.table import SweepTable

POLL_S = 0.5
# Most seconds that the next job waits for the actors of a job larger than a node to take their places.
SETTLE_S = 600.0
# Seconds that a driver has, once asked to stop, to stop its actors and to close its files.
GOODBYE_S = 20.0
# Cause of a job that did not fail and is not finished.
ENDED_EARLY = "ended early (max_minutes, or SIGTERM)"


@dataclass(frozen=True)
class JobLimits:
    """How jobs share the cluster; conf/hydra/launcher/ray.yaml explains each and has its default."""

    max_jobs: int | None
    driver_cpus: float
    room_timeout_s: float

    def __post_init__(self) -> None:
        for key, least in (("max_jobs", 1), ("driver_cpus", 0), ("room_timeout_s", 0)):
            value = getattr(self, key)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (value is None and key == "max_jobs") and not (number and value >= least):
                raise UserError(f"hydra.launcher.{key}={value}: must be a number of at least {least}")


@dataclass
class _Running:
    job: SweepJob
    room: Reservation


class SweepRunner:
    """Runs the batches of one sweep: SIGTERM and Ctrl-C end the sweep, not only the batch that is under way."""

    def __init__(self, limits: JobLimits):
        self._limits, self._stopper = limits, Stopper()
        self._ended = ""  # the state of jobs that do not begin any more

    def run(self, folder: SweepFolder, jobs: list[SweepJob]) -> list[JobEnding]:
        """Run the jobs of a batch that are not finished yet, as many side by side as fit; return how each ended, in
        their order.

        A job that fails is written down with its cause and stops no other. SIGTERM ends all after their steps under
        way, Ctrl-C or a second SIGTERM at once; the same command goes on.

        Raises:
            UserError: when the configured cluster does not answer.
        """
        done = {job.name for job in jobs if folder.is_finished(job)}
        waiting = deque(job for job in jobs if job.name not in done)
        with SweepTable(folder.path, jobs, done) as table:
            launcher = _Launcher(folder, self._limits, table, self._stopper)
            try:
                if waiting and not self._ended:
                    with self._stopper.while_ray_starts():
                        connect(waiting[0].config.cluster)
                    with self._stopper.after_this_step():
                        launcher.run(waiting)
                    self._ended = "stopped" if self._stopper.terminated else ""
            except KeyboardInterrupt:
                self._ended = "interrupted"
            if self._ended:
                launcher.end(waiting, self._ended)
        return [launcher.endings.get(job.name, JobEnding(job.name, str(folder.path), "finished")) for job in jobs]


@dataclass
class _Settling:
    """A job larger than a node whose actors are taking their places; the next one waits, or it would take them."""

    driver: ray.ObjectRef
    left: dict[str, float]  # resources that are free once all are up
    until: float

    def over(self) -> bool:
        free = ray.available_resources()
        taken = all(free.get(key, 0.0) <= amount + 1e-6 for key, amount in self.left.items())
        return taken or time.monotonic() > self.until


class _Launcher:
    """The jobs that run now, and what became of the others."""

    def __init__(self, folder: SweepFolder, limits: JobLimits, table: SweepTable, stopper: Stopper):
        self.endings: dict[str, JobEnding] = {}
        self._folder, self._limits, self._table, self._stopper = folder, limits, table, stopper
        self._running: dict[ray.ObjectRef, _Running] = {}
        self._next: Reservation | None = None  # room asked for, for the job that is first in the queue
        self._asked_at = 0.0
        self._settling: _Settling | None = None

    def run(self, waiting: deque[SweepJob]) -> None:
        self._stop = StopRequest.remote()
        while self._running or (waiting and not self._stopper.terminated):
            if self._stopper.terminated:
                self._stop.make.remote()
            elif waiting and (self._limits.max_jobs is None or len(self._running) < self._limits.max_jobs):
                self._admit(waiting)
            if self._running:
                self._collect()
            self._table.refresh()

    def end(self, waiting: deque[SweepJob], state: str) -> None:
        """Interrupt the drivers that run, wait until they have ended, and give those that wait the state."""
        for driver in self._running:
            ray.cancel(driver)
        if self._running:
            ray.wait(list(self._running), num_returns=len(self._running), timeout=GOODBYE_S)
        for running in self._running.values():
            self._end(running, "interrupted", "the same command continues it")
        self._running.clear()
        for job in waiting:
            self.endings[job.name] = JobEnding(job.name, str(self._folder.path), state)
        if self._next:
            self._next.release()

    def _admit(self, waiting: deque[SweepJob]) -> None:
        """Start the first job in the queue if there is room. One at a time, in order: no large job starves."""
        job = waiting[0]
        if self._settling and self._settling.driver in self._running and not self._settling.over():
            return
        self._settling = None
        if self._next is None:
            self._next = Reservation(started_cluster(job.config), self._limits.driver_cpus)
            self._asked_at = time.monotonic()
        if self._next.ready(POLL_S):
            waiting.popleft()
            room, self._next = self._next, None
            self._folder.note(job, "started")
            log = self._folder.logs / f"{job.name}.log"
            left = None if room.one_node else room.open()
            config = replace(job.config, cluster=inside(job.config.cluster)) if room.one_node else job.config
            driver = drive.options(**room.options()).remote(config, os.getcwd(), str(log.resolve()), self._stop)
            self._running[driver] = _Running(job, room)
            if left is not None:
                self._settling = _Settling(driver, left, time.monotonic() + SETTLE_S)
            self._table.started(job)
        elif not self._running and time.monotonic() - self._asked_at > self._limits.room_timeout_s:
            waiting.popleft()
            room, self._next = self._next, None
            cause = f"no room: it asks for {_amounts(room.asked)}, the cluster has {_amounts(ray.cluster_resources())}"
            self._end(_Running(job, room), "failed", cause)

    def _collect(self) -> None:
        ready, _ = ray.wait(list(self._running), timeout=POLL_S)
        for driver in ready:
            running = self._running.pop(driver)
            try:
                code, cause = ray.get(driver)
            except ray.exceptions.RayError as error:
                code, cause = 1, f"its driver was lost: {type(error).__name__}: {first_line(error)}"
            state = {0: "finished", 130: "interrupted"}.get(code, "failed")
            if self._stopper.terminated and (state == "interrupted" or cause == ENDED_EARLY):
                state = "stopped"
            self._end(running, state, cause)

    def _end(self, running: _Running, state: str, cause: str) -> None:
        running.room.release()
        self._folder.note(running.job, state, cause)
        self.endings[running.job.name] = JobEnding(running.job.name, str(self._folder.path), state, cause)
        self._table.ended(running.job, state, cause)


def _amounts(resources: dict[str, float]) -> str:
    amounts = {k: v for k, v in resources.items() if k in ("CPU", "GPU") or k.startswith("accelerator_type:")}
    return ", ".join(f"{key} {value:g}" for key, value in sorted(amounts.items())) or "nothing"


@ray.remote(num_cpus=0)
class StopRequest:
    """Lets drivers on any machine wait until the sweep has to end."""

    def __init__(self) -> None:
        self._made = asyncio.Event()

    async def make(self) -> None:
        self._made.set()

    async def wait(self) -> None:
        """Return when the request is made."""
        await self._made.wait()


def _terminate_on(stop: ray.actor.ActorHandle) -> None:
    """Send this process a SIGTERM when the request is made."""
    with contextlib.suppress(ray.exceptions.RayError):  # the sweep is gone, and this process with it
        ray.get(stop.wait.remote())
        os.kill(os.getpid(), signal.SIGTERM)


@ray.remote(max_calls=1, max_retries=0)  # a fresh process for each job; a dead one is for the user to continue
def drive(config: Config, folder: str, log: str, stop: ray.actor.ActorHandle) -> tuple[int, str]:
    """Run one job to its end in this process; return an exit code like `cudal1 train`'s, and for failures the cause in
    one line.

    Args:
        folder: where the sweep was started; relative paths of the configuration start there.
        log: file that gets what the run prints.
        stop: the request to end after the step under way.
    """
    from cudal1_ray.training.train import is_finished, train

    os.chdir(folder)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the run handles it
    threading.Thread(target=_terminate_on, args=(stop,), daemon=True).start()
    with open(log, "a", buffering=1) as out, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code, cause = train(config), ""
            if code == 0 and not is_finished(config):
                code, cause = 1, ENDED_EARLY
        except KeyboardInterrupt:
            code, cause = 130, ""
        except UserError as error:
            code, cause = 2, str(error)
            print(f"cudal1: {error}")
        except Exception as error:
            code, cause = 1, f"{type(error).__name__}: {error}".splitlines()[0]
            traceback.print_exc()
    if code == 1 and not cause:  # actors lost: the run has printed which
        cause = next((line for line in reversed(Path(log).read_text().splitlines()) if line.strip()), "")
    return code, cause
