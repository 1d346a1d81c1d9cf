"""Figures of an arm's samples over problems and seeds, with bootstrap intervals over both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cudal1_ray.analysis.changes import FASTER
from cudal1_ray.analysis.statistics import DRAWS, FAILURE_IN_GEOMEAN, extreme_share_interval, percentile_interval

# Rounds of `DRAWS` draws of a ratio: with one, the bound that decides a claim lay above 1 with 30 of 100 seeds.
ROUNDS = 10
SHARES = ("success", "own_kernel", "copied", "above_shown", "fast_1", "fast_1_2", "above_1_01")


@dataclass(frozen=True)
class Samples:
    """Samples of an arm: speedups, own kernels, copies and the speedups of the fastest exemplars shown, each [seeds,
    problems, samples]; a failure has speedup 0. `fastest_shown` is 0 where no right exemplar was, NaN where that is not
    known.

    Only problems that every seed has are in it. `counts`, [seeds, problems], is the number of a problem's samples: what
    comes after them fills the arrays up.
    """

    seeds: tuple[str, ...]
    problems: tuple[str, ...]
    speedups: np.ndarray
    own: np.ndarray
    copied: np.ndarray
    fastest_shown: np.ndarray
    counts: np.ndarray

    def of(self, seeds: Sequence[str], problems: Sequence[str]) -> Samples:
        """Return the samples of these seeds and problems alone, in this order."""
        rows = np.ix_(
            [self.seeds.index(seed) for seed in seeds], [self.problems.index(problem) for problem in problems]
        )
        arrays = (array[rows] for array in (self.speedups, self.own, self.copied, self.fastest_shown, self.counts))
        return Samples(tuple(seeds), tuple(problems), *arrays)

    @property
    def without_copies(self) -> Samples:
        """Return the same samples, a copy being a failure."""
        return replace(self, speedups=np.where(self.copied, 0.0, self.speedups), own=self.own & ~self.copied)

    @property
    def there(self) -> np.ndarray:
        """Return which entries of the arrays are samples, [seeds, problems, samples]."""
        return np.arange(self.speedups.shape[2]) < self.counts[..., None]


def samples_of(assessed_by_seed: Mapping[str, Mapping[str, Sequence[Sequence[Any]]]]) -> Samples | None:
    """Pack the samples of an arm.

    Args:
        assessed_by_seed: by seed and problem a list of [speedup, whether it has an own kernel, whether it is a copy,
            speedup of the fastest exemplar shown, None where it is not known]; results from before have no last one.

    Returns:
        The samples, None where the seeds share no problem.
    """
    problems = sorted(set.intersection(*(set(of) for of in assessed_by_seed.values()))) if assessed_by_seed else []
    if not problems:
        return None
    counts = np.array([[len(of[problem]) for problem in problems] for of in assessed_by_seed.values()])
    packed = np.zeros((*counts.shape, counts.max(), 4))
    for row, of in zip(packed, assessed_by_seed.values(), strict=True):
        for place, problem in zip(row, problems, strict=True):
            place[: len(of[problem])] = np.array([[*sample, None][:4] for sample in of[problem]], dtype=np.float64)
    speedups, own, copied, fastest_shown = np.moveaxis(packed, -1, 0)
    return Samples(tuple(assessed_by_seed), tuple(problems), speedups, own > 0, copied > 0, fastest_shown, counts)


def columns(samples: Samples, seed: int = 0) -> dict[str, Any]:
    """Return the columns of the table, and `intervals` of those that are means over samples.

    success, own_kernel, copied, fast_1, fast_1_2 and above_1_01 are shares of all samples, each problem counting alike;
    above_shown is the share of those that are no copies and faster than every exemplar in their prompt, None where no
    prompt showed any, or that is not known of all.
    A failure counts as 0 in mean, median and percentiles and as `FAILURE_IN_GEOMEAN` in the geometric mean;
    `geomean_right` is that of right samples alone, None without any. A share of 0 or 1 has the exact binomial interval
    over problems (Clopper and Pearson 1934), as resampling would give it none.
    """
    values = _values(samples)
    flat = samples.speedups[samples.there]
    p25, median, p75 = np.percentile(flat, [25, 50, 75])
    figures: dict[str, Any] = {name: float(_means(array, samples.there)) for name, array in values.items()}
    figures["geomean"] = float(np.exp(figures["geomean"]))
    figures["geomean_right"] = float(np.exp(np.log(flat[flat > 0]).mean())) if (flat > 0).any() else None
    figures |= {"median": float(median), "p25": float(p25), "p75": float(p75), "max": float(flat.max())}
    figures |= {"problems": len(samples.problems), "seeds": len(samples.seeds), "samples": int(flat.size)}
    places, valid = _draws(samples, seed, 0)
    draws = {name: _means(array[places], valid) for name, array in values.items()}
    draws["geomean"] = np.exp(draws["geomean"])
    if np.isnan(samples.fastest_shown).any() or not samples.fastest_shown.any():
        figures["above_shown"] = None
        del draws["above_shown"]
    intervals = {name: percentile_interval(drawn) for name, drawn in draws.items()}
    for name in SHARES:
        if figures[name] in (0.0, 1.0):  # all draws are the same
            intervals[name] = extreme_share_interval(figures[name], len(samples.problems))
    return figures | {"intervals": intervals}


def compare(first: Samples, second: Samples, seed: int = 0) -> dict[str, Any] | None:
    """Return the ratio of geometric means, second to first, over the problems and seeds of both, with its interval.

    A draw takes the same problems and seeds on both sides: hard problems cancel, and runs of a seed have the same
    start. None where they share none. `right` counts the right samples of both: without any the ratio means nothing.
    `without_copies` is the same with each copy as a failure.
    """
    result = _ratio(first, second, seed)
    return result and result | {"without_copies": _ratio(first.without_copies, second.without_copies, seed)}


def _ratio(first: Samples, second: Samples, seed: int) -> dict[str, Any] | None:
    """Return what `compare` does of samples as they are."""
    problems = [problem for problem in first.problems if problem in second.problems]
    seeds = [name for name in first.seeds if name in second.seeds]
    if not problems or not seeds:
        return None
    sides = [side.of(seeds, problems) for side in (first, second)]
    logs = [_values(side)["geomean"] for side in sides]
    means = [_means(values, side.there) for values, side in zip(logs, sides, strict=True)]
    differences = []
    for number in range(seed * ROUNDS, (seed + 1) * ROUNDS):
        # Both have generators of the same seed for seeds and problems, and of their own for samples.
        draws = [_draws(side, number, which) for which, side in enumerate(sides)]
        drawn = [_means(values[places], valid) for values, (places, valid) in zip(logs, draws, strict=True)]
        differences.append(drawn[1] - drawn[0])
    ratio = float(np.exp(means[1] - means[0]))
    interval = percentile_interval(np.exp(np.concatenate(differences)))
    right = sum(int((side.speedups[side.there] > 0).sum()) for side in sides)
    return {"ratio": ratio, "interval": interval, "problems": len(problems), "seeds": len(seeds), "right": right}


def _values(samples: Samples) -> dict[str, np.ndarray]:
    """Return what is averaged over samples; of the geometric mean the logarithm."""
    speedups = samples.speedups
    return {
        "success": speedups > 0,
        "own_kernel": samples.own,
        "copied": samples.copied,
        "above_shown": (samples.fastest_shown > 0) & ~samples.copied & (speedups > FASTER * samples.fastest_shown),
        "fast_1": speedups > 1.0,
        "fast_1_2": speedups > 1.2,
        "above_1_01": speedups > 1.01,
        "mean": speedups,
        "geomean": np.log(np.maximum(speedups, FAILURE_IN_GEOMEAN)),
    }


def _means(values: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return the means over seeds and problems of the mean over the valid samples of each; both arguments are [...,
    seeds, problems, samples].
    """
    sums = np.where(valid, values, 0.0).sum(axis=-1)
    return (sums / valid.sum(axis=-1)).mean(axis=(-2, -1))


def _draws(samples: Samples, seed: int, side: int) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Return the indices of all draws, broadcast to [draws, seeds, problems, samples]: runs, problems, samples; and
    which of them are valid: a drawn problem has as many samples as it was measured with.

    Args:
        seed: decides the runs and problems.
        side: with the seed decides the samples of each problem.
    """
    shared, own = np.random.default_rng(seed), np.random.default_rng((seed, 1 + side))  # (seed, 0) is `seed` again
    seeds, problems, count = samples.speedups.shape
    runs, drawn = shared.integers(seeds, size=(DRAWS, seeds)), shared.integers(problems, size=(DRAWS, problems))
    places = runs[:, :, None, None], drawn[:, None, :, None]
    counts = samples.counts[places]
    indices = own.integers(counts, size=(DRAWS, seeds, problems, count))
    return (*places, indices), np.arange(count) < counts
