"""Jobs of `/v1/optimize`: what was asked, how it stands, and a folder that outlives the server."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.files import lock_file, repair_json_lines, write_atomically
from cudal1_ray.source.normal_form import normalise_code

QUEUED, RUNNING, FINISHED, FAILED, CANCELLED = "queued", "running", "finished", "failed", "cancelled"
OPEN = (QUEUED, RUNNING)
# Lock files of a folder's owner: the job queue, or the server before its job queue has started.
QUEUE, SERVER = ".lock", ".server.lock"


@dataclass(frozen=True)
class JobSettings:
    """What a job may cost. max_tokens: written by the policy, over all rounds; 0: no limit."""

    rounds: int
    samples_per_round: int
    time_limit_s: float
    max_tokens: int = 0


@dataclass
class OptimizeJob:
    """One module to be made faster.

    job_id: a function of source and settings, so that the same request from two callers is one job. source: the problem
    that the module was completed to. owners: names of the keys that asked for it; only they see it. author: whose
    source it is, comments and all. created_at, finished_at: seconds since 1970.
    """

    job_id: str
    source: str
    settings: JobSettings
    owners: list[str]
    created_at: float
    status: str = QUEUED
    finished_at: float = 0.0
    result: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    author: str = ""

    def public(self, owner: str) -> dict[str, Any]:
        """Return the job as one of its owners sees it: without other callers' names, and without another's comments."""
        source = self.source if self.author == owner else normalise_code(self.source)
        return self.listed() | {"source": source}

    def listed(self) -> dict[str, Any]:
        """Return what `public` does, without the source."""
        fields = dataclasses.asdict(self)
        for name in ("owners", "author", "source"):
            del fields[name]
        return {"object": "optimize.job", "id": fields.pop("job_id")} | fields


def job_id_of(normalised: str, settings: JobSettings, salt: str) -> str:
    """Return a job's id, 24 hexadecimal digits.

    Args:
        normalised: the source as `normalise_code` returns it: comments and formatting do not count.
        salt: what else makes a job another one (the policy, the device, the key where keys do not share).
    """
    request = json.dumps([normalised, dataclasses.asdict(settings), salt], sort_keys=True)
    return hashlib.sha256(request.encode("utf-8", "surrogatepass")).hexdigest()[:24]


class JobStore:
    """`folder/<job id>/`: job.json, replaced whole; events.jsonl, appended; exemplars/, the job's own buffer.

    It has one owner: no two processes may use one folder.

    Raises (constructor): UserError when the folder cannot be made.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"optimize.jobs_dir={folder}: {error.strerror}; name a folder that can be written"
            ) from None

    def claim(self, wait_s: float, as_what: str = QUEUE) -> None:
        """Make this process the owner until it ends; wait at most `wait_s` seconds for an earlier one to end.

        Args:
            as_what: QUEUE or SERVER; there is one of each.

        Raises:
            UserError: when another process owns the folder.
        """
        self._claim = open(self.folder / as_what, "w")  # held open: the lock goes with the process
        deadline = time.monotonic() + wait_s
        while not lock_file(self._claim, wait=False):
            if time.monotonic() > deadline:
                raise UserError(
                    f"optimize.jobs_dir={self.folder} belongs to a server that is running; name another folder"
                )
            time.sleep(0.2)

    def load(self) -> Iterator[OptimizeJob]:
        """Yield all jobs, oldest first. A folder that holds none, or a damaged one, is left alone."""
        jobs = []
        for file in self.folder.glob("*/job.json"):
            try:
                data = json.loads(file.read_text())
                jobs.append(OptimizeJob(**data | {"settings": JobSettings(**data["settings"])}))
            except (OSError, ValueError, TypeError, KeyError, RecursionError):
                continue
        return iter(sorted(jobs, key=lambda job: job.created_at))

    def save(self, job: OptimizeJob) -> None:
        write_atomically(self.folder / job.job_id / "job.json", json.dumps(dataclasses.asdict(job)))

    def restart(self, job: OptimizeJob) -> None:
        """Delete what an earlier attempt at the same request left behind."""
        self.remove(job.job_id)
        self.save(job)

    def remove(self, job_id: str) -> None:
        """Remove a job; one that is not there is no error."""
        shutil.rmtree(self.folder / job_id, ignore_errors=True)

    def events(self, job_id: str) -> list[dict[str, Any]]:
        """Return all events of a job. Half a line at the end, from a kill, is cut off for good."""
        return repair_json_lines(self._events_file(job_id))

    def append(self, job_id: str, event: dict[str, Any]) -> None:
        """Append an event. Raises OSError when the disk is full; the events before it stay readable."""
        with open(self._events_file(job_id), "ab") as out:
            out.write(json.dumps(event).encode() + b"\n")

    def exemplars(self, job_id: str) -> Path:
        return self.folder / job_id / "exemplars"

    def _events_file(self, job_id: str) -> Path:
        return self.folder / job_id / "events.jsonl"
