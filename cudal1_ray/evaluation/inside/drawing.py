"""A problem's inputs as a plan: the operators that its `get_inputs` runs, which any process repeats from a seed.

On a GPU the maker, the reference and the candidate each draw a call's inputs locally, from the seed that comes with the
call, so that no gigabytes are sent. The plan is resolved to operators before a candidate's code runs, so that none of
that code takes part in drawing.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from cudal1_ray.evaluation.inside.places import tensors_in

# Most operators of a plan; more would cost a call's inputs milliseconds of Python.
_MOST_STEPS = 256
# Most bytes of a tensor that the plan itself contains.
_LARGEST_CONSTANT = 1 << 12

# Captured before any candidate.
_isinstance, _Tensor = isinstance, torch.Tensor


class NotDrawable(Exception):
    """`get_inputs` is no sequence of operators on tensors that a seed determines."""


@dataclass(frozen=True)
class _StepResult:
    """The tensor that a step makes, as a plan refers to it."""

    number: int


@dataclass(frozen=True)
class _Step:
    operator: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    makes: tuple[int, ...]  # numbers of the tensors in its result, in order


class _Recorder(TorchDispatchMode):
    """Records every operator that runs on this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[_Step] = []
        self._numbers, self._next = WeakTensorKeyDictionary(), count()  # numbers of the tensors that steps made

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if len(self.steps) == _MOST_STEPS:
            raise NotDrawable(f"more than {_MOST_STEPS} operators")
        arguments, named = self.planned(tuple(args)), self.planned(dict(kwargs or {}))
        result = function(*args, **(kwargs or {}))
        if _isinstance(result, _Tensor) and any(argument.name == "dtype" for argument in function._schema.arguments):
            named["dtype"] = result.dtype  # independent of the default where the plan is repeated
        makes = tuple(self._number(tensor) for tensor in tensors_in(result))
        self.steps.append(_Step(function.name(), arguments, named, makes))
        return result

    def planned(self, value: Any) -> Any:
        """Return `value` with every tensor as the plan refers to it; raise NotDrawable for a large one of no step."""
        return tree_map_only(_Tensor, self._planned, value)

    def _planned(self, tensor: Any) -> Any:
        if tensor in self._numbers:
            return _StepResult(self._numbers[tensor])
        if tensor.nbytes > _LARGEST_CONSTANT or tensor.device.type != "cpu":
            raise NotDrawable("a tensor that is no operator's result")
        return tensor.detach().clone()

    def _number(self, tensor: Any) -> int:
        if tensor not in self._numbers:
            self._numbers[tensor] = next(self._next)
        return int(self._numbers[tensor])


def record(get_inputs: Callable[[], Any]) -> bytes:
    """Return the plan of `get_inputs`, as `Drawing` reads it; raise NotDrawable where there is none, and a lack of
    memory as it is.
    """
    recorder = _Recorder()
    try:
        with recorder, torch.no_grad():
            inputs = list(get_inputs())
        planned = recorder.planned(inputs)
        if not tensors_in(inputs) or tensors_in(planned):
            raise NotDrawable("an input that no operator makes")
        return pickle.dumps((recorder.steps, planned))
    except (NotDrawable, torch.OutOfMemoryError):
        raise
    except Exception as error:  # errors of a `get_inputs` that cannot run under a dispatch mode
        raise NotDrawable(f"{type(error).__name__}: {error}") from None


class Drawing:
    """A plan that is resolved to operators; it must be created before a candidate's code runs."""

    def __init__(self, plan: bytes) -> None:
        steps, self._inputs = pickle.loads(plan)
        last = {
            number: place
            for place, step in enumerate(steps)
            for number in (*_numbers_in((step.arguments, step.named)), *step.makes)
        }
        results = set(_numbers_in(self._inputs))
        self._steps = [
            (_operator(step.operator), step.arguments, step.named, step.makes,
             [number for number, at in last.items() if at == place and number not in results])
            for place, step in enumerate(steps)
        ]  # fmt: skip

    def inputs(self) -> list[Any]:
        """Return one call's inputs, new tensors drawn with the present seeds of the generators."""
        tensors: dict[int, Any] = {}
        for operator, arguments, named, makes, done in self._steps:
            result = operator(*_filled(arguments, tensors), **_filled(named, tensors))
            tensors.update(zip(makes, tensors_in(result), strict=True))
            for number in done:
                tensors.pop(number, None)
        return _filled(self._inputs, tensors)


def _operator(name: str) -> Any:
    space, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), packet), overload or "default")._op


def _numbers_in(value: Any) -> list[int]:
    return [leaf.number for leaf in tree_leaves(value) if _isinstance(leaf, _StepResult)]


def _filled(value: Any, tensors: dict[int, Any]) -> Any:
    if _isinstance(value, _StepResult):
        return tensors[value.number]
    if _isinstance(value, tuple):
        return tuple([_filled(item, tensors) for item in value])
    if _isinstance(value, list):
        return [_filled(item, tensors) for item in value]
    if _isinstance(value, dict):
        return {key: _filled(item, tensors) for key, item in value.items()}
    return value
