"""Whether a gain is a candidate's own: it left the device to the reference as it was, knew no later call beforehand,
and shows the gain where no clock of its own runs.

A sign that only clocks show is a doubt, not a proof: a busy machine can cause it for an honest candidate. So no
candidate is refused that can be charged for it instead, and none by one process alone (`TimingDoubt`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cudal1_ray.evaluation.opening.session import ProblemSession
from cudal1_ray.evaluation.timing.clocks import WORTH_A_DOUBT, Batch, excess
from cudal1_ray.evaluation.timing.estimate import CONFIRMING_PAIRS, PATIENCE, SMALL_GAIN, Estimate, Sides, TimingDoubt
from cudal1_ray.evaluation.timing.pace import even_pairs
from cudal1_ray.evaluation.timing.pairs import Pairs
from cudal1_ray.evaluation.timing.statistics import median, spread
from cudal1_ray.evaluation.timing.steady import select

# Most by which a log speedup may exceed one that was shown, however wide its interval.
_ALIKE = 0.05
# Shortest time of a reference hindered by a candidate beside it, as a multiple of its own time.
_SLOWED = 1.5
# Longest doubt on a GPU, while all others wait, as a multiple of the budget, by the wall clock.
_MOST_BUDGETS = 3
# Share of a call by which late inputs may make it longer.
_OF_CACHES = 0.3
# Seconds by which launches after a copy of an input to a GPU may be slower than the reference's.
_COPIED_BEFORE_S = 5e-6
_LATE_PAIRS, _MOST_LATE_PAIRS = 5, 25  # taken in any case, and at most while further ones do not take too long
# Pairs of batches that only the evaluator times: the fewest, the fewest where they agree on the gain beyond four
# standard errors, and the most.
_FEWEST_UNCLOCKED, _FEWEST_CLEAR, _MOST_UNCLOCKED = 8, 5, 300
# Share of a claimed saving that must show in calls without a clock of their own.
_SHOWN_SHARE = 0.4
# Seconds by which a call without a clock may suffer more than the reference's from caches that others used.
_COLD_S = 2e-6


def refuse_sabotage(session: ProblemSession, references: Sequence[Batch]) -> None:
    """Raise TimingDoubt where the reference is slower beside the candidate: on CUDA, work that the candidate left on
    the device causes that; on the CPU the reference's own CPU time is counted.
    """
    if session.config.device == "cpu":
        return
    beside_ms = 1e3 * median([batch.inner / batch.calls for batch in references])
    if beside_ms > _SLOWED * session.solo_ms:
        raise TimingDoubt(
            "baseline_sabotage", f"the reference takes {beside_ms:.3f} ms beside it, {session.solo_ms:.3f} ms alone"
        )


@dataclass(frozen=True)
class ForeknowledgeGain:
    """How much longer a candidate's call takes where it cannot know later ones, in seconds."""

    extra: float
    error: float  # its standard error
    call: float  # of a call whose later ones can be known
    allowed: float  # by which a call that knows nothing of later ones may be longer

    @classmethod
    def of(
        cls, together: Sequence[list[float]], late: Sequence[list[float]], allowed: float = 0.0
    ) -> ForeknowledgeGain:
        """Return the gain that pairs of batches show, in seconds of a call of reference and candidate. `together`: all
        inputs lie ready; `late`: each input was made when its turn came, which takes both equally long. `allowed`:
        seconds that late inputs may take beyond `_OF_CACHES` of a call.
        """
        # Pair by pair, since a core's speed changes from one to the next.
        more = [[theirs - ours for ours, theirs in zip(*sides, strict=True)] for sides in (late, together)]
        call = median(together[1])
        return cls(*excess(*more), call, _OF_CACHES * call + allowed)

    @property
    def settled(self) -> bool:
        """Return whether more pairs would change nothing."""
        return self.error <= 0.05 * self.call or self.extra + 3 * self.error <= self.allowed

    @property
    def likely(self) -> float:
        """Return the seconds a call that are likely gained from later calls; 0.0 for what caches alone may do."""
        return self.extra if self.extra > self.allowed else 0.0

    @property
    def sure(self) -> bool:
        """Return whether the candidate must know of later calls while it answers one."""
        return self.extra > self.allowed + 3 * self.error


def foreknowledge_s(pairs: Pairs, together: Callable[[], Sides]) -> float:
    """Return the seconds a call to be charged. Code that processes the inputs of a whole batch at once gains nothing
    where they come one by one, and is refused; where that is likely and not sure, that gain does not count.

    Making an input between two calls also empties a core's caches, which slows some code more than other. Code that is
    as slow where an input is made for nothing knew nothing, but is not credited as faster than it is then.
    """
    config = pairs.session.config
    on_cpu = config.device == "cpu"  # on a GPU all others wait meanwhile
    late: Sides = ([], [])
    ready: Sides = ([], [])

    def seconds(sides: Sides) -> list[list[float]]:
        return [[(batch.answered if on_cpu else batch.inner) / batch.calls for batch in side] for side in sides]

    def gained(others: Sides) -> ForeknowledgeGain:
        return ForeknowledgeGain.of(seconds(others), seconds(late), allowed=0.0 if on_cpu else _COPIED_BEFORE_S)

    def more(sides: Sides, number: int) -> None:
        for side, batches in zip(sides, pairs.late_inputs(number, ready=sides is ready), strict=True):
            side += batches

    end = time.monotonic() + (PATIENCE if on_cpu else _MOST_BUDGETS) * config.timing.budget_s
    more(late, _LATE_PAIRS)
    while not ((gain := gained(together())).sure or gain.settled):
        if len(late[0]) >= _MOST_LATE_PAIRS or time.monotonic() >= end:
            break
        more(late, _LATE_PAIRS)
    if not gain.sure:
        return gain.likely
    for _ in range(CONFIRMING_PAIRS):  # before a refusal, all ways again, at the same time
        pairs.another()
        more(late, 1)
        more(ready, 1)
    if not (gain := gained(together())).sure:
        return gain.likely
    if (confirmed := gained(ready)).sure:
        longer, call = 1e3 * (confirmed.call + confirmed.extra), 1e3 * confirmed.call
        detail = f"a call takes {longer:.3f} ms without later calls' inputs, {call:.3f} ms with them"
        raise TimingDoubt("phase_detection", detail)
    return gain.extra


@dataclass(frozen=True)
class UnclockedSaving:
    """The saving of a candidate in calls that are timed from outside, until their outputs have been handed over. Such a
    time includes messages and copies, the same for both sides: only differences of pairs show anything.
    """

    saving: float  # seconds a call
    error: float  # its standard error

    @classmethod
    def of(cls, pairs: Sequence[Sequence[float]]) -> UnclockedSaving:
        """Return the saving that pairs of seconds a call show, the reference's first."""
        differences = [reference - candidate for reference, candidate in pairs]
        # The median's standard error is a quarter larger than the mean's.
        return cls(median(differences), 1.25 * spread(differences) / math.sqrt(max(1, len(differences))))

    def confirms(self, claimed: float, errors: float = 2.0) -> bool:
        """Return whether `_SHOWN_SHARE` or more of the inner clock's claim is true, by `errors` standard errors."""
        return self.saving - errors * self.error >= _SHOWN_SHARE * claimed

    def settled(self, claimed: float) -> bool:
        """Return whether more calls would change nothing."""
        return self.confirms(claimed) or self.error <= 0.05 * claimed

    def refutes(self, claimed: float) -> bool:
        """Return whether the claim is wrong, even with `_COLD_S` added: a first call after some microseconds of other
        work is slower, and not equally for all code.
        """
        return self.saving + 3 * self.error + _COLD_S < _SHOWN_SHARE * claimed


def unseen_gain_s(pairs: Pairs, claimed_s: float, *, small: bool) -> float:
    """Return the seconds a call to be charged: a saving must show where no clock of the candidate's runs; a clear case
    takes few batches. `small`: the claim is small enough to be taken away, instead of held against the candidate.
    """
    seconds: list[list[float]] = []
    paces: list[list[float]] = []
    start, longest = time.monotonic(), _MOST_BUDGETS * pairs.session.config.timing.budget_s
    while True:
        of_both, around = pairs.unclocked_calls()
        seconds.append(of_both)
        paces.append(around)
        saving = UnclockedSaving.of([seconds[number] for number in even_pairs(paces)])
        over = saving.settled(claimed_s) or time.monotonic() - start > longest
        fewest = _FEWEST_CLEAR if saving.confirms(claimed_s, errors=4.0) else _FEWEST_UNCLOCKED
        if len(seconds) >= (fewest if over else _MOST_UNCLOCKED):
            break
    if not saving.refutes(claimed_s):
        return 0.0
    if small:
        return claimed_s
    claimed_ms, shown_ms = 1e3 * claimed_s, 1e3 * saving.saving
    detail = f"of {claimed_ms:.3f} ms that a call seems to save {shown_ms:.3f} show without a clock of its own"
    raise TimingDoubt("async_stream", detail)


def scrutinise(pairs: Pairs, estimate: Estimate, confirmed: float = 0.0) -> tuple[Estimate, float]:
    """Return the estimate with what these checks do not show charged to the candidate, and the log speedup up to which
    none has refuted it: `confirmed` (0.0 = none) where nothing is checked, or nothing was shown. Raise TimingDoubt for
    what the clocks reveal.
    """
    interval, theirs, calls = estimate.interval, estimate.theirs, pairs.calls
    is_confirmed = confirmed > 0 and interval.centre <= confirmed + min(interval.half_width, _ALIKE)
    if interval.ratio <= WORTH_A_DOUBT or is_confirmed:
        return estimate, confirmed
    config, reference_s = pairs.session.config, median(estimate.ours)
    refuse_sabotage(pairs.session, estimate.selection.sides[0])
    charge_s = calls * foreknowledge_s(pairs, lambda: select(pairs.sides, config).charged) if calls > 1 else 0.0
    saved_s = (1 - 1 / interval.ratio) * reference_s - charge_s
    if config.device != "cpu" and saved_s > 0:
        small = saved_s < (1 - 1 / SMALL_GAIN) * reference_s
        charge_s += calls * unseen_gain_s(pairs, saved_s / calls, small=small)
    if not charge_s:
        return estimate, interval.centre
    # Nothing was shown, so the next process is checked as well.
    interval = replace(interval, centre=interval.centre - math.log1p(charge_s / median(theirs)))
    return replace(estimate, interval=interval, theirs=[time_s + charge_s for time_s in theirs]), confirmed
