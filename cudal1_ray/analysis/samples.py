"""Single completions of a run: which to show first, and those that a user asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cudal1_ray.analysis.run_data import RunData, credited_speedup, is_accepted, number, read_texts, text_list
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.reasons import describe
from cudal1_ray.wording import counted

ORDERS = ("latest", "best", "worst")


@dataclass(frozen=True)
class SampleFilter:
    """Which samples to take. Empty values take all.

    Attributes:
        problem: a part of the problem's id.
        reason: a rejection reason, "accepted" or "rejected".
        stage: name of a stage.
        steps: first and last step.
        order: one of ORDERS; "worst" has rejected samples first, then the slowest.
        assessed: samples of assessments instead of those of training.
        limit: most samples; 0 takes all.
    """

    problem: str = ""
    reason: str = ""
    stage: str = ""
    steps: tuple[int, int] | None = None
    order: str = "latest"
    assessed: bool = False
    limit: int = 0


@dataclass(frozen=True)
class RecordedSample:
    """One completion with its verdict; texts are empty where the run did not record them."""

    stage: str
    step: int | None
    problem_id: str
    index: int | None
    status: str
    reasons: tuple[str, ...]
    speedup: float
    interval: tuple[float, float] | None
    reward: float | None
    texts: dict[str, str] = field(repr=False)

    @property
    def outcome(self) -> str:
        """Return `1.23x (1.20 to 1.26)`, or the reasons of the rejection, each with its sentence."""
        if self.status == "accepted":
            bounds = f" ({self.interval[0]:.2f} to {self.interval[1]:.2f})" if self.interval else ""
            return f"{self.speedup:.2f}x{bounds}"
        return "; ".join(f"{reason}: {describe(reason)}" for reason in self.reasons) or "rejected without a reason"

    @property
    def place(self) -> str:
        """Return where it comes from: problem, stage, step and its number in the group."""
        where = [self.problem_id, self.stage]
        where += [f"step {self.step}"] if self.step is not None else []
        where += [f"#{self.index}"] if self.index is not None else []
        return " · ".join(where)


def find_samples(run: RunData, criteria: SampleFilter) -> tuple[list[RecordedSample], int]:
    """Return the samples that meet the criteria, in order, and how many there are without the limit.

    Raises:
        UserError: the run has no samples of that kind, or none of them matches.
    """
    rows = run.assessed if criteria.assessed else run.rollouts
    if not rows:
        other = "training" if criteria.assessed else "assessments (--assessed)"
        source = "assessments" if criteria.assessed else "training"
        raise UserError(f"{run.folder}: no samples of {source} are recorded; look at those of {other}")
    chosen = [row for row in rows if _matches(row, criteria)]
    if not chosen:
        raise UserError(f"{run.folder}: none of {counted(len(rows), 'sample')} matches; there are {_overview(rows)}")
    chosen.sort(key=_key(criteria.order))
    selection = chosen[: criteria.limit] if criteria.limit else chosen
    return [sample_of(row) for row in selection], len(chosen)


def instructive_samples(run: RunData, limit: int) -> list[tuple[str, RecordedSample]]:
    """Return (why it is shown, sample): the latest of each frequent rejection reason, and the last step's accepted.

    They are of training where it is recorded, else of assessments.
    """
    rows = run.rollouts or run.assessed
    if not rows or limit <= 0:
        return []
    latest = sorted(rows, key=_key("latest"))
    counts = Counter(reason for row in rows if not is_accepted(row) for reason in set(text_list(row.get("reasons"))))
    picked = [
        (f"{reason}, {count:,} of {counted(len(rows), 'sample')}; the latest", row)
        for reason, count in counts.most_common(max(1, limit - 3))
        if (row := next((r for r in latest if not is_accepted(r) and reason in text_list(r.get("reasons"))), None))
    ]
    end = (latest[0].get("stage"), latest[0].get("step"))
    accepted = [row for row in latest if is_accepted(row) and (row.get("stage"), row.get("step")) == end]
    accepted.sort(key=lambda row: -credited_speedup(row))
    places = {0: "fastest of the last step", len(accepted) // 2: "median of the last step"}
    places[len(accepted) - 1] = "slowest correct of the last step"
    picked += [(why, accepted[place]) for place, why in sorted(places.items()) if 0 <= place < len(accepted)]
    return [(why, sample_of(row)) for why, row in picked[:limit]]


def sample_of(row: dict[str, Any]) -> RecordedSample:
    """Return a row of `RunData.rollouts` as a sample with its texts."""
    low, high = number(row.get("speedup_low")), number(row.get("speedup_high"))
    step, index = number(row.get("step")), number(row.get("index"))
    columns = ("prompt", "completion", "detail", "finish_reason")
    texts = dict.fromkeys(columns, "") | (read_texts(row, columns) if "_shard" in row else {})
    return RecordedSample(
        stage=str(row.get("stage") or ""),
        step=None if step is None else int(step),
        problem_id=str(row.get("problem_id")),
        index=None if index is None else int(index),
        status=str(row.get("status")),
        reasons=tuple(text_list(row.get("reasons"))),
        speedup=credited_speedup(row),
        interval=(low, high) if low and high else None,
        reward=number(row.get("reward")),
        texts={**texts, "code": row.get("code") or ""},
    )


def _matches(row: dict[str, Any], criteria: SampleFilter) -> bool:
    reasons = {*text_list(row.get("reasons")), str(row.get("status"))}
    step = number(row.get("step"))
    return (
        criteria.problem in str(row.get("problem_id"))
        and (not criteria.reason or criteria.reason in reasons)
        and (not criteria.stage or criteria.stage == row.get("stage"))
        and (not criteria.steps or (step is not None and criteria.steps[0] <= step <= criteria.steps[1]))
    )


def _key(order: str):
    """Return the sort key of a row. Versions of the policy count on through the stages, as steps do not."""

    def age(row: dict[str, Any]) -> tuple[float, float]:
        return (-(number(row.get("policy_version"), -1.0)), -(number(row.get("step"), -1.0)))

    return {
        "latest": age,
        "best": lambda row: (-credited_speedup(row), *age(row)),
        "worst": lambda row: (is_accepted(row), credited_speedup(row), *age(row)),
    }[order]


def _overview(rows: Sequence[dict[str, Any]]) -> str:
    """Describe stages, steps, outcomes and problems of the rows, the most frequent first."""

    def names(values: Iterable[str], most: int) -> str:
        counted = [name for name, _ in Counter(values).most_common()]
        return ", ".join(counted[:most]) + (f" and {len(counted) - most} more" if len(counted) > most else "")

    steps = [int(step) for row in rows if (step := number(row.get("step"))) is not None]
    outcomes = (outcome for row in rows for outcome in (text_list(row.get("reasons")) or [str(row.get("status"))]))
    return (
        f"the stages {names((str(row.get('stage')) for row in rows), 6)}, "
        f"steps {min(steps, default=0)} to {max(steps, default=0)}, "
        f"outcomes {names(outcomes, 8)}, and problems {names((str(row.get('problem_id')) for row in rows), 5)}"
    )
