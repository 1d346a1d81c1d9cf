"""A contestant's batches of calls, as the referee times them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cudal1_ray.evaluation.exchange.placed_outputs import PlacedOutput
from cudal1_ray.evaluation.exchange.variant import Variant
from cudal1_ray.evaluation.host.handles import Misbehaviour
from cudal1_ray.evaluation.host.timed_contestant import CallResult, TimedContestant
from cudal1_ray.evaluation.sandbox.process_watch import Instant
from cudal1_ray.evaluation.timing.clocks import Batch, Span
from cudal1_ray.evaluation.timing.inputs import Inputs, ToCome
from cudal1_ray.evaluation.timing.pace import pace
from cudal1_ray.evaluation.timing.statistics import median

# Untimed calls of each process before its first batch.
WARM_UP_CALLS = 3
# Seconds of the reference's warm-up calls; code that takes longer for one call is warm after it.
_WARM_UP_S = 0.05


@dataclass(frozen=True)
class CheckedCalls:
    """The calls of a batch whose outputs are compared, and places in their large tensors (from 0 to 1)."""

    calls: list[int]
    picks: list[float]


class Stopwatch:
    """Runs batches on one contestant and remembers when the last one ended."""

    def __init__(self, contestant: TimedContestant) -> None:
        self.contestant = contestant
        self._last: Instant | None = None

    def run(
        self, variants: list[Variant], seeds: list[int] | None, look: CheckedCalls | None, *, reuse: bool = False,
        late: bool = False, ready: bool = False, to_come: ToCome | None = None, spacers: tuple[int, int] = (0, 0),
    ) -> tuple[Batch, list[CallResult]]:  # fmt: skip
        """Time one batch; return it with the outputs that were read. `look`: which ones, which the contestant learns
        only after the batch has ended. `reuse`, `late`, `ready`, `spacers`: see `TimedContestant.prepare` and `space`.
        `to_come`: calls are made one by one, and the inputs of each are written before it, or (`ready`) before all.
        """
        contestant, calls = self.contestant, len(variants)
        if to_come is not None:
            to_come.write_all(blank=not ready)
        before = contestant.instant()
        if any(spacers):  # only on the CPU
            contestant.space(*spacers, reuse=reuse)
        start = contestant.instant()
        contestant.prepare(variants, seeds, reuse=reuse, late=late, ready=ready, gap=0 if reuse else spacers[1])
        prepared = contestant.instant()
        times: list[float] = []
        placed: list[PlacedOutput] = []
        windows, reports = [], []
        for turn in [None] if to_come is None else range(calls):
            if to_come is not None and turn is not None:
                to_come.write(turn)
            begun = contestant.instant()
            times += contestant.go(calls if turn is None else 1, turn=turn)
            done = contestant.instant()
            windows.append(Span.between(begun, done))
            placed += (contestant.where(calls) if turn is None else contestant.where(turn + 1, turn)) or []
            reports.append(Span.between(done, contestant.instant()))
        every, done = calls > 0 and len(placed) == calls, contestant.instant()
        fetched: list[CallResult] = []
        if look is not None and every:
            fetched = [contestant.read(placed[call], look.picks) for call in look.calls]
        elif look is not None:
            fetched = [contestant.fetch(call, look.picks) for call in look.calls]
        end = contestant.instant()
        # The time of code that goes on working while its memory is read is counted, too.
        fetching, looked = Span.total([*reports, Span.between(done, end)]), calls if every else len(fetched)
        batch = Batch(
            calls, tuple(times if to_come is None else (span.cpu for span in windows)), Span.between(start, prepared),
            Span.total(windows), fetching.each(looked) if looked else None,
            None if self._last is None else Span.between(self._last, before),
            looked, every,
        )  # fmt: skip
        if look is not None:
            for call, output in zip(look.calls, fetched, strict=True):
                contestant.fetch_inputs(call, look.picks, output)
            end = contestant.instant()
        self._last = end
        return batch, fetched

    def unclocked(
        self, variants: list[Variant], seeds: list[int] | None, call: int, picks: list[float]
    ) -> tuple[float, list[float], CallResult]:
        """Return the seconds of one of several calls until the outputs of all are here, by the referee's clock alone:
        of large ones two windows, which take long enough, and which ones is not known beforehand. Return the core's
        paces around them, since launches are part of a call's time, and the output of `call` to compare, as well.
        """
        contestant = self.contestant
        contestant.prepare(variants, seeds, unclocked=True)
        paces = [pace()]
        start = contestant.instant()
        contestant.go(len(variants), unclocked=True)
        contestant.hand_over(picks)
        span = Span.between(start, contestant.instant()).each(len(variants))
        handed = contestant.handed(call)
        paces.append(pace())
        # Waiting is not subtracted: on one core the referee waits for as long as the contestant runs.
        fetched = self._fetch(call, picks)
        if not fetched.begins_as(handed):
            raise Misbehaviour("lazy_tensor", "an output that was not there yet when it had been handed over")
        return span.wall, paces, fetched

    def queued(
        self, variants: list[Variant], seeds: list[int] | None, call: int, picks: list[float]
    ) -> tuple[list[float], CallResult]:
        """Return the seconds of each call on the device, without waiting for its launches; and the output of `call`."""
        self.contestant.prepare(variants, seeds)
        return self.contestant.go(len(variants), queued=True), self._fetch(call, picks)

    def _fetch(self, call: int, picks: list[float]) -> CallResult:
        self.forget()
        fetched = self.contestant.fetch(call, picks)
        self.contestant.fetch_inputs(call, picks, fetched)
        return fetched

    def forget(self) -> None:
        """Forget the last batch, since other work came after it."""
        self._last = None


def warm_up(contestant: TimedContestant, inputs: Inputs, calls: int) -> float:
    """Make untimed calls; return the seconds of one by the inner clock (best of two batches)."""
    if known_s := 1e-3 * contestant.session.reference_ms:
        calls = min(calls, math.ceil(_WARM_UP_S / known_s))
    calls = max(1, min(calls, inputs.most_calls))
    best = math.inf
    for _ in range(2):
        contestant.prepare(*inputs.renew(calls))
        best = min(best, sum(contestant.go(calls)) / calls)
    return max(best, 1e-7)


def measure_overhead_s(contestant: TimedContestant) -> float:
    """Return the CPU seconds of a batch without calls: the cost of messages and loops."""
    watch = Stopwatch(contestant)
    return median([watch.run([], None, None)[0].window.cpu for _ in range(9)][2:])


def batch_calls(reference_s: float, candidate_s: float, inputs: Inputs, config_ms: float) -> int:
    """Return how many calls make the reference's batch `config_ms` long, without a fast candidate's being too short."""
    calls = max(config_ms * 1e-3 / reference_s, min(1e-3 / candidate_s, 10 * config_ms * 1e-3 / reference_s))
    return max(1, min(inputs.most_calls, round(calls)))
