"""Fast exemplars that have not been shown often: performance times novelty."""

from __future__ import annotations

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.view import Draw, ProblemView, draw_softmax

# Least spread of the speedups, where they are all the same; ShinkaEvolve's figure.
_LEAST_SPREAD = 1e-6


def shinka_weighted(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Draw without replacement, P(i) = w_i / sum_j w_j over those left at each draw, with

        w_i = sigma(lambda (s_i - median) / MAD) / (1 + n_i),    sigma(x) = 1 / (1 + exp(-x)).

    Median and MAD (median absolute deviation from it) are those of the speedups of the `archive_size` fastest accepted
    exemplars, the only ones that take part. n_i counts the exemplars of the problem, failed ones included, whose
    prompt showed i. lambda = `shinka_lambda`.
    Source: ShinkaEvolve (arXiv 2509.19349, weighted parent sampling; the division by the MAD is in its code,
    `WeightedSamplingStrategy`, with lambda = 10 and an archive of 40). There a child has one parent; here each
    exemplar that its prompt showed counts it.
    """
    archive = view.fastest(config.archive_size)
    if len(archive) == 0:
        return Draw()
    speedup = view.speedup[archive]
    median = np.median(speedup)
    spread = max(float(np.median(np.abs(speedup - median))), _LEAST_SPREAD)
    children = view.parents.child_counts()[archive]
    # ln w_i, which does not underflow where w_i would
    log_weights = -np.logaddexp(0.0, -config.shinka_lambda * (speedup - median) / spread) - np.log1p(children)
    drawn, probabilities = draw_softmax(log_weights, count, 1.0, rng)
    return Draw(tuple(archive[drawn].tolist()), tuple(probabilities))
