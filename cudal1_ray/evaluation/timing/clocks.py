"""The time that a contestant is charged, from clock readings.

On the CPU the charge is the CPU time of the whole process as the kernel counts it: it cannot be forged, includes every
thread, and other programs hardly change it. Sleeping does not help either: time for which a call waited without being
ready to run is added, beyond what the reference's own messages cost. On CUDA the charge is the events' time, and what
the referee's wall clock saw of the batch beyond it, as far as that exceeds the reference's. Neither sees work done
while the cache is flushed between two calls, so a candidate's gain must show once more where it cannot hide: in a few
calls in a row that the referee alone times (`doubts`).

Work outside the window (before `go`, after `done`, between batches) is compared to the reference's, phase by phase.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property

from cudal1_ray.evaluation.sandbox.process_watch import Instant
from cudal1_ray.evaluation.timing.statistics import lower_quartile, median, spread, trimmed_mean

# Speedup below which a candidate cannot have gained anything.
WORTH_A_DOUBT = 1.05
# Share of the reference's time outside its window by which others may need more.
_SLACK = 0.15
# Share by which handing over an output may take longer: windows of one take longer in an unusual layout.
_HANDING_SLACK = 0.5
# Share by which inputs that only have to be copied may take longer.
_COPYING_SLACK = 0.05
# Share of the values at either end that is left out: other processes had the core's caches before them.
_UNUSUAL = 0.05
# CPU seconds outside its window that no batch is charged for.
_UNSEEN_S = 0.05e-3
# Most work outside a window that is charged and not refused: this share of the window plus these seconds a batch.
_OUTSIDE_SHARE, _OUTSIDE_S = 0.25, 0.5e-3
# Calls that reading one output may cost more than the reference's does; a candidate beyond that is refused.
_LAZY_CALLS = 0.5


@dataclass(frozen=True)
class Span:
    """Seconds between two instants of one contestant."""

    wall: float
    cpu: float
    waiting: float

    @classmethod
    def between(cls, start: Instant, end: Instant) -> Span:
        return cls(end.wall - start.wall, end.cpu - start.cpu, max(0.0, end.waiting - start.waiting))

    @classmethod
    def total(cls, spans: Sequence[Span]) -> Span:
        return cls(*map(sum, zip(*map(astuple, spans), strict=True)))

    def each(self, number: int) -> Span:
        """Return one of `number` equal shares of the span."""
        return Span(self.wall / number, self.cpu / number, self.waiting / number)

    @property
    def asleep(self) -> float:
        """Return the seconds in which the process neither ran nor waited for a core."""
        return max(0.0, self.wall - self.waiting - self.cpu)


@dataclass(frozen=True)
class Batch:
    """One batch of one contestant, in seconds. `fetch` is None where no output was read."""

    calls: int
    times: tuple[float, ...]  # by the contestant's own clock: of each call, or of all together
    prepare: Span
    window: Span
    fetch: Span | None  # of one output
    idle: Span | None  # since the last batch; None where other work came between
    looked: int = 0  # outputs that were read, or might have been
    placed: bool = False  # all outputs' places were reported before it was known which of them are read

    @cached_property
    def inner(self) -> float:
        """Return the seconds of all calls by the inner clock, as if each had taken as long as most did."""
        return len(self.times) * trimmed_mean(self.times, 0.4)

    @property
    def answered(self) -> float:
        """Return the CPU seconds of all calls, and of everything else until their outputs' places were reported."""
        return self.window.cpu + (self.fetch.cpu * self.looked if self.placed and self.fetch else 0.0)

    def last(self, calls: int) -> Batch:
        """Return the batch without the times of earlier calls, where the inner clock knows each call's."""
        return self if calls == self.calls else replace(self, calls=calls, times=self.times[-calls:])


def cpu_windows(
    references: Sequence[Batch], candidates: Sequence[Batch], overhead_s: float, threads: int
) -> tuple[list[float], list[float]]:
    """Return the charged seconds of each batch inside its window, of references and candidates. `overhead_s`: those of
    a batch without calls, for messages and loops.
    """
    ours, theirs = ([_cpu_window(batch, overhead_s, threads) for batch in side] for side in (references, candidates))
    if threads == 1:
        slept, noise = excess([b.window.asleep for b in candidates], [b.window.asleep for b in references])
        if slept > 0.25 * median(theirs) + 0.3e-3 + 3 * noise:
            theirs = [time_s + slept for time_s in theirs]
    return ours, theirs


def _cpu_window(batch: Batch, overhead_s: float, threads: int) -> float:
    window = batch.window
    if threads == 1:
        return max(window.cpu - overhead_s, 0.02 * window.cpu, 1e-7)
    return max(window.wall - window.waiting - overhead_s, window.cpu / threads, 0.02 * window.wall)


def gains(references: Sequence[float], candidates: Sequence[float]) -> bool:
    """Return whether the candidate is faster by enough that it may have cheated. A slower one has nothing to hide,
    while one process in twenty is slower than another in everything, most of all beside the clock: no candidate that
    claims no gain is charged or refused for that.
    """
    return median(references) > WORTH_A_DOUBT * median(candidates)


def hidden_beside_events(references: Sequence[Batch], candidates: Sequence[Batch]) -> float:
    """Return the seconds per batch, on CUDA, that a candidate takes beside its events and the reference does not; 0.0
    within noise: two processes may differ by a few microseconds a call; beyond that the whole is charged.
    """
    beside = [[batch.window.wall - sum(batch.times) for batch in side] for side in (candidates, references)]
    hidden, noise = excess(*beside)
    allowed = 0.01 * median([batch.inner for batch in candidates]) + 1e-6 * candidates[0].calls + 3 * noise
    return hidden if hidden > allowed else 0.0


def uneven(references: Sequence[Batch], candidates: Sequence[Batch], speedup: float, charge: float = 0.0) -> float:
    """Return the seconds a call, on CUDA, by which a candidate's mean exceeds what its usual calls promise; 0.0 within
    noise. `speedup`: of its usual calls, with `charge` seconds added to each.

    The speedup at which most calls agree ignores the others. A reference has slow calls, too, and those of an honest
    candidate are faster by as much as the rest; a candidate that lets a few calls do the work of many is charged.
    """
    ours, theirs = ([sum(b.times) / b.calls for b in side] for side in (references, candidates))
    above, noise = excess([time_s + charge for time_s in theirs], [time_s / speedup for time_s in ours])
    return above if above > 0.02 * median(theirs) + 3 * noise else 0.0


def excess(values: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Return by how much the median of `values` exceeds that of `others`, and the difference's standard error."""
    errors = (spread(side) / math.sqrt(max(1, len(side))) for side in (values, others))
    return median(values) - median(others), math.hypot(*errors)


@dataclass(frozen=True)
class UnclockedWork:
    """Work outside the window beyond the reference's: the seconds a batch is charged for it, and why it is refused."""

    per_batch: float = 0.0
    reason: str = ""  # a name of reasons.py; empty where charging is enough
    detail: str = ""


def unclocked_work(
    references: Sequence[Batch], candidates: Sequence[Batch], window_s: float, device: str
) -> UnclockedWork:
    """Return what the candidate does while no clock runs. `window_s`: the time of its batches. On the CPU means count,
    since a thread that is not joined ends within one window and after another, and outputs may be made late in some
    batches only. On a GPU other programs disturb some batches, and medians count.
    """
    cpu, calls = device == "cpu", candidates[0].calls

    def spent(span: Span) -> float:
        # A thread of the candidate that has the core makes the main thread wait: what it computes counts all the same.
        return span.cpu if cpu else max(span.cpu, span.wall - span.waiting)

    def usual(values: list[float]) -> float:
        return trimmed_mean(values, _UNUSUAL) if cpu else median(values)

    prepare = [[spent(batch.prepare) for batch in side] for side in (candidates, references)]
    idle = [[batch.idle.cpu for batch in side if batch.idle is not None] for side in (candidates, references)]
    looks = [[spent(batch.fetch) for batch in side if batch.fetch is not None] for side in (candidates, references)]
    more = usual([theirs - ours for theirs, ours in zip(*prepare, strict=True)])
    slack, unseen_s = (_COPYING_SLACK, _UNSEEN_S) if cpu else (_SLACK, 0.2e-3)
    parts = {
        "before the call": more - slack * lower_quartile(prepare[1]) - unseen_s,
        "between the batches": usual(idle[0]) - usual(idle[1]) - _UNSEEN_S,
    }
    # Deferred work is paid for at every reading; on a GPU the faster readings of the candidate count.
    look_s = [usual(looks[0]) if cpu else lower_quartile(looks[0]), usual(looks[1])]
    looked = max(1.0, median([float(batch.looked) for batch in candidates if batch.looked]))
    slack = _SLACK if all(batch.placed for batch in candidates if batch.fetch is not None) else _HANDING_SLACK
    lazy_s = max(0.0, look_s[0] - (1 + slack) * look_s[1] - (_UNSEEN_S / looked if cpu else 0.5e-3))
    parts["after the call"] = lazy_s * calls  # every output may be read: the cost of reading one is owed for each
    per_batch = sum(max(0.0, value) for value in parts.values())
    if (lazy_calls := lazy_s / max(window_s / calls, 1e-6)) > _LAZY_CALLS:
        detail = f"looking at an output costs {lazy_calls:.1f} calls more than it does for the reference"
        return UnclockedWork(per_batch, "lazy_tensor", detail)
    if per_batch > _OUTSIDE_SHARE * window_s + _OUTSIDE_S:
        where = max(parts, key=lambda name: parts[name])
        detail = f"{per_batch * 1e3:.2f} ms of work {where}, against {window_s * 1e3:.2f} ms inside"
        return UnclockedWork(per_batch, "async_thread", detail)
    return UnclockedWork(per_batch)
