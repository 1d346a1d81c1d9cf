"""The job queue of `/v1/optimize`: accepts, shares and bounds jobs, works on some at a time, streams their events."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.prompting import PromptTooLong
from cudal1_ray.serving.access.scrubbing import scrub
from cudal1_ray.serving.config import OptimizeConfig
from cudal1_ray.serving.optimize.examples import Example
from cudal1_ray.serving.optimize.jobs import (
    CANCELLED,
    FAILED,
    FINISHED,
    OPEN,
    QUEUED,
    RUNNING,
    JobSettings,
    JobStore,
    OptimizeJob,
    job_id_of,
)
from cudal1_ray.serving.optimize.modules import Arguments, complete_module
from cudal1_ray.serving.optimize.rounds import ModuleFault
from cudal1_ray.source.normal_form import normalise_code
from cudal1_ray.wording import counted

Emit = Callable[[dict[str, Any]], None]
# Works on one job, given the events of earlier attempts; returns its result.
Work = Callable[[OptimizeJob, list[dict[str, Any]], Emit], Awaitable[dict[str, Any]]]
_logger = logging.getLogger("cudal1.serving")


class Refused(Exception):
    """A request that is not taken; `status` is its HTTP status."""

    def __init__(self, status: int, message: str):
        super().__init__(status, message)
        self.status, self.message = status, message


@dataclass(frozen=True)
class Submission:
    """What a caller asks for.

    source: a problem, or a module that `inputs`, `init_inputs` and `class_name` complete to one (`modules.py`). rounds,
    samples_per_round, time_limit_s, max_tokens: None for the server's own. fresh: a job of its own, even where the same
    has been asked before.
    """

    source: str
    inputs: Sequence[Example] | Mapping[str, Example] | None = None
    init_inputs: Sequence[Example] | Mapping[str, Example] | None = None
    class_name: str = ""
    rounds: int | None = None
    samples_per_round: int | None = None
    time_limit_s: float | None = None
    max_tokens: int | None = None
    fresh: bool = False

    def problem_source(self) -> str:
        """Return the source of the problem. Raises UserError when it is no module, or its examples do not fit."""
        inputs = None if self.inputs is None else Arguments.of(self.inputs)
        init_inputs = None if self.init_inputs is None else Arguments.of(self.init_inputs)
        return complete_module(self.source, inputs, init_inputs, self.class_name)


class JobQueue:
    """All jobs of a folder. One event loop; nothing here touches the policy or the evaluator itself.

    The same request under two keys is one job (`share_between_keys`): its sender has the module already, and learns at
    most that another user has it, too. Each sees the job as their own, and no other's comments; it is cancelled when
    the last of them leaves.
    """

    def __init__(self, config: OptimizeConfig, work: Work, salt: str = ""):
        self._config, self._work, self._salt = config, work, salt
        self._store = JobStore(config.jobs_dir)
        self._jobs = {job.job_id: job for job in self._store.load()}
        # Events of jobs that have ended are read again on request.
        self._events = {job.job_id: self._store.events(job.job_id) for job in self._jobs.values() if job.status in OPEN}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(config.max_running)
        self._news: dict[str, asyncio.Event] = {}
        self._reading = asyncio.Lock()
        self._closing = False
        self._forget_oldest()

    def resume(self) -> None:
        """Continue the jobs that were open when the server stopped. Needs a running event loop."""
        for job in self._jobs.values():
            if job.status in OPEN:
                self._begin(job)

    async def submit(self, owner: str, submission: Submission) -> tuple[OptimizeJob, bool]:
        """Admit a job; return it, and whether it is one that was asked for before.

        Raises:
            Refused: 400 for a module that is none, 413 for one too large, 429 when this key has too many open jobs, 503
                when the server stops.
        """
        settings = self._settings(submission)
        if len(submission.source.encode("utf-8", "surrogatepass")) > self._config.max_source_kib << 10:
            raise Refused(413, f"source is larger than {self._config.max_source_kib} KiB")
        try:
            async with self._reading:  # one after another, and beside the loop: a mean source takes a second to read
                source, normalised = await asyncio.to_thread(_source, submission)
        except UserError as error:
            raise Refused(400, str(error)) from None
        if self._closing:
            raise Refused(503, "the server is stopping; try again shortly")
        salt = self._salt if self._config.share_between_keys else f"{self._salt} {owner}"
        job_id = job_id_of(normalised, settings, f"{salt} {uuid.uuid4()}" if submission.fresh else salt)
        earlier = self._jobs.get(job_id)
        if earlier is not None and earlier.status in (*OPEN, FINISHED):
            if owner not in earlier.owners:
                earlier.owners.append(owner)
                self._store.save(earlier)
            return earlier, True
        if len([job for job in self.of(owner) if job.status in OPEN]) >= self._config.max_jobs_per_key:
            most = counted(self._config.max_jobs_per_key, "open job")
            raise Refused(429, f"this key has {most}, its limit; wait or cancel one")
        job = OptimizeJob(job_id, source, settings, [owner], time.time(), author=owner)
        self._store.restart(job)
        self._jobs[job_id], self._events[job_id] = job, []
        self._emit(job, {"type": QUEUED})
        self._begin(job)
        return job, False

    def of(self, owner: str) -> list[OptimizeJob]:
        """Return the jobs of one key, newest first."""
        mine = [job for job in self._jobs.values() if owner in job.owners]
        return sorted(mine, key=lambda job: -job.created_at)

    def get(self, owner: str, job_id: str) -> OptimizeJob:
        """Return a job. Raises Refused (404) for another user's job just as for one that does not exist."""
        job = self._jobs.get(job_id)
        if job is None or owner not in job.owners:
            raise Refused(404, "no such job")
        return job

    async def cancel(self, owner: str, job_id: str) -> OptimizeJob:
        """Stop a job; one that others asked for too continues for them. A job that has ended stays as it is."""
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
        """Yield events with a number above `after`, then those to come, until the job ends or the server stops."""
        job = self.get(owner, job_id)
        while True:
            ended = job.status not in OPEN or self._closing
            news = asyncio.Event() if ended else self._news.setdefault(job_id, asyncio.Event())
            waiting = [event for event in self._events_of(job_id) if event["number"] > after]
            for event in waiting:
                after = event["number"]
                yield event
            if ended:
                return
            if not waiting:
                await news.wait()

    async def close(self) -> None:
        """Stop working; what is open stays open on disk, for the next start. Waiting streams end."""
        self._closing = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for news in self._news.values():
            news.set()

    def _settings(self, submission: Submission) -> JobSettings:
        config = self._config
        bounds = {
            "rounds": (config.rounds, config.max_rounds),
            "samples_per_round": (config.samples_per_round, config.max_samples_per_round),
            "time_limit_s": (config.time_limit_s, config.time_limit_s),
            "max_tokens": (config.max_tokens, config.max_tokens or 10**12),
        }
        values: dict[str, Any] = {}
        for name, (default, most) in bounds.items():
            value = getattr(submission, name)
            values[name] = default if value is None else value
            if value is None and name == "max_tokens":
                continue  # 0: no limit
            if not 0 < values[name] <= most:
                raise Refused(400, f"{name}={value:g}: must be above 0 and at most {most:g} here")
        return JobSettings(**values)

    def _begin(self, job: OptimizeJob) -> None:
        self._tasks[job.job_id] = asyncio.create_task(self._run(job))

    async def _run(self, job: OptimizeJob) -> None:
        try:
            async with self._room:
                job.status = RUNNING
                self._store.save(job)
                before = list(self._events[job.job_id])
                self._emit(job, {"type": "resumed" if any(e["type"] == "started" for e in before) else "started"})
                job.result = await self._work(job, before, lambda event: self._emit(job, event))
            self._end(job, FINISHED)
        except asyncio.CancelledError:  # by `cancel`, which reports it, or by `close`, after which it goes on
            raise
        except (ModuleFault, PromptTooLong, UserError) as error:
            self._fail(job, scrub(str(error)))
        except Exception:
            _logger.exception("job %s", job.job_id)
            self._fail(job, "the server failed to work on this job; its log has the reason")
        finally:
            self._tasks.pop(job.job_id, None)

    def _fail(self, job: OptimizeJob, why: str) -> None:
        job.error = why
        self._end(job, FAILED)

    def _end(self, job: OptimizeJob, status: str) -> None:
        job.status, job.finished_at = status, time.time()
        try:
            self._store.save(job)
            self._emit(job, {"type": status, "result": job.result, "error": job.error})
        except OSError:  # streams end without the event, and `get` has the status; after a restart the job goes on
            _logger.exception("job %s cannot be written", job.job_id)
        self._events.pop(job.job_id, None)
        self._wake(job.job_id)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        ended = sorted((job for job in self._jobs.values() if job.status not in OPEN), key=lambda job: job.finished_at)
        for job in ended[: -self._config.keep_jobs]:
            del self._jobs[job.job_id]
            self._store.remove(job.job_id)

    def _events_of(self, job_id: str) -> list[dict[str, Any]]:
        events = self._events.get(job_id)
        return self._store.events(job_id) if events is None else events

    def _emit(self, job: OptimizeJob, event: dict[str, Any]) -> None:
        events = self._events[job.job_id]
        numbered = {"number": len(events) + 1, "time": round(time.time(), 3)} | event
        self._store.append(job.job_id, numbered)
        events.append(numbered)
        self._wake(job.job_id)

    def _wake(self, job_id: str) -> None:
        if news := self._news.pop(job_id, None):
            news.set()


def _source(submission: Submission) -> tuple[str, str]:
    source = submission.problem_source()
    return source, normalise_code(source)
