"""Pairs of timed batches of a reference and a candidate, in turn, with the outputs of some of them compared."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from cudal1_ray.evaluation.correctness.trials import (
    ask_trial,
    compare_call,
    inputs_changed,
    kind_in_words,
    random_picks,
    refuse_shared_memory,
)
from cudal1_ray.evaluation.exchange.variant import Variant
from cudal1_ray.evaluation.host.handles import Misbehaviour
from cudal1_ray.evaluation.host.timed_contestant import CallResult, TimedContestant
from cudal1_ray.evaluation.opening.session import HANDED_CALLS, ProblemSession, Trial
from cudal1_ray.evaluation.timing.clocks import Batch
from cudal1_ray.evaluation.timing.inputs import Inputs
from cudal1_ray.evaluation.timing.statistics import median
from cudal1_ray.evaluation.timing.stopwatch import WARM_UP_CALLS, CheckedCalls, Stopwatch, batch_calls, warm_up

# Share of the timed batches whose outputs are compared; those of the first two always are.
_CHECKED_SHARE = 0.34
# Most calls of a checked batch whose outputs are compared; one always is.
_CHECKED_CALLS = 8
# Most bytes of the inputs and outputs of these calls together.
_CHECKED_BYTES = 512 << 10
# Most bytes of outputs that wait to be compared.
_MOST_WAITING = 256 << 20
# Farthest move of memory on a GPU, MiB.
_FARTHEST_MIB = 128
# Most bytes held before or after the inputs on the CPU.
_MOST_SPACING = 8 << 20
# Most MiB in one piece for tensors that move.
_MOST_ROOM_MIB = 2048
# Pairs, on average, until one of the trials is asked again.
_QUESTION_EVERY = 8
# Most calls before those that count, and seconds of the reference's calls that they take: the first calls of a batch of
# launches may take four times as long as the later ones.
_MOST_LEADING, _LEADING_S = 8, 2e-3
_QUEUED_CALLS, _QUEUED_BATCHES = 8, 7  # the first batch shows how long launching takes


class Pairs:
    """Pairs of batches of one reference and one candidate, in an unforeseeable order, and what they showed. Created
    before its owner measures alone: warming up takes as long as some pairs, and disturbs no other evaluator.

    `stay_fast`: called before each pair, to move all to a fast core. `turn`: held around calls before the measurement;
    memory is allocated without it, since a driver may take long for that.
    """

    def __init__(
        self, session: ProblemSession, reference: TimedContestant, candidate: TimedContestant, chance: random.Random,
        stay_fast: Callable[[], None] = lambda: None,
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:  # fmt: skip
        self.session, self._chance, self._stay_fast = session, chance, stay_fast
        timing = session.config.timing
        self._inputs = Inputs(session, chance)
        both = [reference, candidate]
        with turn():
            warm = {side: warm_up(both[side], self._inputs, WARM_UP_CALLS) for side in chance.sample((0, 1), 2)}
        self.calls = batch_calls(warm[0], warm[1], self._inputs, timing.batch_ms)
        self._leading = max(2, min(_MOST_LEADING, round(_LEADING_S / warm[0])))
        self._watches = [Stopwatch(reference), Stopwatch(candidate)]
        self._moves = 0
        if session.config.device != "cpu":
            room_mib = self._room_mib()
            self._scatter(reserve_mib=max(1, room_mib))
            self._moves = timing.scatter_pairs if room_mib else 0
        with turn():
            for contestant in chance.sample(both, 2):  # touches the memory of full batches before anything counts
                warm_up(contestant, self._inputs, self.calls)
        self.sides: tuple[list[Batch], list[Batch]] = ([], [])
        self.spent_s, self._run = 0.0, 0
        others = [trial for trial in session.trials if trial.kind != "own" and not trial.other_batch]
        self._questions, self._asked = chance.sample(others, len(others)), 0
        self._next_question = chance.randrange(1, _QUESTION_EVERY) if others else -1
        # On the CPU a contestant only copies its inputs from where the referee wrote them: making them takes as long as
        # many a call, and code that works ahead would hide in that time.
        fit = session.config.device == "cpu" and self.calls <= self._inputs.most_written
        self._written_out = self.calls if fit else 0
        self._waiting: list[Callable[[], None]] = []
        self._waiting_bytes = 0

    def used_up(self) -> bool:
        """Return whether all inputs have been timed."""
        return self._inputs.used_up(self.calls)

    def another(self, *, looking: bool = False) -> None:
        """Take one more pair; the first one warms the caches and is dropped. Raise Misbehaviour for a wrong output."""
        session, chance = self.session, self._chance
        if self._moves and self._run and self._run % self._moves == 0:
            self._scatter()
        if self._run == self._next_question:
            self._ask()
        looking = looking or self._run in (1, 2) or chance.random() < _CHECKED_SHARE
        variants, seeds = self._inputs.renew(self.calls, timed=True, written_out=self._written_out)
        look = CheckedCalls(self._looked_at(), random_picks(chance)) if looking else None
        batches = self._run_both(variants, seeds, look, reuse=chance.random() < 0.5)
        if self._run > 0:
            for side, batch in zip(self.sides, batches, strict=True):
                side.append(batch)
        self._run += 1
        self.spent_s += sum(_cost(batch, session.config.device) for batch in batches)

    def _run_both(
        self, variants: list[Variant], seeds: list[int] | None, look: CheckedCalls | None, **how: Any
    ) -> tuple[Batch, Batch]:
        """Run one batch of each side, in random order, and compare the outputs that were read."""
        self._stay_fast()
        spacers = self._spacers()
        results = {
            side: self._watches[side].run(variants, seeds, look, spacers=spacers, **how) for side in self._any_order()
        }
        for call, ours, theirs in zip(look.calls if look else (), results[0][1], results[1][1], strict=True):
            self._compare(variants[call], ours, theirs)
        return results[0][0], results[1][0]

    def _any_order(self) -> list[int]:
        return self._chance.sample((0, 1), 2)

    def _ask(self, sides: tuple[int, ...] = (0, 1)) -> None:
        """Ask one of the trials between two batches, at a time unknown to code that is right while it is checked, and
        then only for inputs like those that are timed. The reference answers, too, so that both have done the same.
        """
        trial = self._questions[self._asked % len(self._questions)]
        self._asked += 1
        self._next_question += self._chance.randrange(1, 2 * _QUESTION_EVERY)
        variant = self.session.ask(trial)
        for side in self._chance.sample(sides, len(sides)):
            watch = self._watches[side]
            fetched = ask_trial(watch.contestant, trial, variant, self._chance, briefly=True)
            watch.forget()
            if side == 1:
                self._later(fetched.nbytes, partial(_check_answer, self.session, trial, fetched))

    def ask_the_rest(self) -> None:
        """Ask the candidate the remaining trials: no process ends before it has answered all."""
        while self._asked < len(self._questions):
            self._ask(sides=(1,))
        self.compare_waiting()

    def _spacers(self) -> tuple[int, int]:
        """Draw bytes to hold before and after the inputs of both sides, since that takes time: on the CPU memory-bound
        code is up to a tenth faster in one place than in another, and all forks of a server use the same places.
        """
        if self.session.config.device != "cpu":
            return 0, 0
        return self._chance.randrange(_MOST_SPACING), self._chance.randrange(_MOST_SPACING)

    def _scatter(self, reserve_mib: int = 0) -> None:
        """Move both sides' tensors: some kernels are a tenth slower in some places, and a process keeps its place."""
        for watch in self._watches:
            watch.contestant.scatter(2 * self._chance.randint(1, _FARTHEST_MIB // 2), reserve_mib=reserve_mib)
            watch.forget()

    def _room_mib(self) -> int:
        """Return the MiB for a batch and the one before it, and as much again for what calls need meanwhile; 0 = too
        much: large tensors lie in good and bad places at once.
        """
        trial = self.session.own[0]
        room_mib = 3 * (self.calls * (trial.input_bytes + trial.output_bytes) >> 20) + 64 + _FARTHEST_MIB
        return room_mib if room_mib <= _MOST_ROOM_MIB else 0

    def late_inputs(self, number: int, *, ready: bool = False) -> tuple[list[Batch], list[Batch]]:
        """Return batches of both in which no code can know a later call's input, which does not exist yet, nor how it
        was made. With `ready` it exists, and all else is the same. On the CPU each input is written when the call
        before it has been answered. On a GPU inputs are made between two calls, and other calls go before them: the
        first calls of a batch may take four times as long as the later ones, and few such inputs fit.
        """
        sides: tuple[list[Batch], list[Batch]] = ([], [])
        inputs, on_cpu = self._inputs, self.session.config.device == "cpu"
        calls = min(self.calls, inputs.most_written)
        leading = 0 if on_cpu else min(self._leading, inputs.most_calls - calls)
        for _ in range(number):
            to_come = None
            if on_cpu:
                variants, seeds, to_come = inputs.to_come(calls)
            else:
                variants, seeds = inputs.renew(leading + calls, written_out=calls)
            look = CheckedCalls([leading + self._chance.randrange(calls)], random_picks(self._chance))
            for side, batch in zip(
                sides, self._run_both(variants, seeds, look, late=True, ready=ready, to_come=to_come), strict=True
            ):
                side.append(batch.last(calls))
        return sides

    def unclocked_calls(self) -> tuple[list[float], list[float]]:
        """Return the seconds of one call of both, timed from outside alone, and all paces around them. Several calls
        run in a row: the first finds the core's caches full of the referee's own code, which costs some code more than
        other.
        """
        variants, seeds = self._inputs.renew(min(self.calls, HANDED_CALLS))
        number, picks = self._chance.randrange(len(variants)), random_picks(self._chance)
        self._stay_fast()
        both = {side: self._watches[side].unclocked(variants, seeds, number, picks) for side in self._any_order()}
        # Compared always: code that hands its output over before it exists seems to be fast.
        self._compare(variants[number], both[0][2], both[1][2])
        return [both[side][0] for side in (0, 1)], [*both[0][1], *both[1][1]]

    def device_times(self) -> tuple[float, float]:
        """Return the seconds of one call of both on a GPU alone, launched before the device begins it, as when the host
        is ahead: the median over several places in its memory. Raise Misbehaviour where an output is wrong.
        """
        times: tuple[list[float], list[float]] = ([], [])
        for batch in range(_QUEUED_BATCHES):
            if self._moves:
                self._scatter()
            variants, seeds = self._inputs.renew(min(self.calls, _QUEUED_CALLS))
            number, picks = self._chance.randrange(len(variants)), random_picks(self._chance)
            both = {side: self._watches[side].queued(variants, seeds, number, picks) for side in self._any_order()}
            for side in (0, 1) if batch else ():
                times[side].append(median(both[side][0]))
            self._compare(variants[number], both[0][1], both[1][1])
        return median(times[0]), median(times[1])

    def _compare(self, variant: Variant, ours: CallResult, theirs: CallResult) -> None:
        """Compare the inputs with the given ones at once, since the next batch may overwrite these; outputs later."""
        self.session.saw_reference(ours.aliased, bool(ours.borrowed))
        refuse_shared_memory(self.session, theirs)  # such a candidate is not timed any further
        changed = inputs_changed(theirs, self.session.pool.memory, variant, ours.inputs)
        self._later(ours.nbytes + theirs.nbytes, partial(_check_timed, self.session, changed, ours, theirs))

    def _later(self, nbytes: int, comparison: Callable[[], None]) -> None:
        """Compare, on a GPU only once `compare_waiting` is called, so that others may measure meanwhile."""
        self._waiting.append(comparison)
        self._waiting_bytes += nbytes
        if self.session.config.device == "cpu" or self._waiting_bytes > _MOST_WAITING:
            self.compare_waiting()

    def compare_waiting(self) -> None:
        """Compare the outputs that wait for it; raise Misbehaviour for the first that is wrong."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for comparison in waiting:
            comparison()

    def _looked_at(self) -> list[int]:
        """Draw the calls of a batch to compare: many of small ones, so that cheating in a few calls does not pay."""
        trial = self.session.own[0]
        fit = _CHECKED_BYTES // max(1, trial.input_bytes + trial.output_bytes)
        return self._chance.sample(range(self.calls), max(1, min(self.calls, _CHECKED_CALLS, fit)))


def _cost(batch: Batch, device: str) -> float:
    """Return seconds of the budget: on the CPU those of the process, so that a busy machine costs no precision."""
    spans = [span for span in (batch.prepare, batch.window, batch.fetch) if span is not None]
    return sum(span.cpu if device == "cpu" else span.wall for span in spans)


def _check_answer(session: ProblemSession, trial: Trial, fetched: CallResult) -> None:
    wrong = compare_call(fetched, trial, session.config)
    if wrong is not None:
        detail = f"right when checked, wrong between timed calls: {wrong.detail} ({kind_in_words(trial.kind)})"
        raise Misbehaviour("phase_detection", detail)


def _check_timed(session: ProblemSession, changed: bool, ours: CallResult, theirs: CallResult) -> None:
    trial = session.own[0]
    wrong = compare_call(theirs, trial, session.config, ours, session.reference_off)
    if wrong is not None:
        reason = wrong.reason
        if reason in ("wrong_output", "wrong_structure", "partial_compute", "tolerance_exploit", "nan_comparison"):
            reason = "phase_detection"
        old = "; what it holds is memory of an earlier call" if wrong.reason == "nan_comparison" else ""
        raise Misbehaviour(reason, f"right when asked, wrong when timed: {wrong.detail}{old}")
    if changed and not trial.mutated:
        raise Misbehaviour("input_mutation", "the inputs were overwritten while timed")
    if theirs.borrowed and not session.reference_borrows:
        raise Misbehaviour("output_aliasing", f"an output lies in {theirs.borrowed} memory, the reference's does not")
