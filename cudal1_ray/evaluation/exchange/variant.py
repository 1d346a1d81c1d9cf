"""How a call's inputs are made out of what lies in the pool: the recipe that the referee sends.

The referee says how (a `Variant`), the harness inside the contestant makes the tensors: so large inputs are uploaded to
a device once, and only turned there from call to call. What it makes of the recipe is checked by its outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .tensors import DTYPES, WINDOW, TensorSpec, view_of_bytes, window_starts


@dataclass(frozen=True)
class Variant:
    """One call's inputs: tensors at ``specs``, each turned so that element ``cuts[i]`` comes first, floats x factor.

    ``lasting``: the set stays in the pool unchanged, so that a device may keep a copy of it.
    """

    specs: tuple[TensorSpec, ...]
    cuts: tuple[int, ...]
    factor: float = 1.0
    lasting: bool = False

    def to_list(self) -> list[Any]:
        return [[spec.to_list() for spec in self.specs], list(self.cuts), self.factor, self.lasting]

    @classmethod
    def from_list(cls, data: list[Any]) -> Variant:
        specs, cuts, factor, lasting = data
        return cls(tuple(TensorSpec.from_list(spec) for spec in specs), tuple(cuts), factor, lasting)

    def values(self, memory: Any, number: int, picks: list[float] | None) -> bytes:
        """The bytes of its tensor ``number``, dense, as a contestant should have them; ``memory``: the pool's.

        Of a large one only the windows at ``picks``, as a contestant hands them over.
        """
        spec, item = self.specs[number], DTYPES[self.specs[number].dtype].itemsize
        elements, places = spec.elements(), window_starts(spec.elements(), picks)
        if spec.strides or places is None:
            whole = bytearray(memory[spec.offset : spec.offset + spec.nbytes])
            dense = _bytes_of(view_of_bytes(whole, spec))
            places = [0] if places is None else places
        else:
            dense = memoryview(memory)[spec.offset : spec.offset + spec.nbytes]
        length = elements if window_starts(elements, picks) is None else WINDOW
        parts = []
        for place in places:
            first = (place + self.cuts[number]) % max(1, elements)
            head = min(length, elements - first)
            parts += [bytes(dense[first * item : (first + head) * item]), bytes(dense[: (length - head) * item])]
        data = b"".join(parts)
        if self.factor == 1.0 or not is_floating(spec) or not data:
            return data
        return _bytes_of(torch.frombuffer(bytearray(data), dtype=DTYPES[spec.dtype]) * self.factor)


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def is_floating(spec: TensorSpec) -> bool:
    return "float" in spec.dtype
