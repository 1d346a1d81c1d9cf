"""Random exemplars: the paper's "contrastive with random exemplars" ablation."""

from __future__ import annotations

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.view import Draw, ProblemView


def uniform(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Draw without replacement, all accepted exemplars alike: the k-th draw (from 0) has P = 1 / (m - k)."""
    accepted = view.accepted()
    drawn = rng.choice(accepted, size=min(count, len(accepted)), replace=False)
    return Draw(tuple(drawn.tolist()), tuple(1.0 / (len(accepted) - k) for k in range(len(drawn))))
