"""One candidate on an open problem: its correctness, its timing, the scrutiny of what it seems to gain, its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cudal1_ray.evaluation.compiling.compiler import Extensions
from cudal1_ray.evaluation.correctness.observation import (
    Observation,
    SameOperationsSeen,
    fields_of,
    observe,
    profile,
    refuse_by_rules,
)
from cudal1_ray.evaluation.correctness.trials import Correctness, comparison_turn, settle
from cudal1_ray.evaluation.host.handles import Misbehaviour
from cudal1_ray.evaluation.host.timed_contestant import ReferenceFailed, TimedContestant
from cudal1_ray.evaluation.opening.references import Machinery, References, favoured
from cudal1_ray.evaluation.opening.session import ProblemFault, ProblemSession
from cudal1_ray.evaluation.sandbox.process_watch import in_a_hurry
from cudal1_ray.evaluation.screening.hints import compiles_in_calls, several_streams
from cudal1_ray.evaluation.scrutiny.confirmation import disagreement, is_doubted, lower_of_two_that_agree
from cudal1_ray.evaluation.scrutiny.doubts import scrutinise
from cudal1_ray.evaluation.timing.estimate import TimingDoubt, estimate_speedup
from cudal1_ray.evaluation.timing.measurement import Measurement, combine, wants_another, wants_fresh_reference
from cudal1_ray.evaluation.timing.pairs import Pairs
from cudal1_ray.evaluation.verdict import ACCEPTED, Verdict

# Most timing doubts about one candidate, each of another kind, that a fresh process may refute.
_MOST_DOUBTS = 3


class CandidateMeasurement:
    """The correctness, timing and scrutiny of one candidate."""

    def __init__(
        self, machinery: Machinery, references: References, session: ProblemSession, code: str, extensions: Extensions
    ) -> None:
        self._machinery, self._references = machinery, references
        self._session, self._code, self._extensions = session, code, extensions
        self._timing = machinery.config.timing
        self._observed: Observation | None = None  # one plain call, once it was watched
        self._streams = self._several_streams()

    def _several_streams(self) -> bool:
        """Return whether reference or candidate may run several streams; a reference that is not eager always may."""
        config = self._machinery.config
        if config.device == "cpu":
            return False
        return config.against != "eager" or several_streams(self._code) or several_streams(self._session.source)

    def verdict(self, best_speedup: float) -> Verdict:
        """Return the verdict over the candidate. `best_speedup`: the problem's best so far, 0.0 = none."""
        session, reason, detail = self._session, "", ""
        try:
            figures = _figures(self._measure(best_speedup))
        except (ProblemFault, Misbehaviour) as error:
            reason, detail = error.reason, error.detail
            figures = {"reference_ms": session.reference_ms}
        except SameOperationsSeen as seen:
            detail = str(seen)
            figures = {"runtime_ms": session.reference_ms, "reference_ms": session.reference_ms}
            figures |= _credited(1.0, 1.0, 1.0)
        figures |= fields_of(self._observed, session.observed)
        if reason:
            return Verdict.rejected(session.problem_id, reason, detail, **figures)
        return Verdict(session.problem_id, ACCEPTED, (), detail, **figures)

    def _measure(self, best_speedup: float) -> Measurement:
        """Return the measurement that counts. A large speedup must show again in fresh processes, on a device that has
        cooled down; the lower of two measurements that agree counts.

        Raises:
            Misbehaviour: why the candidate is refused.
            SameOperationsSeen: the candidate is credited with 1.0 without a measurement.
            ProblemFault: the reference fails without the candidate, too.
        """
        measurements = [self._measure_once()]
        if not is_doubted(measurements[0].interval.ratio, best_speedup, self._timing):
            return measurements[0]
        while len(measurements) < self._timing.most_measurements:
            measurements.append(self._measure_once(before=measurements))
            intervals = [(measurement.interval.ratio, measurement.interval.half_width) for measurement in measurements]
            counting = lower_of_two_that_agree(intervals, self._timing)
            if counting is not None:
                return replace(measurements[counting], remeasured=tuple(ratio for ratio, _ in intervals))
        speedups = [measurement.interval.ratio for measurement in measurements]
        raise Misbehaviour("unstable_timing", disagreement("fresh processes", speedups))

    def _measure_once(self, before: Sequence[Measurement] = ()) -> Measurement:
        """Return one measurement over as many fresh processes as configured; the first is checked for correctness.

        Clocks of one process refuse no candidate: another process must show the same. Code that compiles in its first
        call is measured in one process otherwise, since each further one takes half a minute. `before`: earlier
        measurements of this code.
        """
        parts: list[Measurement] = []
        doubts: set[str] = set()
        candidate = None
        references = self._references
        try:
            while wants_another(parts, self._timing):
                # The kept reference has one hardware queue, like candidates for which the number makes no difference.
                fresh = bool(doubts) or self._streams or wants_fresh_reference([*before, *parts], self._timing)
                if candidate is None:
                    # On a GPU the process that is made later launches faster, by half a percent: they take turns.
                    if fresh and len(parts) % 2 == 0:
                        self._session.reference = references.take(self._session, fresh=True, streams=self._streams)
                        fresh = False
                    candidate = self._checked_candidate(correct_before=bool(parts))
                try:
                    confirmed = max((part.shown for part in parts), default=0.0)
                    rest_s = self._timing.cool_down_s if before and not parts else 0.0
                    parts.append(self._time(candidate, fresh=fresh, confirmed=confirmed, rest_s=rest_s))
                except TimingDoubt as doubt:
                    if doubt.reason in doubts or len(doubts) >= _MOST_DOUBTS:
                        raise
                    doubts.add(doubt.reason)
                    candidate.close()
                    candidate = None
                    if doubt.reason == "baseline_sabotage":  # the machine may have become slower instead
                        references.time_alone(self._session)
                    continue
                last = not wants_another(parts, self._timing)
                if last and not before:
                    assert self._observed is not None
                    self._observed = profile(candidate, self._observed, self._code)
                if last or not compiles_in_calls(self._code):
                    candidate.close()
                    candidate = None
        finally:
            if candidate is not None:
                candidate.close()
        if not before:
            self._refuse_by_rules(last=True)
        return combine(parts, self._timing)

    def _checked_candidate(self, *, correct_before: bool) -> TimedContestant:
        """Return a fresh process of the candidate, checked and ready to be timed. The first call may start compilers,
        so it comes before the lock. `correct_before`: another process of the candidate was right.
        """
        machinery, session = self._machinery, self._session
        candidate = TimedContestant(
            machinery.server, session, self._code, "candidate", machinery.cores.numbers, self._extensions,
            streams=self._streams,
        )  # fmt: skip
        try:
            limits, reference_s = machinery.config.limits, session.reference_ms * 1e-3
            candidate.call_limit_s = min(
                max(limits.call_timeout_s, 10 * reference_s), max(1.0, limits.slowdown_limit * reference_s)
            )
            correctness, lazy = Correctness(candidate, machinery.chance, machinery.turns), machinery.config.check.lazy
            correctness.first(briefly=correct_before)
            if not (correct_before or lazy):
                correctness.others()
            if self._observed is None:
                with machinery.turns.beside_others():
                    self._observed = observe(candidate)
                self._refuse_by_rules(last=machinery.config.device == "cpu")
            if lazy and not correct_before:
                correctness.others()
            settle(candidate)
        except BaseException:
            candidate.close()
            raise
        return candidate

    def _refuse_by_rules(self, *, last: bool) -> None:
        """Refuse or credit what the rules decide without a measurement; `last`: see `refuse_by_rules`."""
        config = self._machinery.config
        assert self._observed is not None
        refuse_by_rules(self._observed, self._session.observed, config.rules, config.against, last=last)

    def _time(self, candidate: TimedContestant, *, fresh: bool, confirmed: float, rest_s: float) -> Measurement:
        """Return the measurement of one pair of processes. `fresh`: the reference gets a process of its own;
        `confirmed`: see `measure`; `rest_s`: see `Turns.alone`.
        """
        machinery, session = self._machinery, self._session
        try:
            reference = self._references.take(session, fresh=fresh, streams=self._streams)
        except ProblemFault as fault:
            raise self._fault_beside(candidate, fault) from None
        try:
            with favoured(machinery, reference, candidate) as core:
                beside_others = machinery.turns.beside_others
                pairs = Pairs(session, reference, candidate, machinery.chance, core.stay_fast, beside_others)
                try:
                    with machinery.turns.alone(rest_s=rest_s), in_a_hurry(), core.shared():
                        measured = measure(pairs, confirmed, streams=self._streams)
                        measured = replace(measured, core_s=core.pace_s)
                finally:
                    with comparison_turn(session.own[0], machinery.turns):
                        pairs.compare_waiting()  # a wrong output is a better reason than what it did to the clocks
                with machinery.turns.beside_others():
                    pairs.ask_the_rest()
        except ReferenceFailed as failure:
            self._references.release(session, reference)
            raise self._fault_beside(candidate, failure) from None
        finally:
            self._references.release(session, reference)
        if candidate.handle.watch.family():
            raise Misbehaviour("leftover_process", "a process of the candidate's outlives its call")
        return measured

    def _fault_beside(self, candidate: TimedContestant, failure: ProblemFault | ReferenceFailed) -> Exception:
        """Return the fault of a candidate beside which the reference failed; raise ProblemFault if it fails alone."""
        candidate.close()
        self._references.release(self._session, self._references.take(self._session))
        limits = self._machinery.config.limits.behind(failure.reason)
        detail = f"the reference runs without it and fails beside it{limits}: {failure.detail}"
        return Misbehaviour("resource_exhaustion", detail)


def measure(pairs: Pairs, confirmed: float = 0.0, *, streams: bool = False) -> Measurement:
    """Return what one pair of processes shows, as far as no doubt refutes it; raise TimingDoubt for what the clocks
    reveal. `confirmed`: the largest `Measurement.shown` of earlier measurements of this code, 0.0 = none.
    `streams`: see `Measurement.of`.
    """
    estimate, unrefuted = scrutinise(pairs, estimate_speedup(pairs), confirmed)
    return Measurement.of(pairs, estimate, unrefuted, streams=streams)


def _figures(measured: Measurement) -> dict[str, Any]:
    """Return the fields of an accepted candidate's verdict."""
    interval = measured.interval
    names = ("runtime_ms", "reference_ms", "timed_runs", "bucket_speedups", "processes", "device_speedup", "remeasured")
    return (
        {name: getattr(measured, name) for name in names}
        | _credited(interval.ratio, interval.low, interval.high)
        | {"confirmed_on": "same_device" if measured.remeasured else ""}
    )


def _credited(speedup: float, low: float, high: float) -> dict[str, float]:
    return {"speedup": speedup, "speedup_low": low, "speedup_high": high, "credited_speedup": speedup}
