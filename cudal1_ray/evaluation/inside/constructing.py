"""The arguments that a model is constructed with, and called with; a model that is only constructed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# Elements above which a tensor's initial values are not drawn; drawing that many takes 10 ms on a CPU.
_MANY = 1 << 20
_FILLS = frozenset((torch.Tensor.uniform_, torch.Tensor.normal_))


def constructor_arguments(arguments: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return positional arguments and keywords from a problem's `get_init_inputs()`: a sequence, as in KernelBench; a
    dictionary of keywords; a sequence of both, as in KernelBook; or nothing. Raise TypeError, which names the value's
    type, for a single argument.
    """
    if arguments is None:
        return [], {}
    if _names(arguments):
        return [], dict(arguments)
    if not isinstance(arguments, Iterable) or isinstance(arguments, (torch.Tensor, str)):
        raise TypeError(f"get_init_inputs() gives {type(arguments).__name__}; let it give a list of arguments")
    arguments = list(arguments)
    if len(arguments) == 2 and isinstance(arguments[0], (list, tuple)) and _names(arguments[1]):
        return list(arguments[0]), dict(arguments[1])
    return arguments, {}


def _names(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) and name.isidentifier() for name in value)


def call_arguments(inputs: Any, forward: Callable[..., Any]) -> list[Any]:
    """Return a call's arguments from a problem's `get_inputs()`: a sequence, as in KernelBench, or a generator; a
    dictionary by the names of `forward`'s parameters; or a single tensor. Raise TypeError, which names the value's
    type, for anything else.
    """
    if isinstance(inputs, torch.Tensor):
        return [inputs]
    if isinstance(inputs, dict):
        return _by_name(inputs, forward)
    if isinstance(inputs, (tuple, list, Iterator)):
        return list(inputs)
    raise TypeError(f"get_inputs() gives {type(inputs).__name__}; let it give a list of forward's arguments")


def _by_name(inputs: dict[Any, Any], forward: Callable[..., Any]) -> list[Any]:
    """Return the arguments in `forward`'s order, with defaults for those left out between others."""
    signature = inspect.signature(forward)
    try:
        bound = signature.bind(None, **inputs)
        bound.apply_defaults()
        if bound.kwargs:
            raise TypeError
    except TypeError:
        names = list(inputs)
        raise TypeError(f"get_inputs() gives a dictionary of {names}, forward takes {signature}; give a list") from None
    names = list(signature.parameters)[1:]
    return list(bound.args[1 : 2 + max(map(names.index, inputs), default=-1)])


class _Unfilled(TorchFunctionMode):
    """Leaves large tensors without initial values, which are never read. `used`: whether there was one."""

    used = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        fills = function in _FILLS or getattr(function, "__module__", "") == "torch.nn.init"
        filled = (args[0] if args else (kwargs or {}).get("tensor")) if fills else None
        if isinstance(filled, torch.Tensor) and filled.numel() > _MANY:
            self.used = True
            return filled
        return function(*args, **(kwargs or {}))


def construct_unfilled(kind: Callable[..., Any], positional: list[Any], named: dict[str, Any]) -> None:
    """Construct a model that is never called, without its large tensors' initial values if that works."""
    unfilled = _Unfilled()
    try:
        with unfilled:
            kind(*positional, **named)
    except Exception:
        if not unfilled.used:
            raise
        kind(*positional, **named)  # with all initial values, as it is constructed later
