"""Exemplars that turned out otherwise than their prompt promised, as prioritised replay picks surprising
transitions.
"""

from __future__ import annotations

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.view import Draw, ProblemView, draw_softmax

# Speedup that a prompt without exemplars shows: the reference alone.
_REFERENCE_SPEEDUP = 1.0


def prioritised(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Draw without replacement, P(i) = p_i^alpha / sum_j p_j^alpha over the accepted exemplars left at each draw.

    The priority is p_i = |s_i - e_i| + epsilon, where e_i is the speedup to be expected from what the prompt of i
    showed: the mean over its exemplars, 1 (that of the reference) when it showed none. alpha = `priority_alpha`,
    epsilon = `priority_epsilon`.
    Source: Schaul et al., Prioritized Experience Replay (arXiv 1511.05952), proportional variant, with the deviation
    from the expectation in the place of the TD error.

    RLlib draws so from a sum tree (`SumSegmentTree.find_prefixsum_idx`), because there priorities change with every
    replay. Here they follow from the view alone, so a running sum and one binary search draw the same index from the
    same random number, and this package needs no Ray; a test holds the two against each other.
    """
    left = view.accepted()
    priority = np.abs(view.speedup - _expected(view))[left] + config.priority_epsilon
    drawn, probabilities = draw_softmax(config.priority_alpha * np.log(priority), count, 1.0, rng)
    return Draw(tuple(left[drawn].tolist()), tuple(probabilities))


def _expected(view: ProblemView) -> np.ndarray:
    """Return float64[n]: the mean speedup of what the prompt of each exemplar showed."""
    parents = view.parents
    n, child = len(view), parents.child_of()
    children = np.bincount(child, minlength=n)
    total = np.bincount(child, weights=view.speedup[parents.flat], minlength=n)
    return np.where(children > 0, total / np.maximum(children, 1), _REFERENCE_SPEEDUP)
