"""One line for each problem of a run: how often it was solved, how fast, and what fails on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudal1_ray.analysis.run_data import (
    SPLITS,
    RunData,
    credited_speedup,
    is_accepted,
    is_degenerate,
    is_void,
    text_list,
)
from cudal1_ray.analysis.statistics import geometric_mean


@dataclass(frozen=True)
class ProblemLine:
    """What is known of one problem.

    Attributes:
        rollouts, correct: samples of training that are not void, and those accepted.
        best: the fastest speedup in training; None without one.
        assessed, assessed_correct: the same of the last assessed stage.
        geomean: geometric mean speedup of that stage's accepted samples; None without one.
        first_geomean: the same of the first assessed stage.
        reason, reason_share: the most frequent reason of rejection, and its share of the rejected samples, void ones
            included.
    """

    problem_id: str
    split: str
    degenerate: bool
    rollouts: int
    correct: int
    best: float | None
    assessed: int
    assessed_correct: int
    first_geomean: float | None
    geomean: float | None
    reason: str
    reason_share: float


def problem_lines(run: RunData) -> list[ProblemLine]:
    """Return all problems of the run: by split, then those that do best in the last assessed stage."""
    stages = [stage for stage in run.stages() if any(row.get("stage") == stage for row in run.assessments)]
    trained, assessed = _by_problem(run.rollouts), _by_problem(run.assessments)
    splits = {problem: str(rows[0].get("split") or "") for problem, rows in assessed.items()}
    splits |= {str(row["problem_id"]): str(row.get("split") or "") for row in run.problems if row.get("problem_id")}
    lines = []
    for problem in {**trained, **assessed}:
        rows, samples = trained.get(problem, []), assessed.get(problem, [])
        first, last = ([row for row in samples if stages and row.get("stage") == stages[i]] for i in (0, -1))
        rejected = [row for row in [*rows, *last] if not is_accepted(row)]
        counted, counted_last = ([row for row in some if not is_void(row)] for some in (rows, last))
        reason, count = _most_frequent(rejected)
        lines.append(
            ProblemLine(
                problem_id=problem,
                split=splits.get(problem, "train"),
                degenerate=any(is_degenerate(row) for row in [*rows, *samples]),
                rollouts=len(counted),
                correct=sum(is_accepted(row) for row in rows),
                best=max((credited_speedup(row) for row in rows if is_accepted(row)), default=None),
                assessed=len(counted_last),
                assessed_correct=sum(is_accepted(row) for row in last),
                first_geomean=_geomean(first),
                geomean=_geomean(last),
                reason=reason,
                reason_share=count / len(rejected) if rejected else 0.0,
            )
        )
    order = {split: place for place, split in enumerate(reversed(SPLITS))}
    lines.sort(
        key=lambda line: (order.get(line.split, 9), -(line.geomean or 0.0), -(line.best or 0.0), line.problem_id)
    )
    return lines


def _by_problem(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row.get("problem_id"):
            groups.setdefault(str(row["problem_id"]), []).append(row)
    return groups


def _geomean(rows: list[dict[str, Any]]) -> float | None:
    speedups = [credited_speedup(row) for row in rows if is_accepted(row)]
    return geometric_mean(speedups) if speedups else None


def _most_frequent(rejected: Sequence[Mapping[str, Any]]) -> tuple[str, int]:
    counts = Counter(reason for row in rejected for reason in set(text_list(row.get("reasons"))))
    return counts.most_common(1)[0] if counts else ("", 0)
