"""What was really measured: for each problem the speedups of its candidates, how often they failed, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.common.results import read_result
from cudal1_ray.errors import UserError


@dataclass(frozen=True)
class RecordedProblem:
    """speedups: of the distinct accepted candidates, ascending. failure_rate: share of the completions prompted with
    exemplars that were rejected. reasons: how often each was the first reason of a rejection.
    """

    problem_id: str
    speedups: tuple[float, ...]
    failure_rate: float
    reasons: Mapping[str, int]


@dataclass(frozen=True)
class Recorded:
    """noise: standard deviation of the logarithm of a speedup when the same candidate is measured in another run.
    copy_rate: share of accepted completions that are one of the exemplars shown. speed_exponent: the k that fits best
    when, of two exemplars shown, e is the one that is copied with a probability proportional to s_e^k. source: where
    all of it comes from.
    """

    problems: tuple[RecordedProblem, ...]
    noise: float
    copy_rate: float
    speed_exponent: float
    source: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Recorded:
        problems = [RecordedProblem(**{**row, "speedups": tuple(row["speedups"])}) for row in content["problems"]]
        return cls(**{**content, "problems": tuple(problems)})


def read_recorded(path: Path) -> Recorded:
    """Raise UserError when the file is missing, or is no result whose metrics are those of `Recorded.to_dict`."""
    try:
        return Recorded.from_dict(read_result(path)["metrics"])
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: holds no recorded verdicts ({error}); make it anew from runs") from None
