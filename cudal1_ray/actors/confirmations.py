"""Speedups that are too high to be believed at once, until another device of the same type has shown the same."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.evaluation.scrutiny.confirmation import disagreement, half_width, is_doubted, lower_of_two_that_agree

PLACES = ("auto", "same_device", "another_device")
# Reasons that may be the other device's fault, at the first time.
_NO_ANSWER = {"evaluator_error", "memory_limit"}


def confirmed_elsewhere(config: EvaluationConfig, members: int) -> bool:
    """Return whether a high speedup is measured again on another member's device, not on its own.

    Raises:
        UserError: for a place that is none.
    """
    if config.confirm_on not in PLACES:
        raise UserError(f"evaluation.confirm_on is {config.confirm_on!r}: use one of {', '.join(PLACES)}")
    enabled = config.device != "cpu" if config.confirm_on == "auto" else config.confirm_on == "another_device"
    return enabled and members > 1


def config_of_members(config: EvaluationConfig, members: int) -> EvaluationConfig:
    """Return the configuration for the evaluators of a fleet: they confirm nothing where that is done elsewhere."""
    if not confirmed_elsewhere(config, members):
        return config
    return replace(config, timing=replace(config.timing, remeasure_above=0.0, remeasure_over_best=0.0))


class Confirmations:
    """Which candidates of a fleet are measured again, by which member, and which verdict stands in the end.

    Source: CUDA-L1 (arXiv 2507.14111): above 3x, or twice the problem's best, another GPU of the same type has to come
    to the same within 10% (2nd). A third measurement decides between two that differ.

    Args:
        config: the evaluation's, with its own limits.
        members: number of the fleet's members; a single one confirms by itself, and is not asked again.
    """

    def __init__(self, config: EvaluationConfig, members: int) -> None:
        self.active = confirmed_elsewhere(config, members)
        self._timing = config.timing
        self._measured: dict[str, list[tuple[int, Verdict]]] = {}  # work id -> (member, its verdict)
        self._hardware: dict[int, str] = {}  # of the members, as their verdicts have it
        self._unanswered: set[str] = set()  # work ids

    def may(self, work_id: str, member: int, members: Collection[int]) -> bool:
        """Return whether `member` may measure this candidate: not if it already did, or if its hardware differs from
        the first measurement's, unless no other of `members` is left. Where none of that hardware is left, the
        candidate begins anew: no member could confirm what it measured there.
        """
        measured = self._measured.get(work_id)
        if not measured:
            return True
        hardware = measured[0][1].hardware
        same = {peer for peer in members if self._hardware.get(peer, hardware) == hardware}
        if not same:
            del self._measured[work_id]
            return True
        return member in (same - {peer for peer, _ in measured} or same)

    def settle(self, work_id: str, member: int, verdict: Verdict, best_speedup: float) -> Verdict | None:
        """Return the verdict that stands, or None when a member that `may` has to measure it once more."""
        if not self.active:
            return verdict
        self._hardware[member] = verdict.hardware or self._hardware.get(member, "")
        measured = self._measured.get(work_id, [])
        if measured and _NO_ANSWER.intersection(verdict.reasons) and work_id not in self._unanswered:
            self._unanswered.add(work_id)
            return None
        self._unanswered.discard(work_id)
        if not verdict.accepted:
            self._measured.pop(work_id, None)
            where = f"on another device, after {measured[0][1].speedup:.2f}x: " if measured else ""
            return replace(verdict, detail=where + verdict.detail)
        if measured and verdict.hardware != measured[0][1].hardware:
            return None
        if not measured and not is_doubted(verdict.speedup, best_speedup, self._timing):
            return verdict
        measured = self._measured[work_id] = [*measured, (member, verdict)]
        measurements = [(measurement.speedup, half_width(measurement)) for _, measurement in measured]
        counting = lower_of_two_that_agree(measurements, self._timing)
        if counting is None and len(measured) < self._timing.most_measurements:
            return None
        del self._measured[work_id]
        speedups = tuple(speedup for speedup, _ in measurements)
        place = "another_device" if len({measurement for measurement, _ in measured}) > 1 else "same_device"
        if counting is not None:
            return replace(measured[counting][1], confirmed_on=place, remeasured=speedups)
        detail = disagreement("devices", speedups)
        fields = {"device": verdict.device, "hardware": verdict.hardware, "candidate_hash": verdict.candidate_hash}
        return Verdict.rejected(
            verdict.problem_id, "unstable_timing", detail, confirmed_on=place, remeasured=speedups,
            evaluation_s=verdict.evaluation_s, reference_ms=verdict.reference_ms, **fields,
        )  # fmt: skip
