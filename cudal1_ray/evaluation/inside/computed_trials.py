"""A set of inputs and its outputs, as the maker computed them, and how they are written for the referee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from msgspec.structs import replace

from cudal1_ray.evaluation.exchange import messages
from cudal1_ray.evaluation.exchange.tensors import Row, TensorSpec, describe
from cudal1_ray.evaluation.inside.cpu_device import CpuDevice
from cudal1_ray.evaluation.inside.harness import structure_of
from cudal1_ray.evaluation.inside.places import in_order

# Most bytes of an output that is sent in double precision: twice what correctness/comparison.py calls small.
_LARGE_TWIN = 16 << 20


@dataclass
class ComputedTrial:
    """One set of inputs and its outputs, where they were computed."""

    inputs: list[torch.Tensor]
    native: Any
    exact: Any
    coarse: list[tuple[float, float]]  # errors of each output where arithmetic is coarse; empty where it is not
    mutated: bool
    picks: list[float] | None


def write_trial(trial: ComputedTrial, row: Row, device: CpuDevice, input_picks: list[float] | None) -> messages.Tensors:
    """Write a trial to the row and return its description. `input_picks`: of inputs that other processes draw
    themselves, only these windows are written.
    """
    inputs: list[TensorSpec] = []
    windows: list[tuple[int, int]] = []
    for tensor in trial.inputs:
        spec = describe(tensor, row.offset)
        if input_picks is not None:
            stored = row.put(device.dense(tensor, input_picks))
            inputs.append(replace(spec, offset=0))
            windows.append((stored.offset, stored.nbytes))
            continue
        dense = tensor.contiguous()
        if spec.strides:
            dense = tensor.new_zeros(spec.nbytes // tensor.element_size())
            dense.as_strided(tensor.shape, spec.strides).copy_(tensor)
        row.put(dense)
        inputs.append(spec)
    native_tensors: list[Any] = []
    structure, exact_tensors = structure_of(trial.native, native_tensors), compared_tensors(trial.exact)
    native = [
        replace(write_tensor(row, device, output, trial.picks), device=output.device.type) for output in native_tensors
    ]
    exact = []
    if len(exact_tensors) == len(native_tensors):
        for tensor, output in zip(exact_tensors, native_tensors, strict=True):
            exact.append(write_tensor(row, device, tensor, trial.picks, narrow=output.dtype is not torch.float64))
    return messages.Tensors(
        inputs, windows, structure, native, exact, [tuple(tensor.shape) for tensor in native_tensors],
        trial.coarse, trial.mutated, in_order(trial.native),
    )  # fmt: skip


def compared_tensors(output: Any) -> list[Any]:
    """Return an output's tensors in the order in which they are compared: those of a dictionary by its keys."""
    tensors: list[Any] = []
    structure_of(output, tensors)
    return tensors


def write_tensor(
    row: Row, device: CpuDevice, tensor: torch.Tensor, picks: list[float] | None = None, *, narrow: bool = False
) -> TensorSpec:
    """Write a tensor, or its windows at `picks`, to the row and return its description. `narrow`: a large tensor of
    double precision is written in single, whose rounding is far below any tolerance: copying it takes most of a
    large trial's time.
    """
    dense = device.dense(tensor, picks)
    if narrow and dense.dtype is torch.float64 and dense.nbytes > _LARGE_TWIN:
        dense = dense.float()
    spec = row.put(dense)
    if spec.nbytes != spec.expected_nbytes():
        raise MemoryError("the problem's tensors do not fit into the evaluator's memory limit")
    return spec
