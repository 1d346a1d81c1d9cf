"""The best of each kind: exemplars that differ in how they are made, each the fastest of its make."""

from __future__ import annotations

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.features import OPERATIONS
from cudal1_ray.exemplars.view import Draw, ProblemView


def map_elites(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Draw `count` distinct cells, all inhabited ones alike, and serve the elite of each.

    The k-th draw (from 0) has P = 1 / (cells - k). A cell is what `cell_axes` names. "length": exemplars whose
    normalised code has between b^k and b^(k + 1) characters, b = `cell_length_ratio`. "operations": those that use the
    same set of means, out of `features.OPERATIONS`. The elite of a cell is its fastest accepted exemplar, the earliest
    of equals. Fewer cells than asked give fewer exemplars.
    Source: MAP-Elites (Mouret and Clune, arXiv 1504.04909): random selection among the elites of a map over features.
    """
    accepted = view.accepted()
    cell = np.zeros(len(accepted), np.int64)
    if "length" in config.cell_axes:
        octave = np.log(np.maximum(view.length[accepted], 1)) / np.log(config.cell_length_ratio)
        # As in buckets: a length that is printed as a power of b starts its cell, whatever binary makes of it.
        cell += np.floor(octave + 1e-9).astype(np.int64) << len(OPERATIONS)
    if "operations" in config.cell_axes:
        cell += view.operations[accepted]
    elites = _elites(cell, view.speedup[accepted])
    chosen = accepted[rng.choice(elites, size=min(count, len(elites)), replace=False)] if len(elites) else accepted
    return Draw(tuple(chosen.tolist()), tuple(1.0 / (len(elites) - k) for k in range(len(chosen))))


def _elites(cell: np.ndarray, speedup: np.ndarray) -> np.ndarray:
    """Return int64[cells]: the index of the highest speedup, the first of equals, of each cell in use, ascending."""
    numbers, member = np.unique(cell, return_inverse=True)
    best = np.zeros(len(numbers))
    np.maximum.at(best, member, speedup)
    holders = np.flatnonzero(speedup == best[member])[::-1]
    elites = np.empty(len(numbers), np.int64)
    elites[member[holders]] = holders  # backwards, so that of equals the first is written last
    return elites
