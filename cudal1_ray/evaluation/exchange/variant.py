"""How a call's inputs are made out of what lies in the pool: the recipe that the referee sends.

The referee says how (a `Variant`), the harness inside the contestant makes the tensors: so large inputs are uploaded to
a device once, and only turned there from call to call. What it makes of the recipe is checked by its outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from msgspec import Struct

from .tensors import DTYPES, WINDOW, TensorSpec, view_of_bytes, window_starts


class Variant(Struct, frozen=True, array_like=True):
    """One call's inputs: tensors at ``specs``, each turned so that element ``cuts[i]`` comes first, floats x factor.

    With ``others``, a second set turned by cuts of its own, floats lie between the two first, ``share`` of the way to
    the second: no part of such an input was ever in an earlier one. Of whole numbers that may be turned, that share
    comes from the second set (`seam`). ``lasting``: the sets stay in the pool unchanged, so that a device may keep a
    copy. ``drawn``: nothing lies in the pool, each process draws them from this seed (inside/drawing.py).
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
        """Is its tensor ``number`` more than a copy?"""
        return is_floating(self.specs[number]) and (self.factor != 1.0 or bool(self.others))

    def seam(self, number: int) -> int:
        """Elements of its tensor ``number`` that are the first set's alone; those behind them are the second's."""
        spec = self.specs[number]
        joined = bool(self.others) and not is_floating(spec) and self.cuts[number] > 0
        return round((1 - self.share) * spec.elements()) if joined else spec.elements()

    def values(self, memory: Any, number: int, picks: list[float] | None) -> bytes | bytearray:
        """The bytes of its tensor ``number``, dense, as a contestant should have them; ``memory``: the pool's.

        Of a large one only the windows at ``picks``, as a contestant hands them over.
        """
        spec = self.specs[number]
        data = _turned(memory, spec, self.cuts[number], picks)
        if (seam := self.seam(number)) < spec.elements():
            other = _turned(memory, self.others[number], self.other_cuts[number], picks)
            return _joined(data, other, seam, DTYPES[spec.dtype].itemsize, window_starts(spec.elements(), picks))
        if not self.computed(number) or not data:
            return data
        dtype = DTYPES[spec.dtype]
        result = torch.frombuffer(data, dtype=dtype)
        if self.others:
            other = _turned(memory, self.others[number], self.other_cuts[number], picks)
            result = torch.lerp(result, torch.frombuffer(other, dtype=dtype), self.share)
        return _bytes_of(result if self.factor == 1.0 else result * self.factor)

    def write(self, memory: Any, number: int, offset: int) -> None:
        """Puts the bytes of its dense tensor ``number`` to ``offset``. Where `values` would compute them of two sets,
        the beginning is the first set's and the rest the second's: as new to whoever is not told, and made in no time.
        """
        spec, memory = self.specs[number], memoryview(memory)
        if self.factor != 1.0 or not self.others or not self.cuts[number] or not is_floating(spec):
            memory[offset : offset + spec.nbytes] = self.values(memory, number, None)
            return
        item = DTYPES[spec.dtype].itemsize
        seam = round((1 - self.share) * spec.elements()) * item
        sets = ((spec, self.cuts[number], 0, seam), (self.others[number], self.other_cuts[number], seam, spec.nbytes))
        for one, cut, start, end in sets:
            first = one.offset + cut * item  # of the turned row; the bytes before it come last
            head = min(end, max(start, one.nbytes - cut * item))
            for low, high, shift in ((start, head, first), (head, end, first - one.nbytes)):
                memory[offset + low : offset + high] = memory[shift + low : shift + high]

    def changed(self, memory: Any, number: int, picks: list[float] | None, data: bytes | bytearray) -> bool:
        """Is ``data`` other than `values`? Computed ones may differ in their last digits from device to device."""
        wanted = self.values(memory, number, picks)
        if data == wanted:
            return False
        if not self.computed(number) or len(data) != len(wanted):
            return True
        dtype = DTYPES[self.specs[number].dtype]
        found, meant = (torch.frombuffer(bytearray(one), dtype=dtype).double() for one in (data, wanted))
        size = float(meant[meant.isfinite()].abs().max()) if bool(meant.isfinite().any()) else 0.0
        digits = 8 * torch.finfo(dtype).eps
        return not torch.allclose(found, meant, rtol=digits, atol=digits * size, equal_nan=True)


def _turned(memory: Any, spec: TensorSpec, cut: int, picks: list[float] | None) -> bytearray:
    """A set's tensor as it lies in the pool, dense, turned by ``cut``; of a large one the windows at ``picks``. Copied
    once: all others wait while gigabytes are written out.
    """
    item, elements = DTYPES[spec.dtype].itemsize, spec.elements()
    places = window_starts(elements, picks)
    length = elements if places is None else WINDOW
    dense = memoryview(memory)[spec.offset : spec.offset + spec.nbytes]
    if spec.strides:
        dense = memoryview(_bytes_of(view_of_bytes(bytearray(dense), spec)))
    parts = []
    for place in [0] if places is None else places:
        first = (place + cut) % max(1, elements)
        head = min(length, elements - first)
        parts += [dense[first * item : (first + head) * item], dense[: (length - head) * item]]
    return bytearray().join(parts)


def _joined(first: bytearray, second: bytearray, seam: int, item: int, places: list[int] | None) -> bytes:
    """Elements before the ``seam`` from the first, the others from the second; windows begin at ``places``."""
    length = WINDOW if places is not None else len(first) // item
    parts = []
    for number, place in enumerate(places or [0]):
        start, kept = number * length * item, min(max(seam - place, 0), length) * item
        parts += [first[start : start + kept], second[start + kept : start + length * item]]
    return b"".join(parts)


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def is_floating(spec: TensorSpec) -> bool:
    """Can one calculate with it? (With 8 bits one cannot.)"""
    return spec.dtype in ("float32", "float64", "float16", "bfloat16")
