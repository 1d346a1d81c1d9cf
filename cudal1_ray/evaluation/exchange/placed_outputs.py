"""Outputs that are read from outside, where they lie in a contestant's memory, without running its code.

A contestant that hands an output over could compute it then, outside the timed window, in the time that a copy would
take. So on the CPU it reports where the outputs of all calls of a batch lie, before it is known which are compared,
and the referee reads these by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import torch
from msgspec import Meta, Struct
from msgspec.structs import replace

from cudal1_ray.evaluation.exchange.tensors import (
    DTYPES,
    MOST_TENSORS,
    WINDOW,
    DeviceType,
    Dtype,
    Shape,
    Size,
    TensorSpec,
    dense_strides,
    device_type,
    extent,
    name_of,
    window_starts,
)

# Used on a candidate's results, and captured before a candidate exists.
_dtype_of, _size, _stride = torch.Tensor.dtype.__get__, torch.Tensor.size, torch.Tensor.stride
_data_ptr, _is_conj, _is_neg = torch.Tensor.data_ptr, torch.Tensor.is_conj, torch.Tensor.is_neg

Read = Callable[[int, int], bytearray]  # (address, bytes)

# Most bytes of memory that are read at once for a tensor: this multiple of its own bytes, or this number if larger.
_SPREAD, _SPREAD_BYTES = 64, 64 << 20
_MOST_PIECES = 1 << 16


class PlacedTensor(Struct, frozen=True, array_like=True):
    """One tensor of an output, as a contestant describes it."""

    dtype: Dtype
    shape: Shape
    strides: Shape  # elements
    address: Size
    device: DeviceType
    conjugate: bool = False  # the tensor's values are the conjugates of what lies in memory
    negative: bool = False  # the tensor's values are the negatives of what lies in memory

    def __post_init__(self) -> None:
        if len(self.strides) != len(self.shape):
            raise ValueError("a stride for each dimension")

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].itemsize

    def elements_read(self, picks: list[float] | None) -> int:
        """Return the number of elements that `values` reads."""
        starts = window_starts(self.elements, picks)
        return self.elements if starts is None else WINDOW * len(starts)

    def values(self, read: Read, picks: list[float] | None) -> bytearray:
        """Return the tensor's bytes in the usual order; for a large one those of the windows at `picks` in one row, for
        one on another device none.

        Raises:
            ValueError: where the tensor is spread over more memory than is read.
            OSError: where no memory is mapped.
        """
        if self.device != "cpu" or not self.elements:
            return bytearray()
        starts = window_starts(self.elements, picks)
        if self.strides == dense_strides(self.shape) and not (self.conjugate or self.negative):
            # In the usual order: read with no more copies than necessary.
            if starts is None:
                return read(self.address, self.elements * self.itemsize)
            places = (self.address + start * self.itemsize for start in starts)
            return bytearray().join(read(place, WINDOW * self.itemsize) for place in places)
        left = [_MOST_PIECES]
        if starts is None:
            elements = self._dense(read, left)
        else:
            elements = torch.cat([self._window(read, start, WINDOW, left) for start in starts])
        elements = elements.conj_physical() if self.conjugate else elements
        elements = elements.neg() if self.negative else elements
        return bytearray(elements.reshape(-1).view(torch.uint8).numpy().tobytes())

    def _dense(self, read: Read, left: list[int]) -> torch.Tensor:
        spanned = extent(self.shape, self.strides) * self.itemsize
        if spanned > max(_SPREAD * self.elements * self.itemsize, _SPREAD_BYTES):
            widest = max(range(len(self.shape)), key=lambda axis: self.strides[axis] * (self.shape[axis] > 1))
            return torch.stack([part._dense(read, left) for part in self._along(widest)], widest)
        left[0] -= 1
        if left[0] < 0:
            raise ValueError("an output that is spread over more memory than is read")
        data = read(self.address, spanned)
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
        """Return `length` elements from `start` on, in the usual order."""
        if self.strides == dense_strides(self.shape):
            place = self.address + start * self.itemsize
            return replace(self, shape=(length,), strides=(1,), address=place)._dense(read, left)
        inner = self.elements // self.shape[0]
        first, last = start // inner, (start + length - 1) // inner
        rows = replace(self, address=self.address + first * self.strides[0] * self.itemsize)
        if first == last and len(self.shape) > 1:
            row = replace(rows, shape=self.shape[1:], strides=self.strides[1:])
            return row._window(read, start - first * inner, length, left)
        piece = replace(rows, shape=(last - first + 1, *self.shape[1:]))
        return piece._dense(read, left).reshape(-1)[start - first * inner :][:length]


class PlacedOutput(Struct, frozen=True, array_like=True):
    """The output of one call: its nesting, and its tensors in the order in which they appear in it."""

    structure: Any
    tensors: Annotated[tuple[PlacedTensor, ...], Meta(max_length=MOST_TENSORS)]

    def nbytes(self, picks: list[float] | None) -> int:
        """Return the number of bytes that `read` returns."""
        return sum(tensor.elements_read(picks) * tensor.itemsize for tensor in self.tensors if tensor.device == "cpu")

    def read(self, read: Read, picks: list[float] | None) -> list[tuple[TensorSpec, bytearray]]:
        """Return description and `PlacedTensor.values` of each tensor."""
        outputs = []
        for tensor in self.tensors:
            data = tensor.values(read, picks)
            elements = tensor.elements_read(picks)
            shape = tensor.shape if elements == tensor.elements or tensor.device != "cpu" else (elements,)
            outputs.append((TensorSpec(tensor.dtype, shape, (), 0, len(data), tensor.device), data))
        return outputs


def place_of(tensor: torch.Tensor) -> PlacedTensor:
    """Return where a plain tensor lies; called in the process that holds it."""
    device = device_type(tensor)
    return PlacedTensor(
        name_of(_dtype_of(tensor)), tuple(_size(tensor)), tuple(_stride(tensor)),
        _data_ptr(tensor) if device == "cpu" else 0, device, _is_conj(tensor), _is_neg(tensor),
    )  # fmt: skip
