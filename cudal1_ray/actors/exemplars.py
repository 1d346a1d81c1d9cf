"""The exemplar actor: the one writer of the replay buffer, read by whoever builds prompts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cudal1_ray.actors.member import FleetMember
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer, ExemplarsConfig, Selection, select


class ExemplarActor(FleetMember):
    """Owns the buffer of one run. Every insert is on disk before it is acknowledged, so a death loses nothing."""

    def __init__(self, folder: str, config: ExemplarsConfig):
        self._buffer, self._config = ExemplarBuffer.open(Path(folder)), config

    def insert(self, exemplars: Sequence[Exemplar]) -> int:
        """Adds what is new (by normalised code) and saves; how many were new. Safe to repeat."""
        added = self._buffer.insert(exemplars)
        self._buffer.save()
        return added

    def select(self, problem_ids: Sequence[str], seed: int) -> list[Selection]:
        """One selection per problem id, drawn by the configured strategy; the same seed draws the same."""
        rng = np.random.default_rng(seed)
        return [select(self._buffer, problem_id, self._config, rng) for problem_id in problem_ids]

    def best(self, problem_id: str) -> Exemplar | None:
        return self._buffer.best(problem_id)

    def size(self) -> int:
        return len(self._buffer)
