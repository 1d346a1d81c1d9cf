"""Arguments as a pickle with tensors beside it, which the trusted side writes and contestants read."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import torch

# Errors of pickle for what has no name by which another process could find it.
_UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError)


class _WithoutTensors(pickle.Pickler):
    def __init__(self, file: io.BytesIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(file, protocol=4)
        self._tensors = tensors

    def persistent_id(self, value: Any) -> int | None:
        if isinstance(value, torch.Tensor):
            self._tensors.append(value.detach())
            return len(self._tensors) - 1
        return None


def pack(value: Any) -> tuple[bytes, list[torch.Tensor]]:
    """Return a pickle in which tensors are numbers, and the tensors."""
    file = io.BytesIO()
    tensors: list[torch.Tensor] = []
    _WithoutTensors(file, tensors).dump(value)
    return file.getvalue(), tensors


def pack_if_possible(arguments: Any) -> tuple[bytes, list[torch.Tensor]]:
    """Return what `pack` returns; nothing for functions and types without a name in the problem file, of which each
    process asks the file itself.
    """
    try:
        return pack(arguments)
    except _UNPICKLABLE:
        return b"", []


def pack_inputs(inputs: list[Any]) -> tuple[bytes, list[torch.Tensor]]:
    """Return what `pack` returns; raise TypeError for what all processes cannot have alike."""
    try:
        return pack(inputs)
    except _UNPICKLABLE as error:
        raise TypeError(
            f"get_inputs() gives what cannot be copied into another process ({error}); give tensors, numbers, lists, "
            "dictionaries, or functions and classes that the problem file defines at its top level"
        ) from None


class _Placeholders(pickle.Unpickler):
    """Reads a pickle that the trusted side wrote, with tensors by number. Types of the problem file become the
    candidate's own of that name, where it has one, and else the file's (`types_of` returns them by name).
    """

    def __init__(self, data: bytes, tensors: list[Any], types_of: Callable[[str], Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._tensors, self._types_of = tensors, types_of

    def find_class(self, module: str, name: str) -> Any:
        return self._types_of(name) if module == "reference" else super().find_class(module, name)

    def persistent_load(self, number: int) -> Any:
        return self._tensors[number]


def unpack(data: bytes, tensors: list[Any], types_of: Callable[[str], Any]) -> Any:
    """Return what was packed, with `tensors` in the places of those that `pack` returned."""
    return _Placeholders(data, tensors, types_of).load()
