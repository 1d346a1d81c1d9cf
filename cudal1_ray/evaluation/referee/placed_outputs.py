"""Outputs where they lie in a contestant's memory, read from outside: nothing of the contestant runs meanwhile.

Whoever hands an output over can compute it then, out of the clock's sight, and by the time that takes it looks like one
who copies it. So on the CPU a contestant says where the outputs of all calls of a batch lie, before anybody knows which
of them will be looked at, and the referee reads these by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..exchange.tensors import DTYPES, WINDOW, TensorSpec, dense_strides, overlap, window_starts

Read = Callable[[int, int], bytearray]  # (address, bytes)

_MOST_NUMBER = 1 << 48
_SPREAD, _SPREAD_BYTES = 64, 64 << 20  # times its own bytes, or so many, that a tensor's memory is read at once
_MOST_PIECES = 1 << 16


@dataclass(frozen=True)
class PlacedTensor:
    """One tensor of an output, as a contestant describes it."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # elements
    address: int
    device: str
    conjugate: bool = False  # its values are those of what lies there, conjugated,
    negative: bool = False  # or negated

    @classmethod
    def from_list(cls, data: Any) -> PlacedTensor:
        """From JSON that a contestant may have written. ValueError unless every part is sane."""
        dtype, shape, strides, address, device, conjugate, negative = data
        numbers = [address, *shape, *strides]
        if dtype not in DTYPES or type(device) is not str or len(shape) > 64 or len(strides) != len(shape):
            raise ValueError("where an output lies")
        if any(type(n) is not int or not 0 <= n < _MOST_NUMBER for n in numbers):
            raise ValueError("where an output lies")
        return cls(dtype, tuple(shape), tuple(strides), address, device[:16], bool(conjugate), bool(negative))

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].itemsize

    @property
    def span(self) -> tuple[int, int]:
        """Addresses of its first byte and of the one after its last."""
        return self.address, self.address + self._extent * self.itemsize

    @property
    def _extent(self) -> int:
        """Elements from its first one to its last."""
        if not self.elements:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    def wanted(self, picks: list[float] | None) -> int:
        """Elements that are looked at."""
        starts = window_starts(self.elements, picks)
        return self.elements if starts is None else WINDOW * len(starts)

    def values(self, read: Read, picks: list[float] | None) -> bytearray:
        """Its bytes in the usual order, or those of the windows at ``picks``, in one row, where it is large; none where
        it lies on another device.

        ValueError where it is spread over more memory than anybody reads; OSError where there is none.
        """
        if self.device != "cpu" or not self.elements:
            return bytearray()
        starts = window_starts(self.elements, picks)
        if self._plain:  # without a copy more than there must be
            if starts is None:
                return read(self.address, self.elements * self.itemsize)
            places = (self.address + start * self.itemsize for start in starts)
            return bytearray().join(read(place, WINDOW * self.itemsize) for place in places)
        left = [_MOST_PIECES]
        if starts is None:
            found = self._dense(read, left)
        else:
            found = torch.cat([self._window(read, start, WINDOW, left) for start in starts])
        found = found.conj_physical() if self.conjugate else found
        found = found.neg() if self.negative else found
        return bytearray(found.reshape(-1).view(torch.uint8).numpy().tobytes())

    @property
    def _plain(self) -> bool:
        return self.strides == dense_strides(self.shape) and not (self.conjugate or self.negative)

    def _dense(self, read: Read, left: list[int]) -> torch.Tensor:
        wanted = self.elements * self.itemsize
        if self._extent * self.itemsize > max(_SPREAD * wanted, _SPREAD_BYTES):
            widest = max(range(len(self.shape)), key=lambda axis: self.strides[axis] * (self.shape[axis] > 1))
            return torch.stack([part._dense(read, left) for part in self._along(widest)], widest)
        left[0] -= 1
        if left[0] < 0:
            raise ValueError("an output that is spread over more memory than is read")
        data = read(self.address, self._extent * self.itemsize)
        flat = torch.frombuffer(data, dtype=DTYPES[self.dtype])
        return flat.as_strided(self.shape, self.strides).contiguous()

    def _along(self, axis: int) -> list[PlacedTensor]:
        shape, strides = (tuple(n for i, n in enumerate(of) if i != axis) for of in (self.shape, self.strides))
        step = self.strides[axis] * self.itemsize
        return [
            replace(self, shape=shape, strides=strides, address=self.address + number * step)
            for number in range(self.shape[axis])
        ]

    def _window(self, read: Read, start: int, length: int, left: list[int]) -> torch.Tensor:
        """``length`` elements from ``start`` on, in the usual order."""
        if self.strides == dense_strides(self.shape):
            place = self.address + start * self.itemsize
            return replace(self, shape=(length,), strides=(1,), address=place)._dense(read, left)
        inner = self.elements // self.shape[0]
        first, last = start // inner, (start + length - 1) // inner
        rows = replace(self, address=self.address + first * self.strides[0] * self.itemsize)
        if first == last and len(self.shape) > 1:
            one = replace(rows, shape=self.shape[1:], strides=self.strides[1:])
            return one._window(read, start - first * inner, length, left)
        piece = replace(rows, shape=(last - first + 1, *self.shape[1:]))
        return piece._dense(read, left).reshape(-1)[start - first * inner :][:length]


@dataclass(frozen=True)
class PlacedOutput:
    """What one call gave: its nesting, and its tensors in the order in which they appear in it."""

    structure: Any
    tensors: tuple[PlacedTensor, ...]

    def nbytes(self, picks: list[float] | None) -> int:
        """So much would `read` give."""
        return sum(tensor.wanted(picks) * tensor.itemsize for tensor in self.tensors if tensor.device == "cpu")

    def read(self, read: Read, picks: list[float] | None) -> list[tuple[TensorSpec, bytearray]]:
        """As `PlacedTensor.values` of each."""
        found = []
        for tensor in self.tensors:
            data = tensor.values(read, picks)
            wanted = tensor.wanted(picks)
            shape = tensor.shape if wanted == tensor.elements or tensor.device != "cpu" else (wanted,)
            found.append((TensorSpec(tensor.dtype, shape, (), 0, len(data), tensor.device), data))
        return found


def placed_outputs(answer: Any, calls: int, most_tensors: int) -> list[PlacedOutput]:
    """A contestant's answer. ValueError unless it is one of so many calls."""
    if type(answer) is not list or len(answer) != calls:
        raise ValueError("a place for each call's output")
    return [
        PlacedOutput(structure, tuple(PlacedTensor.from_list(item) for item in tensors[:most_tensors]))
        for structure, tensors in answer
    ]


def overlapping(outputs: list[PlacedOutput]) -> bool:
    """Do two calls' outputs share memory?"""
    return overlap(
        (*tensor.span, number)
        for number, output in enumerate(outputs)
        for tensor in output.tensors
        if tensor.device == "cpu" and tensor.elements
    )
