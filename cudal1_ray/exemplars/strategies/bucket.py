"""The paper's strategy: exemplars from distinct speedup buckets, faster buckets preferred."""

from __future__ import annotations

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.view import Draw, ProblemView, draw_softmax

# A speedup printed as an edge (0.3 with width 0.1) belongs to the bucket it starts, though 0.3 / 0.1 < 3 in
# binary.
_EDGE = 1e-9


def bucket(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Draw `count` distinct buckets, then one exemplar uniformly within each.

    Buckets B_k = [s_0 + k ds, s_0 + (k + 1) ds), with s_0 = bucket_start and ds = bucket_width; empty ones do
    not exist.
        P(B_i) = exp((mean_i - mu) / tau) / sum_j exp((mean_j - mu) / tau)
    mean_i is the mean speedup in B_i and mu the mean over buckets (it cancels). Buckets are drawn one after
    another without replacement, P renormalised over those left; an exemplar's probability is P(its bucket) /
    |its bucket|. Fewer buckets than asked give fewer exemplars: two of one bucket would be no contrast.
    Source: CUDA-L1 (arXiv 2507.14111), contrastive exemplar selection.
    """
    accepted = view.accepted()
    if len(accepted) == 0:
        return Draw()
    speedup = view.speedup[accepted]
    number = np.floor((speedup - config.bucket_start) / config.bucket_width + _EDGE)
    _, member, size = np.unique(number, return_inverse=True, return_counts=True)
    means = np.bincount(member, weights=speedup) / size
    chosen, p_bucket = draw_softmax(means, count, config.tau, rng)
    positions = [int(accepted[member == b][rng.integers(size[b])]) for b in chosen]
    return Draw(tuple(positions), tuple(p / int(size[b]) for p, b in zip(p_bucket, chosen, strict=True)))
