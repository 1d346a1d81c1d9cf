"""What a selection strategy sees of a problem, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ProblemView:
    """The exemplars of one problem by column, in order of insertion; n of them, failed ones included.

    speedup: float64[n], 0.0 for a rejected candidate. step: int64[n]. ids: bytes[n] (ASCII exemplar ids).
    parents: for each exemplar the positions, in this view, of the exemplars its prompt showed.
    memo: room for what a strategy can extend as rows are appended. It must hold nothing that a fresh pass
    over the view would not give, so that a strategy remains a pure function of the view.
    The arrays are read-only and are not changed by later insertions.
    """

    problem_id: str
    speedup: np.ndarray
    step: np.ndarray
    ids: np.ndarray
    parents: Sequence[tuple[int, ...]] = ()
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.speedup)

    def accepted(self) -> np.ndarray:
        """int64[m]: positions of the exemplars that were accepted (speedup above 0), in order of
        insertion.
        """
        return np.flatnonzero(self.speedup > 0.0)


@dataclass(frozen=True)
class Draw:
    """Positions in a view, in the order drawn, and for each the probability that this draw had of taking it.

    The probability of the k-th position is conditional on the k - 1 draws before it, so their product is the
    probability of the whole ordered draw.
    """

    positions: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()


def softmax(values: np.ndarray, tau: float) -> np.ndarray:
    """float64[n]: exp(v_i / tau) / sum_j exp(v_j / tau), without overflow. Any common shift mu of v
    cancels.
    """
    weights = np.exp((values - values.max()) / tau)
    return weights / weights.sum()


def draw_softmax(values: np.ndarray, count: int, tau: float, rng: np.random.Generator) -> tuple[list[int], list[float]]:
    """Up to `count` indices of values (float64[n]) without replacement, each draw softmax over what is left.

    Returns the indices and, for each, its probability among those left at its draw. The softmax is formed
    anew for every draw: dividing by 1 - p would lose all precision once one value outweighs the others.
    """
    left = np.arange(len(values))
    indices, probabilities = [], []
    for _ in range(min(count, len(values))):
        p = softmax(values[left], tau)
        at = min(int(np.searchsorted(np.cumsum(p), rng.random(), side="right")), len(left) - 1)
        indices.append(int(left[at]))
        probabilities.append(float(p[at]))
        left = np.delete(left, at)
    return indices, probabilities
