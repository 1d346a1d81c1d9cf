"""`/v1/optimize` over HTTP: post a module, follow its job, take the answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from ray.serve.handle import DeploymentHandle

from cudal1_ray.serving.access.middleware import error_body
from cudal1_ray.serving.optimize.forms import ErrorForm, JobForm, JobListForm, OptimizeRequest, SubmittedForm

_EVENTS = {
    200: {
        "description": "Events of the job, each with a number, a time and a type, until the job ends.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def _further_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the statuses that a route adds to those of the middleware before all routes (`openapi_document.py`)."""
    meaning = {
        400: "The body is no such request, or the source is no module that can be worked on.",
        404: "No such job under this key.",
        413: "The module is too large.",
        429: "This key has too many open jobs.",
        503: "The server is stopping.",
    }
    return {status: {"model": ErrorForm, "description": meaning[status]} for status in statuses}


def optimize_router(job_queue: DeploymentHandle) -> APIRouter:
    """Return the routes; `request.state.key_name`, which the middleware sets, selects the jobs that are visible."""
    router = APIRouter(tags=["optimize"])

    @router.post(
        "/v1/optimize", status_code=202, response_model=SubmittedForm, responses=_further_responses(400, 413, 429, 503)
    )
    async def submit(request: Request, body: OptimizeRequest) -> Response:
        """Submit a module. The same request again is the same job, unless it asks for a fresh one."""
        return _answer(await job_queue.answer.remote("submit", _owner(request), body.submission()), status=202)

    @router.get("/v1/optimize", response_model=JobListForm, responses=_further_responses(400, 404))
    async def list_jobs(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=1000, description="jobs on a page")] = 100,
        after: Annotated[str, Query(max_length=64, description="the page begins after this job")] = "",
    ) -> Response:
        """List jobs of this key, newest first, without their sources."""
        return _answer(await job_queue.answer.remote("list", _owner(request), limit, after))

    @router.get("/v1/optimize/{job_id}", response_model=JobForm, responses=_further_responses(404))
    async def get_job(request: Request, job_id: str) -> Response:
        """Get one job, with its result once it has finished."""
        return _answer(await job_queue.answer.remote("get", _owner(request), job_id))

    @router.delete("/v1/optimize/{job_id}", response_model=JobForm, responses=_further_responses(404))
    async def cancel(request: Request, job_id: str) -> Response:
        """Stop a job; one that others asked for, too, continues for them. One that has ended stays as it is."""
        return _answer(await job_queue.answer.remote("cancel", _owner(request), job_id))

    @router.get(
        "/v1/optimize/{job_id}/events",
        responses={**_EVENTS, **_further_responses(404)},
        response_class=StreamingResponse,
    )
    async def events(request: Request, job_id: str) -> Response:
        """Stream server-sent events; a client that reconnects gives its place with Last-Event-ID."""
        job = await job_queue.answer.remote("get", _owner(request), job_id)
        if "refused" in job:
            return _answer(job)
        last = request.headers.get("last-event-id", "0")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 10 else 0
        stream = job_queue.options(stream=True).events.remote(_owner(request), job_id, after)
        return StreamingResponse(_lines(stream), media_type="text/event-stream")

    return router


async def _lines(stream: Any) -> AsyncIterator[str]:
    async for event in stream:
        yield f"id: {event['number']}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n"


def _owner(request: Request) -> str:
    return request.state.key_name


def _answer(answer: dict[str, Any], status: int = 200) -> Response:
    if "refused" in answer:
        body = error_body(answer["refused"], answer["message"])
        return Response(body, status_code=answer["refused"], media_type="application/json")
    return JSONResponse(answer, status_code=status)
