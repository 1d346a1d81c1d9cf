"""The exemplars of one problem as growing numpy columns: what selection reads, without touching any code
text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cudal1_ray.exemplars.exemplar import ID_LENGTH
from cudal1_ray.exemplars.parents import ParentLists
from cudal1_ray.exemplars.view import ProblemView

# Columns that come with an exemplar, and those that are worked out here.
MEASURED = {"speedup": np.float64, "step": np.int64, "length": np.int32, "operations": np.int32, "sketch": np.uint64}
_DTYPES = MEASURED | {"ids": f"S{ID_LENGTH}", "rows": np.int64, "reason": np.int32, "ends": np.int64}


class ProblemColumns:
    """Append-only columns; capacity doubles, so appending costs amortised constant time.

    A view handed out earlier stays as it was: it is a slice of the array of its time, and rows are never
    rewritten.
    """

    def __init__(self, problem_id: str) -> None:
        self.problem_id = problem_id
        self.size = 0
        self.position_of: dict[str, int] = {}
        self._arrays = {name: np.empty(8, dtype) for name, dtype in _DTYPES.items()}
        self._flat, self._flat_size = np.empty(8, np.int64), 0
        self._reason_sets: list[tuple[str, ...]] = [()]
        self._reason_number: dict[tuple[str, ...], int] = {(): 0}
        self._memo: dict[Any, Any] = {}

    def extend(
        self,
        ids: Sequence[str],
        rows: Sequence[int] | np.ndarray,
        measured: Mapping[str, Sequence | np.ndarray],
        parent_ids: Sequence[str],
        parent_counts: Sequence[int] | np.ndarray,
        reasons: Sequence[tuple[str, ...]],
    ) -> None:
        """Add exemplars that are not here yet, in order.

        rows: their global rows in the buffer. measured: one sequence for each name of MEASURED. parent_ids: those
        of all new exemplars in a row, parent_counts[i] of them belonging to the i-th. Parents of other problems, and
        such as came later than their child, are ignored.
        """
        start, stop = self.size, self.size + len(ids)
        self.position_of.update(zip(ids, range(start, stop), strict=True))
        child = np.repeat(np.arange(start, stop), parent_counts)
        parent = np.fromiter((self.position_of.get(p, stop) for p in parent_ids), np.int64, len(parent_ids))
        earlier = parent < child
        flat_start, self._flat_size = self._flat_size, self._flat_size + int(earlier.sum())
        self._flat = _at_least(self._flat, self._flat_size)
        self._flat[flat_start : self._flat_size] = parent[earlier]
        new: dict[str, Any] = {name: measured[name] for name in MEASURED}
        new["ids"] = np.array(ids, dtype=f"S{ID_LENGTH}")
        new["rows"] = rows
        new["reason"] = [self._number(each) for each in reasons]
        new["ends"] = flat_start + np.cumsum(np.bincount(child[earlier] - start, minlength=len(ids)))
        for name, values in new.items():
            self._arrays[name] = _at_least(self._arrays[name], stop)
            self._arrays[name][start:stop] = values
        self.size = stop

    def row(self, position: int) -> int:
        """Return the global row of the exemplar at a position of the view."""
        return int(self._arrays["rows"][position])

    def rows(self) -> np.ndarray:
        """Return int64[n]: global rows, in order of insertion."""
        return self._slice("rows")

    def view(self) -> ProblemView:
        flat = self._flat[: self._flat_size]
        return ProblemView(
            self.problem_id,
            self._slice("speedup"),
            self._slice("step"),
            self._slice("ids"),
            ParentLists(self._slice("ends"), flat),
            self._memo,
            self._slice("length"),
            self._slice("operations"),
            self._slice("sketch"),
            self._slice("reason"),
            self._reason_sets,
        )

    def _number(self, reasons: tuple[str, ...]) -> int:
        number = self._reason_number.setdefault(reasons, len(self._reason_sets))
        if number == len(self._reason_sets):
            self._reason_sets.append(reasons)
        return number

    def _slice(self, name: str) -> np.ndarray:
        part = self._arrays[name][: self.size]
        part.flags.writeable = False
        return part


def _at_least(array: np.ndarray, size: int) -> np.ndarray:
    """Return the array itself where it is long enough, else a copy of `size` or twice its length, the larger."""
    if size <= len(array):
        return array
    larger = np.empty(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
