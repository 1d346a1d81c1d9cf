"""What callers ask of the job queue, and its answers as they go over the wire: plain data, refusals included.

A refusal crosses between processes as data, because an exception would arrive wrapped in another.
"""

from __future__ import annotations

from typing import Any

from cudal1_ray.serving.optimize.job_queue import JobQueue, Refused, Submission
from cudal1_ray.serving.optimize.jobs import OptimizeJob

# Fields of a result in a list, which is an overview; one job has all.
IN_LIST = ("found", "speedup", "speedup_low", "speedup_high")


class JobRequests:
    """Every answer is a dict; a refused request's has `refused`, an HTTP status, and `message`."""

    def __init__(self, job_queue: JobQueue):
        self._job_queue = job_queue
        self._answers = {"submit": self._submit, "list": self._list, "get": self._get, "cancel": self._cancel}

    async def answer(self, action: str, *arguments: Any) -> dict[str, Any]:
        """Answer an `action`: submit, list, get or cancel; each takes the key's name first."""
        try:
            return await self._answers[action](*arguments)
        except Refused as refused:
            return {"refused": refused.status, "message": refused.message}

    async def _submit(self, owner: str, submission: Submission) -> dict[str, Any]:
        job, shared = await self._job_queue.submit(owner, submission)
        return job.public(owner) | {"shared": shared}

    async def _list(self, owner: str, limit: int, after: str) -> dict[str, Any]:
        """Return a page of jobs, newest first: those that follow `after`, where that is given."""
        jobs = self._job_queue.of(owner)
        if after:
            jobs = jobs[[job.job_id for job in jobs].index(self._job_queue.get(owner, after).job_id) + 1 :]
        return {"object": "list", "data": [_in_list(job) for job in jobs[:limit]], "has_more": len(jobs) > limit}

    async def _get(self, owner: str, job_id: str) -> dict[str, Any]:
        return self._job_queue.get(owner, job_id).public(owner)

    async def _cancel(self, owner: str, job_id: str) -> dict[str, Any]:
        return (await self._job_queue.cancel(owner, job_id)).public(owner)


def _in_list(job: OptimizeJob) -> dict[str, Any]:
    return job.listed() | {"result": {name: value for name, value in job.result.items() if name in IN_LIST}}
