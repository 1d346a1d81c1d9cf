"""The trusted process that executes a problem: inputs, randomised weights, native and higher-precision outputs.

It runs behind the same walls as a contestant, so that a broken problem does no harm, but never together with a
candidate: only the referee receives its results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from cudal1_ray.evaluation.exchange import messages
from cudal1_ray.evaluation.exchange.tensors import Row, plain_values, special_form
from cudal1_ray.evaluation.inside import input_kinds
from cudal1_ray.evaluation.inside.computed_trials import ComputedTrial, compared_tensors, write_tensor, write_trial
from cudal1_ray.evaluation.inside.constructing import call_arguments, constructor_arguments
from cudal1_ray.evaluation.inside.drawing import Drawing, NotDrawable, record
from cudal1_ray.evaluation.inside.equality import alike, bits, close, finite, same
from cudal1_ray.evaluation.inside.executing import execute
from cudal1_ray.evaluation.inside.harness import Contestant
from cudal1_ray.evaluation.inside.input_structure import InputStructure, structure_of_inputs
from cudal1_ray.evaluation.inside.memory import lengthen_written_out, writes_recurrence
from cudal1_ray.evaluation.inside.packing import pack, pack_if_possible, pack_inputs
from cudal1_ray.evaluation.inside.places import map_tensors, tensors_in
from cudal1_ray.evaluation.inside.state import (
    copied,
    detach,
    has_lazy_weights,
    loose_tensors,
    randomise_weights,
    weights_nbytes,
)
from cudal1_ray.evaluation.inside.tf32 import CoarseArithmetic, errors

# Standard deviation of the noise on weights that initialisation leaves constant.
_WEIGHT_NOISE = 0.2
# Fewest bytes of weights that are worth drawing on the device itself.
_LARGE_WEIGHTS = 256 << 20
# Error, as a share of the outputs' size and spread, that no rounding explains.
_OTHER_NUMBERS = 0.1
# Error of single precision, as a share of the outputs' size and spread: ten times that of most problems.
_USUAL_ERROR = 1e-4
# Seconds above which a double-precision run is made for one trial of its size only.
_SLOW_TWIN_S = 1.0
_ANY_SIZE = 1 << 62
_SKIPPED = messages.Tried(skip=True)


class Maker(Contestant):
    """Operations `open`, `character`, `compute_trial` and `fetch_trial`, besides those of every contestant."""

    def _begin(self) -> None:
        super()._begin()
        self._exact: Any = None  # the model in double precision
        self._get_inputs: Callable[[], Any] = list
        self._first: Any = None  # inputs whose numbers and texts all draws get
        self._structure: InputStructure | None = None
        self._sizes_vary = False  # whether draws differ in their shapes, which others may have to follow
        self._computed: Any = None
        self._after_weights = 0  # offset in the out region
        self._draws_on_cpu = False
        self._alone = True
        self._hides = False  # whether its outputs hide errors
        self._cancels_anyway = False  # whether rounding is large even in the outputs of its own inputs
        self._calculates_coarsely = True  # whether any of its operators may run in TF32
        self._coarse_products = False  # whether the baseline's products run in TF32
        self._slow_twin_bytes = _ANY_SIZE  # bytes of inputs and outputs from which on the double-precision twin is slow

    def open(self, request: messages.Open, fds: list[int]) -> messages.Opened:
        """Execute the problem, build and randomise the model, and write its weights to the out region. `in_place` in
        the answer: the model could be built on the device itself.
        """
        self.open_device(request.device)
        self._coarse_products, self._alone = request.coarse_products, request.alone
        module = execute(request.source, self.scratch, "reference")
        self._get_inputs = lambda: map_tensors(call_arguments(module.get_inputs(), module.Model.forward), _as_stored)
        self.device.seed(request.model_seed)
        positional, named = constructor_arguments(module.get_init_inputs())
        packed_init, init_tensors = pack_if_possible((positional, named))
        model, in_place = self._build(lambda: module.Model(*positional, **named), request.model_seed)
        if has_lazy_weights(model):
            self._run(model.to(self.device_name), self._on_device(self._own(request.seed + 1)), 7)
        detach(model)
        if request.eval_mode:
            model.eval()
        if request.resets_tf32:
            self.device.reset_precision()
        native = self._give_weights(model, request.source, request.seed)
        self._exact = self._double()
        first = list(self._own(request.seed + 1))
        arguments, tensors = pack_inputs(first)
        if kinds := ", ".join(sorted({type(value).__name__ for value in first if _holds_numbers(value)})):
            raise TypeError(f"get_inputs() gives numbers inside objects ({kinds}); give tensors, lists, dictionaries")
        io_bytes = sum(t.nbytes for t in (*tensors, *tensors_in(native)))
        # From here on only its types and plain values are needed, not its gigabytes.
        self._first = first = map_tensors(first, lambda tensor: tensor.new_empty(0))
        native = None
        tensors.clear()
        row = Row(self.out)
        entries = [(name, value) for name, value in self.model.state_dict().items() if isinstance(value, torch.Tensor)]
        opened = messages.Opened(
            state=[(name, write_tensor(row, self.device, value)) for name, value in entries], init=packed_init,
            init_tensors=[write_tensor(row, self.device, value) for value in init_tensors], arguments=arguments,
            flat=all(isinstance(value, torch.Tensor) for value in first), in_place=in_place, nbytes=row.offset,
            io_bytes=io_bytes, dtype=str(torch.get_default_dtype()),
        )  # fmt: skip
        self._after_weights = row.offset
        return opened

    def _build(self, construct: Callable[[], Any], seed: int) -> tuple[Any, bool]:
        """Build the model as every contestant will, with the same seed, so that tensors without a name are drawn alike:
        on the device itself where that saves time. Tensors that are neither parameters nor buffers forbid that, since
        they stay on the CPU otherwise.
        """
        model, in_place = self.device.build(construct, seed, in_place=True)
        if in_place and (weights_nbytes(model) < _LARGE_WEIGHTS or loose_tensors(model)):
            model, in_place = self.device.build(construct, seed, in_place=False)
        return model, in_place

    def _give_weights(self, model: torch.nn.Module, source: str, seed: int) -> Any:
        """Randomise the weights as far as the model's outputs stay finite; return its outputs."""
        generator = torch.Generator().manual_seed(seed)
        attempts = [(_WEIGHT_NOISE, 0.0), (_WEIGHT_NOISE / 4, 0.0), (0.0, 0.0)]
        if writes_recurrence(source):
            attempts = [(_WEIGHT_NOISE, 2.0), (_WEIGHT_NOISE, 1.0), *attempts]
        for noise, hold in attempts:
            self.model = copied(model)
            if noise:
                randomise_weights(self.model, noise, generator)
            if hold:
                lengthen_written_out(self.model, generator, hold)
            self.model = self.model.to(self.device_name)
            try:
                inputs = self._own(seed + 2)  # others than those by which `character` sees state
                _require_plain("get_inputs()", inputs)
                native = self._run(self.model, self._on_device(inputs), 7)
                _require_plain("forward", native)
                usable = finite(native) and not (hold and self._is_inexact(native, seed + 2))
            except Exception as error:  # weights that do not suit the model, such as a matrix no longer definite
                self._raise_shortage(error)
                if noise:
                    continue
                raise
            if usable:
                break
        return native

    def character(self, request: messages.Character, fds: list[int]) -> messages.Traits:
        """Return whether the model is random, keeps state or gets fixed inputs, and how its inputs are drawn."""
        seed, picks = request.seed, request.picks
        inputs = self._own(seed + 1)
        first = self._outputs(self.model, inputs, 7, picks)
        again = self._outputs(copied(self.model), inputs, 7, picks)
        other = self._outputs(copied(self.model), inputs, 8, picks)
        stateful, stochastic = not close(first, again), not close(again, other)
        del first, again, other
        different = self._own(seed + 2)
        shapes, others = ([tensor.shape for tensor in tensors_in(draw)] for draw in (inputs, different))
        self._sizes_vary = shapes != others
        self._structure = structure_of_inputs(inputs, different, lambda number: self._own(seed + 3 + number))
        fixed = same(tensors_in(inputs), tensors_in(different))
        still = self._structure.still if self._structure is not None else []
        draws = request.draws and not fixed
        drawing = self._drawing({seed + 1: inputs, seed + 2: different}) if draws else b""
        return messages.Traits(stateful, stochastic, fixed, still, drawing)

    def _drawing(self, draws: dict[int, Any]) -> bytes:
        """Return a plan that draws the inputs on the device in any process; empty if it does not reproduce `draws`."""
        try:
            with torch.device(self.device_name):
                plan = record(self._get_inputs)
            drawing = Drawing(plan)
            for seed, inputs in draws.items():
                drawn = self.device.drawn(drawing, seed)()
                if pack(drawn)[0] != pack(list(inputs))[0] or not alike(tensors_in(drawn), tensors_in(inputs)):
                    return b""
                if any(tensor.device.type != self.device.name for tensor in tensors_in(drawn)):
                    return b""
        except (NotDrawable, torch.OutOfMemoryError) as error:
            self._raise_shortage(error)
            return b""
        return plan

    def compute_trial(self, request: messages.ComputeTrial, fds: list[int]) -> messages.Tried:
        """Compute the expected outputs for one set of inputs of `kind`, for `fetch_trial`; answer `skip` if the kind is
        useless. `most_bytes`: the batch is cut until the inputs are no larger. `picks`: windows of large outputs.
        """
        own = request.kind == "own"
        inputs = self._inputs(request.kind, request.seed, request.most_bytes)
        if inputs is None:
            return _SKIPPED
        tensors, arguments = tensors_in(inputs), self._on_device(inputs)
        try:
            native = self._run(copied(self.model), arguments, request.model_seed)
        except Exception as error:
            self._raise_shortage(error)
            if own:
                raise
            return _SKIPPED
        if request.probe:
            return messages.Tried(finite=finite(native))
        if own:
            self._hides = input_kinds.hides_errors(tensors_in(native))
        both = zip(tensors_in(arguments), tensors, strict=True)
        mutated = not all(torch.equal(bits(used), bits(tensor.to(used.device))) for used, tensor in both)
        exact, slow = self._exact_outputs(inputs, request.model_seed, native)
        if exact is not None and not slow and input_kinds.are_few(tensors_in(exact)):
            cancels = self._cancels(inputs, exact, request.model_seed)
            if own:
                self._cancels_anyway |= cancels
            elif cancels and not self._cancels_anyway:
                return _SKIPPED
        coarse = [] if exact is None else self._coarse(inputs, exact, request.model_seed, request.picks)
        self._computed = ComputedTrial(tensors, native, exact, coarse, mutated, request.picks)
        self.device.give_back()  # until the next trial is requested
        return messages.Tried()

    def _inputs(self, kind: str, seed: int, most_bytes: int) -> list[Any] | None:
        """Return inputs of a kind; None where the problem has none, or they would lack what all its inputs share."""
        if kind == "coherent" and not self._hides:  # every output shows its own rounding error
            return None
        if kind in ("batch", "larger") and self._sizes_vary:  # each draw has a batch of its own
            return None
        draw: list[Any] | None = list(self._own(seed))
        if draw is not None and most_bytes:
            draw = input_kinds.smaller_batch(draw, most_bytes)
        if draw is not None and kind == "larger":
            draw, kind = input_kinds.larger_batch(draw, list(self._own(seed ^ 1))), "scaled"
        inputs = None if draw is None else input_kinds.varied(draw, kind, seed, lambda: self._own(seed ^ 1))
        if draw is None or inputs is None or self._structure is None or (kind == "own" and not most_bytes):
            return inputs
        return self._structure.restored(inputs, draw, kind if kind.startswith("mixed") else "")

    def _exact_outputs(self, inputs: list[Any], seed: int, native: Any) -> tuple[Any, bool]:
        """Return the outputs in double precision, None where these are not available, and whether that took long."""
        size = sum(tensor.nbytes for tensor in (*tensors_in(inputs), *tensors_in(native)))
        # Double precision takes twice as much, and passing it from one layer to the next as much again.
        if self._exact is None or size >= self._slow_twin_bytes or not self.device.has_room(4 * size):
            return None, False
        exact, started = None, time.monotonic()
        with self._optional():  # an operation may have no double-precision form; the tolerance is wider then
            exact = self._run_exact(self._exact, inputs, seed, native)
        slow = time.monotonic() - started > _SLOW_TWIN_S
        if slow:
            self._slow_twin_bytes = size
        return exact, slow

    def fetch_trial(self, request: messages.FetchTrial, fds: list[int]) -> messages.Tensors:
        """Write the last trial to the out region, behind the weights. An operation of its own: copies need not wait for
        a measurement. `input_picks`: of inputs that other processes draw themselves, only these windows are written.
        """
        trial, self._computed = self._computed, None
        return write_trial(trial, Row(self.out, self._after_weights), self.device, request.input_picks)

    def _optional(self) -> _Optional:
        return _Optional(self._raise_shortage)

    def _raise_shortage(self, error: Exception) -> None:
        """Raise `error` if it reports a lack of memory that others on the device may have caused: what it spoils would
        be missing whenever the opened problem is used. It is opened again without them.
        """
        if isinstance(error, torch.OutOfMemoryError) and not self._alone:
            raise error

    def _own(self, seed: int) -> Any:
        """Return the problem's inputs, with the numbers and texts of the first draw, which candidates receive."""
        drawn = self._drawn(seed)
        if self._first is None:
            return drawn
        tensors, count = tensors_in(drawn), len(tensors_in(self._first))
        if len(tensors) != count:
            raise TypeError(
                f"get_inputs() gives {count} tensors, and {len(tensors)} in another call; let it give as many"
            )
        rest = iter(tensors)
        return map_tensors(self._first, lambda _: next(rest))

    def _drawn(self, seed: int) -> Any:
        """Return inputs drawn on the device itself if the problem allows it: drawing gigabytes elsewhere takes long."""
        if self.device.name != "cpu" and not self._draws_on_cpu:
            self.device.seed(seed)
            with self._optional(), torch.device(self.device_name):
                return self._get_inputs()
            self._draws_on_cpu = True  # get_inputs uses numpy, an explicit generator or the like
        self.device.seed(seed)
        return self._get_inputs()

    def _on_device(self, inputs: Any, *, double: bool = False) -> list[Any]:
        def move(tensor: torch.Tensor) -> torch.Tensor:
            moved = tensor.detach().to(self.device_name)
            dtype = torch.float64 if double and moved.is_floating_point() else moved.dtype
            return moved.to(dtype, copy=moved.device == tensor.device)

        return map_tensors(list(inputs), move)

    @property
    def device_name(self) -> str:
        return str(self.device.device)

    def _run(self, model: Any, inputs: list[Any], seed: int) -> Any:
        self.device.seed(seed)
        with torch.no_grad():
            result = model(*inputs)
        self.device.synchronize()
        return result

    def _run_exact(self, twin: torch.nn.Module, inputs: Any, seed: int, native: Any) -> Any:
        """Run the model in double precision; if that fails, with double as the default type, for what its calls create,
        such as an initial state of zeros. Raise ValueError where they draw numbers, which would be different ones.
        """
        with self._optional():
            return self._run(copied(twin), self._on_device(inputs, double=True), seed)
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            exact = self._run(copied(twin), self._on_device(inputs, double=True), seed)
        finally:
            torch.set_default_dtype(default)
        if any(worst > _OTHER_NUMBERS for _, worst in errors(tensors_in(native), tensors_in(exact))):
            raise ValueError("double precision gives something else")
        return exact

    def _cancels(self, inputs: list[Any], exact: Any, seed: int) -> bool:
        """Return whether inputs that differ by their rounding give different outputs: then two right ways to calculate
        may differ as much, and this reference's small error proves nothing about another's.
        """
        with self._optional():  # sizes may be others, such as those of elements selected by value
            outputs = self._run(copied(self._exact), self._on_device(input_kinds.nudged(inputs), double=True), seed)
            return input_kinds.is_mostly_rounding(tensors_in(outputs), tensors_in(exact))
        return False

    def _coarse(self, inputs: list[Any], exact: Any, seed: int, picks: list[float] | None) -> list[tuple[float, float]]:
        """Return the outputs' errors with TF32 in convolutions or a baseline's products; empty where neither runs."""
        convolutions, products = self.device.coarse_convolutions(), self._coarse_products
        if not self._calculates_coarsely or not (convolutions or products):
            return []
        with CoarseArithmetic(convolutions=convolutions, products=products) as mode:
            coarse = self._run(copied(self.model), self._on_device(inputs), seed)
        self._calculates_coarsely = mode.any
        if not mode.any:
            return []
        both = [compared_tensors(coarse), compared_tensors(exact)]
        if picks is not None:
            both = [[self.device.dense(tensor, picks) for tensor in side] for side in both]
        return errors(*both)

    def _double(self) -> Any:
        with self._optional():  # a model that cannot be copied or converted has no exact twin
            return copied(self.model).double()
        return None

    def _is_inexact(self, native: Any, seed: int) -> bool:
        """Return whether single precision has a larger error than usual, so that it would hide more, too."""
        twin = self._double()
        if twin is None:
            return True
        exact = self._run_exact(twin, self._own(seed), 7, native)
        return any(worst > _USUAL_ERROR for _, worst in errors(tensors_in(native), tensors_in(exact)))

    def _outputs(self, model: Any, inputs: list[Any], seed: int, picks: list[float] | None) -> list[torch.Tensor]:
        """Return the outputs; with `picks`, of large ones only the windows there."""
        outputs = tensors_in(self._run(model, self._on_device(inputs), seed))
        return outputs if picks is None else [self.device.dense(tensor, picks) for tensor in outputs]


class _Optional:
    """Suppresses the failure of what an opened problem can do without, such as exact outputs; `check` may raise it."""

    def __init__(self, check: Callable[[Exception], None]) -> None:
        self._check = check

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, Exception):
            self._check(error)
        return isinstance(error, Exception)


def _require_plain(function: str, value: Any) -> None:
    """Raise TypeError where a problem's function gives a tensor that is not supported."""
    for form in filter(None, map(special_form, tensors_in(value))):
        raise TypeError(f"{function} gives {form}, which is not supported; let it give dense tensors")


def _as_stored(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose memory holds its values: lazy conjugation and negation are carried out."""
    return plain_values(tensor) if tensor.is_conj() or tensor.is_neg() else tensor


def _holds_numbers(value: Any) -> bool:
    """Return whether a value is no plain one and holds numbers that no variation would reach."""
    return type(value).__name__ == "ndarray" or len(pack(value)[1]) != len(tensors_in(value))
