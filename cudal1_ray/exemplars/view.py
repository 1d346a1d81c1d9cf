"""What a selection strategy sees of a problem, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cudal1_ray.exemplars.parents import ParentLists


@dataclass(frozen=True)
class ProblemView:
    """The exemplars of one problem by column, in order of insertion; n of them, failed ones included.

    speedup: float64[n], 0.0 for a rejected candidate. step: int64[n]. ids: bytes[n] (ASCII exemplar ids).
    parents: for each exemplar the positions, in this view, of the exemplars its prompt showed.
    length, operations: int32[n], sketch: uint64[n]; `features` defines them.
    reason: int32[n], the number in `reason_sets` of the reasons for which a candidate was rejected.
    limit: faster exemplars are not shown.
    memo: room for what a strategy can extend as rows are appended. It must hold nothing that a fresh pass
    over the view would not give, so that a strategy remains a pure function of the view.
    The arrays are read-only and are not changed by later insertions.
    """

    problem_id: str
    speedup: np.ndarray
    step: np.ndarray
    ids: np.ndarray
    parents: ParentLists
    memo: dict[Any, Any] = field(compare=False, repr=False)
    length: np.ndarray
    operations: np.ndarray
    sketch: np.ndarray
    reason: np.ndarray
    reason_sets: Sequence[tuple[str, ...]]
    limit: float = math.inf

    def __len__(self) -> int:
        return len(self.speedup)

    def accepted(self) -> np.ndarray:
        """Return int64[m]: positions of the accepted exemplars that may be shown, in order of insertion."""
        return np.flatnonzero(self.may_be_shown)

    @property
    def may_be_shown(self) -> np.ndarray:
        """Return bool[n]: whether an exemplar is accepted (speedup above 0) and no faster than the limit."""
        return (self.speedup > 0.0) & (self.speedup <= self.limit)

    def fastest(self, count: int = 0) -> np.ndarray:
        """Return int64[m]: positions of the accepted exemplars from fast to slow, the earlier of equals first.

        Args:
            count: most exemplars, the fastest ones, when it is above 0.
        """
        positions = self.accepted()
        speedup = self.speedup[positions]
        if 0 < count < len(positions):
            near = speedup >= np.partition(speedup, -count)[-count]
            positions, speedup = positions[near], speedup[near]
        ranked = positions[np.argsort(-speedup, kind="stable")]
        return ranked[:count] if count > 0 else ranked


@dataclass(frozen=True)
class Draw:
    """Positions in a view, in the order drawn, and for each the probability that this draw had of taking it.

    The probability of the k-th position is conditional on the k - 1 draws before it, so their product is the
    probability of the whole ordered draw.
    """

    positions: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()


def softmax(values: np.ndarray, tau: float) -> np.ndarray:
    """Return float64[n]: exp(v_i / tau) / sum_j exp(v_j / tau), without overflow; a common shift of v cancels."""
    weights = np.exp((values - values.max()) / tau)
    return weights / weights.sum()


def pick(p: np.ndarray, rng: np.random.Generator) -> int:
    """Draw an index of p (float64[n], weights of any sum above 0) in proportion to it, never one of weight 0."""
    sums = np.cumsum(p)
    return int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))


def draw_softmax(values: np.ndarray, count: int, tau: float, rng: np.random.Generator) -> tuple[list[int], list[float]]:
    """Draw up to `count` indices of values (float64[n]) without replacement, each by softmax over what is left.

    Returns the indices and, for each, its probability among those left at its draw. The softmax is formed
    anew for every draw: dividing by 1 - p would lose all precision once one value outweighs the others. A weight w
    is the value ln(w) at tau = 1.
    """
    left = np.arange(len(values))
    indices, probabilities = [], []
    for _ in range(min(count, len(values))):
        p = softmax(values[left], tau)
        at = pick(p, rng)
        indices.append(int(left[at]))
        probabilities.append(float(p[at]))
        left = np.delete(left, at)
    return indices, probabilities
