"""The harness inside a contestant: loads one model and answers the referee's messages. It holds nothing secret.

Expected outputs, seeds of inputs and the clocks that count are in the referee, which checks every answer from outside,
so that even a candidate that takes over the whole process gains nothing (see timing/).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

import torch

from cudal1_ray.evaluation.exchange import messages
from cudal1_ray.evaluation.exchange.channel import Channel, ChannelClosed
from cudal1_ray.evaluation.exchange.placed_outputs import PlacedOutput, place_of
from cudal1_ray.evaluation.exchange.server_messages import Failure, OwnFailure, operation
from cudal1_ray.evaluation.exchange.tensors import (
    DTYPE_NAMES,
    MOST_TENSORS,
    Region,
    Row,
    TensorSpec,
    device_type,
    load_tensor,
    plain_tensor,
    tensor_in_place,
    window_starts,
)
from cudal1_ray.evaluation.exchange.variant import Variant
from cudal1_ray.evaluation.inside.constructing import constructor_arguments
from cudal1_ray.evaluation.inside.cpu_device import STRICTEST, CpuDevice
from cudal1_ray.evaluation.inside.cuda_device import open_device
from cudal1_ray.evaluation.inside.drawing import Drawing
from cudal1_ray.evaluation.inside.dressing import dress
from cudal1_ray.evaluation.inside.executing import execute, failure
from cudal1_ray.evaluation.inside.extensions import install_extension_loader
from cudal1_ray.evaluation.inside.late_calls import LateCalls
from cudal1_ray.evaluation.inside.observing import compiled_frames, kernel_times, observe, scripted
from cudal1_ray.evaluation.inside.packing import unpack
from cudal1_ray.evaluation.inside.places import (
    aliased,
    borrowed,
    copies,
    put_in_order,
    span_bytes,
    spoil,
    tensors_in,
    with_outputs,
)
from cudal1_ray.evaluation.inside.state import load_state, weights_at_once
from cudal1_ray.evaluation.sandbox.seccomp import install_no_process_filter

_Tensor, _isinstance, _type, _len = torch.Tensor, isinstance, type, len
_disable_gc, _collect = gc.disable, gc.collect
_numel, _size, _dtype_of = torch.Tensor.numel, torch.Tensor.size, torch.Tensor.dtype.__get__

# Most bytes of the first timed output that is held until the process has been measured.
_MOST_HELD = 256 << 20
# Calls before those without a clock, whose code should be in the caches, as it is in a batch.
_WARM_CALLS = 2

MISSING_MODEL = Failure("the code defines no class ModelNew", "missing_model")


class _NotPlain(Exception):
    """An output contains a tensor that is not plain; its argument is the answer."""


class Contestant:
    """One contestant process. The method with a request's name returns its answer; an exception becomes a Failure."""

    pool: Region
    out: Region
    device: CpuDevice  # from the first `open_device` on
    loaded: messages.Load

    def __init__(self, channel: Channel, scratch: str) -> None:
        self.channel, self.scratch = channel, scratch
        self._regions: list[Region] = []
        self._locked = False
        self._begin()

    def _begin(self) -> None:
        """Reset all that belongs to one problem."""
        self.model: Any = None
        self.call: Any = None
        self.drawing: Any = None  # a Drawing
        self.given: set[str] = set()  # weights that the model received while it was constructed
        self.calls: Any = []  # the arguments of each call: a list, or LateCalls
        self.outputs: list[Any] = []
        self.last: list[Any] = []  # output of the call before those of `outputs`
        self.held: list[Any] = []  # the first timed output, so that no later one can get its memory
        self.spacers: list[Any] = []
        self.seeds: list[int] | None = None
        self.before: dict[str, Any] = {}
        self.module: Any = None  # the module of the code
        self.compiled_frames = 0  # their number before the code was executed

    def attach(self, request: messages.Attach, fds: list[int]) -> None:
        """Map a problem's shared memory; a process that is reused drops the last problem first."""
        self.forget(messages.Forget(), [])
        for region in self._regions:
            region.close()
        self.pool, self.out = Region(fds[0], request.pool, writable=False), Region(fds[1], request.out, writable=True)
        self._regions = [self.pool, self.out]
        for fd in fds[:2]:
            os.close(fd)

    def forget(self, request: messages.Forget, fds: list[int]) -> None:
        self._begin()
        sys.modules.pop("reference", None)
        if hasattr(self, "device"):
            self.device.synchronize()  # a GPU's error stays with its process, which is not kept then
            _collect()
            self.device.restore()
            self.device.forget_inputs()

    def open_device(self, request: messages.DeviceSettings) -> None:
        """Open the device, once in the life of the process."""
        if not hasattr(self, "device"):
            self.device = open_device(request)

    def load(self, request: messages.Load, fds: list[int]) -> list[str] | Failure:
        self.open_device(request.device)
        self.before = self.device.state()
        self.provide_extensions(request, fds)
        self.loaded = request
        self.drawing = Drawing(request.drawing) if request.drawing else None
        self.compiled_frames = compiled_frames()
        module = self.module = execute(request.code, self.scratch, request.role, request.neutralised)
        kind: Any = getattr(module, "Model" if request.role == "reference" else "ModelNew", None)
        if not _isinstance(kind, type):
            return MISSING_MODEL
        init = [load_tensor(self.pool, spec) for spec in request.opened.init_tensors]
        positional, named = self._constructor_arguments(request, init)
        value_of = {name: partial(tensor_in_place, self.pool, spec) for name, spec in request.opened.state}
        with weights_at_once(kind, value_of) as self.given:
            # Built where the reference's model was built: only there tensors without a name are drawn alike.
            construct = partial(kind, *positional, **named)
            model, _ = self.device.build(construct, request.model_seed, in_place=request.opened.in_place)
        if _isinstance(model, torch.nn.Module):
            model = model.to(request.device.device)
            if request.eval_mode:
                model.eval()
        if request.resets_tf32:
            self.device.reset_precision()
        self.model = model
        unmatched = self._load_state()
        own = execute(request.dressing, self.scratch, "baseline").dress if request.dressing else None
        self.call = own(model) if own else dress(model, request.against, self.device.name)
        outputs = request.outputs
        if outputs == "clone" and request.role == "candidate" or outputs == "allow" and self.device.name == "cpu":
            self.call = with_outputs(copies, self.call)
        self.device.copies_outputs = outputs == "allow"
        if request.in_order:
            self.call = with_outputs(put_in_order, self.call)
        return unmatched[:8]

    def provide_extensions(self, request: messages.Load | messages.Screen, fds: list[int]) -> None:
        """Have the code's inline extensions loaded from finished libraries."""
        if "cpp_extension" in request.code:
            built = dict(zip(request.extensions, fds, strict=False))
            install_extension_loader(self.scratch, built, request.failed_extensions)

    def reset(self, request: messages.Reset, fds: list[int]) -> None:
        self.calls, self.outputs, self.last, self.held = [], [], [], []
        self._load_state()
        _collect()

    def _load_state(self) -> list[str]:
        entries = [(name, tensor_in_place(self.pool, spec)) for name, spec in self.loaded.opened.state]
        return load_state(self.model, entries, self.given)

    def prepare(self, request: messages.Prepare, fds: list[int]) -> None:
        """Make the inputs of every call out of the pool, at new addresses, or with `reuse` at the old ones. `late`:
        make a call's inputs when its turn comes; with `ready` make them before, and once more then, so that only what
        can be known beforehand differs. `unclocked`: make everything ready for calls that are timed from outside, after
        some of the last calls again, which warm the code's caches. `gap`: bytes to be held after the inputs, so that
        the outputs lie elsewhere. `spoil`: overwrite the last outputs before they are freed, so that code that gets
        their memory again finds nothing there that saves work.
        """
        if request.spoil:
            spoil(self.outputs)
        first = self._locked and not self.held and span_bytes(self.outputs[:1]) <= _MOST_HELD
        held, rest = (self.outputs[:1], self.outputs[1:]) if first else (self.held, self.outputs)
        self.held, self.last, self.outputs = held, rest[-1:], []
        if request.unclocked:
            self.device.run_unclocked(self.call, self.calls[:_WARM_CALLS], None)
        if request.reuse or request.late:
            self.calls = []
        makers = [self._makes(variant, late=request.late) for variant in request.calls]
        if request.late:
            self.calls = LateCalls(makers, ready=request.ready)
        else:  # the old inputs are freed only when the new ones exist
            self.calls = [make() for make in makers]
        if request.gap:
            self.spacers += self.device.gap(request.gap)
        self.seeds = request.seeds
        if request.unclocked:
            self.device.flush()
        self.device.synchronize()

    def space(self, request: messages.Space, fds: list[int]) -> None:
        """Hold `before` bytes before the next inputs, so that these lie elsewhere, and have `after` more ready; neither
        for inputs in the old places (`reuse`). `spoil`: as in `prepare`. A request of its own: its time passes before
        anything is known of the next calls, so they cannot use it.
        """
        if request.spoil:
            spoil(self.outputs)
        if not request.reuse:
            self.spacers = self.device.spacer(request.before)
            self.device.spacer(request.after)

    def _makes(self, variant: Variant, *, late: bool) -> Callable[[], list[Any]]:
        """Return a function that makes one call's arguments."""
        if variant.drawn is not None:
            return (self.device.drawn_later if late else self.device.drawn)(self.drawing, variant.drawn)
        make = self.device.later(self.pool, variant) if late else partial(self.device.inputs, self.pool, variant)
        return partial(self._arguments, make)

    def _arguments(self, make: Callable[[], list[Any]]) -> list[Any]:
        tensors = make()
        if self.loaded.opened.flat:
            return tensors
        return list(unpack(self.loaded.opened.arguments, tensors, self._type_of))

    def _constructor_arguments(self, request: messages.Load, init: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return what the model is constructed with: as it was packed, or from the problem file itself."""
        if request.opened.init:
            return unpack(request.opened.init, init, self._type_of)
        self.device.seed(request.model_seed)
        return constructor_arguments(self._problem_file().get_init_inputs())

    def _type_of(self, name: str) -> Any:
        """Return the type `name` of arguments that contain it: the code's own, or else the problem file's."""
        with suppress(AttributeError):
            return attrgetter(name)(self.module)
        return attrgetter(name)(self._problem_file())

    def _problem_file(self) -> Any:
        """Return the problem file as a module; the reference is that itself."""
        if "reference" not in sys.modules:
            execute(self.loaded.definitions, self.scratch, "reference")
        return sys.modules["reference"]

    def scatter(self, request: messages.Scatter, fds: list[int]) -> None:
        """Move whatever is allocated from now on, within room for `reserve_mib` if that is new."""
        self.calls, self.outputs, self.last = [], [], []
        self.device.scatter(request.mib, request.reserve_mib)

    def go(self, request: messages.Go, fds: list[int]) -> list[int]:
        if request.unclocked:
            self.outputs = self.device.run_unclocked(self.call, self.calls, self.seeds)
            return []
        if (turn := request.turn) is None:
            self.outputs, inner_ns = self.device.run_batch(self.call, self.calls, self.seeds, request.queued)
            return inner_ns
        seeds = self.seeds and self.seeds[turn : turn + 1]
        outputs, inner_ns = self.device.run_batch(self.call, [self.calls.turn(turn)], seeds)
        self.outputs += outputs
        return inner_ns

    def hand_over(self, request: messages.HandOver, fds: list[int]) -> None:
        """Wait for the outputs of all calls, and copy them, or windows of large ones, to a place of `room` bytes for
        each call, before it is known which of them the referee compares.
        """
        places: dict[tuple[Any, ...], torch.Tensor] = {}
        for call, output in enumerate(self.outputs):
            row = Row(self.out, call * request.room)
            tensors: list[Any] = []
            structure_of(output, tensors)
            for tensor in tensors:
                if not plain_tensor(tensor) and device_type(tensor) in ("cpu", "cuda"):
                    row.put(self.device.handed(tensor, request.picks, places))

    def where(self, request: messages.Where, fds: list[int]) -> list[PlacedOutput]:
        """Return where the outputs of all calls from `first` on lie; the referee reads some of them by itself."""
        placed = []
        for output in self.outputs[request.first :]:
            structure, tensors = _plain_parts(output)
            placed.append(PlacedOutput(structure, tuple(place_of(tensor) for tensor in tensors)))
        return placed

    def fetch(self, request: messages.Fetch, fds: list[int]) -> messages.Output:
        """Copy the raw outputs of one call, or windows of large ones, into shared memory."""
        structure, tensors = _plain_parts(self.outputs[request.call])
        row, specs = Row(self.out), []
        for tensor in tensors:
            device, shape = device_type(tensor), tuple(_size(tensor))
            if device not in ("cpu", "cuda"):  # no values to hand over
                specs.append(TensorSpec("float32", shape, (), row.offset, 0, device))
                continue
            laid, strides = self.device.as_it_lies(tensor, request.picks)
            spec = row.put(laid)
            shape = (_numel(laid),) if window_starts(_numel(tensor), request.picks) else shape
            specs.append(TensorSpec(spec.dtype, shape, strides, spec.offset, spec.nbytes, device))
        return messages.Output(structure, specs, [tuple(_size(tensor)) for tensor in tensors])

    def fetch_inputs(self, request: messages.FetchInputs, fds: list[int]) -> messages.FetchedInputs:
        """Copy the inputs of one call as they are now, like `fetch`; return whose memory its output shares. A request
        of its own: beside it, the cost of an output that is computed only when it is read would not show.
        """
        row, arguments = Row(self.out), self.calls[request.call]
        specs = [row.put(self.device.dense(value, request.picks)) for value in tensors_in(arguments)]
        shared = aliased([*self.held, *self.last, *self.outputs])
        return messages.FetchedInputs(specs, shared, borrowed(self.outputs[request.call], arguments))

    def observe(self, request: messages.Observe, fds: list[int]) -> messages.Observed:
        """Return what a plain call of the model runs, on the first prepared call's inputs, and a second one on the last
        call's: see `observing.observe`. `compiled`: whether a whole-graph compiler did some of it.
        """
        operations = observe(self.model, self.calls[0], self.calls[-1], on_gpu=self.device.name != "cpu")
        self.device.synchronize()
        compiled = compiled_frames() > self.compiled_frames or scripted(self.module, self.model)
        return messages.Observed(**operations, compiled=compiled, changed=self.inspect(messages.Inspect(), []))

    def profile(self, request: messages.Profile, fds: list[int]) -> list[tuple[str, float]]:
        """Return the kernels of one prepared call with the time of each; it comes last, see `kernel_times`."""
        return kernel_times(self.model, self.calls[0])

    def inspect(self, request: messages.Inspect, fds: list[int]) -> list[str]:
        """Return the names of global state that the candidate changed to anything but its strictest value, or the
        default dtype of the problem.
        """
        now = self.device.state()
        if now["dtype"] == self.loaded.opened.dtype:
            now["dtype"] = self.before["dtype"]
        changed = (name for name in now if now[name] != self.before[name])
        return sorted(name for name in changed if STRICTEST.get(name) != now[name])

    def lock(self, request: messages.Lock, fds: list[int]) -> None:
        """Forbid new processes, tidy memory, and stop garbage collection, so that none of it disturbs a measurement."""
        self.calls, self.outputs, self.last, self.held = [], [], [], []
        _collect()
        self.device.tidy()
        if self.device.name == "cpu":  # a process with a GPU may be reused, and frozen objects are never collected
            gc.freeze()
        _disable_gc()
        if not self._locked:  # a process that is reused is locked already
            self._locked = True
            with suppress(OSError):  # the referee sees from outside whether there is a filter
                install_no_process_filter()


def _plain_parts(output: Any) -> tuple[Any, list[Any]]:
    """Return an output's nesting and its tensors; raise `_NotPlain` where one of them is no plain tensor."""
    tensors: list[Any] = []
    structure = structure_of(output, tensors)
    for number, tensor in enumerate(tensors):
        if wrong := plain_tensor(tensor):
            kind: OwnFailure = "lazy_tensor" if _dtype_of(tensor) in DTYPE_NAMES else "output_dtype"
            raise _NotPlain(Failure(f"output {number} is {wrong}", kind))
    return structure, tensors


def structure_of(value: Any, tensors: list[Any], depth: int = 0) -> Any:
    """Return an output's nesting as JSON; tensors are numbered in order of appearance, in a dictionary by its keys."""
    if depth > 8:
        raise ValueError("the output is nested too deeply")
    if _isinstance(value, _Tensor):
        if _len(tensors) == MOST_TENSORS:
            raise ValueError(f"the output has more than {MOST_TENSORS} tensors")
        tensors.append(value)
        return "T"
    if _isinstance(value, (tuple, list)):
        return [structure_of(item, tensors, depth + 1) for item in value]
    if _isinstance(value, dict):
        return {str(key): structure_of(value[key], tensors, depth + 1) for key in sorted(value, key=str)}
    if value is None or _type(value) in (bool, int, float, complex, str):
        return {"=": repr(value)}
    return {"?": _type(value).__name__}


def serve(contestant: Contestant) -> None:
    """Answer messages until the referee closes the channel, and then end the process."""
    channel = contestant.channel
    names = (operation(kind) for kind in messages.Request.__subclasses__())
    operations = {name: getattr(contestant, name) for name in names if hasattr(contestant, name)}
    channel.send(id(channel))
    while True:
        try:
            request, fds = channel.receive_with_fds(64, messages.AnyRequest)
            answer = operations[operation(request)](request, fds)
        except ChannelClosed:
            os._exit(0)
        except _NotPlain as wrong:
            answer = wrong.args[0]
        except BaseException as error:  # a candidate's sys.exit is an error like any other
            answer = failure(error)
        try:
            channel.send(answer)
        except UnicodeEncodeError as error:  # a lone surrogate in a name
            channel.send(failure(error))
