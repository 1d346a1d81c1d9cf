"""Problem sizes: as published, as in the CUDA-L1 paper, or scaled to keep a GPU busy and be cheap to evaluate.

At KernelBench's published sizes a call of level 1 takes 2 GiB in the median, and evaluating it minutes. At the paper's
sizes it takes some microseconds, and launch costs decide. `scaled` lies between: the larger of a call's inputs and
outputs is 64 to 256 MiB wherever constants of the file allow it (`scaling.py`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

from cudal1_ray.errors import UserError
from cudal1_ray.problems.kernelbench import load_parquet
from cudal1_ray.problems.problem import Problem
from cudal1_ray.source.size_constants import rewrite
from cudal1_ray.wording import counted

PUBLISHED, PAPER, SCALED = "published", "paper", "scaled"

# Values that `scripts/kernelbench_sizes.py` found for KernelBench v0.1, each with the digest of the file it is for.
KERNELBENCH = Path(__file__).parent / "kernelbench_scaled.json"

# Seconds for the sizes of problems outside KernelBench: loops over time steps take up to half a minute each.
WORKER_TIMEOUT_S = 1800

_log = logging.getLogger(__name__)


def with_sizes(problems: list[Problem], sizes: str, paper_path: str | None = None) -> list[Problem]:
    """Return the problems at these sizes: `published` leaves them, `paper` and `scaled` replace their source.

    A problem that fits the limits, or keeps a GPU busy with small inputs, stays as published. So does one that cannot
    be scaled, and the log names it with the reason.

    Raises:
        UserError: when `paper` has no file at its path, or the file lacks a problem.
    """
    if sizes == PAPER:
        return _paper(problems, paper_path or "")
    return _scaled(problems) if sizes == SCALED else problems


def digest(source: str) -> str:
    """Return SHA-256 of a problem's text without line-end differences and surrounding blanks."""
    return hashlib.sha256(source.replace("\r\n", "\n").strip().encode()).hexdigest()


def _paper(problems: list[Problem], path: str) -> list[Problem]:
    levels = {problem.level for problem in problems if problem.level is not None}
    sources = {problem.problem_id: problem.source for problem in load_parquet(path, levels)}
    for problem in problems:
        if problem.problem_id not in sources:
            raise UserError(f"problems.paper_path: {path} has no problem {problem.problem_id}; choose others by ids")
    return [replace(problem, source=sources[problem.problem_id]) for problem in problems]


def _scaled(problems: list[Problem]) -> list[Problem]:
    entries = _committed_entries()
    missing = [problem for problem in problems if digest(problem.source) not in entries]
    entries = entries | dict(zip((digest(p.source) for p in missing), _computed(missing), strict=True))
    scaled = []
    for problem in problems:
        entry = entries[digest(problem.source)]
        if not entry["fits"]:
            _log.warning("%s keeps its published sizes: %s", problem.problem_id, entry["reason"])
        scaled.append(replace(problem, source=rewrite(problem.source, entry["values"])))
    return scaled


@cache
def _committed_entries() -> dict[str, dict]:
    """Return digest of a source -> its entry in the committed table."""
    entries = json.loads(KERNELBENCH.read_text(encoding="utf-8"))["problems"]
    return {entry["sha256"]: entry for entry in entries.values()}


def _computed(problems: list[Problem]) -> list[dict]:
    """Return the entries of problems that the table lacks, from a process without a GPU that runs their code."""
    if not problems:
        return []
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "cudal1_ray.problems.sizes.worker"]
    try:
        ended = subprocess.run(
            command,
            input=json.dumps([problem.source for problem in problems]),
            capture_output=True,
            text=True,
            timeout=WORKER_TIMEOUT_S,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"problems.sizes: the sizes of {counted(len(problems), 'problem')} took over {WORKER_TIMEOUT_S} s; "
            "choose fewer with problems.ids, or use problems.sizes=published"
        ) from error
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(f"problems.sizes: the process that computes sizes failed: {last}")
    return json.loads(ended.stdout)
