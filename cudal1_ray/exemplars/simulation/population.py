"""Rounds of showing, writing and measuring: what one strategy makes of a world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cudal1_ray.errors import UserError
from cudal1_ray.exemplars.buffer import ExemplarBuffer
from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.exemplar import Exemplar, identity_of
from cudal1_ray.exemplars.features import CodeFeatures
from cudal1_ray.exemplars.simulation.policy import PolicyRule, Shown, Written, write
from cudal1_ray.exemplars.simulation.world import World
from cudal1_ray.exemplars.strategies import BUNDLED
from cudal1_ray.exemplars.view import ProblemView

NO_CODE = "unparsable"  # a completion that holds no candidate makes no exemplar
_FAILED_LOG = float(np.log(0.1))  # what a failure counts as in a geometric mean, as in the reports


@dataclass(frozen=True)
class Outcome:
    """What a strategy reached; P problems, R rounds after the start.

    best_log: float64[P, R + 1], true log speedup of the candidate that measured fastest so far. regret: float64[P,
    R + 1], log speedup of the best there is less best_log. written_log: float64[R], mean log speedup of what was
    written in a round, failures counted as 0.1. contrast: float64[R], mean of 1 - slowest / fastest over the exemplars
    of a prompt. shown: exemplars of a prompt, on average. distinct: float64[P], sets of techniques among the accepted
    exemplars at the end. copy_rate: share of accepted completions that are an exemplar shown.
    """

    best_log: np.ndarray
    written_log: np.ndarray
    regret: np.ndarray
    contrast: np.ndarray
    shown: float
    distinct: np.ndarray
    copy_rate: float


def simulate(
    world: World, config: ExemplarsConfig, rule: PolicyRule, *, rounds: int = 24, writes: int = 4, seed: int = 1
) -> Outcome:
    """Every round the strategy of `config` draws one prompt's exemplars for each problem from the buffer, the policy
    writes `writes` completions after `rule`, they are measured with noise, and the buffer takes what is new.

    The start, before round 1, are `writes` completions without exemplars: the same ones for every strategy. Raises
    UserError for a strategy that does not exist or a field that cannot work.
    """
    config.validate()
    if config.strategy not in BUNDLED:
        raise UserError(f"exemplars.strategy is {config.strategy!r}: use one of {', '.join(sorted(BUNDLED))}")
    start, draw, policy = (np.random.default_rng((seed, stream)) for stream in range(3))
    population = _Population(world, seed)
    nothing = _shown(world, [()] * len(world.problem_ids), population)
    population.take(write(world, rule, nothing, writes, start), [()] * len(world.problem_ids), 0)
    best, written, contrast, shown_count, copied, accepted = [population.best_log.copy()], [], [], 0, 0, 0
    for step in range(1, rounds + 1):
        positions = population.select(config, draw)
        shown = _shown(world, positions, population)
        answers = write(world, rule, shown, writes, policy)
        written.append(population.take(answers, positions, step))
        best.append(population.best_log.copy())
        contrast.append(shown.contrast().mean())
        shown_count += sum(map(len, positions))
        copied += int((answers.copies & answers.accepted).sum())
        accepted += int(answers.accepted.sum())
    best_log = np.stack(best, axis=1)
    return Outcome(
        best_log,
        np.array(written),
        world.best_log[:, None] - best_log,
        np.array(contrast),
        shown_count / (rounds * len(world.problem_ids)),
        population.distinct(),
        copied / accepted if accepted else 0.0,
    )


class _Population:
    """The buffer, and beside each of its exemplars the set of techniques and the variant that it stands for."""

    def __init__(self, world: World, seed: int) -> None:
        count = len(world.problem_ids)
        self._world, self._rng = world, np.random.default_rng((seed, 3))
        self._buffer = ExemplarBuffer()
        self.made: list[list[tuple[int, int]]] = [[] for _ in range(count)]  # (mask, variant) by position in the view
        self._known: list[set[tuple[int, int, bool]]] = [set() for _ in range(count)]
        self._best_measured = np.zeros(count)
        self.best_log = np.full(count, _FAILED_LOG)

    def view(self, problem: int) -> ProblemView:
        return self._buffer.view(self._world.problem_ids[problem])

    def select(self, config: ExemplarsConfig, rng: np.random.Generator) -> list[tuple[int, ...]]:
        """For each problem the positions that the strategy draws."""
        strategy = BUNDLED[config.strategy]
        return [strategy(self.view(p), config.count, rng, config).positions for p in range(len(self.made))]

    def take(self, answers: Written, shown: Sequence[tuple[int, ...]], step: int) -> float:
        """Measures and inserts what is new; returns the mean log speedup of all that was written."""
        true_log = self._world.true_log(answers.masks, answers.variants)
        measured = np.exp(true_log + self._world.noise * self._rng.standard_normal(true_log.shape))
        parents = [tuple(self.view(p).ids[i].decode() for i in positions) for p, positions in enumerate(shown)]
        new = []
        for p, row in enumerate(answers.masks.tolist()):
            for g, mask in enumerate(row):
                accepted, variant = bool(answers.accepted[p, g]), int(answers.variants[p, g])
                if (mask, variant, accepted) in self._known[p]:
                    continue  # written before: as in a run, the first measurement stands
                reasons = () if accepted else (self._world.reason(p, self._rng.random()),)
                if reasons == (NO_CODE,):
                    continue
                self._known[p].add((mask, variant, accepted))
                self.made[p].append((mask, variant))
                speedup = float(measured[p, g]) if accepted else 0.0
                new.append(self._exemplar(p, (mask, variant), speedup, reasons, parents[p], step))
                if speedup > self._best_measured[p]:
                    self._best_measured[p], self.best_log[p] = speedup, true_log[p, g]
        self._buffer.insert(new)
        return float(np.where(answers.accepted, np.maximum(true_log, _FAILED_LOG), _FAILED_LOG).mean())

    def _exemplar(
        self,
        problem: int,
        made: tuple[int, int],
        speedup: float,
        reasons: tuple[str, ...],
        parents: tuple[str, ...],
        step: int,
    ) -> Exemplar:
        problem_id, (mask, variant) = self._world.problem_ids[problem], made
        code = f"techniques {mask:b}, variant {variant}" + (", failed" if reasons else "")
        table = self._world.length, self._world.operations, self._world.sketch
        features = CodeFeatures(*(int(each[problem, mask]) for each in table))
        identity = identity_of(problem_id, code)
        return Exemplar(identity, problem_id, code, speedup, step, step, parents, reasons, features)

    def distinct(self) -> np.ndarray:
        return np.array([len({mask for mask, _, accepted in known if accepted}) for known in self._known], np.float64)


def _shown(world: World, positions: Sequence[tuple[int, ...]], population: _Population) -> Shown:
    width = max(1, *map(len, positions))
    masks, variants = (np.full((len(positions), width), -1) for _ in range(2))
    speedup = np.zeros((len(positions), width))
    for p, drawn in enumerate(positions):
        if drawn:
            made = [population.made[p][i] for i in drawn]
            masks[p, : len(drawn)], variants[p, : len(drawn)] = zip(*made, strict=True)
            speedup[p, : len(drawn)] = population.view(p).speedup[list(drawn)]
    return Shown(masks, variants, speedup)
