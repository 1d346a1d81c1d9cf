"""Interleaved, adaptive measurement of a candidate against the reference."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from statistics import geometric_mean, stdev

from ..config import TimingConfig
from ..referee.session import ProblemSession
from ..verdict import ProcessPair
from .agreement import agreement
from .clocks import (
    WORTH_A_DOUBT,
    Batch,
    Outside,
    Overhead,
    gains,
    gains_at_times,
    outside,
    too_much_outside,
    trailing,
    uneven,
    windows,
)
from .doubts import (
    CONFIRMING_PAIRS,
    PATIENCE,
    SMALL_GAIN,
    TimingDoubt,
    foreknowledge_s,
    refuse_sabotage,
    unseen_gain_s,
)
from .pairs import Pairs
from .statistics import Interval, bucket_means, combine_intervals, median, student_t95, trimmed_interval
from .steady import STEADY, Telling, mostly_launches, telling

_LONG_BUDGETS = 6  # so many, where calls are so long that one is spent after few of them
_PATIENT_BUDGETS = 2  # so many, where another process was at work on the device, or the core was slow
_LOOK_EVERY = 4  # pairs: an interval of a GPU's calls takes as long as one
_MOST_LAUNCH_SPREAD = 0.009  # of a log speedup, however short the calls are
_SHORTEST_S = 1e-9
_NEAR = 0.06  # to 0, of a log speedup
_SMALL_SHIFT = 0.05  # of a log speedup: as likely as not it is the processes'
_FASTER = math.log(1.01)  # what counts as faster (the paper's last column)
_LUCKY = 0.12  # what some kernels gain, or lose, by the places that their process has got for as long as it lives
_ALIKE = 0.05  # by which a log speedup may exceed one that was shown, however wide its interval
_SLOW_CORE = 1.2  # times the reference's shortest time: processes differ by less
_SLOW_PACE = 1.25  # times the shortest pace of a core: so slow a one takes 2% from the speedup of a call of 0.9 ms
_KNOWN_BEFORE = 4  # processes that what is known of their spread counts for
_FEWEST_TO_LEAVE = 4  # pairs of batches, before their interval says that a candidate is slower
_FEWEST_FAR_SLOWER = 3  # pairs of batches, where all of its own take more than twice as long as any of the reference's
_FAR_SLOWER = math.log(1 / 3)
_SURELY_NONE = 0.75  # of the half width that is wanted


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
    disturbed: bool = False  # by others on the device, nearly all the time
    steady: bool = True  # neither that nor on a slow core
    beside_s: float = 0.0  # of a call of the reference's that is mostly launches, beside its events
    shown: float = 0.0  # log speedup up to which nothing that was tried has refuted it, here or in an earlier process
    core_s: float = 0.0  # see `LaunchCore.pace_s`
    device_s: tuple[float, float] = (0.0, 0.0)  # see `Pairs.device_times`
    device_speedup: float = 0.0  # of all processes where that was measured
    processes: tuple[ProcessPair, ...] = ()  # of several, each one's
    remeasured: tuple[float, ...] = ()  # the speedups of all measurements, where there had to be several


def combine(parts: list[Measurement], timing: TimingConfig) -> Measurement:
    """One measurement out of those of several pairs of processes.

    Where a process happens to lie in memory changes its speed by some percent for as long as it lives: only the spread
    between processes shows that, so the interval is at least as wide as theirs. What is known of that spread beforehand
    (``timing.process_spread``) stands in for that of many.
    """
    every, parts = parts, _counted(parts, timing)
    ratios = tuple(ratio for part in parts for ratio in part.ratios)
    interval = combine_intervals([part.interval for part in parts])
    if timing.process_spread:
        interval = replace(interval, half_width=max(_within(parts), _apart(parts, timing)))
    return Measurement(
        interval,
        median([part.runtime_ms for part in parts]), median([part.reference_ms for part in parts]),
        sum(part.timed_runs for part in parts), sum(part.checked_batches for part in parts),
        ratios, bucket_means(list(ratios), timing.buckets),
        processes=tuple(_told(part, counted=any(part is one for one in parts)) for part in every),
        device_speedup=_device_speedup(parts),
    )  # fmt: skip


def _told(part: Measurement, *, counted: bool) -> ProcessPair:
    interval, (reference_s, candidate_s) = part.interval, part.device_s
    return ProcessPair(
        interval.ratio, interval.half_width, part.runtime_ms, part.reference_ms, 1e6 * part.core_s, counted,
        device_runtime_ms=1e3 * candidate_s, device_reference_ms=1e3 * reference_s,
    )  # fmt: skip


def _device_speedup(parts: list[Measurement]) -> float:
    """The geometric mean over processes; 0.0 where it was not measured, or no time was given."""
    ratios = [part.device_s[0] / part.device_s[1] for part in parts if min(part.device_s) > 0]
    return geometric_mean(ratios) if ratios else 0.0


def wants_another(parts: list[Measurement], timing: TimingConfig) -> bool:
    """Is another fresh pair of processes worth its time? As many as configured always are; further ones where the
    speedup is not known as well as is wanted at its size, by what such pairs usually differ and by what these did; and
    many where a gain of some percent shows that may be none: chance makes such, and it must go on showing.
    """
    taken, least = len(parts), max(1, timing.contestants)
    steady = len(_steady(parts, timing))
    if taken < least or not steady:
        return taken < max(least, timing.most_contestants)
    counted = _counted(parts, timing)
    centre = combine_intervals([part.interval for part in counted]).centre
    if taken == 1 and centre < _FAR_SLOWER:  # a device that has just recovered from a fault did that to one, once
        return timing.most_contestants > 1
    # Code that launches less gains by a slow core; what is larger is confirmed anyway.
    lucky = -_FAR_SLOWER if _launch_bound(counted, timing) else _LUCKY if timing.process_spread else 0.0
    if taken == 1 and 0 < centre < lucky:
        return timing.most_contestants > 1
    own, between = _within(counted), _apart(counted, timing)
    width = max(own, between)
    gain = _SURELY_NONE * timing.half_width < centre <= _SMALL_SHIFT and centre - width < _FASTER
    lonely = steady == 1 < taken  # of several only one had a fast core
    near_1 = timing.most_near_1 // 2 if gain or lonely else 0
    if gain and between >= own:  # more processes tell most where it is they that differ
        near_1 = timing.most_near_1
    if taken >= max(least, timing.most_contestants, near_1):
        return False
    growth = 0.0 if gain else timing.half_width_growth
    return lonely or width > min(timing.half_width + growth * abs(centre), timing.most_half_width)


def _within(parts: list[Measurement]) -> float:
    """Half the width of their mean's interval, as far as each one's own calls tell."""
    return math.sqrt(sum(part.interval.half_width**2 for part in parts)) / len(parts)


def _apart(parts: list[Measurement], timing: TimingConfig) -> float:
    """Half the width of the 95% interval of log speedups that come of several processes."""
    launches = 1e-3 * timing.launch_spread_us / median([part.reference_ms for part in parts])
    usual = timing.process_spread + min(_MOST_LAUNCH_SPREAD, launches)
    seen = stdev([part.interval.centre for part in parts]) if len(parts) > 1 else 0.0
    t = student_t95(len(parts) - 1 + _KNOWN_BEFORE)  # a few that agree by chance may differ by more
    return max(2 * usual, t * seen) / math.sqrt(len(parts))


def wants_fresh_reference(parts: list[Measurement], timing: TimingConfig) -> bool:
    """Should the reference have a process of its own as well? Where launches are compared, at which one process is
    some percent faster than another for good: all parts of a measurement would have the same of the one that lives on,
    and no interval would show it. And where a small gain or loss was seen, which may come of where its tensors lie.

    Args:
        parts: what the same code showed before, in whichever measurement.
    """
    if not parts:
        return False
    off = abs(median([part.interval.centre for part in parts]))
    return _launch_bound(parts, timing) or timing.half_width < off <= _NEAR


def _launch_bound(parts: list[Measurement], timing: TimingConfig) -> bool:
    return mostly_launches(timing, 1e-3 * median([part.reference_ms for part in parts]))


def _counted(parts: list[Measurement], timing: TimingConfig) -> list[Measurement]:
    """Those that were not disturbed, where there are any; of these those on a fast core, if that are several."""
    parts = [part for part in parts if not part.disturbed] or parts
    steady = _steady(parts, timing)
    return steady if len(steady) > 1 else parts


def _steady(parts: list[Measurement], timing: TimingConfig) -> list[Measurement]:
    """On a core as fast as any of them had, which one that was slow throughout could not know: by its pace, and by what
    a call takes beside its events, which may hide it; launches of the reference's are slower, too, then.
    """
    pace_s = _SLOW_PACE * min((part.core_s for part in parts if part.core_s), default=0.0)
    limit_s = STEADY * min((part.beside_s for part in parts if part.beside_s), default=0.0)
    steady = [part for part in parts if part.steady and part.beside_s <= limit_s and part.core_s <= pace_s]
    if not (steady and _launch_bound(steady, timing)):
        return steady
    limit_ms = _SLOW_CORE * min(part.reference_ms for part in steady)
    return [part for part in steady if part.reference_ms <= limit_ms]


def measure(pairs: Pairs, shortest_beside_s: float = 0.0, shown: float = 0.0, *, streams: bool = False) -> Measurement:
    """Pairs of batches until the interval is narrow enough. TimingDoubt for what the clocks reveal.

    Args:
        shortest_beside_s: see `steady.telling`; of batches of so many calls.
        shown: the largest of those of earlier measurements of this code, 0.0 = none.
        streams: one of the two may run several at once, which nothing that one of them waits for keeps back.
    """
    session = pairs.session
    timing = session.config.timing
    deadline = time.monotonic() + PATIENCE * timing.budget_s
    look_every = 1 if session.config.device == "cpu" else _LOOK_EVERY
    while True:
        pairs.another()
        n, spent = len(pairs.sides[0]), pairs.spent_s * max(1, timing.contestants) / timing.budget_s
        over = spent > 1 or time.monotonic() > deadline
        slow = n == _FEWEST_FAR_SLOWER and timing.leave_below > 0 and _every_batch_is_far_slower(pairs)
        if n == 0 or (n % look_every and not over and not slow and not pairs.used_up()):
            continue
        seen = _telling(pairs, shortest_beside_s)
        interval = _interval(session, seen)
        wanted = timing.half_width + timing.half_width_growth * abs(interval.centre)
        if len(seen) >= timing.min_pairs and seen.steady and interval.half_width <= wanted:
            break
        if slow or len(seen) >= _FEWEST_TO_LEAVE and seen.steady and _is_slower(interval, timing):
            break
        # Beside a process that is at work all the time calls are long, and more of them tell nothing.
        few = len(seen) < timing.least_pairs and spent < (_PATIENT_BUDGETS if seen.disturbed else _LONG_BUDGETS)
        patient = (few or not seen.steady and spent < _PATIENT_BUDGETS) and time.monotonic() < deadline
        if n >= timing.max_pairs or (over and n >= 3 and not patient) or (n >= 3 and pairs.used_up()):
            break
    if _outside_work(session, seen.charged):
        # A few looks on a busy machine may all have been unlucky: none is refused before many more agree.
        for _ in range(CONFIRMING_PAIRS):
            pairs.another(looking=True)
        seen = _telling(pairs, shortest_beside_s)
        interval = _interval(session, seen)
        why = _outside_work(session, seen.charged)
        if why:
            raise TimingDoubt("async_thread" if "work" in why else "lazy_tensor", why)
    ours, theirs = _windows(session, seen)
    known = shown > 0 and interval.centre <= shown + min(interval.half_width, _ALIKE)
    if interval.ratio > WORTH_A_DOUBT and not known:
        refuse_sabotage(session, seen.sides[0])
        charge_s = 0.0
        if pairs.calls > 1:
            charge_s = pairs.calls * foreknowledge_s(pairs, lambda: _telling(pairs, shortest_beside_s).charged)
        saved_s = (1 - 1 / interval.ratio) * median(ours) - charge_s
        if session.config.device != "cpu" and saved_s > 0:
            small = saved_s < (1 - 1 / SMALL_GAIN) * median(ours)
            charge_s += pairs.calls * unseen_gain_s(pairs, saved_s / pairs.calls, small=small)
        if charge_s:  # nothing was shown: the next process is asked as well
            interval = replace(interval, centre=interval.centre - math.log1p(charge_s / median(theirs)))
            theirs = [time_s + charge_s for time_s in theirs]
        else:
            shown = interval.centre
    ratios = tuple(a / b for a, b in zip(ours, theirs, strict=True))
    calls = pairs.calls
    return Measurement(
        interval, 1e3 * median(theirs) / calls, 1e3 * median(ours) / calls, calls * len(theirs), pairs.checked, ratios,
        disturbed=seen.disturbed, steady=seen.steady, beside_s=seen.beside_s, shown=shown,
        device_s=pairs.device_times() if _device_alone(session, streams=streams) else (0.0, 0.0),
    )  # fmt: skip


def _is_slower(interval: Interval, timing: TimingConfig) -> bool:
    """Is it slower than the reference beyond what the interval leaves open?"""
    return math.exp(interval.centre + interval.half_width) < timing.leave_below


def _every_batch_is_far_slower(pairs: Pairs) -> bool:
    ours, theirs = pairs.sides
    return min(batch.window.wall for batch in theirs) > 2 * max(batch.window.wall for batch in ours)


def _device_alone(session: ProblemSession, *, streams: bool) -> bool:
    return session.config.device != "cpu" and session.config.timing.device_alone and not streams


def _telling(pairs: Pairs, shortest_beside_s: float) -> Telling:
    """On the CPU all batches: what is counted there other processes hardly move."""
    if pairs.session.config.device == "cpu":
        return Telling(pairs.sides, pairs.sides)
    return telling(pairs.sides, pairs.session.config.timing, shortest_beside_s)


def _charged(
    session: ProblemSession, sides: tuple[list[Batch], list[Batch]]
) -> tuple[list[float], list[float], Outside | None]:
    """Seconds of each batch inside its window, and what the candidate does outside; None where it gains nothing."""
    config = session.config
    device = config.device.partition(":")[0]
    overhead = Overhead(session.overhead_s, session.overhead_s)
    ours, theirs = windows(sides[0], sides[1], overhead, device, config.threads)
    if not (gains_at_times if device == "cpu" else gains)(ours, theirs):
        return ours, theirs, None
    return ours, theirs, outside(sides[0], sides[1], median(theirs) / sides[1][0].calls, device)


def _windows(session: ProblemSession, seen: Telling) -> tuple[list[float], list[float]]:
    """Charged seconds of each batch that counts; what a candidate does outside its window is added to every one."""
    ours, theirs, found = _charged(session, seen.charged)
    more = found.per_batch if found is not None else 0.0
    if session.config.device == "cpu":
        left = trailing(*seen.charged) if found is not None else [0.0] * len(theirs)
        return ours, [time_s + max(more, after_s) for time_s, after_s in zip(theirs, left, strict=True)]
    charge = median(theirs) + more - median([batch.inner for batch in seen.charged[1]])
    ours, theirs = ([batch.inner for batch in side] for side in seen.sides)
    if charge > 0:
        charge = min(charge, _small_gain(seen.sides, 0.0) * median(ours))
    return ours, [time_s + charge for time_s in theirs]


def _interval(session: ProblemSession, seen: Telling) -> Interval:
    ours, theirs = _windows(session, seen)
    if session.config.device == "cpu":
        return trimmed_interval([math.log(a / b) for a, b in zip(ours, theirs, strict=True)])
    calls = seen.sides[1][0].calls
    charge, launches = (theirs[0] - seen.sides[1][0].inner) / calls, seen.launches
    found = _agreement(seen.sides, charge, launches=launches)
    slow = uneven(*seen.sides, found.ratio, charge) if found.ratio > WORTH_A_DOUBT else 0.0
    if not slow:
        return found
    slow = min(slow, _small_gain(seen.sides, charge) * median(ours) / calls)
    return _agreement(seen.sides, charge + slow, launches=launches)


def _small_gain(sides: tuple[list[Batch], list[Batch]], charge: float) -> float:
    """The share of the reference's time that the candidate seems to save: all that it can be charged for where that is
    little. Chance makes small gains too, and what takes one away is to make no loss of it. Infinite for others.
    """
    ratio = _agreement(sides, charge).ratio
    return max(0.0, 1 - 1 / ratio) if ratio < SMALL_GAIN else math.inf


def _agreement(sides: tuple[list[Batch], list[Batch]], charge: float, *, launches: bool = True) -> Interval:
    """With so many seconds added to every call of the candidate's, whose times may be forged and zero.

    Kernels that are slower in some places in memory than in others (not ``launches``) have no time of their own that
    most calls agree on: as many pairs say the one as the other, and the mean is surer.
    """
    ours = [batch.times for batch in sides[0]]
    theirs = [[max(_SHORTEST_S, time_s + charge) for time_s in batch.times] for batch in sides[1]]
    found = agreement(ours, theirs, len(theirs))
    if launches:
        return found
    mean = trimmed_interval([math.log(sum(a) / sum(b)) for a, b in zip(ours, theirs, strict=True)])
    return min(found, mean, key=lambda interval: interval.half_width)


def _outside_work(session: ProblemSession, sides: tuple[list[Batch], list[Batch]]) -> str:
    """Empty, or what the candidate did while its clock was not running."""
    ours, theirs, found = _charged(session, sides)
    if found is None:
        return ""
    return too_much_outside(found, median(theirs))
