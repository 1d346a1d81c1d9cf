"""From finished runs to what the population simulator needs of them: see `benchmarks.exemplars.simulation.recorded`."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy.optimize import minimize_scalar

from benchmarks.exemplars.simulation.recorded import Recorded, RecordedProblem
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import ExemplarBuffer, exemplar_id
from cudal1_ray.files import read_json_lines

_COLUMNS = ["problem_id", "code", "status", "reasons", "exemplar_ids"]


def record(runs: Sequence[Path]) -> Recorded:
    """Return what these runs measured while they trained: the corpus of stage 1 and all that the policy wrote.

    Raises:
        UserError: when a folder holds no run, or the runs never showed two exemplars and saw one of them copied.
    """
    measured: dict[tuple[str, str], list[float]] = defaultdict(list)  # speedups by problem and code, 0 for rejected
    completion_counts, reasons = Counter(), defaultdict(Counter)
    copies: list[tuple[float, bool]] = []  # of prompts with two exemplars: log of their ratio, was the faster copied?
    accepted = copied = completions = 0
    for run in runs:
        for problem_id, key, speedup in _verdicts(run):
            measured[problem_id, key].append(speedup)
        speed_of = {exemplar.exemplar_id: exemplar.speedup for exemplar in ExemplarBuffer.open(run / "exemplars")}
        for row in _rollouts(run):
            completions += 1
            completion_counts[row["problem_id"]] += 1
            if row["status"] != "accepted":
                reasons[row["problem_id"]][row["reasons"][0]] += 1
                continue
            accepted += 1
            identity = exemplar_id(row["problem_id"], row["code"])
            if identity in row["exemplar_ids"]:
                copied += 1
                speeds = [speed_of[shown_id] for shown_id in row["exemplar_ids"]]
                if len(speeds) == 2:
                    copies.append((abs(math.log(speeds[0] / speeds[1])), speed_of[identity] == max(speeds)))
    if not copies:
        raise UserError(f"{', '.join(map(str, runs))}: no completion here is a copy of one of two exemplars shown")
    problems = [
        RecordedProblem(
            problem_id,
            tuple(round(speed, 4) for speed in sorted(_speedups(measured, problem_id))),
            round(sum(reasons[problem_id].values()) / completion_counts[problem_id], 4),
            dict(reasons[problem_id].most_common()),
        )
        for problem_id in sorted(completion_counts)
    ]
    source = (
        f"{len(runs)} runs: {completions:,} completions prompted with exemplars, {len(measured):,} distinct candidates "
        f"of {len(problems)} problems, {sum(len(problem.speedups) for problem in problems)} of them accepted"
    )
    exponent = round(_exponent(copies), 3)
    return Recorded(tuple(problems), round(_noise(measured), 4), round(copied / accepted, 4), exponent, source)


def _verdicts(run: Path) -> Iterator[tuple[str, str, float]]:
    """Return (problem id, candidate, speedup) of everything that was evaluated for training."""
    if not (run / "verdicts.jsonl").is_file():
        raise UserError(f"{run}: holds no run, no verdicts.jsonl is there")
    for row in read_json_lines(run / "verdicts.jsonl"):
        if row["scope"] == "training":
            verdict = row["verdict"]
            yield verdict["problem_id"], row["key"], verdict["credited_speedup"]


def _rollouts(run: Path) -> list[dict[str, Any]]:
    """Return rollouts whose prompt showed exemplars, of the first stage that has any: later, speed is rewarded."""
    for stage in ("self_supervised", "contrastive"):
        files = sorted((run / "rollouts").glob(f"{stage}-*.parquet"))
        tables = [pq.read_table(file, columns=_COLUMNS).to_pylist() for file in files]
        if rows := [row for table in tables for row in table if row["exemplar_ids"]]:
            return rows
    return []


def _speedups(measured: dict[tuple[str, str], list[float]], problem_id: str) -> list[float]:
    """Return the median speedup of each candidate that was accepted in most of the runs that measured it."""
    speeds = [float(np.median(values)) for (problem, _), values in measured.items() if problem == problem_id]
    return [speed for speed in speeds if speed > 0.0]


def _noise(measured: dict[tuple[str, str], list[float]]) -> float:
    """Return the pooled standard deviation of a candidate's log speedups over runs; 0 where none was repeated."""
    logs = [[math.log(value) for value in values if value > 0.0] for values in measured.values()]
    variances = [(len(values) - 1, float(np.var(values, ddof=1))) for values in logs if len(values) > 1]
    freedom = sum(count for count, _ in variances)
    return math.sqrt(sum(count * variance for count, variance in variances) / freedom) if freedom else 0.0


def _exponent(copies: list[tuple[float, bool]]) -> float:
    """Return the k for which P(the faster of two is copied) = 1 / (1 + (s_slow / s_fast)^k) fits the copies best."""
    ratio, faster = (np.array(each) for each in zip(*copies, strict=True))
    sign = np.where(faster, 1.0, -1.0)
    fit = minimize_scalar(
        lambda exponent: np.logaddexp(0.0, -sign * exponent * ratio).sum(), bounds=(0.0, 20.0), method="bounded"
    )
    return float(fit.x)
