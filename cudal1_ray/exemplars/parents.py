"""Which exemplar descends from which, for one problem, in two flat arrays instead of a million small tuples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class ParentLists(Sequence[tuple[int, ...]]):
    """For each exemplar the positions of the exemplars its prompt showed.

    `flat` holds the positions of all, one exemplar after the other: those of exemplar i are
    flat[ends[i - 1]:ends[i]] (from 0 for the first).
    """

    def __init__(self, ends: np.ndarray, flat: np.ndarray) -> None:
        self.ends, self.flat = ends, flat

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index):
        """Return the parents of one exemplar; for a slice without a step, a list of those of several."""
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            first = self._start(start)
            flat = self.flat[first : self._start(stop)].tolist()
            ends = (self.ends[start:stop] - first).tolist()
            return [tuple(flat[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
        index = range(len(self))[index]
        return tuple(self.flat[self._start(index) : self.ends[index]].tolist())

    def child_counts(self) -> np.ndarray:
        """Return int64[n]: how many exemplars each is a parent of."""
        return np.bincount(self.flat, minlength=len(self))

    def child_of(self) -> np.ndarray:
        """Return int64[len(flat)]: the exemplar to which each entry of `flat` belongs."""
        return np.repeat(np.arange(len(self)), np.diff(self.ends, prepend=0))

    def _start(self, index: int) -> int:
        return int(self.ends[index - 1]) if index else 0
