"""Confirmation of a suspiciously high speedup: when it is measured again, and which measurement counts.

Source: CUDA-L1 (arXiv 2507.14111), verification of high speedups on another GPU of the same type (2nd).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from cudal1_ray.evaluation.config import TimingConfig
from cudal1_ray.evaluation.verdict import Verdict, candidate_hash
from cudal1_ray.problems import Problem


def needs_confirmation(speedup: float, best_speedup: float, *, above: float, over_best: float) -> bool:
    """Return whether a speedup exceeds `above`, or `over_best` times the problem's best so far (0.0 = none); a limit of
    0.0 is never exceeded.
    """
    return 0 < above < speedup or 0 < over_best * best_speedup < speedup


def is_doubted(speedup: float, best_speedup: float, timing: TimingConfig) -> bool:
    """Return `needs_confirmation` with the limits of `timing`."""
    limits = {"above": timing.remeasure_above, "over_best": timing.remeasure_over_best}
    return needs_confirmation(speedup, best_speedup, **limits)


def lower_of_two_that_agree(measured: Sequence[tuple[float, float]], timing: TimingConfig) -> int | None:
    """Return the index of the measurement that counts, None where no two agree: the lower of two neighbours that differ
    by at most `timing.remeasure_difference` of the smaller one, or by what their intervals leave open.

    Args:
        measured: speedup of each measurement, and half the width of its logarithm's 95% interval.
    """
    order = sorted(range(len(measured)), key=lambda index: measured[index][0])
    for low, high in pairwise(order):
        (lower, low_width), (higher, high_width) = measured[low], measured[high]
        # The slack admits 1.0 and 1.1 as within 10%, which binary fractions put slightly beyond.
        by_intervals = 2 * (low_width + high_width) if timing.remeasure_by_intervals else 0.0
        allowed = max(timing.remeasure_difference, by_intervals) * (1.0 + 1e-9)
        if lower > 0.0 and higher - lower <= allowed * lower:
            return low
    return None


def disagreement(measured: str, speedups: Iterable[float]) -> str:
    """Return the detail of a verdict whose measurements disagree: their speedups, and what a user can do.

    Args:
        measured: what was measured, in the plural: "fresh processes".
    """
    ratios = ", ".join(f"{speedup:.2f}x" for speedup in speedups)
    return (
        f"its speedup is not known, since {measured} disagree: {ratios}; evaluate it again while less else runs "
        "(`cudal1 doctor` shows how steady the machine is)"
    )


class BestSpeedups:
    """The best credited speedup of each problem among candidates that are evaluated together; safe for threads.

    Args:
        rows: earlier verdicts, as rows of a manifest's file.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self._best: dict[str, float] = {}  # by the hash of a problem's text
        self._lock = threading.Lock()
        for row in rows:
            self._raise(str(row.get("problem_hash")), float(row.get("credited_speedup") or 0.0))

    def of(self, problem: Problem) -> float:
        """Return the problem's best credited speedup, 0.0 without one."""
        return self._best.get(candidate_hash(problem.source), 0.0)

    def saw(self, problem: Problem, verdict: Verdict) -> None:
        self._raise(candidate_hash(problem.source), verdict.credited_speedup)

    def _raise(self, problem: str, speedup: float) -> None:
        with self._lock:
            self._best[problem] = max(speedup, self._best.get(problem, 0.0))


def half_width(verdict: Verdict) -> float:
    """Return half the width of the 95% interval of an accepted candidate's log speedup; 0.0 without an interval."""
    return 0.5 * math.log(verdict.speedup_high / verdict.speedup_low) if verdict.speedup_low > 0 else 0.0
