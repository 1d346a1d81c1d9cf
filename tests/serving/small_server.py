"""The middleware, the routes of `/v1/optimize` and a job queue behind a real HTTP server, without Ray and a model."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry

from cudal1_ray.serving.access.admission import Admission
from cudal1_ray.serving.access.http_protocol import BoundedProtocol
from cudal1_ray.serving.access.keys import KeyFile
from cudal1_ray.serving.access.middleware import AccessMiddleware, error_body
from cudal1_ray.serving.config import OptimizeConfig, SecurityConfig
from cudal1_ray.serving.metrics import RequestMetrics
from cudal1_ray.serving.openapi_document import describe
from cudal1_ray.serving.optimize.job_queue import JobQueue
from cudal1_ray.serving.optimize.job_requests import JobRequests
from cudal1_ray.serving.optimize.routes import optimize_router

COSTS = {"prompts": 1, "completion_tokens": 12, "generation_s": 0.1, "evaluations": 3, "evaluation_s": 0.2}
COUNTS = {
    "candidates": 3,
    "accepted": 0,
    "known": 0,
    "rounds": 1,
    "note": "",
    "against": "eager",
    "device_name": "a processor",
    "spent_s": 0.3,
    "costs": COSTS,
}
TRIED = [("a", 0.97, []), ("b", 0.0, ["wrong_output"]), ("c", 0.0, ["wrong_output"]), ("d", 0.0, ["crash"])]
NOTHING = COUNTS | {
    "found": False,
    "message": "nothing faster found",
    "best_tried": 0.97,
    "tried": [{"candidate": name, "speedup": x, "reasons": why, "round": 1} for name, x, why in TRIED],
}
FIGURES = {"speedup": 2.5, "speedup_low": 2.4, "speedup_high": 2.6, "runtime_ms": 0.4, "device": "cpu"}
NO_FIGURES = {"baseline_ms": 0.0, "device": "", "missing": "the time was up"}
WINNER = (
    COUNTS
    | FIGURES
    | {
        "found": True,
        "code": "class ModelNew:\n    pass\n",
        "analysis": "Because it is fused.",
        "design": "Fuse it.",
        "origin": "policy",
        "reference_ms": 1.0,
        "note": "be careful",
        "devices": ["cpu"],
        "baselines": [
            FIGURES | {"baseline": "eager", "baseline_ms": 1.0, "missing": ""},
            dict.fromkeys(FIGURES, 0.0) | {"baseline": "tuned_eager"} | NO_FIGURES,
        ],
    }
)


class Coordinator:
    """An admission of this process."""

    def __init__(self, config: SecurityConfig):
        self.admission = Admission(config)

    async def ask(self, digest):
        return self.admission.ask(digest, time.monotonic())

    async def release(self, lease):
        self.admission.release(lease)


class Method:
    """One method as a deployment's handle offers it."""

    def __init__(self, method: Any):
        self.remote = method


class Handle:
    """A job queue of this process, as a deployment's handle."""

    def __init__(self, job_queue: JobQueue):
        self.answer, self.events = Method(JobRequests(job_queue).answer), Method(job_queue.events)

    def options(self, stream: bool) -> Handle:
        return self


class SmallServer:
    """Runs until `stop`, in a thread of its own. `patience_s`: seconds for a request's head, and for its body."""

    def __init__(self, folder: Path, patience_s: float = 60.0):
        keys = KeyFile(folder / "keys.json")
        self.key = keys.add("alice")
        security = SecurityConfig(
            str(keys.path), 1e9, 10_000, max_body_kib=64, body_timeout_s=patience_s, request_timeout_s=30.0
        )
        self.coordinator = Coordinator(security)
        self.results: list[Any] = [NOTHING]  # what jobs end with; the last stays
        optimize = OptimizeConfig(jobs_dir=str(folder / "jobs"), max_jobs_per_key=10_000, keep_jobs=200)
        self.job_queue = JobQueue(optimize, self._work)
        app = FastAPI(title="small", docs_url=None, redoc_url=None, openapi_url="/v1/openapi.json")
        app.include_router(optimize_router(Handle(self.job_queue)))
        app.exception_handler(RequestValidationError)(_invalid)
        app.add_api_route("/healthz", _healthz, methods=["GET"], include_in_schema=False)
        describe(app)
        self.middleware = AccessMiddleware(app, security, self.coordinator, RequestMetrics(CollectorRegistry()))
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # as the listener does
        protocol = type("Protocol", (BoundedProtocol,), {"head_timeout_s": patience_s})
        config = uvicorn.Config(self.middleware, lifespan="off", access_log=False, log_config=None, http=protocol)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 60
        while not self._server.started:
            assert time.monotonic() < deadline and self._thread.is_alive(), "the server does not start"
            time.sleep(0.02)

    async def _work(self, job, before, emit) -> dict[str, Any]:
        emit({"type": "round", "round": 1, "rounds": 1, "best_speedup": 0.0, "candidates": 0, "spent_s": 0.0})
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if isinstance(result, Exception):
            raise result
        return result

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=60)


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    message = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()[:5])
    return Response(error_body(400, message), status_code=400, media_type="application/json")


async def _healthz() -> Response:
    await asyncio.sleep(0)
    return Response('{"status":"ok"}', media_type="application/json")
