"""The reference as it is timed: plain, or sped up as a user would first try (baselines.py names the ways)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cudal1_ray.evaluation.inside.places import map_tensors


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
        self.captured: dict[Any, tuple[Any, list[Any], Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        key = tuple((tuple(a.shape), a.dtype) if isinstance(a, torch.Tensor) else repr(a) for a in arguments)
        if key not in self.captured:
            self.captured[key] = self._capture(list(arguments))
        graph, static, output = self.captured[key]
        for place, argument in zip(static, arguments, strict=True):
            if isinstance(place, torch.Tensor):
                place.copy_(argument)
        graph.replay()
        return map_tensors(output, torch.clone, typed=False)

    def _capture(self, arguments: list[Any]) -> tuple[Any, list[Any], Any]:
        static = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.model(*static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = self.model(*static)
        return graph, static, output
