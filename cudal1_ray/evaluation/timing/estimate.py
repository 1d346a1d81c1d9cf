"""The speedup that pairs of batches show: how many are taken, which count, and what a candidate is charged for."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.host.handles import Misbehaviour
from cudal1_ray.evaluation.timing.agreement import agreement
from cudal1_ray.evaluation.timing.clocks import (
    WORTH_A_DOUBT,
    Batch,
    UnclockedWork,
    cpu_windows,
    gains,
    hidden_beside_events,
    unclocked_work,
    uneven,
)
from cudal1_ray.evaluation.timing.pairs import Pairs
from cudal1_ray.evaluation.timing.statistics import Interval, median, trimmed_interval
from cudal1_ray.evaluation.timing.steady import SelectedBatches, select

# Longest measurement, in budgets, of calls so long that one budget is spent after few of them.
_LONG_BUDGETS = 6
# Longest measurement, in budgets, where another process was at work on the device, or the core was slow.
_PATIENT_BUDGETS = 2
# Pairs between two estimates on a GPU, where computing an interval takes as long as one pair.
_LOOK_EVERY = 4
_SHORTEST_S = 1e-9
# Fewest pairs of batches before their interval may show that a candidate is slower.
_FEWEST_TO_LEAVE = 3
# Largest speedup that a busy machine makes out of nothing.
SMALL_GAIN = 1.1
# Longest wait, as a multiple of the budget, by the wall clock.
PATIENCE = 12
# Further pairs of batches before a candidate is refused.
CONFIRMING_PAIRS = 12

Sides = tuple[list[Batch], list[Batch]]  # of the reference and of the candidate


class TimingDoubt(Misbehaviour):
    """A fault that only clocks show: a busy machine can cause it once; a fresh process does not show it again."""


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


def estimate_speedup(pairs: Pairs) -> Estimate:
    """Return what pairs of batches show, as many as make the interval narrow enough; raise TimingDoubt for work while
    no clock runs.
    """
    estimate = _until_narrow_enough(pairs)
    if estimate.unclocked.reason:
        # A few readings on a busy machine may all have been unlucky: none is refused before many more agree.
        for _ in range(CONFIRMING_PAIRS):
            pairs.another(looking=True)
        estimate = Estimate.of(pairs)
        if estimate.unclocked.reason:
            raise TimingDoubt(estimate.unclocked.reason, estimate.unclocked.detail)
    return estimate
