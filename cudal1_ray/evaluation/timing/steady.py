"""Which of a GPU's batches say how fast code is, by what a call takes beside its events.

Between two calls the same is done for all code: a cache is flushed, events are recorded, the device is waited for. How
long that takes tells two things. Where the device is busy with another process's kernels, a call waits in its queue
until all of it is there, and what is timed is its kernels alone: 5 microseconds where launching them takes 20. And a
core that runs slowly, as halves of cores do when the other half works, launches half as fast, while kernels take as
long as ever: code that has fewer of them to launch gains by it, 1.2 times one moment and 1.8 times the next.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..config import TimingConfig
from .clocks import Batch
from .statistics import lower_quartile, median

_DISTURBED, _SLACK_S = 1.5, 20e-6  # so much more than the usual time beside the events, and another process was at work
_ELSEWHERE = 2.0  # times the shortest ever seen: so was one in most of a measurement
STEADY = 1.12  # times its shortest, on both sides: the core ran as fast as it can
_FEWEST = 6  # pairs that are steady, where a measurement is to count as such


@dataclass(frozen=True)
class Telling:
    """The batches of both sides, pair by pair, that are worth looking at."""

    sides: tuple[list[Batch], list[Batch]]
    charged: tuple[list[Batch], list[Batch]]  # what a candidate hides is looked for in these: all undisturbed ones
    disturbed: bool = False  # another process was at work on the device nearly all the time: these are all there are
    steady: bool = True  # that was not so, and where launches count they are those of a core at its fastest
    beside_s: float = 0.0  # of a call of the reference's, beside its events; 0.0 where that is not looked at
    launches: bool = True  # are what the time is made of

    def __len__(self) -> int:
        return len(self.sides[0])


def undisturbed(batch: Batch, shortest_s: float) -> bool:
    """Was no other process at work on the device? ``shortest_s`` as for `telling`; at 0.0 none is known of."""
    return not shortest_s or _beside(batch) <= _ELSEWHERE * shortest_s


def mostly_launches(timing: TimingConfig, call_s: float) -> bool:
    """Is that a call whose time is that of its launches, which one process and one moment do faster than another?"""
    return 1e-6 * timing.launch_spread_us > timing.process_spread * call_s


def telling(sides: tuple[list[Batch], list[Batch]], timing: TimingConfig, shortest_s: float = 0.0) -> Telling:
    """What can be learnt from pairs of batches on a GPU.

    Each side is held against itself: what all of a candidate's batches have in common is charged elsewhere
    (`clocks.hidden_beside_events`). And both are: to ask for quick batches of one side only makes that side quicker.
    Code that chooses its own, by being slow beside most of its calls, has no choice made.

    Args:
        shortest_s: time of a call of this reference's beside its events, for calls that are mostly launches, as short
            as it was ever seen on this device; 0.0 = not known.
    """
    besides = [[_beside(batch) for batch in side] for side in sides]
    usual = [lower_quartile(side) for side in besides]
    limits = [_DISTURBED * one + _SLACK_S for one in usual]
    launches = bool(sides[0]) and mostly_launches(timing, median([b.inner / b.calls for b in sides[0]]))
    if launches and shortest_s:
        limits[0] = min(limits[0], _ELSEWHERE * shortest_s)
    pairs = range(len(sides[0]))
    undisturbed = [number for number in pairs if all(besides[side][number] <= limits[side] for side in (0, 1))]
    disturbed = len(undisturbed) < min(3, len(pairs))
    steady = not disturbed
    chosen = undisturbed = list(pairs) if disturbed else undisturbed
    if steady and launches:
        quick = [lower_quartile([side[number] for number in chosen]) for side in besides]
        limit = STEADY * (min(1.0, shortest_s / quick[0]) if shortest_s else 1.0)
        fast = [number for number in chosen if besides[0][number] <= limit * quick[0]]
        of_both = [number for number in fast if besides[1][number] <= limit * quick[1]]
        steady = len(of_both) >= max(min(_FEWEST, len(pairs)), len(fast) / 2)
        chosen = of_both if steady else chosen
    picked, charged = (tuple([side[number] for number in which] for side in sides) for which in (chosen, undisturbed))
    beside_s = lower_quartile([besides[0][number] for number in chosen]) if launches else 0.0
    return Telling(picked, charged, disturbed, steady, beside_s, launches)


def _beside(batch: Batch) -> float:
    """Seconds a call, beside its events."""
    return (batch.window.wall - sum(batch.times)) / max(1, batch.calls)
