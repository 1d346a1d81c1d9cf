"""The desk of `/v1/optimize`: takes jobs in, shares and bounds them, works on some at a time, and tells how they go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.problems import parse_problem
from cudal1_ray.prompting import PromptTooLong
from cudal1_ray.serving.config import OptimizeConfig
from cudal1_ray.serving.jobs import (
    CANCELLED,
    FAILED,
    FINISHED,
    OPEN,
    QUEUED,
    RUNNING,
    Job,
    JobSettings,
    JobStore,
    job_id_of,
)
from cudal1_ray.serving.optimizer import ModuleFault

Emit = Callable[[dict[str, Any]], None]
# Works on one job, given what earlier attempts told; returns its result.
Work = Callable[[Job, list[dict[str, Any]], Emit], Awaitable[dict[str, Any]]]
_logger = logging.getLogger("cudal1.serving")


class Refused(Exception):
    """A request that is not taken; `status` is the HTTP status that says so."""

    def __init__(self, status: int, message: str):
        super().__init__(status, message)
        self.status, self.message = status, message


class Desk:
    """All jobs of a folder. One event loop; nothing here touches the policy or the evaluator itself."""

    def __init__(self, config: OptimizeConfig, work: Work, salt: str = ""):
        self._config, self._work, self._salt = config, work, salt
        self._store = JobStore(config.jobs_dir)
        self._jobs = {job.job_id: job for job in self._store.load()}
        self._events = {job_id: self._store.events(job_id) for job_id in self._jobs}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(config.max_running)
        self._news: dict[str, asyncio.Event] = {}
        self._closing = False

    def resume(self) -> None:
        """Goes on with what was open when the server stopped. Needs a running event loop."""
        for job in self._jobs.values():
            if job.status in OPEN:
                self._begin(job)

    def submit(self, owner: str, source: str, **wanted: float | None) -> tuple[Job, bool]:
        """Takes a job in; True when somebody had asked for the same.

        Raises:
            Refused: 400 for a module that is none, 413 for one too large, 429 when this key has too many open jobs.
        """
        settings = self._settings(wanted)
        if len(source.encode("utf-8", "surrogatepass")) > self._config.max_source_kib << 10:
            raise Refused(413, f"source is larger than {self._config.max_source_kib} KiB")
        try:
            parse_problem(source, "module", origin="source")
        except UserError as error:
            raise Refused(400, str(error)) from None
        job_id = job_id_of(source, settings, self._salt)
        known = self._jobs.get(job_id)
        if known is not None and known.status in (*OPEN, FINISHED):
            if owner not in known.owners:
                known.owners.append(owner)
                self._store.save(known)
            return known, True
        if len([job for job in self.of(owner) if job.status in OPEN]) >= self._config.max_jobs_per_key:
            raise Refused(429, f"this key has {self._config.max_jobs_per_key} open jobs, its limit; wait or cancel one")
        job = Job(job_id, source, settings, [owner], time.time())
        self._store.restart(job)
        self._jobs[job_id], self._events[job_id] = job, []
        self._tell(job, {"type": QUEUED})
        self._begin(job)
        return job, False

    def of(self, owner: str) -> list[Job]:
        """Jobs of one key, newest first."""
        mine = [job for job in self._jobs.values() if owner in job.owners]
        return sorted(mine, key=lambda job: -job.created_at)

    def get(self, owner: str, job_id: str) -> Job:
        """Raises Refused (404) for a job of somebody else just as for one that is not there."""
        job = self._jobs.get(job_id)
        if job is None or owner not in job.owners:
            raise Refused(404, "no such job")
        return job

    async def cancel(self, owner: str, job_id: str) -> Job:
        """Stops a job; one that others asked for too goes on for them. A job that has ended stays as it is."""
        job = self.get(owner, job_id)
        if job.status not in OPEN:
            return job
        if len(job.owners) > 1:
            job.owners.remove(owner)
            self._store.save(job)
            return job
        task = self._tasks.pop(job_id, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if job.status in OPEN:
            self._end(job, CANCELLED)
        return job

    async def events(self, owner: str, job_id: str, after: int) -> AsyncIterator[dict[str, Any]]:
        """Events with a number above `after`, then those to come, until the job ends or the server stops."""
        job = self.get(owner, job_id)
        while True:
            news = self._news.setdefault(job_id, asyncio.Event())
            waiting = [event for event in self._events[job_id] if event["number"] > after]
            for event in waiting:
                after = event["number"]
                yield event
            if not waiting:
                if job.status not in OPEN or self._closing:
                    return
                await news.wait()

    async def close(self) -> None:
        """Stops working; what is open stays open on disk, for the next start. Waiting streams end."""
        self._closing = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for news in self._news.values():
            news.set()

    def _settings(self, wanted: dict[str, float | None]) -> JobSettings:
        config = self._config
        bounds = {
            "rounds": (config.rounds, config.max_rounds),
            "samples_per_round": (config.samples_per_round, config.max_samples_per_round),
            "time_limit_s": (config.time_limit_s, config.time_limit_s),
        }
        values: dict[str, Any] = {}
        for name, (default, most) in bounds.items():
            value = wanted.get(name)
            values[name] = default if value is None else value
            if not 0 < values[name] <= most:
                raise Refused(400, f"{name}={value:g}: must be above 0 and at most {most:g} here")
        return JobSettings(**values)

    def _begin(self, job: Job) -> None:
        self._tasks[job.job_id] = asyncio.create_task(self._run(job))

    async def _run(self, job: Job) -> None:
        try:
            async with self._room:
                job.status = RUNNING
                self._store.save(job)
                before = list(self._events[job.job_id])
                self._tell(job, {"type": "resumed" if any(e["type"] == "started" for e in before) else "started"})
                job.result = await self._work(job, before, lambda event: self._tell(job, event))
            self._end(job, FINISHED)
        except asyncio.CancelledError:  # by `cancel`, which says so, or by `close`, after which it goes on
            raise
        except (ModuleFault, PromptTooLong, UserError) as error:
            self._fail(job, str(error))
        except Exception:
            _logger.exception("job %s", job.job_id)
            self._fail(job, "the server failed to work on this job; its log says why")
        finally:
            self._tasks.pop(job.job_id, None)

    def _fail(self, job: Job, why: str) -> None:
        job.error = why
        self._end(job, FAILED)

    def _end(self, job: Job, status: str) -> None:
        job.status, job.finished_at = status, time.time()
        self._store.save(job)
        self._tell(job, {"type": status, "result": job.result, "error": job.error})

    def _tell(self, job: Job, event: dict[str, Any]) -> None:
        events = self._events[job.job_id]
        numbered = {"number": len(events) + 1, "time": round(time.time(), 3)} | event
        self._store.append(job.job_id, numbered)
        events.append(numbered)
        if news := self._news.pop(job.job_id, None):
            news.set()
