"""Inputs of timed calls: values that no earlier call had, made out of sets that lie in the pool.

A set that is only rotated keeps its sum, its largest element, and under a pointwise function its outputs in another
order, all of which code could remember. So two sets are rotated and interpolated, wherever the problem allows that.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from cudal1_ray.evaluation.exchange.tensors import TensorSpec
from cudal1_ray.evaluation.exchange.variant import Variant, is_floating
from cudal1_ray.evaluation.opening.session import DRAWN, ProblemSession, Trial

# Fewest batches of a bank, no two of which share a set.
_BATCHES_OF_A_BANK = 10
# Most bytes of inputs that the referee writes for a batch, while all others wait.
_MOST_WRITTEN = 256 << 20


class Inputs:
    """New inputs for every batch."""

    def __init__(self, session: ProblemSession, chance: random.Random) -> None:
        self.session, self.chance = session, chance
        trial, timing = session.own[0], session.config.timing
        fit = (timing.batch_memory_mib << 20) // (trial.input_bytes + trial.output_bytes + 1)
        self.most_calls = max(1, min(timing.max_batch_calls, fit))
        # Each set of a bank is timed once in each process, since code may remember earlier inputs.
        self.unseen = chance.sample(session.own[2:], len(session.own) - 2) if session.variation == "bank" else []
        if self.unseen:
            self.most_calls = max(1, min(self.most_calls, len(self.unseen) // _BATCHES_OF_A_BANK))

    @property
    def most_written(self) -> int:
        """Return the number of calls whose inputs fit into the pool and are written quickly."""
        soon = _MOST_WRITTEN // max(1, self.session.own[0].input_bytes)
        return max(1, min(self.most_calls, self.session.room, soon))

    def used_up(self, calls: int) -> bool:
        """Return whether another batch would repeat inputs of an earlier one, which happens with a bank only."""
        return self.session.variation == "bank" and len(self.unseen) < calls

    def renew(self, calls: int, *, timed: bool = False, written_out: int = 0) -> tuple[list[Variant], list[int] | None]:
        """Return the inputs of `calls` calls, with seeds where the model draws random numbers. `timed`: their time
        counts. `written_out`: number of last calls (at most `most_written`) whose recipe no process learns.
        """
        variants = [self._variant(number, timed) for number in range(calls)]
        to_come = ToCome(self.session, variants[calls - written_out :])
        to_come.write_all()
        return [*variants[: calls - written_out], *to_come.places], self._seeds(calls)

    def to_come(self, calls: int) -> tuple[list[Variant], list[int] | None, ToCome]:
        """Return what `renew` does with all of them written out, and a `ToCome` that has yet to write them."""
        to_come = ToCome(self.session, [self._variant(number, False) for number in range(calls)])
        return to_come.places, self._seeds(calls), to_come

    def _seeds(self, calls: int) -> list[int] | None:
        return [self.chance.getrandbits(31) for _ in range(calls)] if self.session.traits.stochastic else None

    def _variant(self, number: int, timed: bool) -> Variant:
        session, chance, traits = self.session, self.chance, self.session.traits
        if session.variation == "bank":
            trial = self.unseen.pop() if timed and self.unseen else chance.choice(session.own[:2])
            # A set that lay in the pool before its turn could be computed ahead.
            return session.place(trial, session.slots + number * session.slot_bytes)
        if session.variation == DRAWN:
            return session.drawn(chance.getrandbits(40))
        trial, jitters = chance.choice(session.own), session.variation == "jitter"
        size = 0.5 + chance.random() if traits.fixed_inputs and (jitters or not traits.still) else 1.0
        if jitters:
            return session.lasting(trial, factor=size)
        other = chance.choice([another for another in session.own if another is not trial])
        turned, whole = session.lasting(other, self._cuts(other)), session.lasting(trial).specs
        # Tensors that stay as the problem drew them are the first set's on both sides.
        specs = tuple(whole[i] if i in traits.still else spec for i, spec in enumerate(turned.specs))
        mixed = session.lasting(trial, self._cuts(trial), size)
        return replace(mixed, others=specs, other_cuts=turned.cuts, share=chance.uniform(0.1, 0.9))

    def _cuts(self, trial: Trial) -> tuple[int, ...]:
        still = self.session.traits.still
        return tuple(0 if number in still else self._cut(spec) for number, spec in enumerate(trial.specs))

    def _cut(self, spec: TensorSpec) -> int:
        count, variation = spec.elements(), self.session.variation
        if count < 2 or spec.strides or variation == "mixed_in_place":
            return 0
        return 0 if variation == "mixed_floats" and not is_floating(spec) else self.chance.randrange(1, count)


class ToCome:
    """Inputs that are written one after another to `places`, without their recipe: that would reveal what otherwise
    costs reading all of them.
    """

    def __init__(self, session: ProblemSession, variants: list[Variant]) -> None:
        self._session, self._variants = session, variants
        self.places = [session.to_write_out(variant, number) for number, variant in enumerate(variants)]

    def write(self, number: int, *, blank: bool = False) -> None:
        """Write one call's inputs, or (`blank`) zeros in their place."""
        self._session.write_out(self._variants[number], self.places[number], blank=blank)

    def write_all(self, *, blank: bool = False) -> None:
        for number in range(len(self._variants)):
            self.write(number, blank=blank)
