"""Robust location and confidence interval of paired log-ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtrit


@dataclass(frozen=True)
class Interval:
    """Location of log-ratios with its 95% interval: centre +- half_width."""

    centre: float
    half_width: float
    n: int

    @property
    def ratio(self) -> float:
        return math.exp(self.centre)

    @property
    def low(self) -> float:
        return math.exp(self.centre - self.half_width)

    @property
    def high(self) -> float:
        return math.exp(self.centre + self.half_width)


def trimmed_interval(values: list[float], trim: float = 0.2) -> Interval:
    """Trimmed mean with Yuen's interval (winsorised variance), good from about five values on.

    One-sided disturbances (another process on the core) leave it unmoved as long as they hit less than ``trim`` of
    the pairs. Infinite half width below three values.
    """
    n = len(values)
    if n == 0:
        return Interval(0.0, math.inf, 0)
    ordered = sorted(values)
    cut = int(trim * n)
    kept = ordered[cut : n - cut]
    centre = sum(kept) / len(kept)
    if n < 3:
        return Interval(centre, math.inf, n)
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    mean = sum(winsorised) / n
    variance = sum((value - mean) ** 2 for value in winsorised) / (n - 1)
    freedom = max(1, len(kept) - 1)
    t = student_t95(freedom)
    error = math.sqrt(variance) / ((1 - 2 * cut / n) * math.sqrt(n))
    return Interval(centre, t * error, n)


def combine_intervals(parts: list[Interval]) -> Interval:
    """Interquartile mean of independent measurements, each with its own interval (of three and four their median, of
    two their mean): now and then one is off by many times the others' spread. At least as wide as the spread of all of
    them says.
    """
    n = len(parts)
    centre = _interquartile_mean([part.centre for part in parts])
    within = math.sqrt(sum(part.half_width**2 for part in parts)) / n
    between = 0.0
    if n > 1:
        mean = sum(part.centre for part in parts) / n
        deviation = math.sqrt(sum((part.centre - mean) ** 2 for part in parts) / (n - 1))
        between = student_t95(n - 1) * deviation / math.sqrt(n)
    return Interval(centre, max(within, between), sum(part.n for part in parts))


def _interquartile_mean(values: list[float]) -> float:
    """A quarter of the weight is cut off at either end, at least one value's where there are more than two."""
    n = len(values)
    cut = max(1.0, n / 4) if n > 2 else 0.0
    weights = [max(0.0, min(i + 1, n - cut) - max(i, cut)) for i in range(n)]
    return sum(weight * value for weight, value in zip(weights, sorted(values), strict=True)) / sum(weights)


def student_t95(freedom: int) -> float:
    """Return the two-sided 95% point of Student's t."""
    return float(stdtrit(freedom, 0.975))


def trimmed_mean(values: Sequence[float], trim: float) -> float:
    """Mean without that share of the smallest and of the largest values; 0.0 of nothing."""
    cut = int(trim * len(values))
    kept = sorted(values)[cut : len(values) - cut]
    return sum(kept) / len(kept) if kept else 0.0


def bucket_means(values: list[float], buckets: int) -> tuple[float, ...]:
    """Means of consecutive parts whose sizes differ by at most one; empty when there are too few values."""
    if not 0 < buckets <= len(values):
        return ()
    size, longer = divmod(len(values), buckets)
    bounds = [i * size + min(i, longer) for i in range(buckets + 1)]
    return tuple(sum(values[a:b]) / (b - a) for a, b in zip(bounds, bounds[1:], strict=False))


def spread(values: list[float]) -> float:
    """Standard deviation as the median absolute deviation sees it: unmoved by outliers. 0.0 of nothing."""
    centre = median(values)
    return 1.4826 * median([abs(value - centre) for value in values])


def median(values: list[float]) -> float:
    """0.0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else 0.5 * (ordered[middle - 1] + ordered[middle])


def lower_quartile(values: list[float]) -> float:
    """The value that a quarter of them do not exceed; 0.0 of nothing."""
    return sorted(values)[(len(values) - 1) // 4] if values else 0.0
