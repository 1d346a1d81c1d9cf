"""Contrast with what does not work: rejected candidates, with the reason, beside accepted ones."""

from __future__ import annotations

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.strategies.bucket import bucket
from cudal1_ray.exemplars.view import Draw, ProblemView


def failures_included(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Draw up to `failures` rejected exemplars, each of another reason, and the rest by the bucket rule.

    A failure can be shown when every reason of its rejection is in `failure_reasons`; what cheated is not there, so
    that no prompt teaches it. Its kind is its first reason. The k-th failure (from 0): one of the K - k kinds left,
    all alike, then one uniformly within it, P = 1 / ((K - k) |kind|). They come first in the draw. Where there are
    fewer kinds than `failures`, accepted exemplars fill the places.
    Source: Kevin (arXiv 2507.11948) and KernelBench (arXiv 2502.10517) show a model its own failed attempt and what
    went wrong; here it is any earlier failure at the problem. Uniform over kinds is this project's choice: otherwise
    the commonest failure would fill the prompts.
    """
    kind = _kinds(view, config)
    size = np.bincount(kind + 1)[1:]
    left = np.flatnonzero(size).tolist()
    positions, probabilities = [], []
    for _ in range(min(config.failures, count, len(left))):
        chosen = left.pop(int(rng.integers(len(left))))
        positions.append(int(np.flatnonzero(kind == chosen)[rng.integers(size[chosen])]))
        probabilities.append(1.0 / ((len(left) + 1) * int(size[chosen])))
    accepted = bucket(view, count - len(positions), rng, config)
    return Draw((*positions, *accepted.positions), (*probabilities, *accepted.probabilities))


def _kinds(view: ProblemView, config: ExemplarsConfig) -> np.ndarray:
    """Return int64[n]: a number for the kind of each rejected exemplar that can be shown, -1 for all others."""
    showable = set(config.failure_reasons)
    first = [reasons[0] if reasons and showable.issuperset(reasons) else None for reasons in view.reason_sets]
    number = {name: i for i, name in enumerate(sorted({name for name in first if name is not None}))}
    kind_of_set = np.array([-1 if name is None else number[name] for name in first])
    return np.where(view.speedup == 0.0, kind_of_set[view.reason], -1)
