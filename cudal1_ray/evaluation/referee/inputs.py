"""Inputs of timed calls: values that no call before had, made out of sets that lie in the pool."""

from __future__ import annotations

import random

from ..exchange.tensors import TensorSpec
from ..exchange.variant import Variant, is_floating
from .session import ProblemSession


class Inputs:
    """New inputs for every batch."""

    def __init__(self, session: ProblemSession, chance: random.Random) -> None:
        self.session, self.chance = session, chance
        trial = session.own[0]
        memory = session.config.timing.batch_memory_mib << 20
        fit = memory // (trial.input_bytes + trial.output_bytes + 1)
        self.most_calls = max(1, min(session.config.timing.max_batch_calls, fit))

    def renew(self, calls: int) -> tuple[list[Variant], list[int] | None]:
        """What ``calls`` calls are given; seeds where the model draws random numbers."""
        session, chance = self.session, self.chance
        variants = [self._variant(number) for number in range(calls)]
        seeds = [chance.getrandbits(31) for _ in range(calls)] if session.opened["stochastic"] else None
        return variants, seeds

    def _variant(self, number: int) -> Variant:
        session, chance = self.session, self.chance
        trial = chance.choice(session.own)
        if session.variation == "bank":  # a set that lay in the pool before its time could be computed ahead
            return session.place(trial, session.slots + number * session.slot_bytes)
        if session.variation == "jitter":
            return session.lasting(trial, factor=0.5 + chance.random())
        floats_only = session.variation == "rotated_floats"
        return session.lasting(trial, cuts=tuple(self._cut(spec, floats_only) for spec in trial.specs))

    def _cut(self, spec: TensorSpec, floats_only: bool) -> int:
        count = spec.elements()
        if count < 2 or spec.strides or (floats_only and not is_floating(spec)):
            return 0
        return self.chance.randrange(1, count)
