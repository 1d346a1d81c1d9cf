"""A device as a contestant uses it: moving tensors, synchronising, the inner clock, global state. Here the CPU.

This runs inside contestants. A candidate may change these functions, so the referee's own clocks decide (timing/), and
the inner clock is trusted only as far as they confirm it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import torch

from cudal1_ray.evaluation.exchange.tensors import (
    WINDOW,
    Region,
    TensorSpec,
    dense_strides,
    in_order_of_memory,
    load_tensor,
    places_in_memory,
    plain_values,
    raw_elements,
    row_in_place,
    window_of,
    window_starts,
)
from cudal1_ray.evaluation.exchange.variant import Variant, is_floating
from cudal1_ray.evaluation.inside.drawing import Drawing

_clock = time.perf_counter_ns
_set_grad = torch._C._set_grad_enabled
_seed_cpu = torch.default_generator.manual_seed
_dispatch_depth = torch._C._len_torch_dispatch_stack
_function_depth = torch._C._len_torch_function_stack
# Captured before any candidate, like all that follows.
_numel, _reshape, _narrow, _cat = torch.Tensor.numel, torch.Tensor.reshape, torch.Tensor.narrow, torch.cat
_size, _stride, _contiguous = torch.Tensor.size, torch.Tensor.stride, torch.Tensor.contiguous
_multiply, _copy = torch.Tensor.mul, torch.Tensor.copy_
_lerp = torch.lerp
_empty_strided = torch.empty_strided

# Values of `state` that can only make a candidate slower or more exact.
STRICTEST = {
    "threads": 1, "deterministic": True, "matmul": "highest",
    "tf32": False, "cudnn_tf32": False, "fp16_reduction": False,
}  # fmt: skip


class CpuDevice:
    """The CPU. Batches are timed as a whole: the clock costs as much as a small call."""

    name = "cpu"
    copies_outputs = False  # on a GPU: each call's output is copied once its clock has stopped

    def __init__(self, threads: int) -> None:
        self._threads, self.device = threads, torch.device("cpu")
        self._bases: dict[TensorSpec, torch.Tensor] = {}  # a set's tensors by their places in the pool
        torch.set_num_threads(threads)

    def inputs(self, region: Region, variant: Variant) -> list[torch.Tensor]:
        """Return the inputs of one call, as new tensors."""
        return [self._input(region, variant, number) for number in range(len(variant.specs))]

    def later(self, region: Region, variant: Variant) -> Callable[[], list[torch.Tensor]]:
        """Return a call that makes `inputs`, possibly between two calls that are timed."""
        return partial(self.inputs, region, variant)

    def drawn(self, drawing: Drawing, seed: int) -> Callable[[], list[Any]]:
        """Return a call that draws the inputs of one call from `seed`."""

        def draw() -> list[Any]:
            self.seed(seed)
            return drawing.inputs()

        return draw

    def drawn_later(self, drawing: Drawing, seed: int) -> Callable[[], list[Any]]:
        """Return a call that draws what `drawn` does, possibly between two calls that are timed."""
        return self.drawn(drawing, seed)

    def has_room(self, nbytes: int) -> bool:
        """Return whether `nbytes` can be allocated without taking all that is free."""
        return True

    def _input(self, region: Region, variant: Variant, number: int) -> torch.Tensor:
        spec = variant.specs[number]
        if is_floating(spec) and variant.others:
            result = self._mixed(region, variant, number)
        elif (seam := variant.seam(number)) < spec.elements():
            result = self._turned(region, spec, variant.cuts[number], variant.lasting)
            other = self._turned(region, variant.others[number], variant.other_cuts[number], variant.lasting)
            first, second = (_reshape(row, (-1,)) for row in (result, other))
            _copy(_narrow(first, 0, seam, _numel(first) - seam), _narrow(second, 0, seam, _numel(first) - seam))
        else:
            result = self._turned(region, spec, variant.cuts[number], variant.lasting)
        return _multiply(result, variant.factor) if is_floating(spec) and variant.factor != 1.0 else result

    def _mixed(self, region: Region, variant: Variant, number: int) -> torch.Tensor:
        """Return two sets interpolated by `share`, in one pass over each piece in which neither set wraps around."""
        spec, other, share = variant.specs[number], variant.others[number], variant.share
        if spec.strides:
            return _lerp(self._turned(region, spec, 0, True), self._turned(region, other, 0, True), share)
        first, second = (_reshape(self._base(region, each), (-1,)) for each in (spec, other))
        result = _empty_strided(spec.shape, dense_strides(spec.shape), dtype=first.dtype, device=self.device)
        flat, count = _reshape(result, (-1,)), _numel(result)
        cut, other_cut = variant.cuts[number], variant.other_cuts[number]
        edges = sorted({0, count - cut, count - other_cut, count})
        for start, end in zip(edges, edges[1:], strict=False):
            pieces = (
                _narrow(base, 0, (start + by) % count, end - start) for base, by in ((first, cut), (second, other_cut))
            )
            _lerp(*pieces, share, out=_narrow(flat, 0, start, end - start))
        return result

    def _base(self, region: Region, spec: TensorSpec) -> torch.Tensor:
        """Return a dense set's tensor in place, as one row; for reading only."""
        base = self._bases.get(spec)
        if base is None:
            base = self._bases[spec] = row_in_place(region, spec)
        return base

    def _turned(self, region: Region, spec: TensorSpec, cut: int, lasting: bool) -> torch.Tensor:
        return load_tensor(region, spec, cut)

    def forget_inputs(self) -> None:
        """Drop all inputs of the last problem."""
        self._bases.clear()

    def give_back(self) -> None:
        """Release unused memory for other processes, if it is much."""

    def tidy(self) -> None:
        """Bring memory to its state in a process that has made no calls yet, as far as possible."""

    def spacer(self, nbytes: int) -> list[torch.Tensor]:
        """Return `nbytes` to hold so that later tensors lie behind them, written to, so that their pages exist when
        another tensor takes their place: getting pages from the system takes longer than many a call.
        """
        return [torch.zeros(nbytes, dtype=torch.uint8)] if nbytes else []

    def gap(self, nbytes: int) -> list[torch.Tensor]:
        """Return `nbytes` to hold, not written to, which takes no time."""
        return [_empty_strided((nbytes,), (1,), dtype=torch.uint8)] if nbytes else []

    def scatter(self, mib: int, reserve_mib: int) -> None:
        """Take `mib` of the free memory, so that other pages come next; out of `reserve_mib` in one piece, which the
        first request allocates: getting pages from the driver repeatedly takes longer than all calls.
        """

    def dense(self, tensor: torch.Tensor, picks: list[float] | None = None) -> torch.Tensor:
        """Return the tensor dense, or one row of the windows at `picks`, on the device."""
        starts, plain = window_starts(_numel(tensor), picks), plain_values(tensor)
        if starts is None:
            return _contiguous(plain)
        return _cat([window_of(plain, start, WINDOW) for start in starts])

    def as_it_lies(self, tensor: torch.Tensor, picks: list[float] | None) -> tuple[torch.Tensor, tuple[int, ...]]:
        """Return a tensor's elements as they lie in memory, with strides where that is not the usual order; for a large
        one, the windows at `picks` in the usual order. All layouts cost the same, as far as possible.
        """
        if window_starts(_numel(tensor), picks) is None:
            return in_order_of_memory(tensor)
        return self.dense(tensor, picks), ()

    def handed(
        self, tensor: torch.Tensor, picks: list[float], places: dict[tuple[Any, ...], torch.Tensor]
    ) -> torch.Tensor:
        """Return what `as_it_lies` returns, in one row, for a caller whose clock is running: gathering windows of
        channels-last outputs took as long as a short call, so here no layout costs more. `places`: keeps the windows'
        places for later outputs.
        """
        starts = window_starts(_numel(tensor), picks)
        if starts is None:
            return in_order_of_memory(tensor)[0]
        plain = plain_values(tensor)
        layout = (*_size(plain), *_stride(plain))
        if layout not in places:
            places[layout] = places_in_memory(plain, starts, WINDOW)
        return raw_elements(plain, places[layout])

    def build(self, construct: Callable[[], Any], seed: int, *, in_place: bool) -> tuple[Any, bool]:
        """Return a model, before it is moved, and whether its tensors were made on the device itself. That is only
        tried with `in_place`: drawing gigabytes of initial weights elsewhere takes long.
        """
        self.seed(seed)
        return construct(), False

    def coarse_convolutions(self) -> bool:
        """Return whether convolutions of float32 may be less exact than their type."""
        return False

    def seed(self, seed: int) -> None:
        _seed_cpu(seed)

    def synchronize(self) -> None:
        pass

    def run_batch(
        self, call: Callable[..., Any], calls: Collection[list[Any]], seeds: list[int] | None, queued: bool = False
    ) -> tuple[list[Any], list[int]]:
        """Return the outputs of each call, and nanoseconds of all calls together or of each. `queued`: GPU only."""
        outputs: list[Any] = []
        keep = outputs.append
        _set_grad(False)
        if seeds:
            start = _clock()
            for arguments, seed in zip(calls, seeds, strict=True):
                _seed_cpu(seed)
                keep(call(*arguments))
        else:
            start = _clock()
            for arguments in calls:
                keep(call(*arguments))
        return outputs, [_clock() - start]

    def run_unclocked(
        self, call: Callable[..., Any], calls: Collection[list[Any]], seeds: list[int] | None
    ) -> list[Any]:
        """Return each call's output, waiting for one call after the other; only the referee's clock measures them."""
        outputs: list[Any] = []
        _set_grad(False)
        for number, arguments in enumerate(calls):
            if seeds:
                self.seed(seeds[number])
            outputs.append(call(*arguments))
            self.synchronize()
        return outputs

    def flush(self) -> None:
        """Empty the device's cache, if it is emptied between calls."""

    def restore(self) -> None:
        """Restore the global switches to their values at the start, for a process that goes on to another problem."""
        torch.set_num_threads(self._threads)
        torch.set_default_dtype(torch.float32)
        self.reset_precision()
        if torch.are_deterministic_algorithms_enabled():  # setting it imports all of Inductor, for seconds
            torch.use_deterministic_algorithms(False)

    def reset_precision(self) -> None:
        """Reset the switches that make arithmetic coarser than its type."""
        torch.set_float32_matmul_precision("highest")

    def state(self) -> dict[str, Any]:
        """Return the global switches that change what is measured or compared."""
        try:
            matmul = torch.get_float32_matmul_precision()
        except RuntimeError as error:  # several switches have conflicting values
            matmul = str(error)
        by_a_mode = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None) is not None
        return {
            "threads": torch.get_num_threads(),
            "dtype": str(torch.get_default_dtype()),
            "matmul": matmul,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "mkldnn": torch.backends.mkldnn.enabled,
            "autocast": torch.is_autocast_enabled("cpu"),
            "default_device": (str(torch.get_default_device()), by_a_mode),
            "modes": _dispatch_depth() + _function_depth() - by_a_mode,
        }
