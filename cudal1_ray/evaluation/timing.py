"""Interleaved, adaptive measurement of a candidate against the reference."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass

from .clocks import Batch, Overhead, Span, outside, too_much_outside, windows
from .contestants import Misbehaviour
from .process_watch import Instant
from .referee import Fetched, TimedContestant, expected_from_reference, inputs_changed, judge_call
from .session import ProblemSession
from .statistics import Interval, median, trimmed_interval
from .tensors import TensorSpec, aligned


@dataclass(frozen=True)
class Measurement:
    """Log-ratio t(reference)/t(candidate) with its interval, and the medians per call."""

    interval: Interval
    runtime_ms: float
    reference_ms: float
    timed_runs: int
    checked_batches: int


class Stopwatch:
    """Runs batches on one contestant and remembers when the last one ended."""

    def __init__(self, contestant: TimedContestant) -> None:
        self.contestant = contestant
        self._last: Instant | None = None

    def run(
        self,
        specs: list[list],
        calls: int,
        stride: int,
        seeds: list[int] | None,
        fetch: int | None,
        *,
        reuse: bool = False,
    ) -> tuple[Batch, Fetched | None]:
        """``fetch``: number of the call whose output is looked at, decided only after the batch has ended."""
        contestant = self.contestant
        start = contestant.instant()
        contestant.prepare(specs, calls, stride, seeds, reuse=reuse)
        ready = contestant.instant()
        inner_ms = contestant.go(calls)
        done = contestant.instant()
        fetched = None if fetch is None else contestant.fetch(fetch)
        end = contestant.instant()
        batch = Batch(
            calls, inner_ms * 1e-3, Span.between(start, ready), Span.between(ready, done),
            None if fetched is None else Span.between(done, end),
            None if self._last is None else Span.between(self._last, start),
            fetched is not None and fetched.odd,
        )  # fmt: skip
        self._last = end
        return batch, fetched


class Inputs:
    """New inputs for every batch, in the timed part of the pool."""

    def __init__(self, session: ProblemSession, chance: random.Random) -> None:
        self.session, self.chance = session, chance
        trial = session.own[0]
        self.stride = max(trial.input_bytes, 256)
        self.start = session.static_bytes + max(t.input_bytes for t in session.trials)
        self.specs, offset = [], self.start
        for spec in trial.specs:
            self.specs.append(TensorSpec(spec.dtype, spec.shape, spec.strides, offset, spec.nbytes).to_list())
            offset = aligned(offset + spec.nbytes)
        memory = session.config.timing.batch_memory_mib << 20
        self.most_calls = max(
            1,
            min(session.config.timing.max_batch_calls, memory // (trial.input_bytes + trial.output_bytes + 1)),
        )

    def renew(self, calls: int) -> list[int] | None:
        """Fills the pool for ``calls`` calls; seeds where the model draws random numbers."""
        for number in range(calls):
            self.session.write_new_inputs(self.start + number * self.stride, self.chance)
        if self.session.opened["stochastic"]:
            return [self.chance.getrandbits(31) for _ in range(calls)]
        return None


def warm_up(contestant: TimedContestant, inputs: Inputs, calls: int) -> float:
    """Untimed calls; seconds of one call as far as the inner clock knows (best of two batches)."""
    best = math.inf
    calls = max(1, min(calls, inputs.most_calls))
    for _ in range(2):
        contestant.prepare(inputs.specs, calls, inputs.stride, inputs.renew(calls))
        best = min(best, contestant.go(calls) * 1e-3 / calls)
    return max(best, 1e-7)


def measure_overhead(contestant: TimedContestant, inputs: Inputs) -> Overhead:
    """Batches without calls."""
    watch = Stopwatch(contestant)
    batches = [watch.run(inputs.specs, 0, inputs.stride, None, None)[0] for _ in range(9)]
    return Overhead(median([b.window.wall for b in batches[2:]]), median([b.window.cpu for b in batches[2:]]))


def batch_calls(reference_s: float, candidate_s: float, inputs: Inputs, config_ms: float) -> int:
    """Enough calls for the reference's batch to be ``config_ms`` long and for a fast candidate's not to vanish."""
    wanted = max(config_ms * 1e-3 / reference_s, min(1e-3 / candidate_s, 10 * config_ms * 1e-3 / reference_s))
    return max(1, min(inputs.most_calls, round(wanted)))


def measure(
    session: ProblemSession, reference: TimedContestant, candidate: TimedContestant, chance: random.Random
) -> Measurement:
    """Pairs of batches until the interval is narrow enough. Misbehaviour for what the timed calls reveal."""
    config, timing = session.config, session.config.timing
    inputs = Inputs(session, chance)
    candidate_s = warm_up(candidate, inputs, timing.warmup_calls)
    reference_s = warm_up(reference, inputs, timing.warmup_calls)
    calls = batch_calls(reference_s, candidate_s, inputs, timing.batch_ms)
    for contestant in (reference, candidate):  # memory of full batches is touched before anything counts
        warm_up(contestant, inputs, calls)
    watches = [Stopwatch(reference), Stopwatch(candidate)]
    sides: tuple[list[Batch], list[Batch]] = ([], [])
    deadline = time.monotonic() + timing.budget_s
    checked, number, interval = 0, 0, trimmed_interval([])
    while True:
        look = number in (1, 2) or chance.random() < config.check.timed_check_share
        order = [0, 1] if chance.random() < 0.5 else [1, 0]
        seeds = inputs.renew(calls)
        which = chance.randrange(calls) if look else None
        reuse = chance.random() < 0.5
        found: list[Fetched | None] = [None, None]
        batches: list[Batch | None] = [None, None]
        for side in order:
            batches[side], found[side] = watches[side].run(
                inputs.specs, calls, inputs.stride, seeds, which, reuse=reuse
            )
        if look:
            _judge_timed(session, inputs, which, found)
            checked += 1
        if number > 0:  # the first pair warms the caches
            sides[0].append(batches[0])
            sides[1].append(batches[1])
            interval = _interval(session, sides)
        number += 1
        n = len(sides[0])
        late = time.monotonic() > deadline
        wanted = timing.half_width + timing.half_width_growth * abs(interval.centre)
        if n >= timing.min_pairs and interval.half_width <= wanted:
            break
        if n >= timing.max_pairs or (late and n >= 3):
            break
    _refuse_outside_work(session, sides)
    _refuse_sabotage(session, sides[0])
    ours, theirs = _windows(session, sides)
    return Measurement(
        interval, 1e3 * median(theirs) / calls, 1e3 * median(ours) / calls, calls * len(sides[1]), checked
    )


def _windows(session: ProblemSession, sides: tuple[list[Batch], list[Batch]]) -> tuple[list[float], list[float]]:
    """Charged seconds of each batch; what a candidate does outside its window is added to every batch."""
    config = session.config
    device = config.device.partition(":")[0]
    overhead = Overhead(session.overhead_s, session.overhead_s)
    ours, theirs = windows(sides[0], sides[1], overhead, device, config.threads)
    found = outside(sides[0], sides[1], median(theirs) / sides[1][0].calls, device)
    return ours, [time_s + found.per_batch for time_s in theirs]


def _interval(session: ProblemSession, sides: tuple[list[Batch], list[Batch]]) -> Interval:
    ours, theirs = _windows(session, sides)
    return trimmed_interval([math.log(a / b) for a, b in zip(ours, theirs, strict=True)])


def _refuse_outside_work(session: ProblemSession, sides: tuple[list[Batch], list[Batch]]) -> None:
    config = session.config
    device = config.device.partition(":")[0]
    overhead = Overhead(session.overhead_s, session.overhead_s)
    ours, theirs = windows(sides[0], sides[1], overhead, device, config.threads)
    calls = sides[0][0].calls
    found = outside(sides[0], sides[1], median(theirs) / calls, device)
    why = too_much_outside(found, median(theirs), median(ours) / calls, config.timing)
    if why:
        raise Misbehaviour("async_thread" if "work" in why else "lazy_tensor", why)


def _refuse_sabotage(session: ProblemSession, references: list[Batch]) -> None:
    """On CUDA, work that a candidate left on the device slows the reference; on the CPU its own clock is counted."""
    slowest = session.config.timing.reference_slowdown
    if session.config.device == "cpu" or slowest <= 0:
        return
    beside_ms = 1e3 * median([batch.inner / batch.calls for batch in references])
    if beside_ms > slowest * session.solo_ms:
        raise Misbehaviour(
            "baseline_sabotage", f"the reference takes {beside_ms:.3f} ms beside it, {session.solo_ms:.3f} ms alone"
        )


def _judge_timed(session: ProblemSession, inputs: Inputs, which: int, found: list[Fetched | None]) -> None:
    ours, theirs = found
    trial = session.own[0]
    session.reference_aliases = session.reference_aliases or ours.aliased
    if theirs.aliased and not session.reference_aliases:
        raise Misbehaviour(
            "output_aliasing", "the outputs of several calls share memory: an earlier one is overwritten"
        )
    wrong = judge_call(theirs, trial, expected_from_reference(ours, trial, session.config))
    if wrong is not None:
        reason = wrong.reason
        if reason in ("wrong_output", "partial_compute", "tolerance_exploit", "nan_comparison"):
            reason = "phase_detection"
        raise Misbehaviour(reason, f"right when asked, wrong when timed: {wrong.detail}")
    if not trial.mutated and inputs_changed(theirs, session.pool.memory, inputs.specs, which * inputs.stride):
        raise Misbehaviour("input_mutation", "the inputs were overwritten while timed")
