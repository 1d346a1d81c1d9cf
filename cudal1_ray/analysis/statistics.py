"""Statistics of speedups grouped by problem, with seeded two-level bootstrap intervals.

A group of samples is a `SampleSet`: P problems with up to n samples each. A failed sample has speedup 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

# Speedup as which a failure, and any candidate slower than that, counts in a geometric mean: in steps, assessments,
# reports and benchmarks alike.
FAILURE_IN_GEOMEAN = 0.1
# Speedup above which a candidate counts as faster in the paper's table.
COUNTS_AS_FASTER = 1.01
# Draws of every bootstrap: the ends of a 95% interval then vary by some 3% of its width.
DRAWS = 2000
# Seed of the bootstrap, so that the same samples always have the same intervals.
SEED = 0
# Coverage of the intervals.
CONFIDENCE = 0.95
# Entries of the resampled arrays: bounds their memory to some tens of megabytes.
_CHUNK_ENTRIES = 2_000_000

INTERVAL_METRICS = ("success_rate", "mean", "geomean", "median")


@dataclass(frozen=True)
class SampleSet:
    """Samples of P problems, padded to the largest number n of samples.

    speedups: (P, n) float64, 0 for a failure, NaN where padded. accepted: (P, n) float64 of 1, 0, NaN where
    padded. counts: (P,) int64, samples of each problem, each at least 1.
    """

    problem_ids: tuple[str, ...]
    speedups: np.ndarray
    accepted: np.ndarray
    counts: np.ndarray

    @property
    def balanced(self) -> bool:
        return bool((self.counts == self.counts[0]).all())

    def restricted(self, problem_ids: Sequence[str]) -> SampleSet:
        """Return the samples of these problems only, in this order. Raises KeyError for an unknown one."""
        place = {problem_id: i for i, problem_id in enumerate(self.problem_ids)}
        rows = [place[problem_id] for problem_id in problem_ids]
        return SampleSet(tuple(problem_ids), self.speedups[rows], self.accepted[rows], self.counts[rows])


def sample_set(by_problem: Mapping[str, Sequence[tuple[bool, float]]]) -> SampleSet:
    """Pack {problem_id: [(accepted, speedup), ...]}; a rejected or non-finite sample gets speedup 0."""
    problems = {problem_id: samples for problem_id, samples in sorted(by_problem.items()) if len(samples)}
    width = max((len(samples) for samples in problems.values()), default=0)
    speedups = np.full((len(problems), width), np.nan)
    accepted = np.full((len(problems), width), np.nan)
    for row, samples in enumerate(problems.values()):
        for column, (is_accepted, speedup) in enumerate(samples):
            good = is_accepted and math.isfinite(speedup) and speedup >= 0
            accepted[row, column] = float(is_accepted)
            speedups[row, column] = speedup if good else 0.0
    counts = np.array([len(samples) for samples in problems.values()], dtype=np.int64)
    return SampleSet(tuple(problems), speedups, accepted, counts)


def geometric_mean(speedups: Sequence[float] | np.ndarray, floor: float = FAILURE_IN_GEOMEAN) -> float:
    """Return exp(mean(log(max(s, floor)))) over the finite entries of `speedups` (any shape, one entry at least)."""
    values = np.asarray(speedups, dtype=float)
    return float(np.exp(np.mean(np.log(np.maximum(values[~np.isnan(values)], floor)))))


def geometric_ratio(ratios: Sequence[float]) -> tuple[float, list[float] | None]:
    """Return the geometric mean of ratios and its 95% Student t interval; None as interval for a single ratio."""
    logs = np.log(ratios)
    interval = t_interval(logs)
    return float(np.exp(logs.mean())), [math.exp(bound) for bound in interval] if interval else None


def describe(
    speedups: np.ndarray, accepted: np.ndarray, *, floor: float = FAILURE_IN_GEOMEAN, faster: float = COUNTS_AS_FASTER
) -> dict[str, float]:
    """Return the columns of the paper's table over the finite entries of `speedups` and `accepted` (same shape)."""
    present = ~np.isnan(speedups)
    values, successes = speedups[present], accepted[present]
    p25, median, p75 = np.percentile(values, [25, 50, 75])
    return {
        "success_rate": float(successes.mean()),
        "mean": float(values.mean()),
        "geomean": geometric_mean(values, floor),
        "median": float(median),
        "p25": float(p25),
        "p75": float(p75),
        "max": float(values.max()),
        "above_1_01": float((values > faster).mean()),
    }


def _draws(
    sides: Sequence[SampleSet], draws: int, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Yield the problems drawn (b, P, 1), the same on all sides, and the samples drawn (b, P, n) of each side."""
    problems, width = len(sides[0].counts), max(side.speedups.shape[1] for side in sides)
    chunk = max(1, _CHUNK_ENTRIES // max(1, problems * width))
    for start in range(0, draws, chunk):
        size = min(chunk, draws - start)
        chosen = rng.integers(problems, size=(size, problems))[..., None]
        yield (
            chosen,
            [
                (rng.random((size, problems, side.speedups.shape[1])) * side.counts[chosen]).astype(np.int64)
                for side in sides
            ],
        )


def _resample(samples: SampleSet, array: np.ndarray, chosen: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return (b, P, n) resampled entries of `array`, NaN where the drawn problem has fewer samples."""
    drawn = array[chosen, index]
    return drawn if samples.balanced else np.where(np.arange(array.shape[1]) < samples.counts[chosen], drawn, np.nan)


def bootstrap_intervals(samples: SampleSet, *, draws: int = DRAWS, seed: int = SEED) -> dict[str, list[float]]:
    """Return percentile bootstrap intervals of INTERVAL_METRICS: problems, then their samples, resampled.

    Where every sample succeeded, or none did, resampling shows nothing of the success rate; its
    interval is then the exact binomial one over problems (Clopper and Pearson 1934), which leans to the wide
    side. A single problem shows nothing of others: it has that interval alone.
    """
    mean, median = (np.mean, np.median) if samples.balanced else (np.nanmean, np.nanmedian)
    collected: dict[str, list[np.ndarray]] = {name: [] for name in INTERVAL_METRICS}
    logs = np.log(np.maximum(samples.speedups, FAILURE_IN_GEOMEAN))
    several = len(samples.counts) > 1
    for chosen, [index] in _draws([samples], draws, np.random.default_rng(seed)) if several else ():
        accepted, speedups, drawn_logs = (
            _resample(samples, array, chosen, index).reshape(len(chosen), -1)
            for array in (samples.accepted, samples.speedups, logs)
        )
        collected["success_rate"].append(mean(accepted, axis=1))
        collected["mean"].append(mean(speedups, axis=1))
        collected["geomean"].append(np.exp(mean(drawn_logs, axis=1)))
        collected["median"].append(median(speedups, axis=1))
    intervals = {name: percentile_interval(np.concatenate(parts)) for name, parts in collected.items() if parts}
    rate = float(np.nanmean(samples.accepted))
    if rate in (0.0, 1.0):
        intervals["success_rate"] = extreme_share_interval(rate, len(samples.counts))
    return intervals


def extreme_share_interval(share: float, count: int) -> list[float]:
    """Return the exact binomial interval of a share of 0.0 or 1.0 among `count` (Clopper and Pearson 1934)."""
    bound = ((1.0 - CONFIDENCE) / 2.0) ** (1.0 / count)
    return [bound, 1.0] if share == 1.0 else [0.0, 1.0 - bound]


def percentile_interval(draws: Sequence[float] | np.ndarray) -> list[float]:
    """Return [low, high] holding the central `CONFIDENCE` of the draws (1-d)."""
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(draws, [tail, 100.0 - tail])
    return [float(low), float(high)]


def paired_log_geomean_draws(first: SampleSet, second: SampleSet) -> np.ndarray:
    """Return (DRAWS,) bootstrap draws of log geomean(second) - log geomean(first), over the same problems.

    The problems of a draw are the same on both sides (that is the pairing: hard problems cancel); samples
    within a problem are resampled on each side by itself. Each problem has equal weight.
    """
    if first.problem_ids != second.problem_ids:
        raise ValueError("a paired bootstrap needs the same problems in the same order on both sides")
    out = []
    logs_of_sides = [np.log(np.maximum(side.speedups, FAILURE_IN_GEOMEAN)) for side in (first, second)]
    for chosen, indices in _draws([first, second], DRAWS, np.random.default_rng(SEED)):
        ours, theirs = (
            np.nanmean(_resample(side, logs, chosen, index), axis=2).mean(axis=1)
            for side, logs, index in zip((first, second), logs_of_sides, indices, strict=True)
        )
        out.append(theirs - ours)
    return np.concatenate(out)


def t_interval(values: Sequence[float] | np.ndarray) -> list[float] | None:
    """Return the 95% Student t interval of the mean of `values`; None for fewer than two values."""
    if len(values) < 2:
        return None
    from scipy.special import stdtrit  # the quantile of Student's t; it takes half a second to import

    centre = float(np.mean(values))
    half = float(stdtrit(len(values) - 1, 0.975)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return [centre - half, centre + half]
