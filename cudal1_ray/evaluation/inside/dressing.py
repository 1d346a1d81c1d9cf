"""The reference as it is timed: plain, or sped up as a user would first try (baselines.py names the ways)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cudal1_ray.evaluation.inside.places import map_tensors, tensors_in


def dress(model: Any, against: str, device: str) -> Callable[..., Any]:
    """Return the callable that is timed: the model itself, or the model under one of the baselines."""
    if against == "compile":
        return torch.compile(model)
    if against == "compile_reduce_overhead":
        return _reduce_overhead(torch.compile(model, mode="reduce-overhead"))
    if against == "tuned_eager":
        return _tuned(model, device)
    if against == "cuda_graph":
        return _CudaGraph(model)
    return model


def _reduce_overhead(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call that copies its results: CUDA graphs reuse their output memory, so the copy belongs to the call."""

    def call(*arguments: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return map_tensors(compiled(*arguments), torch.clone, typed=False)

    return call


def _tuned(model: Any, device: str) -> Callable[..., Any]:
    """Return eager code with the tuning that needs no change of the model: on a GPU cuDNN's own search, and TF32 for
    products as for convolutions; on the CPU channels-last. Candidates may be as coarse as their baseline.
    """
    if device == "cuda":
        torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = True
        torch.set_float32_matmul_precision("high")
        return model
    if any(parameter.dim() == 4 for parameter in model.parameters()):
        model = model.to(memory_format=torch.channels_last)
    return model


class _CudaGraph:
    """A model's CUDA graphs, one per shape; inputs are copied in and outputs out, so that it stays a function."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.captured: dict[Any, tuple[list[Any], Any, Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        key = tuple(map(_form, arguments))
        if key not in self.captured:
            static = [map_tensors(argument, torch.clone) for argument in arguments]
            self.captured[key] = static, *self._capture(static)
        static, graph, output = self.captured[key]
        for place, argument in zip(static, arguments, strict=True):
            if isinstance(place, torch.Tensor):
                place.copy_(argument)
                continue
            for inner, tensor in zip(tensors_in(place), tensors_in(argument), strict=True):
                inner.copy_(tensor)
        graph.replay()
        return map_tensors(output, torch.clone, typed=False)

    def _capture(self, static: list[Any]) -> tuple[Any, Any]:
        """Return a graph that reads its inputs from `static`, and the output that it writes."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.model(*static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = self.model(*static)
        return graph, output


def _form(argument: Any) -> Any:
    """Return all of an argument but the values of its tensors."""
    if isinstance(argument, torch.Tensor):
        return tuple(argument.shape), argument.dtype
    return repr(map_tensors(argument, lambda tensor: (tuple(tensor.shape), tensor.dtype)))
