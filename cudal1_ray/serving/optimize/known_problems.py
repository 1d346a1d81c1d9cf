"""Problems that a run has worked on: which of them a module is, and what the run found for it.

The run's folder is only ever read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cudal1_ray.checking import served_buffers
from cudal1_ray.config import read_settings, with_settings
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import Exemplar, ExemplarsConfig, select
from cudal1_ray.problems import ProblemsConfig, load_problems
from cudal1_ray.serving.optimize.rounds import PriorExemplars
from cudal1_ray.source.normal_form import normalise_code

# Seed of the draw: the same module starts from the same exemplars.
_SEED = 0


class KnownProblems:
    """The exemplars of a run, by the source of its problems: comments, docstrings and layout do not count.

    Args:
        run: a run's folder, with its `config.yaml` and `exemplars/`; empty: nothing is known.
        count: how many exemplars a module starts from.
        config: by which rule they are drawn; the fastest is always among them.

    Raises (constructor): UserError naming what of the folder cannot be read.
    """

    def __init__(self, run: str, count: int, config: ExemplarsConfig):
        self._count, self._config = count, config
        self._origin = Path(run).name
        self._folder = Path(run) / "exemplars"
        self._ids = _sources(Path(run)) if run and count else {}
        if self._ids:
            list(served_buffers(self._folder))  # a damaged one is reported now, not to a caller

    def of(self, source: str) -> PriorExemplars:
        """Return what is known of a module: nothing where the run had no such problem, or kept no exemplar of it. Those
        of other hardware count where the run has none of its own.

        The buffer is opened anew each time: the run may be going on.

        Raises:
            UserError: when its folder has been damaged meanwhile.
        """
        problem_id = self._ids.get(normalise_code(source))
        if problem_id is None:
            return PriorExemplars()
        for _, buffer in served_buffers(self._folder):
            if (best := buffer.best(problem_id)) is not None:
                break
        else:
            return PriorExemplars()
        chosen: list[Exemplar] = [best]
        rng = np.random.default_rng(_SEED)
        for _ in range(4 * self._count):  # each draw brings a few, and may bring the same ones again
            for exemplar in select(buffer, problem_id, self._config, rng).exemplars:
                if exemplar.speedup > 0.0 and exemplar not in chosen:
                    chosen.append(exemplar)
            if len(chosen) >= self._count:
                break
        return PriorExemplars(tuple(chosen[: self._count]), self._origin)


def _sources(run: Path) -> dict[str, str]:
    """Return the problem ids of a run by the normalised source of each problem."""
    try:
        settings = read_settings(run, "problems")["problems"]
        config = with_settings(ProblemsConfig(), settings, f"{run / 'config.yaml'}: problems")
    except UserError as error:
        raise UserError(f"optimize.known_run: {error}") from None
    if config.path and not Path(config.path).exists():  # relative to where the run was started: beside runs/
        config.path = str(run.parent.parent / config.path)
    try:
        problems = load_problems(config)
    except UserError as error:
        raise UserError(f"optimize.known_run={run}: its problems cannot be loaded: {error}") from None
    return {normalise_code(problem.source): problem.problem_id for problem in problems}
