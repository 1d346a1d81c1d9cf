"""Robust location, spread and confidence intervals of times and of their log ratios.

Functions that are called again and again while the device is held are written out: scipy.stats takes a millisecond for
each, and 0.8 s to import in every process that evaluates.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@dataclass(frozen=True)
class Interval:
    """Location of log ratios with its 95% interval: centre +- half_width."""

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


def trimmed_interval(values: Sequence[float], trim: float = 0.2) -> Interval:
    """Return the trimmed mean with Yuen's interval (winsorised variance), as `scipy.stats.mstats.trimmed_mean_ci` does.

    One-sided disturbances (another process on the core) leave it unmoved while they hit less than `trim` of the values.
    It is good from about five values on, and its half width infinite below three.
    """
    n = len(values)
    if n < 3:
        return Interval(trimmed_mean(values, trim), math.inf, n)
    cut = int(trim * n)
    inner = sorted(values)[cut : n - cut]
    winsorised = [inner[0]] * cut + inner + [inner[-1]] * cut
    error = float(np.std(winsorised, ddof=1)) / ((1 - 2 * trim) * math.sqrt(n))
    return Interval(statistics.fmean(inner), student_t95(len(inner) - 1) * error, n)


def combine_intervals(parts: Sequence[Interval]) -> Interval:
    """Return the mean of the middle half of independent measurements (of up to four their median: now and then one is
    off by many times the others' spread), with an interval at least as wide as the spread of all of them shows.
    """
    n = len(parts)
    centres = [part.centre for part in parts]
    cut = math.ceil(n / 4) if n > 2 else 0
    half_width = math.hypot(*(part.half_width for part in parts)) / n
    if n > 1:
        half_width = max(half_width, student_t95(n - 1) * statistics.stdev(centres) / math.sqrt(n))
    return Interval(statistics.fmean(sorted(centres)[cut : n - cut]), half_width, sum(part.n for part in parts))


@lru_cache(maxsize=1024)
def student_t95(freedom: int) -> float:
    """Return the two-sided 95% point of Student's t."""
    from scipy.special import stdtrit  # 0.3 s, which only processes that measure spend

    return float(stdtrit(freedom, 0.975))


def trimmed_mean(values: Sequence[float], trim: float) -> float:
    """Return the mean without that share of the smallest and of the largest values; 0.0 without values."""
    cut = int(trim * len(values))
    return statistics.fmean(sorted(values)[cut : len(values) - cut]) if values else 0.0


def bucket_means(values: Sequence[float], buckets: int) -> tuple[float, ...]:
    """Return the means of consecutive parts whose sizes differ by at most one; empty where values are too few."""
    if not 0 < buckets <= len(values):
        return ()
    return tuple(float(part.mean()) for part in np.array_split(np.asarray(values), buckets))


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation that the median absolute deviation stands for; 0.0 without values."""
    centre = median(values)
    return 1.4826 * median([abs(value - centre) for value in values])


def median(values: Sequence[float]) -> float:
    """Return the median; 0.0 without values."""
    return statistics.median(values) if values else 0.0


def lower_quartile(values: Sequence[float]) -> float:
    """Return the value that a quarter of them do not exceed; 0.0 without values."""
    return sorted(values)[(len(values) - 1) // 4] if values else 0.0
