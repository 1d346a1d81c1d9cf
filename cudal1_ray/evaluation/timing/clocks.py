"""From clock readings to the time a contestant is charged.

On the CPU the charge is the CPU time of the whole process as the kernel counts it: it cannot be forged, includes
every thread, and other programs on the machine hardly move it. Sleeping does not help either: time that the call
waited without being ready to run is added, beyond what the reference's own messages cost. On CUDA the charge is the
events' time, and what the referee's wall clock saw of the batch beyond it, as far as that is more than the reference's.
Work that is done while the cache is flushed between two calls neither of them sees, so what a candidate gains there
must show once more where it has nowhere to hide: in calls, a few in a row, that the referee alone times (`Shown`).

Work outside the window (before `go`, after `done`, between batches) is compared to the reference's, phase by phase.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import geometric_mean

from ..sandbox.process_watch import Instant
from .statistics import lower_quartile, median, spread, trimmed_mean

WORTH_A_DOUBT = 1.05  # below this speedup nothing can have been gained
_SHOWN_SHARE = 0.4  # so much of a claimed saving must show in calls without a clock of their own
_SLACK = 0.15  # of what a reference needs outside its window, by which others may need more
_COPYING_SLACK = 0.05  # the same of inputs that only have to be copied
_UNUSUAL = 0.05  # of the looks on either side, that others had the core's caches before
_UNSEEN_S = 0.05e-3  # a batch, of work on the CPU outside its window
# Work outside its window that a candidate is charged for; it is refused for more than this share of the window, and
# this time a batch, together.
_OUTSIDE_SHARE, _OUTSIDE_S = 0.25, 0.5e-3
_COLD_S = 2e-6  # by which such a call may suffer more than the reference's from caches that others used meanwhile


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
    def of_all(cls, spans: Sequence[Span]) -> Span:
        return cls(*(sum(getattr(span, name) for span in spans) for name in ("wall", "cpu", "waiting")))

    def of_one(self, number: int) -> Span:
        """Its part in each of ``number`` like things that were done in it."""
        return Span(self.wall / number, self.cpu / number, self.waiting / number)

    @property
    def asleep(self) -> float:
        """Wall time in which it neither ran nor waited for a core."""
        return max(0.0, self.wall - self.waiting - self.cpu)


@dataclass(frozen=True)
class Batch:
    """One batch of one contestant, in seconds. ``fetch`` is None where no output was looked at."""

    calls: int
    times: tuple[float, ...]  # what the contestant's own clock says: of each call, or of all together
    prepare: Span
    window: Span
    fetch: Span | None  # of one output
    idle: Span | None
    windowed: bool = False  # of an output that was looked at only parts were
    looked: int = 0  # outputs that were looked at, or might have been:
    told: bool = False  # where all of them lie, before it was known which one is wanted

    @cached_property
    def inner(self) -> float:
        """Seconds of all calls as far as the inner clock knows, as if all had taken as long as most did."""
        return len(self.times) * trimmed_mean(self.times, 0.4)

    @property
    def answered(self) -> float:
        """CPU seconds of all calls, and of what else was done before the places of their outputs were told."""
        return self.window.cpu + (self.fetch.cpu * self.looked if self.told and self.fetch else 0.0)

    def last(self, calls: int) -> Batch:
        """The same without the inner clock's times of earlier calls, where it knows each one's."""
        return self if calls == self.calls else replace(self, calls=calls, times=self.times[-calls:])


@dataclass(frozen=True)
class Overhead:
    """A batch without calls: what messages and loops cost, seconds."""

    wall: float
    cpu: float


def cpu_window(batch: Batch, overhead: Overhead, threads: int) -> float:
    """Seconds of one batch on the CPU, without the messages' share."""
    if threads == 1:
        return max(batch.window.cpu - overhead.cpu, 0.02 * batch.window.cpu, 1e-7)
    busy = batch.window.cpu / threads
    return max(batch.window.wall - batch.window.waiting - overhead.wall, busy, 0.02 * batch.window.wall)


def windows(
    references: list[Batch], candidates: list[Batch], overhead: Overhead, device: str, threads: int
) -> tuple[list[float], list[float]]:
    """Charged seconds of each batch inside its window: (references, candidates)."""
    if device == "cpu":
        ours = [cpu_window(batch, overhead, threads) for batch in references]
        theirs = [cpu_window(batch, overhead, threads) for batch in candidates]
        if threads == 1:
            slept, noise = _more([b.window.asleep for b in candidates], [b.window.asleep for b in references])
            allowed = 0.25 * median(theirs) + 0.3e-3 + 3 * noise
            if slept > allowed:
                theirs = [time + slept for time in theirs]
        return ours, theirs
    ours, theirs = [b.inner for b in references], [b.inner for b in candidates]
    hidden = hidden_beside_events(references, candidates) if gains(ours, theirs) else 0.0
    return ours, [time + hidden for time in theirs]


def gains(references: Sequence[float], candidates: Sequence[float]) -> bool:
    """Is the candidate faster by so much that it may have cheated?

    A slower one has nothing to hide, while one process in twenty is slower than another in all that it does, its times
    beside the clock most of all: no candidate is charged for that, or refused, that claims no gain.
    """
    return median(references) > WORTH_A_DOUBT * median(candidates)


def gains_at_times(references: Sequence[float], candidates: Sequence[float]) -> bool:
    """As `gains`, or is it so much faster in some of the batches that their speedups' mean is that large?"""
    on_average = geometric_mean(references) > WORTH_A_DOUBT * geometric_mean(candidates)
    return on_average or gains(references, candidates)


def hidden_beside_events(references: list[Batch], candidates: list[Batch]) -> float:
    """CUDA: seconds per batch that a candidate takes beside its events and the reference does not; 0.0 within noise.

    A few microseconds a call may differ between two processes; beyond that the whole of it is charged. Two things are
    asked. What the inner clock did not see at all, and what it did not see as most calls' time: one call of a batch may
    do the work of others. The latter alone would forgive a candidate what its reference loses in slow moments.
    """
    inner, calls = median([b.inner for b in candidates]), candidates[0].calls
    found = [0.0]
    for seen in (_all_calls, _most_calls):
        hidden, noise = _more(*([b.window.wall - seen(b) for b in side] for side in (candidates, references)))
        if hidden > 0.01 * inner + 1e-6 * calls + 3 * noise:
            found.append(hidden)
    return max(found)


def uneven(references: list[Batch], candidates: list[Batch], speedup: float, charge: float = 0.0) -> float:
    """CUDA: seconds a call by which a candidate's mean is above what its usual calls promise; 0.0 within noise.

    The speedup at which most calls agree says nothing of the others. A reference has slow ones too, and those of an
    honest candidate are as much faster as all the rest; one that lets a few calls do the work of many is charged.

    Args:
        speedup: of its usual calls, with ``charge`` seconds added to each.
    """
    ours, theirs = ([sum(b.times) / b.calls for b in side] for side in (references, candidates))
    above, noise = _more([time_s + charge for time_s in theirs], [time_s / speedup for time_s in ours])
    return above if above > 0.02 * median(theirs) + 3 * noise else 0.0


def _all_calls(batch: Batch) -> float:
    return sum(batch.times)


def _most_calls(batch: Batch) -> float:
    return batch.inner


def _more(values: list[float], others: list[float]) -> tuple[float, float]:
    """By how much the median of ``values`` lies above that of ``others``, and that difference's standard error."""
    errors = (spread(side) / math.sqrt(max(1, len(side))) for side in (values, others))
    return median(values) - median(others), math.hypot(*errors)


@dataclass(frozen=True)
class Outside:
    """Work outside the window beyond the reference's, seconds per batch, and where most of it was."""

    per_batch: float
    where: str
    lazy_share: float  # handing over one output costs this much more than the reference's, in calls of its own


def outside(references: list[Batch], candidates: list[Batch], candidate_call_s: float, device: str) -> Outside:
    """What the candidate does while the clock is not running."""
    cpu = device == "cpu"

    def spent(span: Span) -> float:
        # A thread of the candidate's that has the core makes the main one wait: what it computes counts all the same.
        return span.cpu if cpu else max(span.cpu, span.wall - span.waiting)

    parts: dict[str, float] = {}
    prepare = [[spent(b.prepare) for b in side] for side in (candidates, references)]
    more = median([ours - theirs for ours, theirs in zip(*prepare, strict=True)])
    slack, unseen_s = (_COPYING_SLACK, _UNSEEN_S) if cpu else (_SLACK, 0.2e-3)
    parts["before the call"] = more - slack * lower_quartile(prepare[1]) - unseen_s
    idle = [median([b.idle.cpu for b in side if b.idle is not None]) for side in (candidates, references)]
    parts["between the batches"] = idle[0] - idle[1] - _UNSEEN_S
    looks = [[spent(b.fetch) for b in side if b.fetch is not None] for side in (candidates, references)]
    told = _told(candidates)
    if told:
        # By then an output is there, or is made for each call, in all batches or in some of them.
        fetch = [trimmed_mean(side, _UNUSUAL) for side in looks]
    else:
        # Work that is put off is paid for at every look; other programs hinder some looks: hence the better ones count.
        fetch = [lower_quartile(looks[0]), median(looks[1])]
    looked = max(1.0, median([float(b.looked) for b in candidates if b.looked]))
    allowance = _looking_slack(candidates) * fetch[1] + (_UNSEEN_S / looked if cpu else 0.5e-3)
    lazy = max(0.0, fetch[0] - fetch[1] - allowance)
    late = max(parts, key=lambda name: parts[name])
    total = sum(max(0.0, value) for value in parts.values())
    if not told:  # then every output may be looked at, and what one of them costs is owed for each (else `trailing`)
        total += lazy * candidates[0].calls
    return Outside(total, late, lazy / max(candidate_call_s, 1e-6))


def trailing(references: list[Batch], candidates: list[Batch]) -> list[float]:
    """CPU: seconds that a candidate works on after each of its batches beyond what the reference does then: while an
    output is handed over, until the next batch, while that one's inputs are made.

    A candidate that is told that all outputs may be looked at, and makes those then that it has not made yet, pays for
    them here. A thread that is not waited for ends within one window and after another, as the scheduler has it. Of
    either there may be fewer than half, so medians (`outside`) need not show it, and each batch is charged with what it
    left over.
    """
    slack = 0.0 if _told(candidates) else _looking_slack(candidates)  # a list of places takes all code as long
    look = (1 + slack) * median([b.fetch.cpu for b in references if b.fetch is not None])
    idle = median([b.idle.cpu for b in references if b.idle is not None])
    preparing = _SLACK * lower_quartile([b.prepare.cpu for b in references])
    found = [0.0] * len(candidates)
    for number, (reference, batch) in enumerate(zip(references, candidates, strict=True)):
        if batch.fetch is not None:
            found[number] += max(0.0, batch.looked * (batch.fetch.cpu - look) - _UNSEEN_S)
        if number and batch.idle is not None:  # nothing came between the two
            found[number - 1] += max(0.0, batch.idle.cpu - idle - _UNSEEN_S)
            found[number - 1] += max(0.0, batch.prepare.cpu - reference.prepare.cpu - preparing - _UNSEEN_S)
    return found


def _told(candidates: list[Batch]) -> bool:
    return all(batch.told for batch in candidates if batch.fetch is not None)


def _looking_slack(candidates: list[Batch]) -> float:
    """As they lie in memory all layouts cost the same; to gather windows of an unusual one takes longer."""
    return 0.5 if any(batch.windowed for batch in candidates) else _SLACK


def too_much_outside(found: Outside, window_s: float) -> str:
    """Empty, or why work outside the window is not just charged but refused."""
    if found.lazy_share > 0.5 and found.lazy_share * window_s > 0:
        return f"looking at an output costs {found.lazy_share:.1f} calls more than it does for the reference"
    if found.per_batch > _OUTSIDE_SHARE * window_s + _OUTSIDE_S:
        return f"{found.per_batch * 1e3:.2f} ms of work {found.where}, against {window_s * 1e3:.2f} ms inside"
    return ""


@dataclass(frozen=True)
class Foreknown:
    """What a candidate's call takes longer where it cannot know of later ones, seconds."""

    extra: float
    error: float  # its standard error
    call: float  # what one takes otherwise
    allowed: float = 0.0  # what one takes longer that finds caches full of others' work

    @classmethod
    def of(cls, together: Sequence[list[float]], late: Sequence[list[float]], allowed: float = 0.0) -> Foreknown:
        """
        Args:
            together: seconds of a call in batches whose inputs all lie ready, of reference and candidate, in pairs.
            late: the same where each input was made when its turn came, which takes both of them equally long.
        """
        # Pair by pair, since a core's speed changes from one to the next.
        more = [[theirs - ours for ours, theirs in zip(*sides, strict=True)] for sides in (late, together)]
        return cls(*_more(*more), median(together[1]), allowed)

    @property
    def settled(self) -> bool:
        """Would more pairs change anything?"""
        return self.error <= 0.05 * self.call or self.extra + 3 * self.error <= self._of_caches

    @property
    def _of_caches(self) -> float:
        """Seconds by which late inputs may make a call longer that knows of nothing."""
        return 0.3 * self.call + self.allowed

    @property
    def likely(self) -> float:
        """Seconds a call that are more likely than not owed to later ones; 0.0 for what caches alone may do."""
        return self.extra if self.extra > self._of_caches else 0.0

    def why(self) -> str:
        """Empty, or why the candidate must know of later calls while it answers one."""
        if self.extra <= self._of_caches + 3 * self.error:
            return ""
        longer, call = 1e3 * (self.call + self.extra), 1e3 * self.call
        return f"a call takes {longer:.3f} ms without later calls' inputs, {call:.3f} ms with them"


@dataclass(frozen=True)
class Shown:
    """What a candidate saves in calls that are timed from outside, until their outputs have been handed over.

    Such a time holds messages and copies too, the same for both sides: only differences of pairs say anything.
    """

    saving: float  # seconds a call
    error: float  # its standard error

    @classmethod
    def of(cls, pairs: Sequence[Sequence[float]]) -> Shown:
        """``pairs``: seconds of a call of the reference, and of one of the candidate."""
        differences = [reference - candidate for reference, candidate in pairs]
        # The median's standard error is a quarter larger than the mean's.
        return cls(median(differences), 1.25 * spread(differences) / math.sqrt(max(1, len(differences))))

    def confirms(self, claimed: float, errors: float = 2.0) -> bool:
        """Is it sure, by so many standard errors, that at least that part of what the inner clock says is true?"""
        return self.saving - errors * self.error >= _SHOWN_SHARE * claimed

    def enough(self, claimed: float) -> bool:
        """Would more calls change anything?"""
        return self.error <= 0.05 * claimed

    def refutes(self, claimed: float) -> bool:
        """A first call after some microseconds of other work is slower, and not equally so for all code."""
        return self.saving + 3 * self.error + _COLD_S < _SHOWN_SHARE * claimed
