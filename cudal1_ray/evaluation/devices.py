"""What differs between a CPU and a CUDA contestant: moving tensors, synchronising, the inner clock, global state.

This runs inside contestants. Whatever a candidate does to these functions, the referee's own clocks decide
(timing.py); the inner clock is only trusted as far as they confirm it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from .tensors import Region, TensorSpec, dense_copy, load_tensor

_clock = time.perf_counter_ns
_set_grad = torch._C._set_grad_enabled
_seed_cpu = torch.default_generator.manual_seed
_dispatch_depth = torch._C._len_torch_dispatch_stack
_function_depth = torch._C._len_torch_function_stack


class CpuDevice:
    """Batches are timed as a whole: the clock costs as much as a small call."""

    name = "cpu"

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def upload(self, region: Region, spec: TensorSpec, shift: int) -> torch.Tensor:
        return load_tensor(region, spec, shift)

    def to_cpu(self, tensor: torch.Tensor) -> torch.Tensor:
        return dense_copy(tensor)

    def seed(self, seed: int) -> None:
        _seed_cpu(seed)

    def synchronize(self) -> None:
        pass

    def run_batch(
        self, call: Callable[..., Any], calls: list[list[Any]], seeds: list[int] | None
    ) -> tuple[list[Any], int]:
        """(outputs of each call, nanoseconds of all calls together)."""
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
        return outputs, _clock() - start

    def state(self) -> dict[str, Any]:
        """Global switches that change what is measured or compared."""
        return {
            "threads": torch.get_num_threads(),
            "dtype": str(torch.get_default_dtype()),
            "matmul": torch.get_float32_matmul_precision(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "mkldnn": torch.backends.mkldnn.enabled,
            "autocast": torch.is_autocast_enabled("cpu"),
            "default_device": str(torch.get_default_device()),
            "modes": _dispatch_depth() + _function_depth(),
        }


class CudaDevice(CpuDevice):
    """Each call between two events, with the L2 cache flushed before it; a batch ends in a full synchronisation."""

    name = "cuda"

    def __init__(self, threads: int, index: int, flush_mib: int, memory_share: float) -> None:
        super().__init__(threads)
        self.device = torch.device("cuda", index)
        torch.cuda.set_device(self.device)
        torch.cuda.set_per_process_memory_fraction(memory_share, self.device)
        self._flush_bytes = flush_mib << 20
        self._flush: torch.Tensor | None = None
        # Captured before any candidate: replacing torch.cuda.* later changes nothing here.
        self._synchronize = torch._C._cuda_synchronize
        self._event, self._current = torch.cuda.Event, torch.cuda.current_stream
        self._record, self._elapsed = torch.cuda.Event.record, torch.cuda.Event.elapsed_time
        self._zero = torch.Tensor.zero_
        self._copy, self._to = torch.Tensor.copy_, torch.Tensor.to
        self._empty = torch.empty_strided
        torch.zeros(1, device=self.device)  # the context exists from here on
        self._stream = self._current(self.device)
        self._seed_cuda = torch.cuda.default_generators[index].manual_seed

    def upload(self, region: Region, spec: TensorSpec, shift: int) -> torch.Tensor:
        host = load_tensor(region, spec, shift)
        tensor = self._empty(host.shape, host.stride(), dtype=host.dtype, device=self.device)
        return self._copy(tensor, host)

    def to_cpu(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._to(dense_copy(tensor), "cpu")

    def seed(self, seed: int) -> None:
        _seed_cpu(seed)
        self._seed_cuda(seed)

    def synchronize(self) -> None:
        self._synchronize()

    def run_batch(
        self, call: Callable[..., Any], calls: list[list[Any]], seeds: list[int] | None
    ) -> tuple[list[Any], int]:
        if self._flush is None and self._flush_bytes:
            self._flush = torch.empty(self._flush_bytes, dtype=torch.uint8, device=self.device)
        outputs: list[Any] = []
        starts = [self._event(enable_timing=True) for _ in calls]
        ends = [self._event(enable_timing=True) for _ in calls]
        _set_grad(False)
        self._synchronize()
        for number, arguments in enumerate(calls):
            if seeds:
                self.seed(seeds[number])
            if self._flush is not None:
                self._zero(self._flush)
            self._record(starts[number], self._stream)
            outputs.append(call(*arguments))
            self._record(ends[number], self._stream)
        self._synchronize()
        inner = sum(self._elapsed(a, b) for a, b in zip(starts, ends, strict=True))
        return outputs, int(inner * 1e6)

    def state(self) -> dict[str, Any]:
        return super().state() | {
            "tf32": torch.backends.cuda.matmul.allow_tf32,
            "cudnn_tf32": torch.backends.cudnn.allow_tf32,
            "fp16_reduction": torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
            "autocast_cuda": torch.is_autocast_enabled("cuda"),
            "stream": self._current(self.device) == self._stream,
        }


def open_device(device: str, threads: int, flush_mib: int, memory_share: float) -> CpuDevice:
    """``cpu``, ``cuda`` or ``cuda:N``, opened in this process."""
    kind, _, index = device.partition(":")
    return CudaDevice(threads, int(index or 0), flush_mib, memory_share) if kind == "cuda" else CpuDevice(threads)
