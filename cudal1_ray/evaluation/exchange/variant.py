"""The recipe by which a call's inputs are made out of the tensors in the pool.

The referee sends the recipe (a `Variant`), and the harness inside the contestant makes the tensors: so large inputs are
uploaded to a device once, and only rotated there from call to call. The outputs show whether it followed the recipe.
"""

from __future__ import annotations

from typing import Any

import torch
from msgspec import Struct

from cudal1_ray.evaluation.exchange.tensors import DTYPES, WINDOW, TensorSpec, view_of_bytes, window_starts


class Variant(Struct, frozen=True, array_like=True):
    """One call's inputs: tensors at `specs`, each rotated so that element `cuts[i]` comes first, floats x `factor`.

    With `others`, a second set rotated by cuts of its own, floats are interpolated between the two sets, `share` of the
    way to the second: no part of such an input was in an earlier one. Of whole numbers that may be rotated, that share
    comes from the second set (`seam`). `lasting`: the sets stay in the pool unchanged, so that a device may keep a
    copy. `drawn`: the pool holds nothing, and each process draws the inputs from this seed (inside/drawing.py).
    """

    specs: tuple[TensorSpec, ...]
    cuts: tuple[int, ...]
    factor: float = 1.0
    lasting: bool = False
    others: tuple[TensorSpec, ...] = ()
    other_cuts: tuple[int, ...] = ()
    share: float = 0.0
    drawn: int | None = None

    def computed(self, number: int) -> bool:
        """Return whether tensor `number` is more than a copy."""
        return is_floating(self.specs[number]) and (self.factor != 1.0 or bool(self.others))

    def seam(self, number: int) -> int:
        """Return how many elements of tensor `number` come from the first set alone; the rest is the second's."""
        joined = bool(self.others) and not is_floating(self.specs[number]) and self.cuts[number] > 0
        return self._seam(number) if joined else self.specs[number].elements()

    def _seam(self, number: int) -> int:
        return round((1 - self.share) * self.specs[number].elements())

    def values(self, memory: Any, number: int, picks: list[float] | None) -> bytes | bytearray:
        """Return the bytes of tensor `number`, dense, as a contestant should have them; `memory`: the pool's.

        Of a large tensor return only the windows at `picks`, as a contestant hands them over.
        """
        spec, starts = self.specs[number], window_starts(self.specs[number].elements(), picks)
        windows = [(0, spec.elements())] if starts is None else [(start, start + WINDOW) for start in starts]
        data = self._row(memory, number, self.seam(number), windows)
        if not self.computed(number) or not data:
            return data
        dtype = DTYPES[spec.dtype]
        result = torch.frombuffer(data, dtype=dtype)
        if self.others:
            second = torch.frombuffer(self._row(memory, number, 0, windows), dtype=dtype)
            result = torch.lerp(result, second, self.share)
        return _bytes_of(result if self.factor == 1.0 else result * self.factor)

    def write(self, memory: Any, number: int, offset: int) -> None:
        """Write the bytes of dense tensor `number` at `offset`. Where `values` would interpolate two sets, write the
        beginning of the first set and the rest of the second: as new to a process that does not know the recipe, and
        without computing anything.
        """
        spec, place = self.specs[number], slice(offset, offset + self.specs[number].nbytes)
        if is_floating(spec) and self.others and self.factor == 1.0 and self.cuts[number]:
            memory[place] = self._row(memory, number, self._seam(number), [(0, spec.elements())])
        else:
            memory[place] = self.values(memory, number, None)

    def _row(self, memory: Any, number: int, seam: int, windows: list[tuple[int, int]]) -> bytearray:
        """Return the bytes of each window (first element, element after the last) of tensor `number`, rotated, as one
        row; elements up to the `seam` are the first set's, later ones the second's.
        """
        count, item = self.specs[number].elements(), DTYPES[self.specs[number].dtype].itemsize
        sets = [(self.specs[number], self.cuts[number], 0, seam)]
        if self.others:
            sets.append((self.others[number], self.other_cuts[number], seam, count))
        rows = [(_dense(memory, spec), cut, low, high) for spec, cut, low, high in sets]
        parts = []
        for start, end in windows:
            for data, cut, low, high in rows:
                first, last, again = max(start, low), min(end, high), count - cut  # `again`: where the set wraps around
                for head, tail, shift in ((first, min(last, again), cut), (max(first, again), last, cut - count)):
                    if head < tail:
                        parts.append(data[(head + shift) * item : (tail + shift) * item])
        return bytearray().join(parts)

    def changed(self, memory: Any, number: int, picks: list[float] | None, data: bytes | bytearray) -> bool:
        """Return whether `data` differs from `values`; computed values may differ in their last digits."""
        expected = self.values(memory, number, picks)
        if data == expected:
            return False
        if not self.computed(number) or len(data) != len(expected):
            return True
        dtype = DTYPES[self.specs[number].dtype]
        now, before = (torch.frombuffer(bytearray(row), dtype=dtype).double() for row in (data, expected))
        size = float(before[before.isfinite()].abs().max()) if bool(before.isfinite().any()) else 0.0
        digits = 8 * torch.finfo(dtype).eps
        return not torch.allclose(now, before, rtol=digits, atol=digits * size, equal_nan=True)


def _dense(memory: Any, spec: TensorSpec) -> memoryview:
    """Return a set's tensor as it lies in the pool, or a copy in the usual order if its strides are unusual."""
    data = memoryview(memory)[spec.offset : spec.offset + spec.nbytes]
    return memoryview(_bytes_of(view_of_bytes(bytearray(data), spec))) if spec.strides else data


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def is_floating(spec: TensorSpec) -> bool:
    """Return whether torch calculates with the tensor's type: floats of more than 8 bits."""
    return spec.dtype in ("float32", "float64", "float16", "bfloat16")
