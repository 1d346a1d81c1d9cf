"""The paper's protocol against noise in measured speedups, as pure functions.

Source: CUDA-L1 (arXiv 2507.14111), robust reward; figures marked (2nd) in the configuration come from
summaries of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RobustScore:
    """speedup: the median of the bucket means, or None when they vary too much and the evaluation is void."""

    speedup: float | None
    bucket_means: tuple[float, ...]
    variance: float


def robust_score(scores: Sequence[float], *, buckets: int = 7, max_variance: float = 0.005) -> RobustScore:
    """Return one speedup from the single-run scores t_ref / t_candidate (float[n], in the order measured).

    The scores are cut into consecutive buckets whose sizes differ by at most one: runs that are neighbours in
    time share a bucket, so that a drift of the device shows as variance between buckets, and is not averaged
    away. The evaluation is void when the (unbiased) variance of the bucket means is above `max_variance`.

    Raises:
        ValueError: for fewer scores than buckets, fewer than 2 buckets, or a score that is not finite.
    """
    values = np.asarray(scores, dtype=np.float64)
    if buckets < 2 or len(values) < buckets:
        raise ValueError(f"{len(values)} scores cannot fill {buckets} buckets: 2 or more buckets, a score in each")
    if not np.isfinite(values).all():
        raise ValueError("a single-run score is not finite")
    return score_of_buckets([part.mean() for part in np.array_split(values, buckets)], max_variance=max_variance)


def score_of_buckets(means: Sequence[float], *, max_variance: float = 0.005) -> RobustScore:
    """Return what `robust_score` does, from bucket means (float[n], n at least 2) as a verdict carries them.

    Raises:
        ValueError: for fewer.
    """
    if len(means) < 2:
        raise ValueError(f"{len(means)} bucket means have no variance: 2 or more are needed")
    values = np.asarray(means, dtype=np.float64)
    variance = float(values.var(ddof=1))
    speedup = float(np.median(values)) if variance <= max_variance else None
    return RobustScore(speedup, tuple(values.tolist()), variance)
