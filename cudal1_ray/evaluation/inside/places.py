"""Where the outputs of calls lie in memory: each in its own, whose old content is gone when it is used again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from cudal1_ray.evaluation.exchange.tensors import device_type, extent, layout_of, overlap

# Captured before any candidate.
_isinstance, _type = isinstance, type
_data_ptr, _numel, _element_size = torch.Tensor.data_ptr, torch.Tensor.numel, torch.Tensor.element_size
_size, _stride, _fill = torch.Tensor.size, torch.Tensor.stride, torch.Tensor.fill_
_storage, _data_ptr_of = torch.Tensor.untyped_storage, torch.UntypedStorage.data_ptr
_nbytes_of = torch.UntypedStorage.nbytes
_is_floating_point, _is_complex = torch.Tensor.is_floating_point, torch.Tensor.is_complex
_inference_mode = torch.inference_mode
_is_contiguous, _contiguous, _dim = torch.Tensor.is_contiguous, torch.Tensor.contiguous, torch.Tensor.dim
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
_clone = torch.Tensor.clone
_Tensor, _PLAIN = torch.Tensor, (torch.Tensor, torch.nn.Parameter)
# Value, 0b1010101, that overwrites whole numbers; other numbers become NaN.
_SPOILT = 85


def tensors_in(value: Any) -> list[Any]:
    if _isinstance(value, _Tensor):
        return [value]
    if _isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    if _isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    return []


def map_tensors(value: Any, function: Callable[[Any], Any], *, typed: bool = True) -> Any:
    """Return the same nesting with `function` of each tensor in its place. Dictionaries keep a type of their own only
    if `typed`: copying that takes microseconds, which a timed call cannot spare for its outputs.
    """
    if _isinstance(value, _Tensor):
        return function(value)
    if _isinstance(value, (tuple, list)):
        items = [map_tensors(item, function, typed=typed) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if _isinstance(value, dict):
        entries = {key: map_tensors(item, function, typed=typed) for key, item in value.items()}
        return _refilled(value, entries) if typed and _type(value) is not dict else entries
    return value


def _refilled(value: Any, entries: dict[Any, Any]) -> Any:
    """Return a copy of a dictionary, of its type, that holds other `entries` for its keys."""
    result = copy.copy(value)
    for key, item in entries.items():
        result[key] = item
    return result


def aliased(outputs: list[Any]) -> bool:
    """Return whether two calls' outputs share memory."""
    return overlap((*_span(tensor), number) for number, output in enumerate(outputs) for tensor in _plain(output))


def span_bytes(outputs: list[Any]) -> int:
    """Return the bytes from the first to the last of each output's tensors, together."""
    return sum(end - start for output in outputs for start, end in map(_span, _plain(output)))


def borrowed(output: Any, arguments: list[Any]) -> str:
    """Return whose memory an output lies in: an input's, or one element's that serves others; empty for its own."""
    theirs = [(_data_ptr_of(_storage(argument)), _nbytes_of(_storage(argument))) for argument in _plain(arguments)]
    for tensor in _plain(output):
        start, end = _span(tensor)
        if any(start < place + size and place < end for place, size in theirs):
            return "an input's"
        if end - start < _numel(tensor) * _element_size(tensor):
            return "other elements'"
        if any(step == 0 and size > 1 for size, step in zip(_size(tensor), _stride(tensor), strict=True)):
            return "other elements'"
    return ""


def in_order(output: Any) -> bool:
    """Return whether all tensors of an output lie as their shapes state, the last dimension's elements in a row."""
    return all(_is_contiguous(tensor) for tensor in _plain(output))


def put_in_order(output: Any) -> Any:
    """Return the output with copies of tensors that lie otherwise: a view that is transposed, or leaves out elements,
    slows its readers. Channels may come last.
    """
    return map_tensors(output, _put_in_order, typed=False)


def _put_in_order(tensor: torch.Tensor) -> torch.Tensor:
    if _type(tensor) not in _PLAIN or layout_of(tensor) is not torch.strided or _is_contiguous(tensor):
        return tensor
    last = _LAST.get(_dim(tensor))
    stays = (last and _is_contiguous(tensor, memory_format=last)) or borrowed(tensor, [])  # the latter is refused
    return tensor if stays else _contiguous(tensor)


def with_outputs(changed: Callable[[Any], Any], call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function, with its outputs `changed`."""
    return lambda *inputs: changed(call(*inputs))


def copies(value: Any) -> Any:
    """Return the value with a copy of each plain tensor in it, and everything else as it is."""
    return map_tensors(value, lambda tensor: _clone(tensor) if _type(tensor) in _PLAIN else tensor, typed=False)


def spoil(outputs: list[Any]) -> None:
    """Overwrite outputs that were returned before."""
    with _inference_mode():
        for tensor in (plain for output in outputs for plain in _plain(output)):
            numbers = _is_floating_point(tensor) or _is_complex(tensor)
            with suppress(RuntimeError):  # raised for elements that share memory
                _fill(tensor, float("nan") if numbers else _SPOILT)


def _plain(value: Any) -> list[Any]:
    """Return the plain tensors of a value that have elements in memory."""
    return [
        tensor
        for tensor in tensors_in(value)
        if _type(tensor) in _PLAIN
        and _numel(tensor)
        and layout_of(tensor) is torch.strided
        and device_type(tensor) in ("cpu", "cuda")
    ]


def _span(tensor: Any) -> tuple[int, int]:
    """Return the addresses of a tensor's first byte and of the one after its last, close together if it is expanded."""
    start = _data_ptr(tensor)
    return start, start + extent(_size(tensor), _stride(tensor)) * _element_size(tensor)
