"""The exemplars of one problem as growing numpy columns: what selection reads, without touching any code
text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cudal1_ray.exemplars.exemplar import ID_LENGTH
from cudal1_ray.exemplars.view import ProblemView

_DTYPES = {"speedup": np.float64, "step": np.int64, "ids": f"S{ID_LENGTH}", "rows": np.int64}


class ProblemColumns:
    """Append-only columns; capacity doubles, so appending costs amortised constant time.

    A view handed out earlier stays as it was: it is a slice of the array of its time, and rows are never
    rewritten.
    """

    def __init__(self, problem_id: str) -> None:
        self.problem_id = problem_id
        self.size = 0
        self.position_of: dict[str, int] = {}
        self._parents: list[tuple[int, ...]] = []
        self._memo: dict[Any, Any] = {}
        self._arrays = {name: np.empty(8, dtype) for name, dtype in _DTYPES.items()}

    def append(self, exemplar_id: str, speedup: float, step: int, parent_ids: Sequence[str], row: int) -> None:
        """Adds one exemplar; `row` is its global row in the buffer. Parents of other problems are ignored."""
        if self.size == len(self._arrays["rows"]):
            self._arrays = {name: _doubled(array) for name, array in self._arrays.items()}
        at = self.size
        arrays = self._arrays
        arrays["speedup"][at] = speedup
        arrays["step"][at] = step
        arrays["ids"][at] = exemplar_id.encode()
        arrays["rows"][at] = row
        known = self.position_of
        self._parents.append(tuple(known[p] for p in parent_ids if p in known) if parent_ids else ())
        known[exemplar_id] = at
        self.size += 1

    def row(self, position: int) -> int:
        """Global row of the exemplar at a position of the view."""
        return int(self._arrays["rows"][position])

    def rows(self) -> np.ndarray:
        """int64[n]: global rows, in order of insertion."""
        return self._slice("rows")

    def view(self) -> ProblemView:
        return ProblemView(
            self.problem_id,
            self._slice("speedup"),
            self._slice("step"),
            self._slice("ids"),
            self._parents,
            self._memo,
        )

    def _slice(self, name: str) -> np.ndarray:
        part = self._arrays[name][: self.size]
        part.flags.writeable = False
        return part


def _doubled(array: np.ndarray) -> np.ndarray:
    larger = np.empty(2 * len(array), array.dtype)
    larger[: len(array)] = array
    return larger
