"""The exemplar actor: the one writer of the replay buffer, read by the builders of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cudal1_ray.actors.member import FleetMember
from cudal1_ray.checking import ServedExemplars, served_buffers
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer, ExemplarsConfig, Selection, select
from cudal1_ray.exemplars.hardware_buffers import copy_exemplars, fastest_elsewhere, switch
from cudal1_ray.files import replacing_folder, settle_folder


class ExemplarActor(FleetMember):
    """Owns the buffer of one run. Every insert is on disk before it is acknowledged, so a death loses nothing."""

    def __init__(self, folder: str, config: ExemplarsConfig):
        self._folder, self._config = Path(folder), config
        settle_folder(self._folder)  # after a `rewind` that was killed
        self._buffer = ServedExemplars(ExemplarBuffer.open(self._folder, create=True))

    def use_hardware(self, hardware: str, best_of_others: int) -> list[Exemplar]:
        """Serve what was measured on this hardware from now on; see `hardware_buffers.switch`.

        Returns:
            What others measured, to be measured again before a prompt shows it: see `fastest_elsewhere`.
        """
        if switch(self._folder, hardware):
            self._buffer = ServedExemplars(ExemplarBuffer.open(self._folder))
        others = (buffer for place, buffer in served_buffers(self._folder) if place != self._folder)
        return fastest_elsewhere(others, best_of_others, self._buffer.served)

    def insert(self, exemplars: Sequence[Exemplar]) -> int:
        """Add what is new (by normalised code) and not withheld, and save; return how many were new. Safe to repeat."""
        added = self._buffer.insert(exemplars)
        self._buffer.save()
        return added

    def rewind(self, policy_version: int) -> None:
        """Drop what this version of the policy or a later one wrote: the run goes on from that version's checkpoint.
        On disk when this returns.
        """

        def is_kept(exemplar: Exemplar) -> bool:
            return exemplar.step == 0 or exemplar.policy_version < policy_version

        if all(map(is_kept, self._buffer.served)):
            return
        with replacing_folder(self._folder) as partial:
            copy_exemplars(self._folder, partial, is_kept)
        self._buffer = ServedExemplars(ExemplarBuffer.open(self._folder))

    def select(self, problem_ids: Sequence[str], seed: int) -> list[Selection]:
        """Return one selection per problem id, drawn by the configured strategy; the same seed draws the same."""
        rng = np.random.default_rng(seed)
        return [select(self._buffer.served, problem_id, self._config, rng) for problem_id in problem_ids]

    def best(self, problem_id: str) -> Exemplar | None:
        return self._buffer.served.best(problem_id)

    def best_speedups(self, problem_ids: Sequence[str]) -> dict[str, float]:
        """Return the best credited speedup of each problem so far; 0.0 where there is none."""
        best = {problem_id: self.best(problem_id) for problem_id in problem_ids}
        return {problem_id: exemplar.speedup if exemplar else 0.0 for problem_id, exemplar in best.items()}

    def withhold(self, candidates: Sequence[tuple[str, str]]) -> int:
        """Withhold these (problem id, code) for good, and refuse them from now on; return how many are new. On disk on
        return.
        """
        return self._buffer.withhold(candidates)

    def size(self) -> int:
        return len(self._buffer)
