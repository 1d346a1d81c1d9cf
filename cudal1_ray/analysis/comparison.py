"""Is one stage, or one run, faster than another? A paired bootstrap over the problems that both have."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cudal1_ray.analysis.run_data import counted_rows, credited_speedup, is_accepted
from cudal1_ray.analysis.statistics import (
    FAILURE_IN_GEOMEAN,
    SampleSet,
    paired_log_geomean_draws,
    percentile_interval,
    sample_set,
)
from cudal1_ray.errors import UserError

Rows = Iterable[dict[str, Any]]


@dataclass(frozen=True)
class Comparison:
    """`second` against `first` over the problems both have, every problem with equal weight.

    log_geomean_difference: log geomean(second) - log geomean(first), with its interval [low, high], None for a single
    problem; speedup_ratio*: the exponential of these (1.2 = the second is 1.2 times faster in the geometric mean).
    """

    first: str
    second: str
    split: str
    problems: int
    log_geomean_difference: float
    log_geomean_low: float | None
    log_geomean_high: float | None
    speedup_ratio: float
    speedup_ratio_low: float | None
    speedup_ratio_high: float | None
    success_rate_difference: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def samples_of(rows: Rows, stage: str, split: str | None, *, copies_fail: bool = False) -> SampleSet:
    """Return the assessment rows of one stage and split (None: both splits) as a SampleSet.

    Rows are those of `counted_rows`. With `copies_fail` a copy of an exemplar in its prompt counts as a failure.
    """
    by_problem: dict[str, list[tuple[bool, float]]] = {}
    for row in counted_rows(rows):
        if row.get("stage") == stage and (split is None or row.get("split") == split) and row.get("problem_id"):
            fails = copies_fail and bool(row.get("copied"))
            sample = (False, 0.0) if fails else (is_accepted(row), credited_speedup(row))
            by_problem.setdefault(str(row["problem_id"]), []).append(sample)
    return sample_set(by_problem)


def compare_samples(first: SampleSet, second: SampleSet, *, names: tuple[str, str], split: str) -> Comparison:
    """Compare two sample sets by a paired bootstrap. Raises UserError when they share no problem."""
    shared = [problem_id for problem_id in first.problem_ids if problem_id in set(second.problem_ids)]
    if not shared:
        raise UserError(f"{names[0]!r} and {names[1]!r} share no {split} problem: assess both on the same problems")
    first, second = first.restricted(shared), second.restricted(shared)
    sides = (first, second)
    logs = [np.nanmean(np.log(np.maximum(side.speedups, FAILURE_IN_GEOMEAN)), axis=1).mean() for side in sides]
    success = [np.nanmean(side.accepted, axis=1).mean() for side in sides]
    difference = float(logs[1] - logs[0])
    low, high = percentile_interval(paired_log_geomean_draws(first, second)) if len(shared) > 1 else (None, None)
    return Comparison(
        first=names[0],
        second=names[1],
        split=split,
        problems=len(shared),
        log_geomean_difference=difference,
        log_geomean_low=low,
        log_geomean_high=high,
        speedup_ratio=math.exp(difference),
        speedup_ratio_low=None if low is None else math.exp(low),
        speedup_ratio_high=None if high is None else math.exp(high),
        success_rate_difference=float(success[1] - success[0]),
    )


def compare_runs(first_rows: Rows, second_rows: Rows, stage: str, split: str = "held_out") -> Comparison:
    """Compare one stage of two runs over the problems that both assessed. Raises UserError when there are none."""
    first, second = (samples_of(rows, stage, split) for rows in (first_rows, second_rows))
    return compare_samples(first, second, names=("first run", "second run"), split=split)
