"""Which of a GPU's batches show how fast code is, by what a call takes beside its events.

Between two calls the same is done for all code: a cache is flushed, events are recorded, the device is waited for. How
long that takes shows two things. Where the device is busy with another process's kernels, a call waits in its queue
until all of it is there, and what is timed is its kernels alone: 5 microseconds where launching them takes 20. And a
core that runs slowly, as halves of cores do when the other half works, launches half as fast, while kernels take as
long as ever: code that has fewer of them to launch gains by it, 1.2 times one moment and 1.8 times the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cudal1_ray.evaluation.config import EvaluationConfig, TimingConfig
from cudal1_ray.evaluation.timing.clocks import Batch
from cudal1_ray.evaluation.timing.statistics import lower_quartile, median

_DISTURBED, _SLACK_S = 1.5, 20e-6  # so much more than the usual time beside the events, and another process was at work
_STEADY = 1.12  # times its shortest, on both sides: the core ran as fast as it can
_FEWEST = 6  # pairs that are steady, where a measurement is to count as such


@dataclass(frozen=True)
class SelectedBatches:
    """The batches of both sides, pair by pair, that are worth looking at."""

    sides: tuple[list[Batch], list[Batch]]
    charged: tuple[list[Batch], list[Batch]]  # what a candidate hides is looked for in these: all undisturbed ones
    steady: bool = True  # no other process was at work on the device, nor did the core that launches change its speed
    launches: bool = True  # are what the time is made of


def mostly_launches(timing: TimingConfig, call_s: float) -> bool:
    """Return whether a call's time is that of its launches, which one process and one moment do faster than another."""
    return 1e-6 * timing.launch_spread_us > timing.process_spread * call_s


def select(sides: tuple[list[Batch], list[Batch]], config: EvaluationConfig) -> SelectedBatches:
    """Return the pairs of batches that count. On the CPU all do: what is counted there other processes hardly move.

    Each side is held against itself: what all of a candidate's batches have in common is charged elsewhere
    (`clocks.hidden_beside_events`). And both are: to ask for quick batches of one side only makes that side quicker.
    Code that chooses its own, by being slow beside most of its calls, has no choice made.
    """
    if config.device == "cpu":
        return SelectedBatches(sides, sides)
    besides = [[_beside(batch) for batch in side] for side in sides]
    numbers = range(len(sides[0]))
    limits_s = [_limit_s(side) for side in besides]
    chosen = [number for number in numbers if all(besides[side][number] <= limits_s[side] for side in (0, 1))]
    steady = len(chosen) >= min(3, len(numbers))
    quiet = chosen = chosen if steady else list(numbers)
    launches = bool(numbers) and mostly_launches(config.timing, median([b.inner / b.calls for b in sides[0]]))
    if steady and launches:
        quick_s = [_STEADY * lower_quartile([side[number] for number in chosen]) for side in besides]
        fast = [number for number in chosen if besides[0][number] <= quick_s[0]]
        both = [number for number in fast if besides[1][number] <= quick_s[1]]
        steady = len(both) >= max(min(_FEWEST, len(numbers)), len(fast) / 2)
        chosen = both if steady else chosen
    return SelectedBatches(_picked(sides, chosen), _picked(sides, quiet), steady, launches)


def _picked(sides: tuple[list[Batch], list[Batch]], numbers: Sequence[int]) -> tuple[list[Batch], list[Batch]]:
    return [sides[0][number] for number in numbers], [sides[1][number] for number in numbers]


def undisturbed(batches: Sequence[Batch]) -> list[Batch]:
    """Return the batches beside which no other process was at work on the device."""
    limit_s = _limit_s([_beside(batch) for batch in batches])
    return [batch for batch in batches if _beside(batch) <= limit_s]


def _limit_s(besides: Sequence[float]) -> float:
    return _DISTURBED * lower_quartile(besides) + _SLACK_S


def _beside(batch: Batch) -> float:
    """Return the seconds a call that pass beside its events."""
    return (batch.window.wall - sum(batch.times)) / max(1, batch.calls)
