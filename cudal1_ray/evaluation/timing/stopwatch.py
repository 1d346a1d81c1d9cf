"""A contestant's batches of calls, as the referee times them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..exchange.placed_outputs import PlacedOutput, overlapping
from ..exchange.variant import Variant
from ..host.handles import Misbehaviour
from ..referee.inputs import Inputs, ToCome
from ..referee.timed_contestant import Fetched, TimedContestant
from ..sandbox.process_watch import Instant
from .clocks import Batch, Overhead, Span
from .pace import pace
from .statistics import median

_NONE = Span(0.0, 0.0, 0.0)
WARM_UP_CALLS = 3  # untimed, of each process before its first batch
_WARM_UP_S = 0.05  # of the reference's calls: code that takes longer for one is warm after it


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
        self._held: PlacedOutput | None = None  # where a call's output is kept, if it was read there

    def run(
        self,
        variants: list[Variant],
        seeds: list[int] | None,
        look: Look | None,
        *,
        reuse: bool = False,
        late: bool = False,
        ready: bool = False,
        to_come: ToCome | None = None,
        spacers: tuple[int, int] = (0, 0),
    ) -> tuple[Batch, list[Fetched]]:
        """``look``: at which calls' outputs, which the contestant learns only after the batch has ended. ``to_come``:
        calls are made one by one, and the inputs of each are written before it, or (``ready``) before all.
        """
        contestant, calls = self.contestant, len(variants)
        if to_come is not None:
            to_come.write_all() if ready else to_come.blank()
        before = contestant.instant()
        if any(spacers):  # on the CPU
            contestant.space(*spacers, reuse=reuse)
        start = contestant.instant()
        contestant.prepare(variants, seeds, reuse=reuse, late=late, ready=ready, gap=0 if reuse else spacers[1])
        prepared = contestant.instant()
        if to_come is None:
            times = contestant.go(calls)
            done = contestant.instant()
            window, telling = Span.between(prepared, done), _NONE
            placed = contestant.where(calls) if calls else None
        else:
            times, window, telling, placed = self._one_by_one(calls, to_come)
            done = contestant.instant()
        fetched: list[Fetched] = []
        if look:  # code that goes on working while its memory is read has its time counted, too
            fetched = self._fetch(look) if placed is None else self._read(placed, look)
        end = contestant.instant()
        telling = Span.of_all([telling, Span.between(done, end)])
        looked = calls if placed is not None else len(fetched)
        batch = Batch(
            calls, tuple(times), Span.between(start, prepared), window, telling.of_one(looked) if looked else None,
            None if self._last is None else Span.between(self._last, before),
            placed is None and any(one.windowed for one in fetched), looked, placed is not None,
        )  # fmt: skip
        if look is None:
            self._last = end
            return batch, fetched
        shared = placed is not None and overlapping(placed)
        for call, one in zip(look.calls, fetched, strict=True):
            contestant.fetch_inputs(call, look.picks, one)
            one.aliased |= shared
        self._last = contestant.instant()
        return batch, fetched

    def _one_by_one(self, calls: int, to_come: ToCome) -> tuple[list[float], Span, Span, list[PlacedOutput] | None]:
        """Seconds of each call, the time of all of them, that of telling where their outputs lie, and where that is."""
        contestant, placed = self.contestant, []
        windows, tellings = [], []
        for number in range(calls):
            to_come.write(number)
            start = contestant.instant()
            contestant.go(1, turn=number)
            done = contestant.instant()
            where = contestant.where(number + 1, number)
            windows.append(Span.between(start, done))
            tellings.append(Span.between(done, contestant.instant()))
            placed += where or []
        told = len(placed) == calls
        return [span.cpu for span in windows], Span.of_all(windows), Span.of_all(tellings), placed if told else None

    def _fetch(self, look: Look) -> list[Fetched]:
        numbered = enumerate(look.calls)
        return [self.contestant.fetch(call, look.picks, hold=look.hold and not number) for number, call in numbered]

    def _read(self, placed: list[PlacedOutput], look: Look) -> list[Fetched]:
        contestant = self.contestant
        fetched = [contestant.read(placed[call], look.picks) for call in look.calls]
        if look.hold:
            contestant.hold(look.calls[0])
            self._held = placed[look.calls[0]]
        return fetched

    def held(self, picks: list[float]) -> Fetched:
        """The output that is kept, as it is now, and no longer."""
        output, self._held = self._held, None
        if output is None:
            return self.contestant.fetch(None, picks)
        fetched = self.contestant.read(output, picks)
        self.contestant.hold(None)
        return fetched

    def unclocked(
        self, variants: list[Variant], seeds: list[int] | None, looked_at: int, picks: list[float]
    ) -> tuple[float, tuple[float, ...], Fetched]:
        """Seconds of one of some calls until the outputs of all are here, by the referee's clock alone: of large ones
        two windows, which take long enough, and it is not known beforehand which. The core's paces around them, and one
        call's output to look at.
        """
        contestant = self.contestant
        contestant.prepare(variants, seeds, unclocked=True)
        before = self._pace()
        start = contestant.instant()
        contestant.go(len(variants), unclocked=True)
        contestant.hand_over(picks)
        span = Span.between(start, contestant.instant()).of_one(len(variants))
        handed = contestant.handed(looked_at)
        paces = before + self._pace()
        self.forget()
        # Nothing is forgiven for having waited: on one core the referee waits for as long as the contestant runs.
        fetched = contestant.fetch(looked_at, picks)
        if not fetched.begins_as(handed):
            raise Misbehaviour("lazy_tensor", "an output that was not there yet when it had been handed over")
        contestant.fetch_inputs(looked_at, picks, fetched)
        return span.wall, paces, fetched

    def queued(
        self, variants: list[Variant], seeds: list[int] | None, looked_at: int, picks: list[float]
    ) -> tuple[list[float], Fetched]:
        """Seconds of each call on the device, its launches not waited for; and one call's output to look at."""
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
