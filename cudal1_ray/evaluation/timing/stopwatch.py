"""A contestant's batches of calls, as the referee times them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..exchange.variant import Variant
from ..referee.inputs import Inputs
from ..referee.timed_contestant import Fetched, TimedContestant
from ..sandbox.process_watch import Instant
from .clocks import Batch, Overhead, Span
from .pace import pace
from .statistics import median

_WARM_UP_S = 0.05  # of the reference's calls: who takes longer for one is warm after it


@dataclass(frozen=True)
class Look:
    """Which calls of a batch are looked at, and where in their large tensors (from 0 to 1)."""

    calls: list[int]
    picks: list[float]
    hold: bool = False  # the first one's output is kept


class Stopwatch:
    """Runs batches on one contestant and remembers when the last one ended."""

    def __init__(self, contestant: TimedContestant) -> None:
        self.contestant = contestant
        self._last: Instant | None = None

    def run(
        self,
        variants: list[Variant],
        seeds: list[int] | None,
        look: Look | None,
        *,
        reuse: bool = False,
        late: bool = False,
        ready: bool = False,
        spacers: tuple[int, int] = (0, 0),
    ) -> tuple[Batch, list[Fetched]]:
        """``look``: at which calls' outputs, which the contestant learns only after the batch has ended."""
        contestant = self.contestant
        start = contestant.instant()
        contestant.prepare(variants, seeds, reuse=reuse, late=late, ready=ready, spacers=spacers)
        prepared = contestant.instant()
        times = contestant.go(len(variants))
        done = contestant.instant()
        fetched = [
            contestant.fetch(call, look.picks, hold=look.hold and number == 0) for number, call in enumerate(look.calls)
        ] if look else []  # fmt: skip
        end = contestant.instant()
        batch = Batch(
            len(variants), tuple(times), Span.between(start, prepared), Span.between(prepared, done),
            Span.between(done, end).of_one(len(fetched)) if fetched else None,
            None if self._last is None else Span.between(self._last, start),
            any(one.windowed for one in fetched), len(fetched),
        )  # fmt: skip
        if look is None:
            self._last = end
            return batch, fetched
        for call, one in zip(look.calls, fetched, strict=True):
            contestant.fetch_inputs(call, look.picks, one)
        self._last = contestant.instant()
        return batch, fetched

    def unclocked(
        self, variants: list[Variant], seeds: list[int] | None, looked_at: int, picks: list[float]
    ) -> tuple[float, tuple[float, ...], Fetched]:
        """Seconds of one of some calls until the outputs of all are here, by the referee's clock alone: of large ones
        two windows, which take long enough, and nobody knows beforehand which. The core's paces around them, and one
        call's output to look at.
        """
        contestant = self.contestant
        contestant.prepare(variants, seeds, unclocked=True)
        before = self._pace()
        start = contestant.instant()
        contestant.go(len(variants), unclocked=True)
        contestant.hand_over(picks[:2])
        span = Span.between(start, contestant.instant()).of_one(len(variants))
        paces = before + self._pace()
        self.forget()
        # Nothing is forgiven for having waited: on one core the referee waits for as long as the contestant runs.
        fetched = contestant.fetch(looked_at, picks)
        contestant.fetch_inputs(looked_at, picks, fetched)
        return span.wall, paces, fetched

    def queued(
        self, variants: list[Variant], seeds: list[int] | None, looked_at: int, picks: list[float]
    ) -> tuple[list[float], Fetched]:
        """Seconds of each call on the device, its launches waited for by nobody; and one call's output to look at."""
        contestant = self.contestant
        contestant.prepare(variants, seeds)
        times = contestant.go(len(variants), queued=True)
        self.forget()
        fetched = contestant.fetch(looked_at, picks)
        contestant.fetch_inputs(looked_at, picks, fetched)
        return times, fetched

    def forget(self) -> None:
        """What came last was no batch of this watch's."""
        self._last = None

    def _pace(self) -> tuple[float, ...]:
        """On a GPU, where launches are part of a call's time."""
        return () if self.contestant.config.device == "cpu" else (pace(),)


def warm_up(contestant: TimedContestant, inputs: Inputs, calls: int) -> float:
    """Untimed calls; seconds of one call as far as the inner clock knows (best of two batches)."""
    best = math.inf
    if known_s := 1e-3 * contestant.session.reference_ms:
        calls = min(calls, math.ceil(_WARM_UP_S / known_s))
    calls = max(1, min(calls, inputs.most_calls))
    for _ in range(2):
        contestant.prepare(*inputs.renew(calls))
        best = min(best, sum(contestant.go(calls)) / calls)
    return max(best, 1e-7)


def measure_overhead(contestant: TimedContestant, inputs: Inputs) -> Overhead:
    """Batches without calls."""
    watch = Stopwatch(contestant)
    batches = [watch.run([], None, None)[0] for _ in range(9)]
    return Overhead(median([b.window.wall for b in batches[2:]]), median([b.window.cpu for b in batches[2:]]))


def batch_calls(reference_s: float, candidate_s: float, inputs: Inputs, config_ms: float) -> int:
    """Enough calls for the reference's batch to be ``config_ms`` long and for a fast candidate's not to vanish."""
    wanted = max(config_ms * 1e-3 / reference_s, min(1e-3 / candidate_s, 10 * config_ms * 1e-3 / reference_s))
    return max(1, min(inputs.most_calls, round(wanted)))
