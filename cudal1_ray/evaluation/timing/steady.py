"""Selection of a GPU's batches that show how fast code is, by the time of a call beside its events.

Between two calls the same is done for all code: a cache is flushed, events are recorded, the device is waited for. The
time that this takes shows two things. Where the device is busy with another process's kernels, a call waits in its
queue until it is launched completely, and only its kernels are timed: 5 microseconds where launching them takes 20. And
a core that runs slowly, as halves of cores do when the other half works, launches half as fast, while kernels take as
long as ever: code with fewer kernels to launch gains by it, 1.2 times one moment and 1.8 times the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cudal1_ray.evaluation.config import EvaluationConfig, TimingConfig
from cudal1_ray.evaluation.timing.clocks import Batch
from cudal1_ray.evaluation.timing.statistics import lower_quartile, median

_DISTURBED, _SLACK_S = 1.5, 20e-6  # multiple of the usual time beside events, and seconds, above which others worked
# Longest time beside the events, on both sides, as a multiple of the shortest, at which a core is at full speed.
_STEADY = 1.12
# Fewest steady pairs of a measurement that counts as steady.
_FEWEST = 6


@dataclass(frozen=True)
class SelectedBatches:
    """The batches of both sides, pair by pair, that count."""

    sides: tuple[list[Batch], list[Batch]]
    charged: tuple[list[Batch], list[Batch]]  # all undisturbed batches, which show what a candidate hides
    steady: bool = True  # whether no other process used the device and the launching core kept its speed
    launches: bool = True  # whether the time is mostly that of launches


def mostly_launches(timing: TimingConfig, call_s: float) -> bool:
    """Return whether a call's time is mostly that of its launches, whose speed differs by process and moment."""
    return 1e-6 * timing.launch_spread_us > timing.process_spread * call_s


def select(sides: tuple[list[Batch], list[Batch]], config: EvaluationConfig) -> SelectedBatches:
    """Return the pairs of batches that count. On the CPU all do: other processes hardly change what is counted there.

    Each side is compared to itself: what all of a candidate's batches have in common is charged elsewhere
    (`clocks.hidden_beside_events`). Both sides are selected by, since quick batches of one side only would make that
    side quicker. For code that would choose its own batches, by being slow beside most of its calls, no choice is made.
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
    """Return the batches during which no other process was at work on the device."""
    limit_s = _limit_s([_beside(batch) for batch in batches])
    return [batch for batch in batches if _beside(batch) <= limit_s]


def _limit_s(besides: Sequence[float]) -> float:
    return _DISTURBED * lower_quartile(besides) + _SLACK_S


def _beside(batch: Batch) -> float:
    """Return the seconds a call that pass beside its events."""
    return (batch.window.wall - sum(batch.times)) / max(1, batch.calls)
