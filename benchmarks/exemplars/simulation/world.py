"""Simulated problems: recorded ladders of speedups, resampled into techniques that add up, or interfere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.exemplars.simulation.recorded import Recorded, RecordedProblem
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars.features import OPERATIONS, SKETCH_BITS

# Least speedup: interfering techniques make nothing slower than this.
_SLOWEST = 0.05
# Weight of what all codes of a problem share, against one technique, in their sketches.
_BASE_WEIGHT = 3.0
# Characters that a technique adds to a code, from and to.
_CHARACTERS = (40, 240)
_BASE_CHARACTERS = 600


@dataclass(frozen=True)
class WorldConfig:
    """problems: how many are simulated. techniques: how many each has, T. variants: ways V to write the same set of
    techniques. interference: probability that two techniques of a problem get in each other's way. ease: the range of
    the probability that a completion comes up with a technique that it was not shown; drawn log-uniformly for each
    technique. seed: of everything that is drawn when the world is made.
    """

    problems: int = 1000
    techniques: int = 10
    variants: int = 4
    interference: float = 0.2
    ease: tuple[float, float] = (0.005, 0.1)
    seed: int = 1


@dataclass(frozen=True)
class World:
    """P problems; a candidate is a set of techniques (the bits of a mask below 2^T) in one of V variants.

    log_speedup: float64[P, 2^T], of a set. variant_log: float64[P, 2^T, V], what a variant adds to it. best_log:
    float64[P], of the fastest candidate there is. ease: float64[P, T]. failure: float64[P], recorded failure rate.
    reasons: for each problem the reasons of failures and the running sums of their shares. length, operations:
    int32[P, 2^T]; sketch: uint64[P, 2^T]. noise: standard deviation of a measured log speedup.
    """

    problem_ids: tuple[str, ...]
    log_speedup: np.ndarray
    variant_log: np.ndarray
    best_log: np.ndarray
    ease: np.ndarray
    failure: np.ndarray
    reasons: tuple[tuple[tuple[str, ...], np.ndarray], ...]
    length: np.ndarray
    operations: np.ndarray
    sketch: np.ndarray
    noise: float
    techniques: int
    variants: int

    def true_log(self, masks: np.ndarray, variants: np.ndarray) -> np.ndarray:
        """Return the log speedups, float64[P, G], of candidates given as int64[P, G], one row for each problem."""
        rows = np.arange(len(self.problem_ids))[:, None]
        return self.log_speedup[rows, masks] + self.variant_log[rows, masks, variants]

    def reason(self, problem: int, chance: float) -> str:
        """Return why a completion of the problem failed, by a uniform number in [0, 1)."""
        names, sums = self.reasons[problem]
        return names[min(int(np.searchsorted(sums, chance, side="right")), len(names) - 1)]


def build_world(recorded: Recorded, config: WorldConfig) -> World:
    """Resample the recorded problems into `config.problems` simulated ones.

    Each takes one recorded problem at random, with its failure rate and reasons. The steps of its ladder,
    ln(s_(k+1) / s_(k)) of the recorded speedups in order, drawn T times with replacement, are what its techniques gain.
    A set of techniques gains the sum over its members, less, for each interfering pair in it, the larger gain of its
    two: only the smaller one of such a pair counts, and to have the larger the other must go. All is scaled so that
    the empty set has the slowest recorded speedup and the best set the fastest. Variants of a set differ from one
    another as two measurements of one candidate do.

    Raises:
        UserError: when no recorded problem has two speedups.
    """
    rng = np.random.default_rng(config.seed)
    ladders = [problem for problem in recorded.problems if len(set(problem.speedups)) > 1]
    if not ladders:
        raise UserError(f"{recorded.source}: no problem with two accepted candidates of different speed to simulate")
    techniques, sets = config.techniques, 1 << config.techniques
    bits = (np.arange(sets)[:, None] >> np.arange(techniques)) & 1
    taken = [ladders[i] for i in rng.integers(len(ladders), size=config.problems)]
    log_speedup = np.stack([_log_speedups(problem, bits, config, rng) for problem in taken])
    variant_log = recorded.noise * rng.standard_normal((len(taken), sets, config.variants))
    length, operations, sketch = zip(*(_features(bits, rng) for _ in taken), strict=True)
    low, high = np.log(config.ease)
    return World(
        problem_ids=tuple(f"{problem.problem_id}/{number}" for number, problem in enumerate(taken)),
        log_speedup=log_speedup,
        variant_log=variant_log,
        best_log=(log_speedup[..., None] + variant_log).max(axis=(1, 2)),
        ease=np.exp(rng.uniform(low, high, size=(len(taken), techniques))),
        failure=np.array([problem.failure_rate for problem in taken]),
        reasons=tuple(_shares(problem) for problem in taken),
        length=np.stack(length),
        operations=np.stack(operations),
        sketch=np.stack(sketch),
        noise=recorded.noise,
        techniques=techniques,
        variants=config.variants,
    )


def _log_speedups(
    problem: RecordedProblem, bits: np.ndarray, config: WorldConfig, rng: np.random.Generator
) -> np.ndarray:
    """Return the log speedup of every set of techniques of one simulated problem, float64[2^T]."""
    ladder = np.log(np.unique(problem.speedups))
    gain = rng.choice(np.diff(ladder), size=bits.shape[1])
    pairs = np.triu(rng.random((len(gain), len(gain))) < config.interference, 1)
    total = bits @ gain - np.einsum("mi,ij,mj->m", bits, pairs * np.maximum.outer(gain, gain), bits, optimize=True)
    scaled = ladder[0] + total * (ladder[-1] - ladder[0]) / total.max()
    return np.maximum(scaled, np.log(_SLOWEST))


def _features(bits: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return length, operations and sketch of every set: each technique adds text, and is of one family of means."""
    techniques = bits.shape[1]
    length = _BASE_CHARACTERS + bits @ rng.integers(*_CHARACTERS, size=techniques)
    families = 1 << rng.integers(len(OPERATIONS), size=techniques)
    operations = np.bitwise_or.reduce(np.where(bits, families, 0), axis=1)
    sides = bits @ rng.standard_normal((techniques, SKETCH_BITS)) + _BASE_WEIGHT * rng.standard_normal(SKETCH_BITS)
    sketch = np.packbits(sides > 0, axis=1).view(np.uint64)[:, 0]
    return length.astype(np.int32), operations.astype(np.int32), sketch


def _shares(problem: RecordedProblem) -> tuple[tuple[str, ...], np.ndarray]:
    names: Sequence[str] = tuple(problem.reasons) or ("runtime_error",)
    counts = np.array([problem.reasons.get(name, 1) for name in names], np.float64)
    return tuple(names), np.cumsum(counts / counts.sum())
