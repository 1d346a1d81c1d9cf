"""What differs between a CPU and a CUDA contestant: moving tensors, synchronising, the inner clock, global state.

This runs inside contestants. Whatever a candidate does to these functions, the referee's own clocks decide
(timing/); the inner clock is only trusted as far as they confirm it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import torch

from ..exchange.tensors import (
    WINDOW,
    Region,
    TensorSpec,
    dense_copy,
    dense_strides,
    in_order_of_memory,
    load_tensor,
    row_in_place,
    window_starts,
)
from ..exchange.variant import Variant, is_floating
from .allocator import keep_freed_memory

_clock = time.perf_counter_ns
_set_grad = torch._C._set_grad_enabled
_seed_cpu = torch.default_generator.manual_seed
_dispatch_depth = torch._C._len_torch_dispatch_stack
_function_depth = torch._C._len_torch_function_stack
# Captured before any candidate, like all that follows.
_numel, _reshape, _narrow, _cat = torch.Tensor.numel, torch.Tensor.reshape, torch.Tensor.narrow, torch.cat
_multiply, _copy, _to = torch.Tensor.mul, torch.Tensor.copy_, torch.Tensor.to
_lerp = torch.lerp
_empty_strided = torch.empty_strided

_DOUBLED_BYTES = 128 << 20  # sets up to this size lie on the device twice over, so that turning them is one pass
_TIDIED_BYTES = 256 << 20  # sets that are larger together are not uploaded again for the sake of order
# Of the device's memory, from problem to problem. The driver serves one process at a time, and making another's context
# takes it a quarter of a second: whoever wants pages then, or gives them back, waits for all of that.
_KEPT_BYTES = 1 << 30


# Values of `state` that only make a candidate slower or more exact.
STRICTEST = {"deterministic": True, "matmul": "highest", "tf32": False, "cudnn_tf32": False, "fp16_reduction": False}


class CpuDevice:
    """Batches are timed as a whole: the clock costs as much as a small call."""

    name = "cpu"

    def __init__(self, threads: int) -> None:
        self._threads, self.device = threads, torch.device("cpu")
        self._bases: dict[int, torch.Tensor] = {}  # offset in the pool -> the set's tensor that lies there
        torch.set_num_threads(threads)

    def upload(self, region: Region, spec: TensorSpec, cut: int = 0) -> torch.Tensor:
        return load_tensor(region, spec, cut)

    def inputs(self, region: Region, variant: Variant) -> list[torch.Tensor]:
        """New tensors, as the referee wants them."""
        return [self._input(region, variant, number) for number in range(len(variant.specs))]

    def _input(self, region: Region, variant: Variant, number: int) -> torch.Tensor:
        spec = variant.specs[number]
        if is_floating(spec) and variant.others:
            made = self._mixed(region, variant, number)
        elif (seam := variant.seam(number)) < spec.elements():
            made = self._turned(region, spec, variant.cuts[number], variant.lasting)
            other = self._turned(region, variant.others[number], variant.other_cuts[number], variant.lasting)
            first, second = (_reshape(one, (-1,)) for one in (made, other))
            _copy(_narrow(first, 0, seam, _numel(first) - seam), _narrow(second, 0, seam, _numel(first) - seam))
        else:
            made = self._turned(region, spec, variant.cuts[number], variant.lasting)
        return _multiply(made, variant.factor) if is_floating(spec) and variant.factor != 1.0 else made

    def _mixed(self, region: Region, variant: Variant, number: int) -> torch.Tensor:
        """Between two sets, in one pass over each piece in which neither of them starts again."""
        spec, other, share = variant.specs[number], variant.others[number], variant.share
        if spec.strides:
            return _lerp(self._turned(region, spec, 0, True), self._turned(region, other, 0, True), share)
        first, second = (_reshape(self._base(region, one), (-1,)) for one in (spec, other))
        made = _empty_strided(spec.shape, dense_strides(spec.shape), dtype=first.dtype, device=self.device)
        flat, count = _reshape(made, (-1,)), _numel(made)
        cut, other_cut = variant.cuts[number], variant.other_cuts[number]
        edges = sorted({0, count - cut, count - other_cut, count})
        for start, end in zip(edges, edges[1:], strict=False):
            pieces = (
                _narrow(base, 0, (start + by) % count, end - start) for base, by in ((first, cut), (second, other_cut))
            )
            _lerp(*pieces, share, out=_narrow(flat, 0, start, end - start))
        return made

    def _base(self, region: Region, spec: TensorSpec) -> torch.Tensor:
        """A dense set's tensor that stays where it is, in one row; for reading only."""
        base = self._bases.get(spec.offset)
        if base is None:
            base = self._bases[spec.offset] = row_in_place(region, spec)
        return base

    def _turned(self, region: Region, spec: TensorSpec, cut: int, lasting: bool) -> torch.Tensor:
        return load_tensor(region, spec, cut)

    def forget_inputs(self) -> None:
        """Of the last problem nothing is kept."""
        self._bases.clear()

    def tidy(self) -> None:
        """Memory as in a process that has made no calls yet, as far as that can be had."""

    def spacer(self, nbytes: int) -> list[torch.Tensor]:
        """Something to hold on to, as long as others are to lie behind it. Written to, so that its pages are there when
        something else comes to lie in them: to get them from the system takes longer than many a call.
        """
        return [torch.zeros(nbytes, dtype=torch.uint8)] if nbytes else []

    def scatter(self, mib: int, reserve_mib: int) -> None:
        """Takes ``mib`` of the free memory away, so that other pages come next; of ``reserve_mib`` in one piece, which
        the first time asks for: to get pages from the driver, again and again, takes longer than all calls.
        """

    def to_cpu(
        self, tensor: torch.Tensor, picks: list[float] | None = None, *, as_it_lies: bool = False
    ) -> torch.Tensor:
        """Dense, or one row of the windows at ``picks``."""
        dense = in_order_of_memory(tensor) if as_it_lies else dense_copy(tensor)
        places = window_starts(_numel(dense), picks)
        if places is None:
            return dense
        flat = _reshape(dense, (-1,))
        return _cat([_narrow(flat, 0, place, WINDOW) for place in places])

    def build(self, construct: Callable[[], Any], seed: int, *, in_place: bool) -> tuple[Any, bool]:
        """A model, still to be moved, and whether its tensors were made on the device itself. That is only tried with
        ``in_place``; to draw gigabytes of initial weights elsewhere takes long.
        """
        self.seed(seed)
        return construct(), False

    def seed(self, seed: int) -> None:
        _seed_cpu(seed)

    def synchronize(self) -> None:
        pass

    def run_batch(
        self, call: Callable[..., Any], calls: Collection[list[Any]], seeds: list[int] | None
    ) -> tuple[list[Any], list[int]]:
        """(outputs of each call, nanoseconds of all calls together or of each)."""
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
        """The output of each call, one waited for after the other; only the referee's clock sees how long they take."""
        outputs: list[Any] = []
        _set_grad(False)
        for number, arguments in enumerate(calls):
            if seeds:
                self.seed(seeds[number])
            outputs.append(call(*arguments))
            self.synchronize()
        return outputs

    def flush(self) -> None:
        """Empties the device's cache, where it has one that is emptied between calls."""

    def restore(self) -> None:
        """Global switches as they were at the start; for a process that goes on to another problem."""
        torch.set_num_threads(self._threads)
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
        if torch.are_deterministic_algorithms_enabled():  # to say it imports all of Inductor, for seconds
            torch.use_deterministic_algorithms(False)

    def state(self) -> dict[str, Any]:
        """Global switches that change what is measured or compared."""
        try:
            matmul = torch.get_float32_matmul_precision()
        except RuntimeError as error:  # of several switches that were set against each other
            matmul = str(error)
        return {
            "threads": torch.get_num_threads(),
            "dtype": str(torch.get_default_dtype()),
            "matmul": matmul,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "mkldnn": torch.backends.mkldnn.enabled,
            "autocast": torch.is_autocast_enabled("cpu"),
            "default_device": str(torch.get_default_device()),
            "modes": _dispatch_depth() + _function_depth(),
        }


class CudaDevice(CpuDevice):
    """Each call between two events on an idle device: the L2 cache flushed and everything drained before and after it.

    So a call's time is its latency, launches included, as one who waits for its result sees it; and all that a batch
    takes beside its events is the same for every contestant: work that a candidate leaves outside them (another
    stream) shows on the referee's clock.
    """

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
        self._empty_cache = torch.cuda.empty_cache
        self._doubled: dict[int, torch.Tensor] = {}  # offset in the pool -> the set's tensor, twice over
        self._memory_reserved = torch.cuda.memory_reserved
        self._taken: torch.Tensor | None = None  # by `scatter`, out of room for so much:
        self._room_mib = 0
        torch.zeros(1, device=self.device)  # the context exists from here on
        self._stream = self._current(self.device)
        self._seed_cuda = torch.cuda.default_generators[index].manual_seed

    def upload(self, region: Region, spec: TensorSpec, cut: int = 0) -> torch.Tensor:
        if not cut and not spec.strides and spec.nbytes:  # from where it lies, without a copy in between
            row = _reshape(row_in_place(region, spec), spec.shape)
            return _copy(
                _empty_strided(spec.shape, dense_strides(spec.shape), dtype=row.dtype, device=self.device), row
            )
        host = load_tensor(region, spec, cut)
        return _copy(_empty_strided(host.shape, host.stride(), dtype=host.dtype, device=self.device), host)

    def _mixed(self, region: Region, variant: Variant, number: int) -> torch.Tensor:
        spec, other = variant.specs[number], variant.others[number]
        if spec.strides or spec.nbytes > _DOUBLED_BYTES:
            return super()._mixed(region, variant, number)
        first, second = self._twice(region, spec), self._twice(region, other)
        made = _empty_strided(spec.shape, dense_strides(spec.shape), dtype=first.dtype, device=self.device)
        count = _numel(made)
        first = _narrow(first, 0, variant.cuts[number], count)
        second = _narrow(second, 0, variant.other_cuts[number], count)
        _lerp(first, second, variant.share, out=_reshape(made, (-1,)))
        return made

    def _twice(self, region: Region, spec: TensorSpec) -> torch.Tensor:
        """A dense set's tensor in one row, and once more behind it."""
        row = self._doubled.get(spec.offset)
        if row is None:
            once = _reshape(self.upload(region, spec), (-1,))
            row = self._doubled[spec.offset] = _cat([once, once])
        return row

    def _turned(self, region: Region, spec: TensorSpec, cut: int, lasting: bool) -> torch.Tensor:
        if not lasting:
            return self.upload(region, spec, cut)
        if cut and not spec.strides and spec.nbytes <= _DOUBLED_BYTES:
            row = self._twice(region, spec)
            new = _empty_strided(spec.shape, dense_strides(spec.shape), dtype=row.dtype, device=self.device)
            _copy(_reshape(new, (-1,)), _narrow(row, 0, cut, _numel(new)))
            return new
        base = self._base(region, spec)
        new = _empty_strided(base.shape, base.stride(), dtype=base.dtype, device=self.device)
        if cut == 0:
            return _copy(new, base)
        source, target, left = _reshape(base, (-1,)), _reshape(new, (-1,)), _numel(base) - cut
        _copy(_narrow(target, 0, 0, left), _narrow(source, 0, cut, left))
        _copy(_narrow(target, 0, left, cut), _narrow(source, 0, 0, cut))
        return new

    def _base(self, region: Region, spec: TensorSpec) -> torch.Tensor:
        base = self._bases.get(spec.offset)
        if base is None:
            base = self._bases[spec.offset] = self.upload(region, spec)
        return base

    def forget_inputs(self) -> None:
        super().forget_inputs()
        self._doubled.clear()
        self._taken = None
        if self._memory_reserved(self.device) > _KEPT_BYTES:
            self._empty_cache()
            self._room_mib = 0

    def tidy(self) -> None:
        """Where a kernel's tensors lie changes its time by up to a tenth, so that nobody may start with sets of inputs
        in the gaps that other calls have left. Large ones stay: to upload them again takes long.
        """
        for kept in (self._bases, self._doubled):
            if sum(_numel(one) * one.element_size() for one in kept.values()) <= _TIDIED_BYTES:
                kept.clear()

    def scatter(self, mib: int, reserve_mib: int) -> None:
        self._taken = None
        if reserve_mib > self._room_mib:
            self._empty_cache()
            with suppress(torch.OutOfMemoryError):  # then what comes lies where it lies
                self._block(reserve_mib)  # let go at once: torch's allocator cuts what comes out of it
            self._room_mib = reserve_mib
        self._taken = self._block(mib)

    def _block(self, mib: int) -> torch.Tensor:
        return _empty_strided((mib << 20,), (1,), dtype=torch.uint8, device=self.device)

    def to_cpu(
        self, tensor: torch.Tensor, picks: list[float] | None = None, *, as_it_lies: bool = False
    ) -> torch.Tensor:
        return _to(super().to_cpu(tensor, picks, as_it_lies=as_it_lies), "cpu")

    def build(self, construct: Callable[[], Any], seed: int, *, in_place: bool) -> tuple[Any, bool]:
        if in_place:
            self.seed(seed)
            try:
                with self.device:
                    return construct(), True
            except Exception:  # it mixes them with numpy's, with a generator's, ...
                pass
        return super().build(construct, seed, in_place=in_place)

    def seed(self, seed: int) -> None:
        _seed_cpu(seed)
        self._seed_cuda(seed)

    def synchronize(self) -> None:
        self._synchronize()

    def flush(self) -> None:
        if self._flush is None and self._flush_bytes:
            self._flush = torch.empty(self._flush_bytes, dtype=torch.uint8, device=self.device)
        if self._flush is not None:
            self._zero(self._flush)

    def run_batch(
        self, call: Callable[..., Any], calls: Collection[list[Any]], seeds: list[int] | None
    ) -> tuple[list[Any], list[int]]:
        outputs: list[Any] = []
        starts = [self._event(enable_timing=True) for _ in range(len(calls))]
        ends = [self._event(enable_timing=True) for _ in range(len(calls))]
        for event in (*starts, *ends):  # the driver makes an event when it is first recorded, and that takes a while
            self._record(event, self._stream)
        _set_grad(False)
        self._synchronize()
        for number, arguments in enumerate(calls):
            if seeds:
                self.seed(seeds[number])
            self.flush()
            self._synchronize()
            self._record(starts[number], self._stream)
            outputs.append(call(*arguments))
            self._record(ends[number], self._stream)
            self._synchronize()
        return outputs, [int(self._elapsed(a, b) * 1e6) for a, b in zip(starts, ends, strict=True)]

    def restore(self) -> None:
        super().restore()
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True

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
    if kind == "cuda":
        return CudaDevice(threads, int(index or 0), flush_mib, memory_share)
    keep_freed_memory()
    return CpuDevice(threads)
