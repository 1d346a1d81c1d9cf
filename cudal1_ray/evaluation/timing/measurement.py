"""A measurement of a candidate against the reference: what one pair of processes showed, and several together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import geometric_mean, stdev

from cudal1_ray.evaluation.config import TimingConfig
from cudal1_ray.evaluation.timing.estimate import Estimate
from cudal1_ray.evaluation.timing.pairs import Pairs
from cudal1_ray.evaluation.timing.statistics import Interval, bucket_means, combine_intervals, median, student_t95
from cudal1_ray.evaluation.timing.steady import mostly_launches
from cudal1_ray.evaluation.verdict import ProcessPair

# Largest spread of a log speedup due to launches, however short the calls are.
_MOST_LAUNCH_SPREAD = 0.009
# Distance from 0 of a log speedup that is near it.
_NEAR = 0.06
# Largest log speedup that is as likely as not due to the processes.
_SMALL_SHIFT = 0.05
# Log speedup that counts as faster (the paper's last column).
_FASTER = math.log(1.01)
# Log speedup that some kernels gain, or lose, by the places that their process has for as long as it lives.
_LUCKY = 0.12
# Reference's time on a slow core, as a multiple of the shortest: processes differ by less.
_SLOW_CORE = 1.2
# Pace of a slow core, as a multiple of the shortest: it takes 2% from the speedup of a call of 0.9 ms.
_SLOW_PACE = 1.25
# Number of processes that prior knowledge of their spread counts for.
_KNOWN_BEFORE = 4
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

    @classmethod
    def of(cls, pairs: Pairs, estimate: Estimate, unrefuted: float, *, streams: bool) -> Measurement:
        """Return the measurement of one pair of processes. `unrefuted`: see `shown`. `streams`: one of the two may run
        several streams at once, which no wait for one of them holds back.
        """
        config, calls, ours, theirs = pairs.session.config, pairs.calls, estimate.ours, estimate.theirs
        alone = config.timing.device_alone and config.device != "cpu" and not streams
        return cls(
            estimate.interval, 1e3 * median(theirs) / calls, 1e3 * median(ours) / calls, calls * len(theirs),
            tuple(a / b for a, b in zip(ours, theirs, strict=True)), steady=estimate.selection.steady, shown=unrefuted,
            device_s=pairs.device_times() if alone else (0.0, 0.0),
        )  # fmt: skip


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
