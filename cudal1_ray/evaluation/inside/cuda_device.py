"""A GPU as a contestant uses it: each call between two events, sets of inputs that stay on the device."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from cudal1_ray.evaluation.exchange.messages import DeviceSettings
from cudal1_ray.evaluation.exchange.tensors import Region, TensorSpec, dense_strides, load_tensor, row_in_place
from cudal1_ray.evaluation.exchange.variant import Variant
from cudal1_ray.evaluation.inside.cpu_device import CpuDevice, _clock, _seed_cpu, _set_grad
from cudal1_ray.evaluation.inside.drawing import Drawing
from cudal1_ray.evaluation.inside.hidden import hide
from cudal1_ray.evaluation.inside.places import copies, map_tensors, tensors_in

# Captured before any candidate, like all that follows.
_numel, _reshape, _narrow = torch.Tensor.numel, torch.Tensor.reshape, torch.Tensor.narrow
_copy = torch.Tensor.copy_
_empty_strided, _is_contiguous, _detach = torch.empty_strided, torch.Tensor.is_contiguous, torch.Tensor.detach

# Settings of a precision at which arithmetic is as exact as its type.
_AS_EXACT = ("ieee", "none")
# Most bytes of all sets together that are uploaded again for the sake of order in memory.
_TIDIED_BYTES = 256 << 20
# Bytes of the device's memory that are kept from problem to problem. The driver serves one process at a time and takes
# a quarter of a second to make another's context: a process that wants or returns pages then waits that long.
_KEPT_BYTES = 1 << 30
# Unused bytes above which `give_back` frees them; an attention's scores in double precision may take fifty GiB.
_MUCH_BYTES = 4 << 30
# Share of the free memory that one more computation may take.
_MOST_OF_FREE = 0.8
_LARGEST_GAP_MIB = 64
_FIRST_WAIT, _LONGEST_WAIT = 200_000, 20_000_000  # cycles of the device, at most two of which take a nanosecond


class CudaDevice(CpuDevice):
    """Each call between two events on an idle device: the L2 cache flushed and everything drained before and after it.

    So a call's time is its latency, launches included, as a caller that waits for it sees it. What a batch takes
    besides its events is the same for every contestant: work that a candidate leaves outside them (on another stream)
    shows on the referee's clock.
    """

    name = "cuda"

    def __init__(self, threads: int, flush_mib: int, memory_share: float) -> None:
        super().__init__(threads)
        self.device = torch.device("cuda", 0)
        torch.cuda.set_device(self.device)
        torch.cuda.set_per_process_memory_fraction(memory_share, self.device)
        self._flush_bytes = flush_mib << 20
        self._flush: torch.Tensor | None = None
        # Captured before any candidate: replacing torch.cuda.* later changes nothing here.
        self._synchronize = torch._C._cuda_synchronize
        self._event, self._current = torch.cuda.Event, torch.cuda.current_stream
        self._record, self._elapsed = torch.cuda.Event.record, torch.cuda.Event.elapsed_time
        self._over, self._wait, self._wait_cycles = torch.cuda.Event.query, torch._C._cuda_sleep, _FIRST_WAIT
        self._zero = torch.Tensor.zero_
        self._empty_cache = torch.cuda.empty_cache
        self._memory_reserved = torch.cuda.memory_reserved
        self._taken: torch.Tensor | None = None  # memory that `scatter` holds
        self._room_mib = 0  # MiB that `scatter` has reserved
        self._gap: torch.Tensor | None = None  # held before what the next call allocates, where there is room to move
        self._moving, self._draw = False, random.Random().random
        torch.zeros(1, device=self.device)  # the context exists from here on
        self._stream = self._current(self.device)
        self._seed_cuda = torch.cuda.default_generators[0].manual_seed

    def upload(self, region: Region, spec: TensorSpec, cut: int = 0) -> torch.Tensor:
        if not cut and not spec.strides and spec.nbytes:  # from where it lies, without a copy in between
            row = _reshape(row_in_place(region, spec), spec.shape)
            return _copy(
                _empty_strided(spec.shape, dense_strides(spec.shape), dtype=row.dtype, device=self.device), row
            )
        host = load_tensor(region, spec, cut)
        return _copy(_empty_strided(host.shape, host.stride(), dtype=host.dtype, device=self.device), host)

    def later(self, region: Region, variant: Variant) -> Callable[[], list[torch.Tensor]]:
        """Return a call that makes the inputs readable with one kernel. Sets that were written out lie on the device
        before, unreadable: copying them there at that time would empty the caches of the core that launches, which
        halves the speed of compiled code.
        """
        if variant.others or variant.factor != 1.0 or any(variant.cuts):
            return super().later(region, variant)
        makers = [
            partial(self.upload, region, spec) if spec.strides or not spec.nbytes else hide(self.upload(region, spec))
            for spec in variant.specs
        ]
        return lambda: [make() for make in makers]

    def drawn_later(self, drawing: Drawing, seed: int) -> Callable[[], list[Any]]:
        """Draw the inputs at once, unreadable, and return a call that makes them readable: drawing takes more launches
        than one kernel, and its seed would reveal later inputs.
        """
        arguments = self.drawn(drawing, seed)()
        makers = [
            hide(tensor) if _numel(tensor) and _is_contiguous(tensor) else partial(_detach, tensor)
            for tensor in tensors_in(arguments)
        ]

        def made_readable() -> list[Any]:
            rest = iter(makers)
            return map_tensors(arguments, lambda _: next(rest)())

        return made_readable

    def has_room(self, nbytes: int) -> bool:
        free, _ = torch.cuda.mem_get_info(self.device)
        free += self._memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return nbytes < _MOST_OF_FREE * free

    def _turned(self, region: Region, spec: TensorSpec, cut: int, lasting: bool) -> torch.Tensor:
        if not lasting:
            return self.upload(region, spec, cut)
        base = self._base(region, spec)
        new = _empty_strided(base.shape, base.stride(), dtype=base.dtype, device=self.device)
        if cut == 0:
            return _copy(new, base)
        source, target, left = _reshape(base, (-1,)), _reshape(new, (-1,)), _numel(base) - cut
        _copy(_narrow(target, 0, 0, left), _narrow(source, 0, cut, left))
        _copy(_narrow(target, 0, left, cut), _narrow(source, 0, 0, cut))
        return new

    def _base(self, region: Region, spec: TensorSpec) -> torch.Tensor:
        base = self._bases.get(spec)
        if base is None:
            base = self._bases[spec] = self.upload(region, spec)
        return base

    def forget_inputs(self) -> None:
        super().forget_inputs()
        self._taken = self._gap = None
        self._moving = False
        if self._memory_reserved(self.device) > _KEPT_BYTES:
            self._empty_cache()
            self._room_mib = 0

    def give_back(self) -> None:
        if self._memory_reserved(self.device) - torch.cuda.memory_allocated(self.device) > _MUCH_BYTES:
            self._empty_cache()

    def tidy(self) -> None:
        """Free small sets of inputs, so that no process starts with its sets in gaps that other calls have left: the
        place of a kernel's tensors changes its time by up to a tenth. Large sets stay: uploading them again takes long.
        """
        if sum(base.nbytes for base in self._bases.values()) <= _TIDIED_BYTES:
            self._bases.clear()
        if self._memory_reserved(self.device) > _KEPT_BYTES:  # other processes need it until this one is measured
            self._empty_cache()
            self._room_mib = 0

    def scatter(self, mib: int, reserve_mib: int) -> None:
        # The flush buffer moves, too: it empties some of the cache's sets last.
        self._taken = self._flush = self._gap = None
        if reserve_mib:
            self._moving = reserve_mib > _LARGEST_GAP_MIB
            reserve_mib += (self._flush_bytes >> 20) + _LARGEST_GAP_MIB
        if reserve_mib > self._room_mib:
            self._empty_cache()
            with suppress(torch.OutOfMemoryError):  # without room, later tensors stay where they are
                self._block(reserve_mib)  # freed at once: torch's allocator cuts later tensors out of it
            self._room_mib = reserve_mib
        self._taken = self._block(mib)
        self.flush()  # allocates its buffer now, not in a batch

    def _move(self) -> None:
        """Move what the next call allocates. The place of a kernel's temporary memory can make it a fifth slower: each
        call draws a place, or a batch would show one of several times, and a process the one that it got more often.
        """
        self._gap = None
        if self._moving:
            with suppress(torch.OutOfMemoryError):  # code that has taken all memory stays where it is
                self._gap = self._block(2 + 2 * int(self._draw() * (_LARGEST_GAP_MIB // 2)))

    def _block(self, mib: int) -> torch.Tensor:
        return _empty_strided((mib << 20,), (1,), dtype=torch.uint8, device=self.device)

    def build(self, construct: Callable[[], Any], seed: int, *, in_place: bool) -> tuple[Any, bool]:
        if in_place:
            self.seed(seed)
            with suppress(Exception), self.device:  # the model mixes them with numpy's tensors, a generator's or others
                return construct(), True
        return super().build(construct, seed, in_place=in_place)

    def coarse_convolutions(self) -> bool:
        return torch.backends.cudnn.conv.fp32_precision not in _AS_EXACT

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
        self, call: Callable[..., Any], calls: Collection[list[Any]], seeds: list[int] | None, queued: bool = False
    ) -> tuple[list[Any], list[int]]:
        """Run the calls one after the other; return their outputs and their times in nanoseconds.

        `queued`: each call waits behind a kernel that does nothing until the whole call is launched, so that its time
        is its kernels' alone. A call whose launches outlast that wait lengthens it for later calls and batches; a call
        that waits for a result of its own always does.
        """
        outputs: list[Any] = []
        starts, ends = self._events(len(calls))
        for number, arguments in enumerate(calls):
            if seeds:
                self.seed(seeds[number])
            self._move()
            self.flush()
            if queued:
                self._wait(self._wait_cycles)
            else:
                self._synchronize()
            begun = _clock()
            self._record(starts[number], self._stream)
            outputs.append(call(*arguments))
            self._record(ends[number], self._stream)
            if self.copies_outputs:
                outputs[-1] = copies(outputs[-1])
            if queued and self._over(starts[number]):
                self._wait_cycles = min(max(2 * self._wait_cycles, 3 * (_clock() - begun)), _LONGEST_WAIT)
            self._synchronize()
        return outputs, [int(self._elapsed(start, end) * 1e6) for start, end in zip(starts, ends, strict=True)]

    def _events(self, calls: int) -> list[list[Any]]:
        """Return the events before and after each call, recorded on an idle device."""
        both = [[self._event(enable_timing=True) for _ in range(calls)] for _ in range(2)]
        for event in (*both[0], *both[1]):  # the driver creates an event when it is first recorded, which takes a while
            self._record(event, self._stream)
        _set_grad(False)
        self._synchronize()
        return both

    def restore(self) -> None:
        super().restore()
        torch.backends.cudnn.benchmark = False

    def reset_precision(self) -> None:
        super().reset_precision()
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True

    def state(self) -> dict[str, Any]:
        return super().state() | {
            **tf32_products(),
            "fp16_reduction": torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
            "autocast_cuda": torch.is_autocast_enabled("cuda"),
            "stream": self._current(self.device) == self._stream,
        }


def tf32_products() -> dict[str, bool]:
    """Return whether products ("tf32"), and convolutions or recurrent layers ("cudnn_tf32"), may be less exact than
    float32. The older names of these switches cannot be read once the newer ones were set to anything stricter.
    """
    backends = torch.backends
    products, *layers = (
        switch.fp32_precision not in _AS_EXACT
        for switch in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    )
    return {"tf32": products, "cudnn_tf32": any(layers)}


def open_device(request: DeviceSettings) -> CpuDevice:
    """Open `cpu` or `cuda`, the one GPU that this process sees. Both kinds are imported whichever is requested: behind
    the walls nothing of this package can be imported any more.
    """
    if request.device == "cuda":
        return CudaDevice(request.threads, request.flush_mib, request.gpu_memory_share)
    return CpuDevice(request.threads)
