"""Tensors in shared memory: descriptions that are checked, and raw copies that use no patched function."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Iterable
from typing import Annotated, Any

import numpy
import torch
from msgspec import Meta, Struct
from msgspec.structs import replace

# Everything used on a candidate's results is captured here, before a candidate exists.
_memmove = ctypes.memmove
_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
_type, _len, _isinstance = type, len, isinstance
_data_ptr, _contiguous = torch.Tensor.data_ptr, torch.Tensor.contiguous
_resolve_conj, _resolve_neg, _detach = torch.Tensor.resolve_conj, torch.Tensor.resolve_neg, torch.Tensor.detach
_permute, _stride, _reshape = torch.Tensor.permute, torch.Tensor.stride, torch.Tensor.reshape
_is_contiguous = torch.Tensor.is_contiguous
_numel, _size, _narrow, _select, _cat = (
    torch.Tensor.numel, torch.Tensor.size, torch.Tensor.narrow, torch.Tensor.select, torch.cat
)  # fmt: skip
_empty_strided = torch.empty_strided
_as_strided, _copy, _frombuffer = torch.Tensor.as_strided, torch.Tensor.copy_, torch.frombuffer
_arange, _remainder, _floor_divide, _add = torch.arange, torch.remainder, torch.floor_divide, torch.add
_index_select, _view, _item_bytes = torch.Tensor.index_select, torch.Tensor.view, torch.Tensor.element_size

_is_lazy_copy = torch._C._is_cow_tensor
# Attributes, too: a subclass may define others, which compute when they are read.
layout_of, _dtype_of, _device_of = (getattr(torch.Tensor, name).__get__ for name in ("layout", "dtype", "device"))
_is_cpu_of, _is_nested_of = torch.Tensor.is_cpu.__get__, torch.Tensor.is_nested.__get__
_own_of = vars(torch.Tensor)["__dict__"].__get__
_device_type_of = torch.device.type.__get__
_OWN_NAMES = frozenset(dir(torch.Tensor)) - {"__dict__", "grad", "_backward_hooks"}

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
        torch.int8,
        torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn,
        torch.float8_e5m2,
    )
}  # fmt: skip
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
ALIGNMENT = 256
# Most tensors of an output; one with more is refused.
MOST_TENSORS = 2048
# Consecutive elements of a large output that one window compares.
WINDOW = 1 << 16
# Most elements that may be copied for a window, as a multiple of its elements.
_MOST_BESIDE = 4
# Types for raw copies, by bytes of an element.
_RAW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


Size = Annotated[int, Meta(ge=0, lt=1 << 48)]  # bytes, elements or an address
Shape = Annotated[tuple[Size, ...], Meta(max_length=64)]
Dtype = Annotated[str, Meta(pattern=f"^({'|'.join(DTYPES)})$")]
DeviceType = Annotated[str, Meta(max_length=16)]


class TensorSpec(Struct, frozen=True, array_like=True):
    """One tensor: where its `nbytes` lie in a region. `strides` empty = contiguous."""

    dtype: Dtype
    shape: Shape
    strides: Shape
    offset: Size
    nbytes: Size
    device: DeviceType = "cpu"

    def __post_init__(self) -> None:
        if len(self.strides) not in (0, len(self.shape)):
            raise ValueError("a stride for each dimension, or none")

    def elements(self) -> int:
        return math.prod(self.shape)

    def expected_nbytes(self) -> int:
        """Return the bytes of the values: a dense block, or the extent of the strides."""
        return extent(self.shape, self.strides or dense_strides(self.shape)) * DTYPES[self.dtype].itemsize


def name_of(dtype: torch.dtype) -> str:
    name = DTYPE_NAMES.get(dtype)
    if name is None:
        raise ValueError(f"a tensor of {dtype}, which is not supported")
    return name


def aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def describe(tensor: torch.Tensor, offset: int) -> TensorSpec:
    """Return the description of a trusted tensor whose values are to lie on the CPU, in its own memory layout."""
    usual = tensor.is_contiguous() or not tensor.numel() or 0 in tensor.stride()
    strides = () if usual else tuple(tensor.stride())
    spec = TensorSpec(name_of(tensor.dtype), tuple(tensor.shape), strides, offset, 0)
    return replace(spec, nbytes=spec.expected_nbytes())


def special_form(tensor: torch.Tensor) -> str:
    """Return the form of a tensor whose values cannot be handed over and compared; empty for any other."""
    if layout_of(tensor) is not torch.strided:
        return f"a tensor of layout {layout_of(tensor)}"
    if _is_nested_of(tensor):
        return "a nested tensor"
    return "" if _dtype_of(tensor) in DTYPE_NAMES else f"a tensor of {_dtype_of(tensor)}"


def plain_tensor(value: Any) -> str:
    """Return why a value is no plain dense tensor, empty where it is one; a subclass may compute when it is read."""
    kind = _type(value)
    if kind is not _Tensor and kind is not _Parameter:
        return f"a {kind.__name__}"
    if form := special_form(value):
        return form
    if _is_lazy_copy(value):
        return "a copy that is made only when it is read"
    if any(name in _OWN_NAMES for name in _own_of(value)):  # other attributes are Dynamo's notes, and harmless
        return "a tensor with methods of its own"
    return ""


class Region:
    """A shared region mapped into this process; `writable` is false for the pool of inputs."""

    def __init__(self, fd: int, size: int, *, writable: bool) -> None:
        self._memory = mmap.mmap(fd, size, prot=mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
        self.address, self.size = numpy.frombuffer(self._memory, numpy.uint8).ctypes.data, size

    def close(self) -> None:
        self._memory.close()


def load_tensor(region: Region, spec: TensorSpec, cut: int = 0) -> torch.Tensor:
    """Return a copy on the CPU of the values at `spec.offset`, rotated so that element `cut` comes first."""
    dtype = DTYPES[spec.dtype]
    strides = spec.strides or dense_strides(spec.shape)
    tensor = _empty_strided(spec.shape, strides, dtype=dtype, device="cpu")  # even in a device's context
    if spec.nbytes:
        start, cut_bytes = region.address + spec.offset, cut * dtype.itemsize
        _memmove(_data_ptr(tensor), start + cut_bytes, spec.nbytes - cut_bytes)
        if cut_bytes:
            _memmove(_data_ptr(tensor) + spec.nbytes - cut_bytes, start, cut_bytes)
    return tensor


def device_type(tensor: torch.Tensor) -> str:
    return _device_type_of(_device_of(tensor))


def overlap(spans: Iterable[tuple[int, int, int]]) -> bool:
    """Return whether two spans of different owners share memory; a span is (first byte, byte after the last, owner)."""
    farthest, whose = 0, -1
    for start, end, owner in sorted(spans):
        if start < farthest and owner != whose:
            return True
        if end > farthest:
            farthest, whose = end, owner
    return False


def row_in_place(region: Region, spec: TensorSpec) -> torch.Tensor:
    """Return the dense values at `spec.offset` as one row, in place; writing there ends the process where the region is
    not writable.
    """
    memory = (ctypes.c_ubyte * spec.nbytes).from_address(region.address + spec.offset)
    return _frombuffer(memory, dtype=DTYPES[spec.dtype]) if spec.nbytes else torch.empty(0, dtype=DTYPES[spec.dtype])


def tensor_in_place(region: Region, spec: TensorSpec) -> torch.Tensor:
    """Return the dense tensor at `spec.offset`, in place; for reading only, like `row_in_place`."""
    return _reshape(row_in_place(region, spec), spec.shape)


def window_starts(elements: int, picks: list[float] | None) -> list[int] | None:
    """Return the first elements of the windows that are compared in a large tensor; None: all of it is compared."""
    if picks is None or elements <= WINDOW * len(picks):
        return None
    return [int(pick * (elements - WINDOW)) for pick in picks]


def plain_values(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with lazy conjugation and negation carried out."""
    return _resolve_neg(_resolve_conj(_detach(tensor)))


def in_order_of_memory(tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
    """Return a tensor's elements as one row in the order of memory, and its strides, empty for the usual order; return
    a dense copy where the elements do not fill their memory.
    """
    plain = plain_values(tensor)
    strides = _stride(plain)
    laid = _permute(plain, sorted(range(_len(strides)), key=lambda axis: (-strides[axis], axis)))
    if not _is_contiguous(laid):
        return _reshape(_contiguous(plain), (-1,)), ()
    return _reshape(laid, (-1,)), () if _is_contiguous(plain) else tuple(strides)


def window_of(tensor: torch.Tensor, start: int, length: int) -> torch.Tensor:
    """Return `length` elements from `start` on, in the usual order, of any layout, with few other elements copied."""
    if _is_contiguous(tensor):
        return _narrow(_reshape(tensor, (-1,)), 0, start, length)
    inner = _numel(tensor) // _size(tensor, 0)
    first, last = start // inner, (start + length - 1) // inner
    if first == last and _len(_stride(tensor)) > 1:
        return window_of(_select(tensor, 0, first), start - first * inner, length)
    piece = _narrow(tensor, 0, first, last - first + 1)
    if _numel(piece) <= _MOST_BESIDE * length or _len(_stride(tensor)) == 1:
        return _narrow(_reshape(piece, (-1,)), 0, start - first * inner, length)
    cut = (first + 1) * inner - start  # splits the window into two pieces that each lie in one slice or begin with one
    return _cat([window_of(tensor, start, cut), window_of(tensor, start + cut, length - cut)])


def places_in_memory(tensor: torch.Tensor, starts: Iterable[int], length: int) -> torch.Tensor:
    """Return where the `length` elements from each of `starts` on, in the usual order, lie in a tensor of any layout:
    their offsets from its first element, in elements; int64, on its device.
    """
    left = _cat([_arange(start, start + length, device=_device_of(tensor)) for start in starts])
    places = _arange(0, 1, device=_device_of(tensor))
    for size, stride in reversed(list(zip(_size(tensor), _stride(tensor), strict=True))):
        places = _add(places, _remainder(left, size), alpha=stride)
        left = _floor_divide(left, size)
    return places


def raw_elements(tensor: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the elements at `places_in_memory` as one row of integers of their size, equally fast for any layout."""
    length = extent(_size(tensor), _stride(tensor))
    return _index_select(_view(_as_strided(tensor, (length,), (1,)), _RAW[_item_bytes(tensor)]), 0, places)


class Row:
    """Tensors one after another in a region, from `offset` on."""

    def __init__(self, region: Region, offset: int = 0) -> None:
        self._region, self.offset = region, offset

    def put(self, tensor: torch.Tensor) -> TensorSpec:
        """Copy a dense tensor's raw bytes behind those before it; if they do not fit, copy nothing (`nbytes` = 0)."""
        spec = TensorSpec(name_of(_dtype_of(tensor)), tuple(_size(tensor)), (), self.offset, 0, "cpu")
        nbytes = spec.expected_nbytes()
        if self.offset + nbytes > self._region.size:
            return spec
        spec = TensorSpec(spec.dtype, spec.shape, (), self.offset, nbytes, "cpu")
        if nbytes and _is_cpu_of(tensor):
            _memmove(self._region.address + self.offset, _data_ptr(tensor), nbytes)
        elif nbytes:
            _copy(row_in_place(self._region, spec), _reshape(tensor, (-1,)))
        self.offset = aligned(self.offset + nbytes)
        return spec


def extent(shape: Iterable[int], strides: Iterable[int]) -> int:
    """Return the number of elements from the first one to the last in memory; 0 for an empty tensor."""
    last = 0
    for size, stride in zip(shape, strides, strict=True):
        if not size:
            return 0
        last += (size - 1) * stride
    return last + 1


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def view_of_bytes(data: bytearray | memoryview, spec: TensorSpec) -> torch.Tensor:
    """Return a tensor over bytes that this process owns."""
    dtype = DTYPES[spec.dtype]
    count = spec.nbytes // dtype.itemsize
    if count == 0:
        return torch.empty(spec.shape, dtype=dtype)
    flat = torch.frombuffer(data, dtype=dtype, count=count)
    return _as_strided(flat, spec.shape, spec.strides or dense_strides(spec.shape))
