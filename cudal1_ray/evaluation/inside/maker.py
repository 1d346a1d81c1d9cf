"""The trusted process that executes a problem: inputs, randomised weights, native and higher-precision outputs.

It runs behind the same walls as a contestant, so that a broken problem harms nothing, but never together with a
candidate: what it knows goes to the referee only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from msgspec.structs import replace

from ..exchange import messages
from ..exchange.tensors import Row, TensorSpec, describe
from .constructing import call_arguments, constructor_arguments, with_plain_values_of
from .drawing import Drawing, NotDrawable, record
from .equality import alike, bits, close, finite, same
from .executing import execute
from .harness import Contestant, structure_of
from .input_kinds import (
    MOVING,
    are_few,
    hides_errors,
    is_mostly_rounding,
    larger_batch,
    nudged,
    smaller_batch,
    varied,
)
from .input_structure import Structure, no_longer_definite, structure_of_inputs, with_structure
from .memory import lengthen_written_out, writes_recurrence
from .packing import pack
from .places import in_order, map_tensors, tensors_in
from .state import copied, detach, loose_tensors, randomise_weights, weights_nbytes
from .tf32 import CoarseArithmetic, errors

_LARGE_WEIGHTS = 256 << 20  # bytes: from there on it matters where they are drawn
_LARGE_TWIN = 16 << 20  # bytes in double precision: twice what referee/comparison.py calls small
_OTHER_NUMBERS = 0.1  # error, as a share of the outputs' size and spread, that no rounding explains
_USUAL_ERROR = 1e-4  # of single precision, as a share of the outputs' size and spread: ten times that of most problems
SLOW_TWIN_S = 1.0  # a double-precision run that takes longer is made for one trial of that size only
_ANY_SIZE = 1 << 62


@dataclass
class _MadeTrial:
    """One set of inputs and what came of it, where it was computed."""

    inputs: list[torch.Tensor]
    native: Any
    exact: Any
    coarse: list[list[float]]  # errors of each output where arithmetic is coarse; empty where it is not
    mutated: bool
    picks: list[float] | None


class Maker(Contestant):
    """Operations `open`, `character`, `trial` and `fetch_trial`, besides those of every contestant."""

    exact: Any = None
    get_inputs: Any = None
    _draws_on_cpu = False
    _hides = False  # do its outputs hide errors?
    _cancels_anyway = False  # is also of its own inputs' outputs the rounding much?
    _calculates_coarsely = True  # may it?
    _coarse_products = False  # has the baseline them?
    _made: _MadeTrial | None = None
    _slow_twin_bytes = _ANY_SIZE  # of inputs and outputs, from which on the double-precision twin is slow
    _structure: list[Structure] = []
    _first: Any = None  # inputs whose numbers and texts are those of all

    def open(self, asked: messages.Open, fds: list[int]) -> messages.Opened:
        """Executes the problem, builds and randomises the model, writes the weights to the out region. Says whether it
        could be built on the device itself (``in_place``).
        """
        self.open_device(asked.device)
        self._coarse_products = asked.coarse_products
        module = execute(asked.source, self.scratch, "reference")
        self._draws_on_cpu, self._first = False, None
        self.get_inputs = lambda: call_arguments(module.get_inputs(), module.Model.forward)
        self.device.seed(asked.seed)
        given, named = constructor_arguments(module.get_init_inputs())
        packed_init, init_tensors = pack((given, named))
        model, in_place = self._build(lambda: module.Model(*given, **named), asked.model_seed)
        detach(model)
        if asked.eval_mode:
            model.eval()
        if asked.resets_tf32:
            self.device.reset_precision()
        noise = asked.noise
        generator = torch.Generator().manual_seed(asked.seed)
        attempts = [(noise, 0.0), (noise / 4, 0.0), (0.0, 0.0)]
        if noise and writes_recurrence(asked.source):
            attempts = [(noise, 2.0), (noise, 1.0), *attempts]
        for attempt, hold in attempts:
            candidate = copied(model)
            if attempt:
                randomise_weights(candidate, attempt, generator)
            if hold:
                lengthen_written_out(candidate, generator, hold)
            self.model = candidate.to(self.device_name)
            try:
                native = self._run(self.model, self._on_device(self._own(asked.seed + 1)), 7)
                usable = finite(native) and not (hold and self._is_inexact(native, asked.seed + 1))
            except Exception:  # weights that are no longer what the model needs, such as a definite matrix
                if attempt:
                    continue
                raise
            if usable:
                break
        self.exact = self._double()
        self._first = self._own(asked.seed + 1)
        arguments, tensors = pack(list(self._first))
        if len(tensors) != len(tensors_in(self._first)):
            kinds = ", ".join(sorted({type(one).__name__ for one in self._first}))
            raise TypeError(f"get_inputs() gives tensors inside objects ({kinds}); give them in lists or dictionaries")
        flat = all(isinstance(one, torch.Tensor) for one in self._first)
        io_bytes = sum(t.nbytes for t in (*tensors, *tensors_in(native)))
        # Its types and plain values are what is needed from here on, not its gigabytes.
        self._first, native = map_tensors(self._first, lambda tensor: tensor.new_empty(0)), None
        tensors.clear()
        row = Row(self.out)
        entries = [(name, value) for name, value in self.model.state_dict().items() if isinstance(value, torch.Tensor)]
        return messages.Opened(
            state=[(name, self._put(row, value)) for name, value in entries], init=packed_init,
            init_tensors=[self._put(row, value) for value in init_tensors], arguments=arguments, flat=flat,
            in_place=in_place, nbytes=row.offset, io_bytes=io_bytes,
        )  # fmt: skip

    def _build(self, construct: Callable[[], Any], seed: int) -> tuple[Any, bool]:
        """As every contestant will build it, with the same seed, so that what has no name is drawn alike: on the device
        itself where that saves time. Tensors that are neither parameters nor buffers would stay on the CPU otherwise.
        """
        model, in_place = self.device.build(construct, seed, in_place=True)
        if in_place and (weights_nbytes(model) < _LARGE_WEIGHTS or loose_tensors(model)):
            model, in_place = self.device.build(construct, seed, in_place=False)
        return model, in_place

    def forget(self, asked: messages.Forget, fds: list[int]) -> None:
        self.exact = self.get_inputs = self._made = self._first = None
        self._structure, self._calculates_coarsely, self._cancels_anyway = [], True, False
        self._slow_twin_bytes = _ANY_SIZE
        super().forget(asked, fds)

    def character(self, asked: messages.Character, fds: list[int]) -> messages.Traits:
        """Does the model draw random numbers, keep state, or get the same inputs every time?"""
        seed, picks = asked.seed, asked.picks
        inputs = self._own(seed + 1)
        first = self._outputs(self.model, inputs, 7, picks)
        again = self._outputs(copied(self.model), inputs, 7, picks)
        other = self._outputs(copied(self.model), inputs, 8, picks)
        stateful, stochastic = not close(first, again), not close(again, other)
        del first, again, other
        different = self._own(seed + 2)
        self._structure = structure_of_inputs(inputs, different, lambda number: self._own(seed + 3 + number))
        fixed = same(tensors_in(inputs), tensors_in(different))
        still = [number for number, one in enumerate(self._structure) if one.still]
        drawable = asked.draws and not fixed
        drawing = self._drawing({seed + 1: inputs, seed + 2: different}) if drawable else b""
        return messages.Traits(stateful, stochastic, fixed, still, drawing)

    def _drawing(self, known: dict[int, Any]) -> bytes:
        """A plan by which other processes draw the problem's inputs on the device as well; empty where there is none
        that gives the ``known`` ones for their seeds.
        """
        try:
            with torch.device(self.device_name):
                plan = record(self.get_inputs)
            drawing = Drawing(plan)
            for seed, inputs in known.items():
                made = self.device.drawn(drawing, seed)()
                if pack(made)[0] != pack(list(inputs))[0] or not alike(tensors_in(made), tensors_in(inputs)):
                    return b""
                if any(tensor.device.type != self.device.name for tensor in tensors_in(made)):
                    return b""
        except (NotDrawable, torch.OutOfMemoryError):
            return b""
        return plan

    def trial(self, asked: messages.Trial, fds: list[int]) -> messages.Tried:
        """Computes the outputs that one set of inputs of ``kind`` should give, for `fetch_trial`; `skip` says why
        where the kind is no use. ``most_bytes``: the batch is cut until the inputs are no larger. ``picks``: of large
        outputs the windows there.
        """
        kind, seed, picks = asked.kind, asked.seed, asked.picks
        if kind == "coherent" and not self._hides:
            return messages.Tried(skip="every output shows its own rounding error")
        if self._breaks(kind, asked.most_bytes):
            return messages.Tried(skip="the inputs have a structure that it would break")
        inputs = list(self._own(seed))
        if asked.most_bytes:
            inputs = smaller_batch(inputs, asked.most_bytes)
        if inputs is not None and kind == "larger":
            inputs, kind = larger_batch(inputs, list(self._own(seed ^ 1))), "scaled"
        own, inputs = inputs, None if inputs is None else varied(inputs, kind, seed, lambda: self._own(seed ^ 1))
        if inputs is None:
            return messages.Tried(skip="the problem has nothing that could vary so")
        if self._structure:
            inputs = with_structure(inputs, own, self._structure, kind)
            if no_longer_definite(inputs, own, self._structure):
                return messages.Tried(skip="matrices would not be positive definite any more")
        tensors = tensors_in(inputs)
        given = self._on_device(inputs)
        try:
            native = self._run(copied(self.model), given, asked.model_seed)
        except Exception as error:
            if kind == "own":
                raise
            return messages.Tried(skip=f"{type(error).__name__}")
        if asked.probe:
            return messages.Tried(finite=finite(native))
        if kind == "own":
            self._hides = hides_errors(tensors_in(native))
        used = tensors_in(given)
        mutated = not all(torch.equal(bits(a), bits(b.to(a.device))) for a, b in zip(used, tensors, strict=True))
        exact, size = None, sum(tensor.nbytes for tensor in (*tensors, *tensors_in(native)))
        # In double precision twice as much, and on the way from one layer to the next as much again.
        if self.exact is not None and size < self._slow_twin_bytes and self.device.has_room(4 * size):
            started = time.monotonic()
            try:
                exact = self._run_exact(self.exact, inputs, asked.model_seed, native)
            except Exception:  # an operation without a double-precision form; the tolerance is wider then
                exact = None
            if time.monotonic() - started > SLOW_TWIN_S:
                self._slow_twin_bytes = size
            elif exact is not None and are_few(tensors_in(exact)):
                cancels = self._cancels(inputs, exact, asked.model_seed)
                if kind == "own":
                    self._cancels_anyway |= cancels
                elif cancels and not self._cancels_anyway:
                    return messages.Tried(skip="what is left of its numbers is mostly their rounding")
        coarse = [] if exact is None else self._coarse(inputs, exact, asked.model_seed, picks)
        self._made = _MadeTrial(tensors, native, exact, coarse, mutated, picks)
        self.device.give_back()  # until the next one is asked for
        return messages.Tried()

    def fetch_trial(self, asked: messages.FetchTrial, fds: list[int]) -> messages.Tensors:
        """Writes the last trial to the out region. An operation of its own: copies need not wait for a measurement.
        ``input_picks``: of inputs that others draw for themselves the windows there are enough.
        """
        made, self._made = self._made, None
        row, inputs, windows = Row(self.out), [], []
        for tensor in made.inputs:
            spec = replace(describe(tensor, row.offset, keep_strides=True), device="cpu")
            if asked.input_picks is not None:
                stored = row.put(self.device.dense(tensor, asked.input_picks))
                inputs.append(replace(spec, offset=0))
                windows.append((stored.offset, stored.nbytes))
                continue
            dense = tensor.contiguous()
            if spec.strides:
                dense = tensor.new_zeros(spec.nbytes // tensor.element_size())
                dense.as_strided(tensor.shape, spec.strides).copy_(tensor)
            row.put(dense)
            inputs.append(spec)
        native_tensors: list[Any] = []
        exact_tensors: list[Any] = []
        structure = structure_of(made.native, native_tensors)
        structure_of(made.exact, exact_tensors)
        native = [replace(self._put(row, one, made.picks), device=one.device.type) for one in native_tensors]
        exact = []
        if len(exact_tensors) == len(native_tensors):
            for tensor, known in zip(exact_tensors, native_tensors, strict=True):
                exact.append(self._put(row, tensor, made.picks, narrow=known.dtype is not torch.float64))
        return messages.Tensors(
            inputs, windows, structure, native, exact, [tuple(tensor.shape) for tensor in native_tensors],
            made.coarse, made.mutated, in_order(made.native),
        )  # fmt: skip

    def _breaks(self, kind: str, most_bytes: int) -> bool:
        """Would inputs of this kind, or of a smaller batch, lose what they have in common?"""
        found = self._structure
        if kind in (*MOVING, "mixed_in_place") and any(one.still for one in found):
            only_floats = kind == "mixed_in_place" or kind.endswith("_floats")
            known = zip(found, tensors_in(self._first), strict=True)
            if not any(not one.still and (tensor.is_floating_point() or not only_floats) for one, tensor in known):
                return True  # nothing would be new
        if kind in MOVING:
            return not all(one.turns for one in found)
        if kind == "larger":
            return not all(one.grows for one in found)
        return (kind == "batch" or most_bytes > 0) and any(one.bounds for one in found)

    def _own(self, seed: int) -> Any:
        """The problem's inputs, in which numbers and texts are those of the first draw: candidates are given these."""
        drawn = self._drawn(seed)
        return drawn if self._first is None else with_plain_values_of(drawn, self._first)

    def _drawn(self, seed: int) -> Any:
        """Inputs drawn on the device itself where the problem lets it: gigabytes take long elsewhere."""
        if self.device.name != "cpu" and not self._draws_on_cpu:
            self.device.seed(seed)
            try:
                with torch.device(self.device_name):
                    return self.get_inputs()
            except Exception:  # numpy, an explicit generator, ...
                self._draws_on_cpu = True
        self.device.seed(seed)
        return self.get_inputs()

    def _on_device(self, inputs: Any, *, double: bool = False) -> list[Any]:
        def move(tensor: torch.Tensor) -> torch.Tensor:
            moved = tensor.detach().clone().to(self.device_name)
            return moved.double() if double and moved.is_floating_point() else moved

        return map_tensors(list(inputs), move)

    @property
    def device_name(self) -> str:
        return str(getattr(self.device, "device", "cpu"))

    def _run(self, model: Any, inputs: list[Any], seed: int) -> Any:
        self.device.seed(seed)
        with torch.no_grad():
            result = model(*inputs)
        self.device.synchronize()
        return result

    def _run_exact(self, twin: torch.nn.Module, inputs: Any, seed: int, native: Any) -> Any:
        """In double precision, where it does not run otherwise also what the model makes in its calls, such as a state
        of noughts to begin with; unless it draws numbers there, which would be others.
        """
        try:
            return self._run(copied(twin), self._on_device(inputs, double=True), seed)
        except Exception:
            torch.set_default_dtype(torch.float64)
            try:
                exact = self._run(copied(twin), self._on_device(inputs, double=True), seed)
            finally:
                torch.set_default_dtype(torch.float32)
        if any(worst > _OTHER_NUMBERS for _, worst in errors(tensors_in(native), tensors_in(exact))):
            raise ValueError("double precision gives something else")
        return exact

    def _cancels(self, inputs: list[Any], exact: Any, seed: int) -> bool:
        """Do inputs that differ by their rounding give something else? Then two right ways to calculate may differ as
        much, and that this reference's comes out well here says nothing of another's.
        """
        try:
            found = self._run(copied(self.exact), self._on_device(nudged(inputs), double=True), seed)
            return is_mostly_rounding(tensors_in(found), tensors_in(exact))
        except Exception:  # other sizes, as of what is chosen by its value
            return False

    def _coarse(self, inputs: list[Any], exact: Any, seed: int, picks: list[float] | None) -> list[list[float]]:
        """How far the outputs would be off if convolutions, or a baseline's products, ran in TF32; empty where they may
        not, or there is none.
        """
        convolutions, products = self.device.coarse_convolutions(), self._coarse_products
        if not self._calculates_coarsely or not (convolutions or products):
            return []
        with CoarseArithmetic(convolutions=convolutions, products=products) as mode:
            coarse = self._run(copied(self.model), self._on_device(inputs), seed)
        self._calculates_coarsely = mode.any
        if not mode.any:
            return []
        both = [tensors_in(coarse), tensors_in(exact)]
        if picks is not None:
            both = [[self.device.dense(tensor, picks).cpu() for tensor in one] for one in both]
        return errors(*both)

    def _double(self) -> Any:
        try:
            return copied(self.model).double()
        except Exception:  # a model that cannot be copied or converted has no exact twin
            return None

    def _is_inexact(self, native: Any, seed: int) -> bool:
        """Is single precision further off than it usually is, so that what it hides would be more, too?"""
        twin = self._double()
        if twin is None:
            return True
        exact = self._run_exact(twin, self._own(seed), 7, native)
        return any(worst > _USUAL_ERROR for _, worst in errors(tensors_in(native), tensors_in(exact)))

    def _outputs(self, model: Any, inputs: list[Any], seed: int, picks: list[float] | None) -> list[torch.Tensor]:
        """Of large outputs the windows at ``picks``; others stay where they are, where they are compared in no time."""
        outputs = tensors_in(self._run(model, self._on_device(inputs), seed))
        return outputs if picks is None else [self.device.dense(tensor, picks).cpu() for tensor in outputs]

    def _put(
        self, row: Row, tensor: torch.Tensor, picks: list[float] | None = None, *, narrow: bool = False
    ) -> TensorSpec:
        """``narrow``: a large one of double precision goes in single, whose rounding is far below any tolerance: copies
        of it are most of what a large trial takes.
        """
        dense = self.device.dense(tensor, picks)
        if narrow and dense.dtype is torch.float64 and dense.nbytes > _LARGE_TWIN:
            dense = dense.float()
        spec = row.put(dense)
        if spec.nbytes != spec.expected_nbytes():
            raise MemoryError("the problem's tensors do not fit into the evaluator's memory limit")
        return spec
