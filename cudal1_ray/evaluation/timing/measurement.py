"""Interleaved, adaptive measurement of a candidate against the reference."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass

from ..contestants.handles import Misbehaviour
from ..exchange.variant import Variant
from ..referee.inputs import Inputs
from ..referee.judge import Fetched, TimedContestant, expected_from_reference, inputs_changed, judge_call, random_picks
from ..referee.session import ProblemSession
from ..sandbox.process_watch import Instant
from .clocks import (
    WORTH_A_DOUBT,
    Batch,
    Outside,
    Overhead,
    Shown,
    Span,
    foreknown,
    gains,
    outside,
    too_much_outside,
    windows,
)
from .pace import even_pairs, pace
from .statistics import Interval, bucket_means, combine_intervals, median, trimmed_interval, trimmed_mean

_PATIENCE = 12  # times the budget, by the clock on the wall
_CONFIRMING_PAIRS = 12
_LATE_PAIRS = 5
_FEWEST_SINGLE, _MOST_SINGLE = 8, 300  # pairs of calls timed one by one
_MOST_KEPT = 256 << 20  # bytes of outputs that wait to be judged


@dataclass(frozen=True)
class Measurement:
    """Log-ratio t(reference)/t(candidate) with its interval, and the medians per call."""

    interval: Interval
    runtime_ms: float
    reference_ms: float
    timed_runs: int
    checked_batches: int
    ratios: tuple[float, ...]  # of each pair of batches, in the order measured
    bucket_speedups: tuple[float, ...] = ()


def combine(parts: list[Measurement], buckets: int) -> Measurement:
    """One measurement out of those of several pairs of processes.

    Where a process happens to lie in memory changes its speed by some percent for as long as it lives: only the spread
    between processes shows that, so the interval is at least as wide as theirs.
    """
    ratios = tuple(ratio for part in parts for ratio in part.ratios)
    return Measurement(
        combine_intervals([part.interval for part in parts]),
        median([part.runtime_ms for part in parts]), median([part.reference_ms for part in parts]),
        sum(part.timed_runs for part in parts), sum(part.checked_batches for part in parts),
        ratios, bucket_means(list(ratios), buckets),
    )  # fmt: skip


@dataclass(frozen=True)
class Look:
    """Which calls of a batch are looked at, and where in their large tensors (from 0 to 1)."""

    calls: list[int]
    picks: list[float]


class Stopwatch:
    """Runs batches on one contestant and remembers when the last one ended."""

    def __init__(self, contestant: TimedContestant) -> None:
        self.contestant = contestant
        self._last: Instant | None = None

    def run(
        self,
        variants: list[Variant],
        seeds: list[int] | None,
        look: Look | None,
        *,
        reuse: bool = False,
        late: bool = False,
    ) -> tuple[Batch, list[Fetched]]:
        """``look``: at which calls' outputs, which the contestant learns only after the batch has ended."""
        contestant = self.contestant
        start = contestant.instant()
        contestant.prepare(variants, seeds, reuse=reuse, late=late)
        before = self._pace()
        ready = contestant.instant()
        times = contestant.go(len(variants))
        done = contestant.instant()
        after = self._pace()
        fetched = [contestant.fetch(call, look.picks, look.picks) for call in look.calls] if look else []
        end = contestant.instant()
        batch = Batch(
            len(variants), len(times) * trimmed_mean(times, 0.4), sum(times),
            Span.between(start, ready), Span.between(ready, done),
            Span.between(done, end).of_one(len(fetched)) if fetched else None,
            None if self._last is None else Span.between(self._last, start),
            any(one.odd for one in fetched), len(fetched), before + after,
        )  # fmt: skip
        self._last = end
        return batch, fetched

    def single(
        self, variant: Variant, seeds: list[int] | None, picks: list[float]
    ) -> tuple[float, tuple[float, ...], Fetched]:
        """Seconds of one call until its output is here, by the referee's clock: of a large one two windows, which take
        long enough, and nobody knows beforehand which. The core's paces around it, and all that is looked at.
        """
        contestant = self.contestant
        contestant.prepare([variant], seeds, single=True)
        before = self._pace()
        start = contestant.instant()
        contestant.go(1, single=True)
        contestant.fetch(0, picks[:2], [])
        span = Span.between(start, contestant.instant())
        paces = before + self._pace()
        self._last = None
        return max(0.0, span.wall - span.waiting), paces, contestant.fetch(0, picks, picks)

    def _pace(self) -> tuple[float, ...]:
        """On a GPU, where launches are part of a call's time."""
        return () if self.contestant.config.device == "cpu" else (pace(),)


def warm_up(contestant: TimedContestant, inputs: Inputs, calls: int) -> float:
    """Untimed calls; seconds of one call as far as the inner clock knows (best of two batches)."""
    best = math.inf
    calls = max(1, min(calls, inputs.most_calls))
    for _ in range(2):
        contestant.prepare(*inputs.renew(calls))
        best = min(best, sum(contestant.go(calls)) / calls)
    return max(best, 1e-7)


def measure_overhead(contestant: TimedContestant, inputs: Inputs) -> Overhead:
    """Batches without calls."""
    watch = Stopwatch(contestant)
    batches = [watch.run([], None, None)[0] for _ in range(9)]
    return Overhead(median([b.window.wall for b in batches[2:]]), median([b.window.cpu for b in batches[2:]]))


def batch_calls(reference_s: float, candidate_s: float, inputs: Inputs, config_ms: float) -> int:
    """Enough calls for the reference's batch to be ``config_ms`` long and for a fast candidate's not to vanish."""
    wanted = max(config_ms * 1e-3 / reference_s, min(1e-3 / candidate_s, 10 * config_ms * 1e-3 / reference_s))
    return max(1, min(inputs.most_calls, round(wanted)))


class Pairs:
    """Pairs of batches of one reference and one candidate, in an order nobody can foresee, and what they showed.

    Made before its owner measures alone: warming up takes as long as some pairs, and disturbs nobody.
    """

    def __init__(
        self, session: ProblemSession, reference: TimedContestant, candidate: TimedContestant, chance: random.Random
    ) -> None:
        self.session, self._chance = session, chance
        timing = session.config.timing
        self._inputs = Inputs(session, chance)
        candidate_s = warm_up(candidate, self._inputs, timing.warmup_calls)
        reference_s = warm_up(reference, self._inputs, timing.warmup_calls)
        self.calls = batch_calls(reference_s, candidate_s, self._inputs, timing.batch_ms)
        for contestant in (reference, candidate):  # memory of full batches is touched before anything counts
            warm_up(contestant, self._inputs, self.calls)
        self._watches = [Stopwatch(reference), Stopwatch(candidate)]
        self.sides: tuple[list[Batch], list[Batch]] = ([], [])
        self.spent_s, self.checked, self._run = 0.0, 0, 0
        self._kept: list[tuple[Variant, Fetched, Fetched]] = []
        self._kept_bytes = 0

    def another(self, *, looking: bool = False) -> None:
        """One more pair; the first one warms the caches and is not kept. Misbehaviour where its output is wrong."""
        session, chance = self.session, self._chance
        looking = looking or self._run in (1, 2) or chance.random() < session.config.check.timed_check_share
        order = [0, 1] if chance.random() < 0.5 else [1, 0]
        variants, seeds = self._inputs.renew(self.calls)
        look = Look(self._looked_at(), random_picks(chance)) if looking else None
        reuse = chance.random() < 0.5
        found: list[list[Fetched]] = [[], []]
        batches: list[Batch | None] = [None, None]
        for side in order:
            batches[side], found[side] = self._watches[side].run(variants, seeds, look, reuse=reuse)
        if look is not None:
            for call, ours, theirs in zip(look.calls, *found, strict=True):
                self._judge(variants[call], ours, theirs)
            self.checked += 1
        if self._run > 0:
            self.sides[0].append(batches[0])
            self.sides[1].append(batches[1])
        self._run += 1
        self.spent_s += sum(_cost(batch, session.config.device) for batch in batches)

    @property
    def even(self) -> tuple[list[Batch], list[Batch]]:
        """The pairs of which both batches ran at the same pace."""
        paces = [[*ours.paces, *theirs.paces] for ours, theirs in zip(*self.sides, strict=True)]
        kept = even_pairs(paces)
        return [self.sides[0][number] for number in kept], [self.sides[1][number] for number in kept]

    def late_inputs(self, number: int) -> tuple[list[Batch], list[Batch]]:
        """Batches, of reference and candidate, in which nobody can know a later call's input: it is not there yet."""
        found: tuple[list[Batch], list[Batch]] = ([], [])
        for _ in range(number):
            variants, seeds = self._inputs.renew(self.calls)
            look, fetched = Look(self._looked_at()[:1], random_picks(self._chance)), [[], []]
            for side in self._chance.sample((0, 1), 2):
                batch, fetched[side] = self._watches[side].run(variants, seeds, look, late=True)
                found[side].append(batch)
            for call, ours, theirs in zip(look.calls, *fetched, strict=True):
                self._judge(variants[call], ours, theirs)
        return found

    def single_calls(self) -> tuple[list[float], list[float]]:
        """Seconds of one call, of reference and candidate, each timed from outside alone; all paces around them."""
        (variant,), seeds = self._inputs.renew(1)
        picks, order = random_picks(self._chance), self._chance.sample((0, 1), 2)
        found = {side: self._watches[side].single(variant, seeds, picks) for side in order}
        # Always: who hands its output over before it is there seems to be fast.
        self._judge(variant, found[0][2], found[1][2])
        return [found[side][0] for side in (0, 1)], [*found[0][1], *found[1][1]]

    def _judge(self, variant: Variant, ours: Fetched, theirs: Fetched) -> None:
        """On a GPU that waits until `judge_kept`: others may measure meanwhile."""
        self._kept.append((variant, ours, theirs))
        self._kept_bytes += ours.nbytes + theirs.nbytes
        if self.session.config.device == "cpu" or not variant.lasting or self._kept_bytes > _MOST_KEPT:
            self.judge_kept()

    def judge_kept(self) -> None:
        """Judges the timed outputs that were looked at. Misbehaviour for the first that is wrong."""
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        for variant, ours, theirs in kept:
            _judge_timed(self.session, variant, ours, theirs)

    def _looked_at(self) -> list[int]:
        """Calls of a batch to look at: many of small ones, so that cheating in a few calls does not pay."""
        check, trial = self.session.config.check, self.session.own[0]
        fit = (check.timed_check_kib << 10) // max(1, trial.input_bytes + trial.output_bytes)
        return self._chance.sample(range(self.calls), max(1, min(self.calls, check.timed_check_calls, fit)))


def measure(pairs: Pairs) -> Measurement:
    """Pairs of batches until the interval is narrow enough. Misbehaviour for what the timed calls reveal."""
    session = pairs.session
    timing = session.config.timing
    deadline = time.monotonic() + _PATIENCE * timing.budget_s
    while True:
        pairs.another()
        even = pairs.even
        n = len(even[0])
        interval = _interval(session, even) if n else trimmed_interval([])
        late = pairs.spent_s > timing.budget_s / max(1, timing.contestants) or time.monotonic() > deadline
        wanted = timing.half_width + timing.half_width_growth * abs(interval.centre)
        if n >= timing.min_pairs and interval.half_width <= wanted:
            break
        if len(pairs.sides[0]) >= timing.max_pairs or (late and n >= 3):
            break
    if _outside_work(session, pairs.sides):
        # A few looks on a busy machine may all have been unlucky: nobody is refused before many more agree.
        for _ in range(_CONFIRMING_PAIRS):
            pairs.another(looking=True)
        interval = _interval(session, pairs.even)
        why = _outside_work(session, pairs.sides)
        if why:
            raise Misbehaviour("async_thread" if "work" in why else "lazy_tensor", why)
    _refuse_sabotage(session, pairs.sides[0])
    if pairs.calls > 1 and interval.ratio > WORTH_A_DOUBT:
        _refuse_foreknowledge(session, pairs)
    ours, theirs = _windows(session, pairs.even)
    if session.config.device != "cpu" and interval.ratio > WORTH_A_DOUBT:
        _refuse_unseen_gain(pairs, (median(ours) - median(theirs)) / pairs.calls)
    ratios = tuple(a / b for a, b in zip(ours, theirs, strict=True))
    calls = pairs.calls
    return Measurement(
        interval, 1e3 * median(theirs) / calls, 1e3 * median(ours) / calls, calls * len(theirs), pairs.checked, ratios
    )


def _cost(batch: Batch, device: str) -> float:
    """Seconds of the budget: on the CPU those of its own, so that a busy machine costs patience and no precision."""
    spans = [span for span in (batch.prepare, batch.window, batch.fetch) if span is not None]
    return sum(span.cpu if device == "cpu" else span.wall for span in spans)


def _charged(
    session: ProblemSession, sides: tuple[list[Batch], list[Batch]]
) -> tuple[list[float], list[float], Outside | None]:
    """Seconds of each batch inside its window, and what the candidate does outside; None where it gains nothing."""
    config = session.config
    device = config.device.partition(":")[0]
    overhead = Overhead(session.overhead_s, session.overhead_s)
    ours, theirs = windows(sides[0], sides[1], overhead, device, config.threads)
    if not gains(ours, theirs):
        return ours, theirs, None
    return ours, theirs, outside(sides[0], sides[1], median(theirs) / sides[1][0].calls, device)


def _windows(session: ProblemSession, sides: tuple[list[Batch], list[Batch]]) -> tuple[list[float], list[float]]:
    """Charged seconds of each batch; what a candidate does outside its window is added to every batch."""
    ours, theirs, found = _charged(session, sides)
    return ours, theirs if found is None else [time_s + found.per_batch for time_s in theirs]


def _interval(session: ProblemSession, sides: tuple[list[Batch], list[Batch]]) -> Interval:
    ours, theirs = _windows(session, sides)
    return trimmed_interval([math.log(a / b) for a, b in zip(ours, theirs, strict=True)])


def _outside_work(session: ProblemSession, sides: tuple[list[Batch], list[Batch]]) -> str:
    """Empty, or what the candidate did while its clock was not running."""
    ours, theirs, found = _charged(session, sides)
    if found is None:
        return ""
    return too_much_outside(found, median(theirs), median(ours) / sides[0][0].calls, session.config.timing)


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


def _refuse_foreknowledge(session: ProblemSession, pairs: Pairs) -> None:
    """Who treats the inputs of a whole batch at once has nothing to gain where they come one by one."""

    def seconds(batch: Batch) -> float:
        return (batch.window.cpu if session.config.device == "cpu" else batch.inner) / batch.calls

    def why() -> str:
        together, one_by_one = ([[seconds(batch) for batch in side] for side in sides] for sides in (pairs.sides, late))
        return foreknown(together, one_by_one)

    late = pairs.late_inputs(_LATE_PAIRS)
    if why():  # before anybody is refused, again, at a time that is the same for both ways
        for _ in range(_CONFIRMING_PAIRS):
            pairs.another()
            for side, more in zip(late, pairs.late_inputs(1), strict=True):
                side += more
        if why():
            raise Misbehaviour("phase_detection", why())


def _refuse_unseen_gain(pairs: Pairs, claimed_s: float) -> None:
    """What a candidate saves a call must show where its calls come alone; a clear case takes few of them."""
    seconds, paces = [], []
    while True:
        one, around = pairs.single_calls()
        seconds.append(one)
        paces.append(around)
        shown = Shown.of([seconds[number] for number in even_pairs(paces)])
        settled = shown.confirms(claimed_s) or shown.enough(claimed_s)
        if len(seconds) >= (_FEWEST_SINGLE if settled else _MOST_SINGLE):
            break
    if shown.refutes(claimed_s):
        raise Misbehaviour(
            "async_stream",
            f"of {1e3 * claimed_s:.3f} ms that a call seems to save {1e3 * shown.saving:.3f} show when it comes alone",
        )


def _judge_timed(session: ProblemSession, variant: Variant, ours: Fetched, theirs: Fetched) -> None:
    trial = session.own[0]
    session.reference_aliases = session.reference_aliases or ours.aliased
    if theirs.aliased and not session.reference_aliases:
        raise Misbehaviour(
            "output_aliasing", "the outputs of several calls share memory: an earlier one is overwritten"
        )
    wrong = judge_call(theirs, trial, session.config.device, expected_from_reference(ours, trial, session.config))
    if wrong is not None:
        reason = wrong.reason
        if reason in ("wrong_output", "partial_compute", "tolerance_exploit", "nan_comparison"):
            reason = "phase_detection"
        raise Misbehaviour(reason, f"right when asked, wrong when timed: {wrong.detail}")
    if not trial.mutated and inputs_changed(theirs, session.pool.memory, variant):
        raise Misbehaviour("input_mutation", "the inputs were overwritten while timed")
