"""The greatest contrast there is: fastest and slowest in turn."""

from __future__ import annotations

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.view import Draw, ProblemView


def best_worst(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Take best, worst, second best, second worst, ... until `count`; never one twice. P = 1 each."""
    accepted = view.accepted()
    ascending = accepted[np.argsort(view.speedup[accepted], kind="stable")]
    turns = np.arange(min(count, len(ascending)))
    taken = ascending[np.where(turns % 2 == 0, -1 - turns // 2, turns // 2)].tolist()
    return Draw(tuple(taken), (1.0,) * len(taken))
