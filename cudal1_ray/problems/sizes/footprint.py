"""What one call of a problem's model touches, computed on PyTorch's meta device: shapes without memory.

This module runs the problem's code. It is called in a process of its own (`worker.py`), never by what loads problems.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class Footprint:
    """One call of `Model(*get_init_inputs())(*get_inputs())`.

    Attributes:
        input_bytes, output_bytes: of all tensors handed in, and handed back.
        traffic: bytes that all operators together read and write.
        flops: floating point operations of its matrix products and convolutions.
        inputs, outputs: (shape, dtype) per tensor; values that are no tensors as their repr.
        state: name -> shape of the model's parameters and buffers.
        operators: the names of the operators that ran, in order, joined and hashed.
    """

    input_bytes: int
    output_bytes: int
    traffic: int
    flops: int
    inputs: tuple
    outputs: tuple
    state: dict[str, tuple[int, ...]]
    operators: str

    @property
    def size(self) -> int:
        """Return the larger of input and output bytes."""
        return max(self.input_bytes, self.output_bytes)


class _TrafficRecorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.traffic = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.names.append(str(func))
        if not _is_view(func):
            self.traffic += _bytes((args, kwargs)) + _bytes(result)
        return result


def footprint(source: str) -> Footprint:
    """Build the model and run one call on the meta device. Raises whatever the problem's code raises there."""
    namespace: dict[str, Any] = {"__name__": "problem"}
    exec(compile(source, "problem", "exec"), namespace)  # noqa: S102 - a problem file is a program
    with torch.no_grad():
        model = _model(namespace)
    with torch.device("meta"), torch.no_grad():
        inputs = namespace["get_inputs"]()
        recorder, flops = _TrafficRecorder(), FlopCounterMode(display=False)
        with flops, recorder:
            outputs = model(*inputs)
    return Footprint(
        input_bytes=_bytes(inputs),
        output_bytes=_bytes(outputs),
        traffic=recorder.traffic,
        flops=flops.get_total_flops(),
        inputs=_described(inputs),
        outputs=_described(outputs),
        state={name: tuple(value.shape) for name, value in model.state_dict().items()},
        operators=hashlib.sha256("\n".join(recorder.names).encode()).hexdigest(),
    )


def _model(namespace: dict[str, Any]) -> torch.nn.Module:
    """Return the model on the meta device; made on the CPU where its constructor reads values of tensors."""
    try:
        with torch.device("meta"):
            return namespace["Model"](*namespace["get_init_inputs"]())
    except (RuntimeError, NotImplementedError):
        return namespace["Model"](*namespace["get_init_inputs"]()).to("meta")


def _is_view(func: Any) -> bool:
    return any(ret.alias_info is not None and not ret.alias_info.is_write for ret in func._schema.returns)


def _bytes(values: Any) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


def _described(values: Any) -> tuple:
    return tuple(
        (tuple(leaf.shape), str(leaf.dtype)) if isinstance(leaf, torch.Tensor) else repr(leaf)
        for leaf in tree_leaves(values)
    )
