"""What one plain call runs, seen from inside: torch's operators in their order, and kernels that are not torch's.

Nothing here is timed against a reference, and nothing that a candidate does to it is credited: at worst an honest
measurement takes the place of a flag.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .extensions import LOADED

_MOST_OPERATORS = 200_000  # of one call: a record takes some 10 us each
_MOST_KERNELS = 512  # names of kernels that are handed over
# They allocate and compute nothing. Where an output lies is the referee's business, not a difference in work.
_ALLOCATIONS = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")
)
# The same work whichever operand comes first.
_COMMUTATIVE = frozenset(f"aten::{name}" for name in ("add", "mul", "maximum", "minimum", "logical_and", "logical_or"))
_PLAIN = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))
_clock = time.perf_counter


class Operators(TorchDispatchMode):
    """Records what reaches a device: each operator's name and, of its arguments, shapes, strides, dtypes, devices and
    plain values.

    Left out are views, which move no data (`x.T` and `x.transpose(0, 1)` are the same work), and allocations. Copies
    (`clone`, `contiguous` of what is not, `to`) are work and are kept, as is the order. Operators that PyTorch writes
    in terms of others count as those, in inference mode too, where they would arrive whole.
    """

    def __init__(self) -> None:
        super().__init__()
        self.record: list[str] = []
        self.custom_s: Counter[str] = Counter()  # operators of other namespaces -> seconds

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
            self.custom_s[name] += _clock() - start
        if name not in _ALLOCATIONS and not _is_view(func, args, kwargs, result):
            if len(self.record) >= _MOST_OPERATORS:
                raise OverflowError("too many operators in one call")
            self.record.append(_entry(name, args, kwargs))
        return result


def _is_view(func: Any, args: Any, kwargs: Any, result: Any) -> bool:
    """Does every result lie in memory of an argument's, with nothing written there?"""
    if func._schema.is_mutable:
        return False
    made = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
    given = {_place(one) for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)} - {0}
    return bool(made) and all(_place(one) in given for one in made)


def _place(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # sparse ones, and others without a storage
        return 0


def _entry(name: str, args: Any, kwargs: dict[str, Any]) -> str:
    tensors, plain = [], []
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


@contextmanager
def _launches(found: list[str]) -> Iterator[None]:
    """Within it the names of Triton kernels, and of kernels from `torch.cuda._compile_kernel`, that are launched."""
    patched: list[tuple[type, str, Any]] = []

    def watch(kind: Any, method: str, named: Callable[[Any], str]) -> None:
        plain = getattr(kind, method)

        def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
            if name := named(self):
                found.append(name)
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
    """Empty for those that torch brings with it."""
    function = getattr(kernel, "fn", kernel)
    own = not str(getattr(function, "__module__", "")).startswith("torch.")
    return f"triton {getattr(function, '__name__', '?')}" if own else ""


@contextmanager
def _extension_calls(seconds: Counter[str]) -> Iterator[None]:
    """Within it the time that functions of the candidate's extensions take, however they were bound."""
    own = {id(value): name for module in LOADED for name, value in vars(module).items() if callable(value)}
    started: list[float] = []

    def look(frame: Any, event: str, function: Any) -> None:
        if event == "c_call" and id(function) in own:
            started.append(_clock())
        elif event in ("c_return", "c_exception") and id(function) in own and started:
            seconds[f"extension {own[id(function)]}"] += _clock() - started.pop()

    if own:
        sys.setprofile(look)
    try:
        yield
    finally:
        if own:
            sys.setprofile(None)


def compiled_frames() -> int:
    """How often Dynamo has compiled a function in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["frames"]["ok"])


def scripted(module: Any, model: Any) -> bool:
    """Is there something of TorchScript in the candidate's module, its classes or its model?"""
    kinds = (torch.jit.ScriptModule, torch.jit.ScriptFunction)
    owners = [module, *(one for one in vars(module).values() if isinstance(one, type))]
    owners += model.modules() if isinstance(model, torch.nn.Module) else [model]
    values = (value for owner in owners for value in vars(owner).values())
    return any(isinstance(value, kinds) for value in (*owners, *values))


def observe(call: Callable[..., Any], arguments: list[Any], again: list[Any]) -> dict[str, Any]:
    """What one call runs: ``operations`` (a hash of the record; empty where a dispatch mode cannot follow the call),
    ``count`` of operators, ``own`` (names of kernels that are not torch's), ``own_s`` and ``call_s`` (seconds of a
    second call, on ``again``, in extensions and in all, as the host sees them).
    """
    launched: list[str] = []
    seconds: Counter[str] = Counter()
    mode = Operators()
    try:
        with torch.no_grad(), _launches(launched), mode:
            call(*arguments)
        record = mode.record
    except Exception:  # such as code that runs under no mode
        record = []
    with torch.no_grad(), _launches(launched), _extension_calls(seconds):
        start = _clock()
        call(*again)
        call_s = _clock() - start
    seconds.update({name: s for name, s in mode.custom_s.items() if LOADED and not _written_in_python(name)})
    own = sorted({*launched, *seconds})
    digest = hashlib.sha256("\n".join([*record, *own]).encode()).hexdigest() if record else ""
    return {
        "operations": digest, "count": len(record), "own": own[:_MOST_KERNELS],
        "own_s": min(call_s, sum(seconds.values())), "call_s": call_s,
    }  # fmt: skip


def _written_in_python(name: str) -> bool:
    """Is an operator one that Python code defines, which may call nothing but torch?"""
    definitions = getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", {})
    implemented = getattr(torch.library, "_impls", ())
    place = name.replace("::", "/") + "/"
    return name in definitions or any(one.startswith(place) for one in implemented)


def kernel_times(call: Callable[..., Any], arguments: list[Any]) -> list[list[Any]]:
    """Name and microseconds of whatever one call runs on the GPU, by CUPTI, longest first; the profiler stays in the
    process, so this comes after everything that is timed.
    """
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    times: Counter[str] = Counter()
    with torch.no_grad(), profile(activities=[ProfilerActivity.CUDA]) as seen:
        call(*arguments)
        torch.cuda.synchronize()
    for event in seen.events():
        if event.device_type == DeviceType.CUDA:
            times[event.name[:400]] += event.self_device_time_total
    return [[name, float(us)] for name, us in times.most_common(_MOST_KERNELS)]
