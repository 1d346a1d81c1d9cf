"""What one plain call runs, seen from inside: torch's operators in their order, and kernels that are not torch's.

Nothing here is timed against a reference, and no candidate gains by tampering with it: at worst an honest measurement
replaces a flag.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cudal1_ray.evaluation.inside.extensions import LOADED

# Most operators of one call; recording one takes some 10 us.
_MOST_OPERATORS = 200_000
# Most names of kernels that are returned.
_MOST_KERNELS = 512
# Operators that allocate and compute nothing. The referee checks where an output lies; it makes no difference in work.
_ALLOCATIONS = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")
)
# Operators that do the same work whichever operand comes first.
_COMMUTATIVE = frozenset(f"aten::{name}" for name in ("add", "mul", "maximum", "minimum", "logical_and", "logical_or"))
_PLAIN = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))
_clock = time.perf_counter
# Captured before any candidate.
_Event, _record, _elapsed = torch.cuda.Event, torch.cuda.Event.record, torch.cuda.Event.elapsed_time
_capturing, _synchronize = torch.cuda.is_current_stream_capturing, torch.cuda.synchronize
_sleep: Any = getattr(torch._C, "_cuda_sleep", None)  # there is none in a build for CPUs
# Cycles of the device's clock, about 10 ms on Hopper, that are longer than a call's launches, 0.1 to 2 ms.
_LAUNCH_CYCLES = 20_000_000


class Operators(TorchDispatchMode):
    """Records what reaches a device: each operator's name, and shapes, strides, dtypes, devices and plain values of its
    arguments.

    Views are left out, since they move no data (`x.T` and `x.transpose(0, 1)` are the same work), and so are
    allocations. Copies (`clone`, `contiguous` of what is not, `to`) are work and are recorded, as is the order.
    Operators that PyTorch composes of others are recorded as those, even in inference mode, where they arrive whole.
    """

    def __init__(self) -> None:
        super().__init__()
        self.record: list[str] = []
        self.custom_s: dict[str, float] = {}  # operators of other namespaces -> seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._can_decompose():
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        start = _clock()
        result = func(*args, **kwargs)
        name = func._schema.name
        if not name.startswith(("aten::", "prim")):
            self.custom_s[name] = self.custom_s.get(name, 0.0) + _clock() - start
        if name not in _ALLOCATIONS and not _is_view(func, args, kwargs, result):
            if len(self.record) >= _MOST_OPERATORS:
                raise OverflowError("too many operators in one call")
            self.record.append(_entry(name, args, kwargs))
        return result


# Torch wraps `__torch_dispatch__` to keep Dynamo out: at its first call the wrapper imports torch._dynamo (3 to 8 s).
_DISPATCH = getattr(Operators.__torch_dispatch__, "__wrapped__", None)


def _spare_dynamo() -> None:
    """Skip that wrapper in a process that has no Dynamo to keep out."""
    if _DISPATCH is not None:
        setattr(_DISPATCH, "__dynamo_disable", None if "torch._dynamo" in sys.modules else _DISPATCH)


def _is_view(func: Any, args: Any, kwargs: Any, result: Any) -> bool:
    """Return whether every result lies in the memory of an argument, with nothing written there."""
    if func._schema.is_mutable:
        return False
    results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    places = {_place(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)} - {0}
    return bool(results) and all(_place(leaf) in places for leaf in results)


def _place(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # sparse ones, and others without a storage
        return 0


def _entry(name: str, args: Any, kwargs: dict[str, Any]) -> str:
    tensors: list[str] = []
    plain: list[str] = []
    named = sorted((key, value) for key, value in kwargs.items() if key != "out")
    for value in tree_leaves((args, named)):
        (tensors if isinstance(value, torch.Tensor) else plain).append(_described(value))
    if name in _COMMUTATIVE:
        tensors.sort()
    return f"{name} {tensors} {plain}"


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value) if isinstance(value, _PLAIN) else type(value).__name__
    if value.layout is not torch.strided:
        return f"{value.dtype}{list(value.shape)}{value.layout}{value.device.type}"
    strides = [step for size, step in zip(value.shape, value.stride(), strict=True) if size != 1]
    return f"{value.dtype}{list(value.shape)}{strides}{value.device.type}"


class DeviceTimes:
    """Device time of a call and of what it launches, by events on the current stream; without a GPU, host time. `timed`
    is False if a graph was captured, since launches within a capture cannot be timed.
    """

    def __init__(self, on_gpu: bool) -> None:
        self.timed = True
        self._on_gpu = on_gpu
        self._spans: list[tuple[Any, Any]] = []

    @contextmanager
    def span(self) -> Iterator[None]:
        """Measure the time of what is launched within the block."""
        begin = self.mark()
        try:
            yield
        finally:
            self.add(begin, self.mark())

    def mark(self) -> Any:
        """Return a point in time, None within a capture."""
        if not self._on_gpu:
            return _clock()
        if _capturing():
            self.timed = False
            return None
        event = _Event(enable_timing=True)
        _record(event)
        return event

    def add(self, begin: Any, end: Any) -> None:
        """Count the time between two marks."""
        if begin is not None and end is not None:
            self._spans.append((begin, end))

    def seconds(self) -> float:
        """Return the time of all spans together; waits for the device."""
        if not self._on_gpu:
            return sum(end - begin for begin, end in self._spans)
        _synchronize()
        return sum(1e-3 * _elapsed(begin, end) for begin, end in self._spans)


@contextmanager
def _launches(names: list[str], times: DeviceTimes | None = None) -> Iterator[None]:
    """Record names and times of the kernels of Triton and `torch.cuda._compile_kernel` launched within the block."""
    patched: list[tuple[type, str, Any]] = []

    def watch(kind: Any, method: str, named: Callable[[Any], str]) -> None:
        plain = getattr(kind, method)

        def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
            name = named(self)
            if not name:
                return plain(self, *args, **kwargs)
            names.append(name)
            with times.span() if times is not None else nullcontext():
                return plain(self, *args, **kwargs)

        setattr(kind, method, launch)
        patched.append((kind, method, plain))

    if (jit := sys.modules.get("triton.runtime.jit")) is not None:
        watch(jit.JITFunction, "run", _triton_name)
    compiled = getattr(sys.modules.get("torch.cuda._utils"), "_CudaKernel", None)
    if compiled is not None and "__call__" in vars(compiled):
        watch(compiled, "__call__", lambda kernel: f"compiled {id(kernel)}")
    try:
        yield
    finally:
        for kind, method, plain in patched:
            setattr(kind, method, plain)


def _triton_name(kernel: Any) -> str:
    """Return a Triton kernel's name, empty for kernels that are part of torch."""
    function = getattr(kernel, "fn", kernel)
    own = not str(getattr(function, "__module__", "")).startswith("torch.")
    return f"triton {getattr(function, '__name__', '?')}" if own else ""


@contextmanager
def _extension_calls(names: list[str], times: DeviceTimes) -> Iterator[None]:
    """Record names and times of the extensions' functions called within the block, however they were bound."""
    own = {id(value): name for module in LOADED for name, value in vars(module).items() if callable(value)}
    started: list[Any] = []

    def look(frame: Any, event: str, function: Any) -> None:
        if event == "c_call" and id(function) in own:
            names.append(f"extension {own[id(function)]}")
            started.append(times.mark())
        elif event in ("c_return", "c_exception") and id(function) in own and started:
            times.add(started.pop(), times.mark())

    if own:
        sys.setprofile(look)
    try:
        yield
    finally:
        if own:
            sys.setprofile(None)


def compiled_frames() -> int:
    """Return how often Dynamo has compiled a function in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["frames"]["ok"])


def scripted(module: Any, model: Any) -> bool:
    """Return whether the candidate's module, its classes or its model contain TorchScript objects."""
    kinds = (torch.jit.ScriptModule, torch.jit.ScriptFunction)
    owners = [module, *(member for member in vars(module).values() if isinstance(member, type))]
    owners += model.modules() if isinstance(model, torch.nn.Module) else [model]
    values = (value for owner in owners for value in vars(owner).values())
    return any(isinstance(value, kinds) for value in (*owners, *values))


def observe(
    call: Callable[..., Any], arguments: list[Any], again: list[Any], *, on_gpu: bool = False
) -> dict[str, Any]:
    """Return what one call runs: `operations` (a hash of the record; empty where a dispatch mode cannot follow the
    call), `own` (names of kernels that are not torch's), `own_s` and `call_s` (seconds of a second call, on `again`,
    in own kernels and in total: device time, on a CPU host time), `timed` (False where the time of own kernels could
    not be measured, as in a graph).
    """
    launched: list[str] = []
    own_times, call_times = DeviceTimes(on_gpu), DeviceTimes(on_gpu)
    _spare_dynamo()
    mode = Operators()
    try:
        with torch.no_grad(), _launches(launched), mode:
            call(*arguments)
        record = mode.record
    except Exception:  # such as code that fails under any dispatch mode
        record = []
    before = len(launched)
    if on_gpu:
        _sleep(_LAUNCH_CYCLES)  # meanwhile the host launches the whole call, so that spans contain no launches
    with torch.no_grad(), _launches(launched, own_times), _extension_calls(launched, own_times), call_times.span():
        call(*again)
    timed = own_times.timed and call_times.timed and (len(launched) > before or not launched)
    seconds = {name: s for name, s in mode.custom_s.items() if LOADED and not _written_in_python(name)}
    own = sorted({*launched, *seconds})
    call_s = call_times.seconds()
    digest = hashlib.sha256("\n".join([*record, *own]).encode()).hexdigest() if record else ""
    return {
        "operations": digest, "own": own[:_MOST_KERNELS],
        "own_s": min(call_s, own_times.seconds() or sum(seconds.values())), "call_s": call_s, "timed": timed,
    }  # fmt: skip


def _written_in_python(name: str) -> bool:
    """Return whether Python code defines this operator, which may call nothing but torch."""
    definitions = getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", {})
    implemented = getattr(torch.library, "_impls", ())
    place = name.replace("::", "/") + "/"
    return name in definitions or any(key.startswith(place) for key in implemented)


def kernel_times(call: Callable[..., Any], arguments: list[Any]) -> list[tuple[str, float]]:
    """Return name and microseconds of everything that one call runs on the GPU, by CUPTI, longest first. The profiler
    stays in the process, so this comes after everything that is timed.
    """
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    times: dict[str, float] = {}
    with torch.no_grad(), profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call(*arguments)
        torch.cuda.synchronize()
    for event in profiler.events():
        if event.device_type == DeviceType.CUDA:
            name = event.name[:400]
            times[name] = times.get(name, 0.0) + event.self_device_time_total
    return sorted(times.items(), key=lambda item: -item[1])[:_MOST_KERNELS]
