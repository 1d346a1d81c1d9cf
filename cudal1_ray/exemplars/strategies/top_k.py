"""The fastest exemplars: exploitation alone, as greedy evolutionary searches do."""

from __future__ import annotations

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.view import Draw, ProblemView


def top_k(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Take the `count` highest speedups, the earlier of equals first. Nothing is random: P = 1 each."""
    best = view.fastest(count)[:count]
    return Draw(tuple(best.tolist()), (1.0,) * len(best))
