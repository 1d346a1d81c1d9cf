"""Ranks by a power law: mostly the fastest, now and then one from far down."""

from __future__ import annotations

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.view import Draw, ProblemView, draw_softmax


def power_law(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Draw without replacement, P(i) = r_i^-alpha / sum_j r_j^-alpha over those left at each draw.

    r_i is the rank by speedup among the `archive_size` fastest accepted exemplars, 1 for the fastest and the earlier
    of equals first; it stays as it is when others have been drawn. alpha = `power_law_alpha`: 0 is uniform, and the
    larger, the greedier.
    Source: ShinkaEvolve (arXiv 2509.19349, parent sampling; `PowerLawSamplingStrategy`, alpha = 1, archive of 40).
    """
    ranked = view.fastest(config.archive_size)
    log_weights = -config.power_law_alpha * np.log(np.arange(1, len(ranked) + 1))
    drawn, probabilities = draw_softmax(log_weights, count, 1.0, rng)
    return Draw(tuple(ranked[drawn].tolist()), tuple(probabilities))
