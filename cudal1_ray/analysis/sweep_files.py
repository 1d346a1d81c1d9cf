"""The files of a sweep's folder: `sweep.json` (what varies), `jobs.jsonl` (what became of each job)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.files import read_json_lines, read_json_object

DESCRIPTION, JOBS = "sweep.json", "jobs.jsonl"
_DESCRIPTION_FIELDS = {"varied": list, "shared": list}
_JOB_FIELDS = {"job": str, "settings": dict, "overrides": list, "state": str}
_NOUNS: dict[type, str] = {list: "a list of texts", dict: "an object", str: "a text"}


def read_description(folder: Path) -> dict[str, list[str]]:
    """Return the keys that a sweep varies as `varied`, the overrides that all its jobs share as `shared`.

    Raises:
        UserError: naming the file, and its field that is none of a sweep.
    """
    description = read_json_object(folder / DESCRIPTION)
    _check(description, _DESCRIPTION_FIELDS, str(folder / DESCRIPTION))
    return description


def read_jobs(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the last record of each job that was ever started, by its name.

    Raises:
        UserError: naming the file, its row, and the field that is none of a job.
    """
    path = folder / JOBS
    rows = read_json_lines(path)
    for number, row in enumerate(rows, 1):
        _check(row, _JOB_FIELDS, f"{path}, row {number}")
    return {row["job"]: row for row in rows}


def _check(values: Mapping[str, Any], fields: Mapping[str, type], place: str) -> None:
    for name, kind in fields.items():
        value = values.get(name)
        if not isinstance(value, kind) or isinstance(value, list) and not all(isinstance(item, str) for item in value):
            raise UserError(f"{place}: {name} must be {_NOUNS[kind]}; restore it")
