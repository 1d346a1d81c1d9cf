"""A module made faster by a running `cudal1 serve`: the job is posted, followed, and its answer taken."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from cudal1_ray.commands.optimize_progress import JobProgress
from cudal1_ray.errors import UserError
from cudal1_ray.integrations.evaluators import server_root

# Attempts to reach a server again that was there before.
PATIENCE = 120
PAUSE_S = 1.0
# Statuses of a server, or of a proxy before it, that is busy or being restarted.
AWAY = (429, 502, 503, 504)


def optimize_there(settings: dict[str, Any], server: str, key: str, progress: JobProgress) -> dict[str, Any]:
    """Post a request to a server and follow its job; continue where it was when the stream breaks.

    Raises:
        UserError: when the server does not answer, refuses, or fails at the job.
    """
    import httpx

    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        root = server_root(server)
    except UserError as error:
        raise UserError(f"--server {error}") from None
    try:
        with httpx.Client(base_url=root, headers=headers, timeout=60.0) as http:
            job = _accepted(http.post("/v1/optimize", json=settings), server)
            progress.begin(job["settings"]["rounds"], job["settings"]["samples_per_round"])
            job = _follow(http, job, server, progress)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UserError(f"--server {server}: {error or type(error).__name__}; is `cudal1 serve` running?") from None
    except UnicodeEncodeError:
        raise UserError("--key-file: holds no key, but other text") from None
    if job["status"] != "finished":
        raise UserError(f"--server {server}: the job {job['status']}: {job['error'] or 'by a request with this key'}")
    return job["result"]


def _follow(http: Any, job: dict[str, Any], server: str, progress: JobProgress) -> dict[str, Any]:
    """Return the job once it has ended. A server that is away for a moment continues with the job when it is back."""
    import httpx

    last = failures = 0
    while job["status"] in ("queued", "running"):
        try:
            for event in _events(http, job["id"], last, server):
                last, failures = event["number"], 0
                progress(event)
            job = _from_server_in_place(http.get(f"/v1/optimize/{job['id']}"), server)
        except httpx.TransportError:
            failures += 1
            if failures > PATIENCE:
                raise
            time.sleep(PAUSE_S)
    return job


def _events(http: Any, job_id: str, last: int, server: str) -> Iterator[dict[str, Any]]:
    headers = {"last-event-id": str(last)}
    with http.stream("GET", f"/v1/optimize/{job_id}/events", headers=headers, timeout=None) as stream:
        if stream.status_code != 200:
            stream.read()
            _from_server_in_place(stream, server)
        for line in stream.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line[len("data: ") :])


def _from_server_in_place(answer: Any, server: str) -> dict[str, Any]:
    """Return an answer's body; raise TransportError where the server is away for a moment."""
    import httpx

    if answer.status_code in AWAY:
        raise httpx.TransportError(f"it answers {answer.status_code}")
    return _accepted(answer, server)


def _accepted(answer: Any, server: str) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        raise UserError(f"--server {server}: answered {answer.status_code}, and not as `cudal1 serve` does") from None
    if answer.status_code >= 400:
        error = body.get("error") if isinstance(body, dict) else None
        raise UserError(f"--server {server}: {error.get('message') if isinstance(error, dict) else body}")
    return body
