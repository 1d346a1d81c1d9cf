"""Whether a gain is a candidate's own: the device left to the reference as it was, no later call known beforehand, and
seen where no clock of the candidate's runs.

What only clocks say is a doubt, not a proof: a busy machine can do it to an honest candidate. So no candidate is
refused that can be charged for it instead, and none by one process alone (`TimingDoubt`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..host.handles import Misbehaviour
from ..referee.session import ProblemSession
from .clocks import Batch, Foreknown, Shown
from .pace import even_pairs
from .pairs import Pairs
from .statistics import median

_SLOWED = 1.5  # times its own time: a reference that takes so long beside a candidate has been hindered by it
SMALL_GAIN = 1.1  # up to which a busy machine makes one out of nothing
PATIENCE = 12  # times the budget, by the clock on the wall
_MOST_BUDGETS = 3  # so many, where one is spent before anything is settled
CONFIRMING_PAIRS = 12
_COPIED_BEFORE_S = 5e-6  # by which launches may be slower, after an input was copied to a GPU, than the reference's are
_LATE_PAIRS, _MOST_LATE_PAIRS = 5, 25  # the former in any case, further ones while they do not take too long
# Pairs of batches that only the evaluator times: at least so many, or so few where they agree on the gain beyond four
# standard errors, and at most so many.
_FEWEST_UNCLOCKED, _FEWEST_CLEAR, _MOST_UNCLOCKED = 8, 5, 300

Sides = tuple[list[Batch], list[Batch]]  # of the reference and of the candidate


class TimingDoubt(Misbehaviour):
    """What only clocks say. A busy machine can do that to an honest candidate once; a fresh process will not show it
    again.
    """


def refuse_sabotage(session: ProblemSession, references: list[Batch]) -> None:
    """On CUDA, work that a candidate left on the device slows the reference; on the CPU its own clock is counted."""
    if session.config.device == "cpu":
        return
    beside_ms = 1e3 * median([batch.inner / batch.calls for batch in references])
    if beside_ms > _SLOWED * session.solo_ms:
        raise TimingDoubt(
            "baseline_sabotage", f"the reference takes {beside_ms:.3f} ms beside it, {session.solo_ms:.3f} ms alone"
        )


def foreknowledge_s(pairs: Pairs, together: Callable[[], Sides]) -> float:
    """Seconds a call to be charged: code that treats the inputs of a whole batch at once gains nothing where they come
    one by one, and is refused; where that is likely and not sure, what it gains so does not count.

    To make an input between two calls also empties a core's caches, which slows one kind of code more than another.
    Code that is as slow where that is done for nothing knew nothing, but is not credited as faster than it is then.
    """
    config = pairs.session.config
    on_cpu = config.device == "cpu"  # elsewhere all others wait meanwhile
    late: Sides = ([], [])
    ready: Sides = ([], [])

    def seconds(sides: Sides) -> list[list[float]]:
        return [[(batch.answered if on_cpu else batch.inner) / batch.calls for batch in side] for side in sides]

    def found(others: Sides) -> Foreknown:
        return Foreknown.of(seconds(others), seconds(late), allowed=0.0 if on_cpu else _COPIED_BEFORE_S)

    def more(sides: Sides, number: int) -> None:
        for side, batches in zip(sides, pairs.late_inputs(number, ready=sides is ready), strict=True):
            side += batches

    end = time.monotonic() + (PATIENCE if on_cpu else _MOST_BUDGETS) * config.timing.budget_s
    more(late, _LATE_PAIRS)
    while not ((seen := found(together())).why() or seen.settled):
        if len(late[0]) >= _MOST_LATE_PAIRS or time.monotonic() >= end:
            break
        more(late, _LATE_PAIRS)
    if not seen.why():
        return seen.likely
    for _ in range(CONFIRMING_PAIRS):  # before it is refused, again, at a time that is the same for all ways
        pairs.another()
        more(late, 1)
        more(ready, 1)
    seen = found(together())
    if not seen.why():
        return seen.likely
    if why := found(ready).why():
        raise TimingDoubt("phase_detection", why)
    return seen.extra


def unseen_gain_s(pairs: Pairs, claimed_s: float, *, small: bool) -> float:
    """Seconds a call to be charged. What a candidate saves a call must show where no clock of its own is running; a
    clear case takes few batches. ``small``: what it claims is so little that it is taken away, not held against it.
    """
    seconds, paces = [], []
    start, longest = time.monotonic(), _MOST_BUDGETS * pairs.session.config.timing.budget_s
    while True:
        one, around = pairs.unclocked_calls()
        seconds.append(one)
        paces.append(around)
        shown = Shown.of([seconds[number] for number in even_pairs(paces)])
        settled = shown.confirms(claimed_s) or shown.enough(claimed_s)
        late = time.monotonic() - start > longest
        fewest = _FEWEST_CLEAR if shown.confirms(claimed_s, errors=4.0) else _FEWEST_UNCLOCKED
        if len(seconds) >= (fewest if settled or late else _MOST_UNCLOCKED):
            break
    if not shown.refutes(claimed_s):
        return 0.0
    if small:
        return claimed_s
    claimed_ms, shown_ms = 1e3 * claimed_s, 1e3 * shown.saving
    detail = f"of {claimed_ms:.3f} ms that a call seems to save {shown_ms:.3f} show without a clock of its own"
    raise TimingDoubt("async_stream", detail)
