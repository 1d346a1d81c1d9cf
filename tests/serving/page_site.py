"""The real HTTP application with page, middleware, job queue and store; only the work on a job is given to it."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from cudal1_ray.serving.access.admission import Admission
from cudal1_ray.serving.access.middleware import AccessMiddleware
from cudal1_ray.serving.config import ServingConfig
from cudal1_ray.serving.metrics import RequestMetrics
from cudal1_ray.serving.optimize.job_queue import JobQueue, Work
from cudal1_ray.serving.optimize.job_requests import JobRequests
from cudal1_ray.serving.optimize.routes import optimize_router
from cudal1_ray.serving.page import OPEN_PATHS, mount_page
from tests.ports import free_port

RECORDED = Path(__file__).parent / "recorded"
OWN_OF_JOB_QUEUE = ("queued", "started", "resumed", "finished", "failed", "cancelled")


def recorded(name: str) -> dict[str, Any]:
    """Return a job as a real server reported it (`page_pictures.py --record`): its events and its end."""
    return json.loads((RECORDED / f"{name}.json").read_text())


class Playback:
    """Works on jobs by sending a recorded job's events, as many as are allowed; `other`: for modules not recorded."""

    def __init__(self, **jobs: dict[str, Any]):
        self.jobs, self.allowed, self.fault = jobs, 10**9, None
        self.begun: list[str] = []

    async def __call__(self, job: Any, before: list[dict[str, Any]], emit: Callable[[dict], None]) -> dict[str, Any]:
        self.begun.append(job.job_id)
        same = (recording for recording in self.jobs.values() if recording["source"].strip() == job.source.strip())
        played = next(same, None) or self.jobs["other"]
        events = [event for event in played["events"] if event["type"] not in OWN_OF_JOB_QUEUE]
        done = sum(event["type"] not in OWN_OF_JOB_QUEUE for event in before)
        for number, event in enumerate(events[done:], start=done):
            while number >= self.allowed:
                await asyncio.sleep(0.02)
                if self.fault is not None:
                    raise self.fault
            emit({name: value for name, value in event.items() if name not in ("number", "time")})
            await asyncio.sleep(0)
        while len(events) >= self.allowed:
            await asyncio.sleep(0.02)
            if self.fault is not None:
                raise self.fault
        return played["result"]


class Site:
    """A server on a port of its own, in a thread. `stop` and `start` may follow each other; jobs are on disk."""

    def __init__(self, config: ServingConfig, work: Work):
        self.config, self.work = config, work
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._job_queue: LocalJobQueue | None = None

    def start(self) -> None:
        self._job_queue = LocalJobQueue(self.config, self.work)
        routes = FastAPI()
        routes.include_router(optimize_router(Handle(self._job_queue)))
        mount_page(routes, self.config)
        security = self.config.security
        metrics = RequestMetrics(_registry())
        guarded = AccessMiddleware(routes, security, LocalCoordinator(security), metrics, open_paths=OPEN_PATHS)
        settings = uvicorn.Config(
            guarded, port=self.port, log_level="error", lifespan="off", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 60.0
        while not self._server.started:
            assert self._thread.is_alive() and time.monotonic() < deadline, "the server does not start"
            time.sleep(0.02)

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(timeout=60.0)
            self._server = None

    def forget_jobs(self) -> None:
        """Make it a server that has never seen a job, between two tests."""
        self.stop()
        shutil.rmtree(self.config.optimize.jobs_dir, ignore_errors=True)
        self.start()

    async def _run(self) -> None:
        assert self._server is not None and self._job_queue is not None
        self._job_queue.job_queue.resume()  # goes on with jobs that a stop left open
        await self._server.serve()
        await self._job_queue.job_queue.close()


class LocalJobQueue:
    """What the deployment of the job queue is to the routes."""

    def __init__(self, config: ServingConfig, work: Work):
        self.job_queue = JobQueue(config.optimize, work)
        self._requests = JobRequests(self.job_queue)

    async def answer(self, action: str, *arguments: Any) -> dict[str, Any]:
        return await self._requests.answer(action, *arguments)

    async def events(self, owner: str, job_id: str, after: int) -> AsyncIterator[dict[str, Any]]:
        async for event in self.job_queue.events(owner, job_id, after):
            yield event


class Handle:
    """Calls methods here the way a handle of Ray Serve calls them elsewhere."""

    def __init__(self, target: Any):
        self._target = target

    def options(self, **_: Any) -> Handle:
        return self

    def __getattr__(self, name: str) -> Any:
        return type("Method", (), {"remote": staticmethod(getattr(self._target, name))})


class LocalCoordinator:
    def __init__(self, security: Any):
        self._admission = Admission(security)

    async def ask(self, digest: str | None) -> Any:
        return self._admission.ask(digest, time.monotonic())

    async def release(self, lease: int) -> None:
        self._admission.release(lease)


def _registry() -> Any:
    from prometheus_client import CollectorRegistry

    return CollectorRegistry()
