"""Rounds of showing, writing and measuring: what one strategy makes of a world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.exemplars.simulation.policy import PolicyRule, PromptExemplars, Written, write
from benchmarks.exemplars.simulation.world import World
from cudal1_ray.analysis.statistics import FAILURE_IN_GEOMEAN
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars.buffer import ExemplarBuffer
from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.exemplar import Exemplar, identity_of
from cudal1_ray.exemplars.features import CodeFeatures
from cudal1_ray.exemplars.strategies import BUNDLED

# Reason of a completion that holds no candidate, and so makes no exemplar.
NO_CODE = "unparsable"
_FAILED_LOG = float(np.log(FAILURE_IN_GEOMEAN))


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
    """Run rounds of drawing, writing, measuring and storing, and return what became of them.

    In each the strategy of `config` draws one prompt's exemplars for each problem from the buffer, the policy writes
    `writes` completions after `rule`, they are measured with noise, and the buffer takes what is new.

    The start, before round 1, are `writes` completions without exemplars: the same ones for every strategy. Raises
    UserError for a strategy that does not exist or a field that cannot work.
    """
    config.validate()
    if config.strategy not in BUNDLED:
        raise UserError(f"exemplars.strategy is {config.strategy!r}: use one of {', '.join(sorted(BUNDLED))}")
    start, draw, policy = (np.random.default_rng((seed, stream)) for stream in range(3))
    population = _Population(world, seed)
    nothing = [()] * len(world.problem_ids)
    population.take(write(world, rule, _pad_exemplars(nothing), writes, start), nothing, 0)
    best, written, contrast, shown_count, copied, accepted = [population.best_log.copy()], [], [], 0, 0, 0
    for step in range(1, rounds + 1):
        prompts = population.select(config, draw)
        exemplars = _pad_exemplars(prompts)
        answers = write(world, rule, exemplars, writes, policy)
        written.append(population.take(answers, prompts, step))
        best.append(population.best_log.copy())
        contrast.append(exemplars.contrast().mean())
        shown_count += sum(map(len, prompts))
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


class _Member(NamedTuple):
    """What an exemplar of the buffer stands for: a set of techniques in a variant, measured at this speedup."""

    mask: int
    variant: int
    speedup: float
    identity: str


class _Population:
    """The buffer, and for each problem its members, in the order of the buffer's view."""

    def __init__(self, world: World, seed: int) -> None:
        count = len(world.problem_ids)
        self._world, self._rng = world, np.random.default_rng((seed, 3))
        self._buffer = ExemplarBuffer()
        self._members: list[list[_Member]] = [[] for _ in range(count)]
        self._known: list[set[tuple[int, int, bool]]] = [set() for _ in range(count)]
        self._best_measured = np.zeros(count)
        self.best_log = np.full(count, _FAILED_LOG)

    def select(self, config: ExemplarsConfig, rng: np.random.Generator) -> list[list[_Member]]:
        """Return what the strategy draws for each problem."""
        strategy, views = BUNDLED[config.strategy], map(self._buffer.view, self._world.problem_ids)
        draws = (strategy(view, config.count, rng, config).positions for view in views)
        return [[members[i] for i in drawn] for members, drawn in zip(self._members, draws, strict=True)]

    def take(self, answers: Written, prompts: Sequence[Sequence[_Member]], step: int) -> float:
        """Measure and insert what is new; return the mean log speedup of all that was written."""
        true_log = self._world.true_log(answers.masks, answers.variants)
        measured = np.exp(true_log + self._world.noise * self._rng.standard_normal(true_log.shape))
        parents = [tuple(member.identity for member in prompt) for prompt in prompts]
        new = []
        for problem, row in enumerate(answers.masks.tolist()):
            for sample, mask in enumerate(row):
                accepted, variant = bool(answers.accepted[problem, sample]), int(answers.variants[problem, sample])
                if (mask, variant, accepted) in self._known[problem]:
                    continue  # written before: as in a run, the first measurement stands
                reasons = () if accepted else (self._world.reason(problem, self._rng.random()),)
                if reasons == (NO_CODE,):
                    continue
                self._known[problem].add((mask, variant, accepted))
                speedup = float(measured[problem, sample]) if accepted else 0.0
                new.append(self._exemplar(problem, (mask, variant), speedup, reasons, parents[problem], step))
                self._members[problem].append(_Member(mask, variant, speedup, new[-1].exemplar_id))
                if speedup > self._best_measured[problem]:
                    self._best_measured[problem], self.best_log[problem] = speedup, true_log[problem, sample]
        self._buffer.insert(new)
        return float(np.where(answers.accepted, np.maximum(true_log, _FAILED_LOG), _FAILED_LOG).mean())

    def _exemplar(
        self,
        problem: int,
        candidate: tuple[int, int],
        speedup: float,
        reasons: tuple[str, ...],
        parents: tuple[str, ...],
        step: int,
    ) -> Exemplar:
        problem_id, (mask, variant) = self._world.problem_ids[problem], candidate
        code = f"techniques {mask:b}, variant {variant}" + (", failed" if reasons else "")
        table = self._world.length, self._world.operations, self._world.sketch
        features = CodeFeatures(*(int(each[problem, mask]) for each in table))
        identity = identity_of(problem_id, code)
        return Exemplar(identity, problem_id, code, speedup, step, step, parents, reasons, features)

    def distinct(self) -> np.ndarray:
        return np.array(
            [len({mask for mask, _, accepted in candidates if accepted}) for candidates in self._known], np.float64
        )


def _pad_exemplars(prompts: Sequence[Sequence[_Member]]) -> PromptExemplars:
    width = max(1, *map(len, prompts))
    masks, variants = (np.full((len(prompts), width), -1) for _ in range(2))
    speedup = np.zeros((len(prompts), width))
    for row, prompt in enumerate(prompts):
        for column, member in enumerate(prompt):
            masks[row, column], variants[row, column], speedup[row, column] = (
                member.mask,
                member.variant,
                member.speedup,
            )
    return PromptExemplars(masks, variants, speedup)
