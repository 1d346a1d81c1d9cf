"""Interleaved, adaptive measurement of a candidate against the reference."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import geometric_mean, stdev

from cudal1_ray.evaluation.config import EvaluationConfig, TimingConfig
from cudal1_ray.evaluation.scrutiny.doubts import (
    CONFIRMING_PAIRS,
    PATIENCE,
    SMALL_GAIN,
    Sides,
    TimingDoubt,
    foreknowledge_s,
    refuse_sabotage,
    unseen_gain_s,
)
from cudal1_ray.evaluation.timing.agreement import agreement
from cudal1_ray.evaluation.timing.clocks import (
    WORTH_A_DOUBT,
    UnclockedWork,
    cpu_windows,
    gains,
    hidden_beside_events,
    unclocked_work,
    uneven,
)
from cudal1_ray.evaluation.timing.pairs import Pairs
from cudal1_ray.evaluation.timing.statistics import (
    Interval,
    bucket_means,
    combine_intervals,
    median,
    student_t95,
    trimmed_interval,
)
from cudal1_ray.evaluation.timing.steady import SelectedBatches, mostly_launches, select
from cudal1_ray.evaluation.verdict import ProcessPair

# Longest measurement, in budgets, of calls so long that one budget is spent after few of them.
_LONG_BUDGETS = 6
# Longest measurement, in budgets, where another process was at work on the device, or the core was slow.
_PATIENT_BUDGETS = 2
# Pairs between two estimates on a GPU, where computing an interval takes as long as one pair.
_LOOK_EVERY = 4
# Largest spread of a log speedup due to launches, however short the calls are.
_MOST_LAUNCH_SPREAD = 0.009
_SHORTEST_S = 1e-9
# Distance from 0 of a log speedup that is near it.
_NEAR = 0.06
# Largest log speedup that is as likely as not due to the processes.
_SMALL_SHIFT = 0.05
# Log speedup that counts as faster (the paper's last column).
_FASTER = math.log(1.01)
# Log speedup that some kernels gain, or lose, by the places that their process has for as long as it lives.
_LUCKY = 0.12
# Most by which a log speedup may exceed one that was shown, however wide its interval.
_ALIKE = 0.05
# Reference's time on a slow core, as a multiple of the shortest: processes differ by less.
_SLOW_CORE = 1.2
# Pace of a slow core, as a multiple of the shortest: it takes 2% from the speedup of a call of 0.9 ms.
_SLOW_PACE = 1.25
# Number of processes that prior knowledge of their spread counts for.
_KNOWN_BEFORE = 4
# Fewest pairs of batches before their interval may show that a candidate is slower.
_FEWEST_TO_LEAVE = 3
_FAR_SLOWER = math.log(1 / 3)
# Share of the wanted half width up to which a log speedup is surely no gain.
_SURELY_NONE = 0.75


@dataclass(frozen=True)
class Measurement:
    """Log-ratio t(reference)/t(candidate) with its interval, and the medians per call."""

    interval: Interval
    runtime_ms: float
    reference_ms: float
    timed_runs: int
    ratios: tuple[float, ...]  # of each pair of batches, in the order measured
    bucket_speedups: tuple[float, ...] = ()
    steady: bool = True  # see `SelectedBatches`
    shown: float = 0.0  # log speedup up to which no check has refuted it, here or in an earlier process
    core_s: float = 0.0  # see `LaunchCore.pace_s`
    device_s: tuple[float, float] = (0.0, 0.0)  # see `Pairs.device_times`
    device_speedup: float = 0.0  # of all processes in which that was measured
    processes: tuple[ProcessPair, ...] = ()  # each one's, of several
    remeasured: tuple[float, ...] = ()  # the speedups of all measurements, where there had to be several


def combine(parts: list[Measurement], timing: TimingConfig) -> Measurement:
    """Return one measurement out of those of several pairs of processes. A process's places in memory change its speed
    by some percent for as long as it lives: only the spread between processes shows that, so the interval is at least
    as wide as theirs. Prior knowledge of that spread (`timing.process_spread`) stands in for that of many.
    """
    counted = _counted(parts, timing)
    ratios = tuple(ratio for part in counted for ratio in part.ratios)
    interval = combine_intervals([part.interval for part in counted])
    if timing.process_spread:
        interval = replace(interval, half_width=max(_within(counted), _apart(counted, timing)))
    on_device = [part.device_s[0] / part.device_s[1] for part in counted if min(part.device_s) > 0]
    return Measurement(
        interval, median([part.runtime_ms for part in counted]), median([part.reference_ms for part in counted]),
        sum(part.timed_runs for part in counted), ratios, bucket_means(ratios, timing.buckets),
        device_speedup=geometric_mean(on_device) if on_device else 0.0,
        processes=tuple(
            ProcessPair(
                part.interval.ratio, part.interval.half_width, part.runtime_ms, part.reference_ms, 1e6 * part.core_s,
                counted=any(part is other for other in counted),
                device_runtime_ms=1e3 * part.device_s[1], device_reference_ms=1e3 * part.device_s[0],
            )
            for part in parts
        ),
    )  # fmt: skip


def wants_another(parts: list[Measurement], timing: TimingConfig) -> bool:
    """Return whether another fresh pair of processes is worth its time: always up to the configured number; then if the
    speedup is not known as well as wanted at its size, by the usual spread of such pairs and by theirs; and often if a
    gain of some percent shows that may be none: chance makes such gains, and they must go on showing.
    """
    taken, least = len(parts), max(1, timing.contestants)
    steady = len(_steady(parts, timing))
    if taken < least or not steady:
        return taken < max(least, timing.most_contestants)
    counted = _counted(parts, timing)
    centre = combine_intervals([part.interval for part in counted]).centre
    # Code that launches less gains by a slow core; larger gains are confirmed anyway. A device that had just recovered
    # from a fault once made one process far slower.
    lucky = -_FAR_SLOWER if _launch_bound(counted, timing) else _LUCKY if timing.process_spread else 0.0
    if taken == 1 and (centre < _FAR_SLOWER or 0 < centre < lucky):
        return timing.most_contestants > 1
    own, between = _within(counted), _apart(counted, timing)
    width = max(own, between)
    gain = _SURELY_NONE * timing.half_width < centre <= _SMALL_SHIFT and centre - width < _FASTER
    lonely = steady == 1 < taken  # only one of several had a fast core
    # More processes help most where the processes differ.
    near_1 = timing.most_near_1 if gain and between >= own else timing.most_near_1 // 2 if gain or lonely else 0
    if taken >= max(least, timing.most_contestants, near_1):
        return False
    growth = 0.0 if gain else timing.half_width_growth
    return lonely or width > min(timing.half_width + growth * abs(centre), timing.most_half_width)


def _within(parts: list[Measurement]) -> float:
    """Return half the width of the mean's interval, by what each part's own calls show."""
    return math.sqrt(sum(part.interval.half_width**2 for part in parts)) / len(parts)


def _apart(parts: list[Measurement], timing: TimingConfig) -> float:
    """Return half the width of the 95% interval of log speedups, by the spread of several processes."""
    launches = 1e-3 * timing.launch_spread_us / median([part.reference_ms for part in parts])
    usual = timing.process_spread + min(_MOST_LAUNCH_SPREAD, launches)
    deviation = stdev([part.interval.centre for part in parts]) if len(parts) > 1 else 0.0
    quantile = student_t95(len(parts) - 1 + _KNOWN_BEFORE)  # a few that agree by chance may differ by more
    return max(2 * usual, quantile * deviation) / math.sqrt(len(parts))


def wants_fresh_reference(parts: list[Measurement], timing: TimingConfig) -> bool:
    """Return whether the reference should have a process of its own as well; `parts`: what the same code showed before.

    It should where launches are compared, in which one process is some percent faster than another for good: all parts
    of a measurement would share the reused process, and no interval would show that. And where a small gain or loss was
    seen, which may be due to where its tensors lie.
    """
    if not parts:
        return False
    off = abs(median([part.interval.centre for part in parts]))
    return _launch_bound(parts, timing) or timing.half_width < off <= _NEAR


def _launch_bound(parts: list[Measurement], timing: TimingConfig) -> bool:
    return mostly_launches(timing, 1e-3 * median([part.reference_ms for part in parts]))


def _counted(parts: list[Measurement], timing: TimingConfig) -> list[Measurement]:
    """Return the parts on a fast core, if there are several, or all."""
    steady = _steady(parts, timing)
    return steady if len(steady) > 1 else parts


def _steady(parts: list[Measurement], timing: TimingConfig) -> list[Measurement]:
    """Return the parts on a core as fast as the fastest, by its pace, and where launches count by the reference's time:
    a part that was slow throughout does not show that itself.
    """
    pace_s = _SLOW_PACE * min((part.core_s for part in parts if part.core_s), default=0.0)
    steady = [part for part in parts if part.steady and part.core_s <= pace_s]
    if not (steady and _launch_bound(steady, timing)):
        return steady
    limit_ms = _SLOW_CORE * min(part.reference_ms for part in steady)
    return [part for part in steady if part.reference_ms <= limit_ms]


@dataclass(frozen=True)
class Estimate:
    """What the batches so far show: which of them count, the charged seconds of each, of reference and candidate, their
    interval, and the candidate's work while no clock runs.
    """

    selection: SelectedBatches
    ours: list[float]
    theirs: list[float]
    interval: Interval
    unclocked: UnclockedWork

    @classmethod
    def of(cls, pairs: Pairs) -> Estimate:
        config = pairs.session.config
        selection = select(pairs.sides, config)
        if config.device == "cpu":
            return cls(selection, *on_cpu(selection.charged, pairs.session.overhead_s, config))
        return cls(selection, *on_gpu(selection))


def on_cpu(
    sides: Sides, overhead_s: float, config: EvaluationConfig
) -> tuple[list[float], list[float], Interval, UnclockedWork]:
    """Return the charged seconds of each batch, their interval, and the work outside their windows."""
    ours, theirs = cpu_windows(*sides, overhead_s, config.threads)
    interval, more = _pairwise(ours, theirs), UnclockedWork()
    if interval.ratio > WORTH_A_DOUBT:
        more = unclocked_work(*sides, median(theirs), "cpu")
        theirs = [time_s + more.per_batch for time_s in theirs]
        interval = _pairwise(ours, theirs)
    return ours, theirs, interval, more


def on_gpu(selection: SelectedBatches) -> tuple[list[float], list[float], Interval, UnclockedWork]:
    """Return what `on_cpu` returns. What a candidate does beside its events, and outside its window, is added to every
    batch. Chance makes small gains, and taking one away must not make it a loss: then the charge is at most the gain.
    """
    charged, sides, launches = selection.charged, selection.sides, selection.launches
    calls = sides[1][0].calls
    ours, theirs = ([batch.inner for batch in side] for side in sides)
    ours_charged, theirs_charged = ([batch.inner for batch in side] for side in charged)
    charge_s, more = 0.0, UnclockedWork()  # a call

    def at_most_the_gain(further_s: float) -> float:
        ratio = _agreement(sides, charge_s).ratio
        return min(further_s, max(0.0, 1 - 1 / ratio) * median(ours) / calls) if ratio < SMALL_GAIN else further_s

    if gains(ours_charged, theirs_charged):
        hidden_s = hidden_beside_events(*charged)
        if gains(ours_charged, [time_s + hidden_s for time_s in theirs_charged]):
            more = unclocked_work(*charged, median(theirs_charged) + hidden_s, "cuda")
        if hidden_s + more.per_batch > 0:
            charge_s = at_most_the_gain((hidden_s + more.per_batch) / calls)
    interval = _agreement(sides, charge_s, launches=launches)
    slow_s = uneven(*sides, interval.ratio, charge_s) if interval.ratio > WORTH_A_DOUBT else 0.0
    if slow_s:
        charge_s += at_most_the_gain(slow_s)
        interval = _agreement(sides, charge_s, launches=launches)
    return ours, [time_s + calls * charge_s for time_s in theirs], interval, more


def _agreement(sides: Sides, charge_s: float, *, launches: bool = True) -> Interval:
    """Return the interval with `charge_s` added to every call of the candidate, whose times may be forged and zero.

    Kernels that are slower in some places in memory than in others (not `launches`) have no time that most calls agree
    on: as many pairs show one as another, and the mean is surer.
    """
    ours = [batch.times for batch in sides[0]]
    theirs = [[max(_SHORTEST_S, time_s + charge_s) for time_s in batch.times] for batch in sides[1]]
    mode = agreement(ours, theirs, len(theirs))
    if launches:
        return mode
    mean = _pairwise(map(sum, ours), map(sum, theirs))
    return min(mode, mean, key=lambda interval: interval.half_width)


def _pairwise(ours: Iterable[float], theirs: Iterable[float]) -> Interval:
    return trimmed_interval([math.log(a / b) for a, b in zip(ours, theirs, strict=True)])


def _until_narrow_enough(pairs: Pairs) -> Estimate:
    """Take pairs of batches until their interval is as narrow as is wanted, or the time is over."""
    config = pairs.session.config
    timing = config.timing
    deadline = time.monotonic() + PATIENCE * timing.budget_s
    look_every = 1 if config.device == "cpu" else _LOOK_EVERY
    while True:
        pairs.another()
        n, spent = len(pairs.sides[0]), pairs.spent_s * max(1, timing.contestants) / timing.budget_s
        over = spent > 1 or time.monotonic() > deadline
        if n == 0 or (n % look_every and not over and not pairs.used_up()):
            continue
        estimate = Estimate.of(pairs)
        selection, interval = estimate.selection, estimate.interval
        counted = len(selection.sides[0])
        target = timing.half_width + timing.half_width_growth * abs(interval.centre)
        if selection.steady and counted >= timing.min_pairs and interval.half_width <= target:
            return estimate
        if selection.steady and counted >= _FEWEST_TO_LEAVE and interval.high < timing.leave_below:
            return estimate
        # Beside a process that is always at work calls are long, and more of them show nothing new.
        few = counted < timing.least_pairs and spent < (_LONG_BUDGETS if selection.steady else _PATIENT_BUDGETS)
        patient = (few or not selection.steady and spent < _PATIENT_BUDGETS) and time.monotonic() < deadline
        if n >= timing.max_pairs or (n >= 3 and (over and not patient or pairs.used_up())):
            return estimate


def measure(pairs: Pairs, confirmed: float = 0.0, *, streams: bool = False) -> Measurement:
    """Return what pairs of batches show, as many as make the interval narrow enough; raise TimingDoubt for what the
    clocks reveal. `confirmed`: the largest `Measurement.shown` of earlier measurements of this code, 0.0 = none.
    `streams`: one of the two may run several streams at once, which no wait for one of them holds back.
    """
    session, calls = pairs.session, pairs.calls
    timing, on_cpu = session.config.timing, session.config.device == "cpu"
    estimate = _until_narrow_enough(pairs)
    if estimate.unclocked.reason:
        # A few readings on a busy machine may all have been unlucky: none is refused before many more agree.
        for _ in range(CONFIRMING_PAIRS):
            pairs.another(looking=True)
        estimate = Estimate.of(pairs)
        if estimate.unclocked.reason:
            raise TimingDoubt(estimate.unclocked.reason, estimate.unclocked.detail)
    interval, ours, theirs = estimate.interval, estimate.ours, estimate.theirs
    is_confirmed = confirmed > 0 and interval.centre <= confirmed + min(interval.half_width, _ALIKE)
    if interval.ratio > WORTH_A_DOUBT and not is_confirmed:
        refuse_sabotage(session, estimate.selection.sides[0])
        charge_s = 0.0
        if calls > 1:
            charge_s = calls * foreknowledge_s(pairs, lambda: select(pairs.sides, session.config).charged)
        saved_s = (1 - 1 / interval.ratio) * median(ours) - charge_s
        if not on_cpu and saved_s > 0:
            small = saved_s < (1 - 1 / SMALL_GAIN) * median(ours)
            charge_s += calls * unseen_gain_s(pairs, saved_s / calls, small=small)
        if charge_s:  # nothing was shown, so the next process is checked as well
            interval = replace(interval, centre=interval.centre - math.log1p(charge_s / median(theirs)))
            theirs = [time_s + charge_s for time_s in theirs]
        else:
            confirmed = interval.centre
    return Measurement(
        interval, 1e3 * median(theirs) / calls, 1e3 * median(ours) / calls, calls * len(theirs),
        tuple(a / b for a, b in zip(ours, theirs, strict=True)),
        steady=estimate.selection.steady, shown=confirmed,
        device_s=pairs.device_times() if timing.device_alone and not (on_cpu or streams) else (0.0, 0.0),
    )  # fmt: skip
