"""`/v1/optimize` over HTTP: post a module, follow its job, take the answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from ray.serve.handle import DeploymentHandle

from cudal1_ray.serving.guard import error_body


class OptimizeRequest(BaseModel):
    """A module in KernelBench's form (`Model`, `get_inputs()`, `get_init_inputs()`), and what the job may cost."""

    model_config = ConfigDict(extra="forbid")
    source: str = Field(min_length=1)
    rounds: int | None = Field(default=None, ge=1, le=1_000_000)
    samples_per_round: int | None = Field(default=None, ge=1, le=1_000_000)
    time_limit_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)


def optimize_router(desk: DeploymentHandle) -> APIRouter:
    """The routes; `request.state.key_name`, which the guard sets, says whose jobs they see."""
    router = APIRouter()

    @router.post("/v1/optimize", status_code=202)
    async def submit(request: Request, body: OptimizeRequest) -> Response:
        wanted = body.model_dump(exclude={"source"})
        return _answer(await desk.submit.remote(_owner(request), body.source, wanted), status=202)

    @router.get("/v1/optimize")
    async def list_jobs(request: Request) -> Response:
        return _answer(await desk.list.remote(_owner(request)))

    @router.get("/v1/optimize/{job_id}")
    async def get_job(request: Request, job_id: str) -> Response:
        return _answer(await desk.get.remote(_owner(request), job_id))

    @router.delete("/v1/optimize/{job_id}")
    async def cancel(request: Request, job_id: str) -> Response:
        return _answer(await desk.cancel.remote(_owner(request), job_id))

    @router.get("/v1/optimize/{job_id}/events")
    async def events(request: Request, job_id: str) -> Response:
        """Server-sent events; a client that reconnects says with Last-Event-ID where it was."""
        job = await desk.get.remote(_owner(request), job_id)
        if "refused" in job:
            return _answer(job)
        last = request.headers.get("last-event-id", "0")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 10 else 0
        stream = desk.options(stream=True).events.remote(_owner(request), job_id, after)
        return StreamingResponse(_lines(stream), media_type="text/event-stream")

    return router


async def _lines(stream: Any) -> AsyncIterator[str]:
    async for event in stream:
        yield f"id: {event['number']}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n"


def _owner(request: Request) -> str:
    return request.state.key_name


def _answer(said: dict[str, Any], status: int = 200) -> Response:
    if "refused" in said:
        body = error_body(said["refused"], said["message"])
        return Response(body, status_code=said["refused"], media_type="application/json")
    return JSONResponse(said, status_code=status)
