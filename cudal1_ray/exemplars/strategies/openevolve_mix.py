"""OpenEvolve's mix: sometimes any exemplar, mostly one of the elite, else one in proportion to its speedup."""

from __future__ import annotations

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.view import Draw, ProblemView, pick


def openevolve_mix(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Draw without replacement; each draw, from the set L of those left,

        P(i) = e / |L| + x [i in A] / |A| + (1 - e - x) s_i / sum_L s.

    A is what is left of the archive, the `archive_size` fastest accepted exemplars; e = `exploration_ratio`,
    x = `exploitation_ratio`. When the archive has been drawn empty, its share goes to the term in s.
    Source: OpenEvolve, `sample_from_island` (e = 0.2, x = 0.7, archive of 100), of which this is one island. The
    probability is that of the mixture, not of the branch it came by.
    """
    left = view.accepted()
    elite = np.isin(left, view.fastest(config.archive_size), assume_unique=True)
    positions, probabilities = [], []
    for _ in range(min(count, len(left))):
        exploit = config.exploitation_ratio if elite.any() else 0.0
        speedup = view.speedup[left]
        p = config.exploration_ratio / len(left) + (1.0 - config.exploration_ratio - exploit) * speedup / speedup.sum()
        if exploit:
            p += exploit * elite / elite.sum()
        at = pick(p, rng)
        positions.append(int(left[at]))
        probabilities.append(float(p[at]))
        left, elite = np.delete(left, at), np.delete(elite, at)
    return Draw(tuple(positions), tuple(probabilities))
