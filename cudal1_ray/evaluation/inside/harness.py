"""The harness inside a contestant: loads one model and answers the referee's messages. Nothing secret is in here.

Expected outputs, seeds of inputs and clocks that count live in the referee. What this process says is checked from
outside, so that even a candidate that takes over the whole process gains nothing (timing/ says how).
"""

from __future__ import annotations

import base64
import gc
import io
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ..exchange.channel import Channel, ChannelClosed
from ..exchange.tensors import (
    Region,
    TensorSpec,
    aligned,
    dense_copy,
    device_type,
    load_tensor,
    place_of,
    plain_tensor,
    store_tensor,
    tensor_in_place,
    window_starts,
)
from ..exchange.variant import Variant
from ..sandbox.seccomp import install_no_process_filter
from .cpu_device import STRICTEST, CpuDevice
from .devices import open_device
from .drawing import Drawing
from .dressing import dress
from .executing import execute, failure
from .extensions import install_extension_loader
from .late_calls import LateCalls
from .observing import compiled_frames, kernel_times, observe, scripted
from .places import aliased, borrowed, spoil, tensors_in, with_outputs_in_order, with_own_outputs
from .state import load_state, weights_at_once

_isinstance, _type, _len = isinstance, type, len
_disable_gc, _collect = gc.disable, gc.collect
_numel, _size = torch.Tensor.numel, torch.Tensor.size
_Tensor = torch.Tensor

_WARM_CALLS = 2  # before calls without a clock: their code should be in the caches, as it is in a batch

OPERATIONS = (
    "attach", "load", "forget", "reset", "space", "prepare", "go", "scatter", "hand_over", "where", "hold", "fetch",
    "fetch_held", "fetch_inputs", "observe", "profile", "inspect", "lock",
)  # fmt: skip


class _Placeholders(pickle.Unpickler):
    """Arguments travel as a pickle written by the trusted side, tensors by number. Types of the problem file are the
    candidate's own of that name, where it has one, and else the file's (``types_of`` gives them by name).
    """

    def __init__(self, data: bytes, tensors: list[Any], types_of: Callable[[str], Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._tensors, self._types_of = tensors, types_of

    def find_class(self, module: str, name: str) -> Any:
        return self._types_of(name) if module == "reference" else super().find_class(module, name)

    def persistent_load(self, number: int) -> Any:
        return self._tensors[number]


class Contestant:
    """State of one contestant process."""

    def __init__(self, channel: Channel, scratch: str) -> None:
        self.channel, self.scratch = channel, scratch
        self.pool: Region | None = None
        self.out: Region | None = None
        self.device: CpuDevice | None = None
        self.model: Any = None
        self.call: Any = None
        self.arguments = b""
        self.drawing: Drawing | None = None
        self.flat = False
        self.state_message: dict[str, Any] = {}
        self.given: set[str] = set()  # weights that the model got while it was constructed
        self.calls: Sequence[list[Any]] | LateCalls = []
        self.outputs: list[Any] = []
        self.last: list[Any] = []  # output of the call before those of ``outputs``
        self.held: list[Any] = []  # an output that is to stay as it is
        self.spacers: list[Any] = []
        self.seeds: list[int] | None = None
        self.before: dict[str, Any] = {}
        self.module: Any = None  # the code's
        self.compiled_frames = 0  # before the code was executed
        self._locked = False

    # Each operation answers with a dictionary; an exception becomes {"error": ...}.

    def attach(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The shared memory of one problem; a process that lives on lets go of the last one's first."""
        self.forget(message, [])
        for region in (self.pool, self.out):
            if region is not None:
                region.close()
        self.pool = Region(fds[0], message["pool"], writable=False)
        self.out = Region(fds[1], message["out"], writable=True)
        for fd in fds[:2]:
            os.close(fd)
        return {}

    def forget(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Everything of the last model and its calls goes."""
        self.model, self.call, self.calls, self.outputs, self.last, self.spacers = None, None, [], [], [], []
        self.held, self.module, self.drawing = [], None, None
        sys.modules.pop("reference", None)
        if self.device is not None:
            self.device.synchronize()  # on a GPU an error stays with the process, and whoever has one is not kept
            _collect()
            self.device.restore()
            self.device.forget_inputs()
        return {}

    def load(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Opens the device, executes the code, builds the model and gives it the weights."""
        if self.device is None:
            self.device = open_device(
                message["device"], message["threads"], message["flush_mib"], message["gpu_memory_share"]
            )
        self.before = self.device.state()
        extensions = {name: fd for name, fd in zip(message.get("extensions", ()), fds, strict=False)}
        if "cpp_extension" in message["code"]:
            install_extension_loader(self.scratch, extensions, dict(message.get("failed_extensions", {})))
        self.arguments = base64.b64decode(message["arguments"])
        self.flat = bool(message["flat"])
        self.drawing = Drawing(message["drawing"]) if message["drawing"] else None
        self.compiled_frames = compiled_frames()
        module = self.module = execute(message["code"], self.scratch, message["role"], message["neutralised"])
        kind = getattr(module, "Model" if message["role"] == "reference" else "ModelNew", None)
        if not _isinstance(kind, type):
            return {"error": "the code defines no class ModelNew", "kind": "missing_model"}
        self.state_message = message
        init = [load_tensor(self.pool, TensorSpec.from_list(spec)) for spec in message["init_tensors"]]
        given, named = _Placeholders(base64.b64decode(message["init"]), init, self._type_of).load()
        specs = {name: TensorSpec.from_list(spec) for name, spec in message["state"]}
        value_of = {name: partial(tensor_in_place, self.pool, spec) for name, spec in specs.items()}
        with weights_at_once(kind, value_of) as self.given:
            # Where the reference's were made: what has no name is drawn alike there only.
            construct = partial(kind, *given, **named)
            model, _ = self.device.build(construct, message["model_seed"], in_place=message["in_place"])
        if _isinstance(model, torch.nn.Module):
            model = model.to(message["device"])
            if message["eval_mode"]:
                model.eval()
        if message["resets_tf32"]:
            self.device.reset_precision()
        self.model = model
        unmatched = self._load_state()
        self.call = dress(model, message.get("against", "eager"), self.device.name)
        outputs, role = message["outputs"], message["role"]
        if outputs == "clone" and role == "candidate" or outputs == "allow" and self.device.name == "cpu":
            self.call = with_own_outputs(self.call)
        self.device.copies_outputs = outputs == "allow"
        if message["in_order"]:
            self.call = with_outputs_in_order(self.call)
        return {"unmatched": unmatched[:8]}

    def reset(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The state of the first day, for the next candidate's measurement."""
        self.calls, self.outputs, self.last, self.held = [], [], [], []
        self._load_state()
        _collect()
        return {}

    def _load_state(self) -> list[str]:
        entries = []
        for name, spec in self.state_message["state"]:
            entries.append((name, tensor_in_place(self.pool, TensorSpec.from_list(spec))))
        return load_state(self.model, entries, self.given)

    def prepare(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Makes the inputs of every call out of the pool: at new addresses, or (``reuse``) new values at old ones;
        or (``late``) leaves that to the moment when a call's turn comes, or does it then once more (``ready``), so that
        only what can be known beforehand differs; or (``unclocked``) everything is made ready for calls that are timed
        from outside, after some of the last calls again, which warm the caches of code.
        ``gap``: bytes to be taken after the inputs, so that the outputs lie elsewhere. ``spoil``: the last outputs are
        overwritten before they are let go: who gets the same memory again finds nothing there that would save work.
        """
        if message["spoil"]:
            self._spoil()
        self.last, self.outputs = self.outputs[-1:], []
        if message["unclocked"]:
            self.device.run_unclocked(self.call, self.calls[:_WARM_CALLS], None)
        if message["reuse"] or message["late"]:
            self.calls = []
        variants = [Variant.from_list(item) for item in message["calls"]]
        makers = [self._makes(variant, late=message["late"]) for variant in variants]
        if message["late"]:
            self.calls = LateCalls(makers, ready=message["ready"])
        else:  # the old inputs are let go only when these are there
            self.calls = [make() for make in makers]
        if message["gap"]:
            self.spacers += self.device.gap(message["gap"])
        self.seeds = message.get("seeds")
        if message["unclocked"]:
            self.device.flush()
        self.device.synchronize()
        return {}

    def space(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Takes ``before`` bytes before the next inputs, so that these lie elsewhere, and has ``after`` more ready, but
        for those that come to lie in the old places (``reuse``); ``spoil`` as in `prepare`. On its own: what takes as
        long as many a call, before anything is known of the next ones, nobody can use for them.
        """
        if message["spoil"]:
            self._spoil()
        if not message["reuse"]:
            self.spacers = self.device.spacer(message["before"])
            self.device.spacer(message["after"])
        return {}

    def _spoil(self) -> None:
        spoil([output for output in self.outputs if not any(output is kept for kept in self.held)])

    def _makes(self, variant: Variant, *, late: bool) -> Callable[[], list[Any]]:
        """Makes one call's arguments when it is called."""
        if variant.drawn is not None:
            return (self.device.drawn_later if late else self.device.drawn)(self.drawing, variant.drawn)
        make = self.device.later if late else self.device.inputs_of
        return partial(self._arguments, make(self.pool, variant))

    def _arguments(self, make: Callable[[], list[Any]]) -> list[Any]:
        tensors = make()
        return tensors if self.flat else list(_Placeholders(self.arguments, tensors, self._type_of).load())

    def _type_of(self, name: str) -> Any:
        """What the problem file calls ``name``, for arguments that hold it."""
        found: Any = self.module
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None:
            if "reference" not in sys.modules:
                execute(self.state_message["definitions"], self.scratch, "reference")
            found = sys.modules["reference"]
            for part in name.split("."):
                found = getattr(found, part)
        return found

    def scatter(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Whatever is allocated from here on comes to lie elsewhere, within room for ``reserve_mib`` if that is new."""
        self.calls, self.outputs, self.last = [], [], []
        self.device.scatter(message["mib"], message["reserve_mib"])
        return {}

    def go(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        if message["unclocked"]:
            self.outputs = self.device.run_unclocked(self.call, self.calls, self.seeds)
            return {"inner_ns": []}
        run = self.device.run_queued if message["queued"] else self.device.run_batch
        if (turn := message["turn"]) is None:
            self.outputs, inner_ns = run(self.call, self.calls, self.seeds)
            return {"inner_ns": inner_ns}
        seeds = self.seeds and self.seeds[turn : turn + 1]
        outputs, inner_ns = run(self.call, [self.calls.turn(turn)], seeds)
        self.outputs += outputs
        return {"inner_ns": inner_ns}

    def hand_over(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Waits for the outputs of all calls: they, or windows of large ones, are copied to a place for each call, with
        ``room``, before anybody knows at which of them the referee looks.
        """
        places: dict[tuple[Any, ...], torch.Tensor] = {}
        for call, output in enumerate(self.outputs):
            offset, tensors = call * message["room"], []
            _structure(output, tensors, 0)
            for tensor in tensors:
                if not plain_tensor(tensor) and device_type(tensor) in ("cpu", "cuda"):
                    row = self.device.handed(tensor, message["picks"], places)
                    offset = aligned(offset + store_tensor(self.out, row, offset).nbytes)
        return {}

    def where(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Where the outputs of all calls from ``first`` on lie: the referee reads those that it looks at by itself."""
        placed = []
        for output in self.outputs[message["first"] :]:
            tensors: list[Any] = []
            structure = _structure(output, tensors, 0)
            for tensor in tensors:
                if wrong := plain_tensor(tensor):
                    return {"error": f"the output is {wrong}", "kind": "lazy_tensor"}
            placed.append([structure, [place_of(tensor) for tensor in tensors]])
        return {"outputs": placed}

    def hold(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """One call's output stays where it is; none does without a ``call``."""
        self.held = [] if message["call"] is None else [self.outputs[message["call"]]]
        return {}

    def fetch(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Outputs of one call, raw, into shared memory; of large ones some windows. ``hold``: it is kept."""
        output = self.outputs[message["call"]]
        if message["hold"]:
            self.held = [output]
        return self._handed_out(output, message["picks"])

    def fetch_held(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The output that is kept, as it is now, and no longer."""
        held, self.held = self.held, []
        return self._handed_out(held[0], message["picks"])

    def _handed_out(self, output: Any, picks: list[float] | None) -> dict[str, Any]:
        tensors: list[Any] = []
        structure = _structure(output, tensors, 0)
        offset, specs = 0, []
        for tensor in tensors:
            wrong = plain_tensor(tensor)
            if wrong:
                return {"error": f"the output is {wrong}", "kind": "lazy_tensor"}
            device = device_type(tensor)
            if device not in ("cpu", "cuda"):  # no values to hand over
                specs.append(TensorSpec("float32", tuple(_size(tensor)), (), offset, 0, device).to_list())
                continue
            row, strides = self.device.as_it_lies(tensor, picks)
            spec = store_tensor(self.out, row, offset)
            shape = [_numel(row)] if window_starts(_numel(tensor), picks) else list(_size(tensor))
            specs.append([spec.dtype, shape, list(strides), spec.offset, spec.nbytes, device])
            offset = aligned(offset + spec.nbytes)
        return {"structure": structure, "tensors": specs, "shapes": [list(_size(tensor)) for tensor in tensors]}

    def fetch_inputs(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Inputs of one call as they are now, like `fetch`, and what memory its output shares. Apart
        from it: beside these, what an output costs that is computed only when it is looked at would not be seen.
        """
        offset, specs = 0, []
        for value in tensors_in(self.calls[message["call"]]):
            spec = store_tensor(self.out, self.device.dense(value, message["picks"]), offset)
            specs.append(spec.to_list())
            offset = aligned(offset + spec.nbytes)
        call = message["call"]
        return {
            "tensors": specs, "aliased": aliased([*self.last, *self.outputs]),
            "borrowed": borrowed(self.outputs[call], self.calls[call]),
        }  # fmt: skip

    def observe(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """What a plain call of the model runs, on the first prepared call's inputs; the last one's serve another call:
        see `observing.observe`.
        ``compiled``: whether a whole-graph compiler did some of it.
        """
        seen = observe(self.model, self.calls[0], self.calls[-1], on_gpu=self.device.name != "cpu")
        self.device.synchronize()
        compiled = compiled_frames() > self.compiled_frames or scripted(self.module, self.model)
        return {**seen, "compiled": compiled, **self.inspect(message, fds)}

    def profile(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The kernels of one prepared call with the time of each. Last of all: see `kernel_times`."""
        return {"kernels": kernel_times(self.model, self.calls[0])}

    def inspect(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Global state that the candidate changed, for anything but the stricter."""
        now = self.device.state()
        changed = (name for name in now if now[name] != self.before[name])
        return {"changed": sorted(name for name in changed if STRICTEST.get(name) != now[name])}

    def lock(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """No new processes from here on; memory in order; nothing is collected in the middle of a measurement."""
        self.calls, self.outputs, self.last = [], [], []
        _collect()
        self.device.tidy()
        if self.device.name == "cpu":  # who has a GPU may live on, and what is frozen is never collected
            gc.freeze()
        _disable_gc()
        try:
            if not self._locked:  # as who lives on from problem to problem is
                install_no_process_filter()
        except OSError as error:
            return {"unlocked": str(error)}
        self._locked = True
        return {}


def _structure(value: Any, tensors: list[Any], depth: int) -> Any:
    """Nesting of an output as JSON; tensors are numbered in order of appearance, those of a dictionary by its keys."""
    if depth > 8 or _len(tensors) > 1024:
        raise ValueError("the output is nested too deeply")
    if _isinstance(value, _Tensor):
        tensors.append(value)
        return "T"
    if _isinstance(value, (tuple, list)):
        return [_structure(item, tensors, depth + 1) for item in value]
    if _isinstance(value, dict):
        return {str(key): _structure(value[key], tensors, depth + 1) for key in sorted(value, key=str)}
    if value is None or _type(value) in (bool, int, float, complex, str):
        return {"=": repr(value)}
    return {"?": _type(value).__name__}


def serve(contestant: Contestant, names: tuple[str, ...] = OPERATIONS) -> None:
    """Answers messages until the referee goes away; the only way out is the end of the process."""
    channel = contestant.channel
    operations = {name: getattr(contestant, name) for name in names}
    channel.send({"hello": os.getpid(), "place": id(channel)})
    while True:
        try:
            message, fds = channel.receive_with_fds(64)
        except ChannelClosed:
            os._exit(0)
        try:
            answer = operations[message["op"]](message, fds)
        except ChannelClosed:
            os._exit(0)
        except BaseException as error:  # sys.exit of a candidate is as wrong as any other
            answer = failure(error)
        channel.send(answer)


__all__ = ["Contestant", "dense_copy", "execute", "failure", "serve"]
