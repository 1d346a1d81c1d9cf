"""Which of a GPU's batches say how fast code is, by what a call takes beside its events.

Between two calls the same is done for all code: a cache is flushed, events are recorded, the device is waited for. How
long that takes tells two things. Where the device is busy with another process's kernels, a call waits in its queue
until all of it is there, and what is timed is its kernels alone: 5 microseconds where launching them takes 20. And a
core that runs slowly, as halves of cores do when the other half works, launches half as fast, while kernels take as
long as ever: whoever has fewer of them to launch gains by it, 1.2 times one moment and 1.8 times the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..config import TimingConfig
from .clocks import Batch
from .statistics import lower_quartile, median

_DISTURBED, _SLACK_S = 1.5, 20e-6  # so much more than the usual time beside the events, and somebody else was at work
_ELSEWHERE = 2.0  # times the shortest ever seen: so was somebody in most of a measurement
_STEADY = 1.12  # times the shortest: the core ran as fast as it can
_FEWEST = 6  # pairs that are steady, where a measurement is to count as such


@dataclass(frozen=True)
class Telling:
    """The batches of both sides, pair by pair, that are worth looking at."""

    sides: tuple[list[Batch], list[Batch]]
    disturbed: bool = False  # somebody else was at work on the device nearly all the time: these are all there are
    steady: bool = True  # that was not so, and where launches count they are those of a core at its fastest
    beside_s: float = 0.0  # of a call of the reference's, beside its events; 0.0 where that is not looked at

    def __len__(self) -> int:
        return len(self.sides[0])


def mostly_launches(timing: TimingConfig, call_s: float) -> bool:
    """Is that a call whose time is that of its launches, which one process and one moment do faster than another?"""
    return 1e-6 * timing.launch_spread_us > timing.process_spread * call_s


def telling(sides: tuple[list[Batch], list[Batch]], timing: TimingConfig, shortest_s: float = 0.0) -> Telling:
    """What can be learnt from pairs of batches on a GPU.

    A candidate's own time beside its events only says which of its batches are unlike its others: what they all have
    in common is charged (`clocks.hidden_beside_events`). How fast the core runs the reference alone says.

    Args:
        shortest_s: time of a call beside its events, for calls that are mostly launches, as short as it was ever seen
            on this device; 0.0 = not known.
    """
    references, candidates = sides
    besides = [_beside(batch) for batch in references]
    usual = lower_quartile(besides)
    limits = [_DISTURBED * usual + _SLACK_S, _DISTURBED * lower_quartile([*map(_beside, candidates)]) + _SLACK_S]
    launches = bool(references) and mostly_launches(timing, median([b.inner / b.calls for b in references]))
    if launches and shortest_s:
        limits[0] = min(limits[0], _ELSEWHERE * shortest_s)
    chosen = [
        number
        for number, (ours, theirs) in enumerate(zip(besides, candidates, strict=True))
        if ours <= limits[0] and _beside(theirs) <= limits[1]
    ]
    disturbed = len(chosen) < min(3, len(references))
    steady = not disturbed
    if disturbed:
        chosen = list(range(len(references)))
    elif launches:
        shortest = min(shortest_s or usual, lower_quartile([besides[number] for number in chosen]))
        fast = [number for number in chosen if besides[number] <= _STEADY * shortest]
        steady = len(fast) >= min(_FEWEST, len(references))
        chosen = fast if steady else _better_half(chosen, besides)
    picked = tuple([side[number] for number in chosen] for side in sides)
    beside_s = lower_quartile([besides[number] for number in chosen]) if launches else 0.0
    return Telling(picked, disturbed, steady, beside_s)


def _better_half(chosen: Sequence[int], besides: Sequence[float]) -> list[int]:
    """In their order; at least three, as far as there are so many."""
    limit = sorted(besides[number] for number in chosen)[max(2, len(chosen) // 2) if len(chosen) > 2 else -1]
    return [number for number in chosen if besides[number] <= limit]


def _beside(batch: Batch) -> float:
    """Seconds a call, beside its events."""
    return (batch.window.wall - sum(batch.times)) / max(1, batch.calls)
