"""The newest exemplars: what the present policy writes, whatever its speed."""

from __future__ import annotations

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.view import Draw, ProblemView


def recent(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Take the `count` highest steps, the later inserted of equals first. Nothing is random: P = 1 each."""
    newest_first = view.accepted()[::-1]
    newest = newest_first[np.argsort(-view.step[newest_first], kind="stable")][:count]
    return Draw(tuple(newest.tolist()), (1.0,) * len(newest))
