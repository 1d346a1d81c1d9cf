"""Comparison of outputs in double precision, with a tolerance scaled to the reference's own error and spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from cudal1_ray.evaluation.config import CheckConfig
from cudal1_ray.evaluation.correctness.parts import (
    Difference,
    Slices,
    missing_part,
    rms,
    slice_allowances,
    small_parts,
    wrong_slice,
)
from cudal1_ray.evaluation.exchange.tensors import WINDOW, window_starts

# Most bytes of an output, or of its windows, that a CPU compares while a GPU's turn is awaited.
_SMALL = 8 << 20
# Most bytes of one truth that may stay in a GPU's memory.
_LARGEST_KEPT = 256 << 20
# Rounding error of a number in float32, as a root mean square share of the number.
_ROUNDING = 2.0**-25
# Factor of the tolerances for a problem in double precision, which single precision must not answer.
_DOUBLE = 1e-5
_MOST_LOOKED_AT = 1 << 16
# Tolerances are at least this multiple of the native-precision reference's own error; for the root mean square only the
# second where that error is beyond the tolerance itself: PyTorch lets convolutions run in TF32, and 8 times its error
# would let bfloat16 pass.
_OF_REFERENCE_ERROR, _OF_COARSE_REFERENCE_ERROR = 8.0, 3.0
# Most elements of a wrong output that a detail shows.
_ELEMENTS_SHOWN = 3
# Most error of an element that counts as computed, as a share of its size plus the spread: where more is allowed, by
# KernelBench's tolerances or a coarse reference, 13 to 58% of the elements of wrong outputs are within it by chance.
_COMPUTED = 1e-3
# Error, as a multiple of the spread, that an output of another size altogether exceeds.
_SIZES = 4.0
# Share of whole numbers or truth values, computed from fractions, that may differ where both sides are right: in one of
# some ten million elements a comparison, or the place of the largest, is decided otherwise. At most the second share
# of the elements that differ from the most frequent value.
_DECIDED_OTHERWISE, _OF_THE_FEW = 2e-5, 0.01
# Elements that may differ, among this many, and at most: two neighbours in a sorted row that change places are two
# elements, which thousands of compared outputs show now and then.
_SWAPPED, _AMONG, _MOST_SWAPPED = 2, 1024, 4
# Fewest whole numbers or truth values of which one may be decided otherwise.
_FEWEST_DECIDED = 64
# Errors allowed for other inputs of a trial's kind, as a multiple of what the trial allowed: there the answer is
# compared with the reference's, which has an error of its own.
_OTHER_INPUTS = 1.5
# Share of eight-bit values that may be rounded otherwise, since they lie in the middle, by one step each. By type: the
# step as a share of the value, and the smallest value that is as exact as its type.
_ROUNDED_OTHERWISE = 5e-3
_EIGHT_BITS = {torch.float8_e4m3fn: (2.0**-3, 2.0**-6), torch.float8_e5m2: (2.0**-2, 2.0**-14)}
_EXACT = {torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool}


@dataclass(frozen=True)
class Expected:
    """One output tensor of a trial: the truth in double precision and how far the native reference is from it."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    # float64 (or complex128, or the exact dtype); float32 where the output is not small and not of double precision
    # itself; of a large output only the compared windows
    truth: torch.Tensor
    spread: float  # standard deviation of the truth, its size where it is constant
    rms_allowed: float  # root-mean-square error allowed, absolute
    max_allowed: float  # largest allowed |error| / (|truth| + spread)
    mismatches_allowed: float  # share of differing elements, exact dtypes only
    infinite: torch.Tensor | None  # where the truth is not finite
    small: tuple[torch.Tensor, ...] = ()  # places of elements far below the spread, by decades of their size
    slices: Slices = ()  # along an axis, the root-mean-square error that each slice may have
    size: float = 0.0  # root mean square of the truth, inexact dtypes only

    @property
    def nbytes(self) -> int:
        """Return the bytes of the output in its own dtype."""
        return math.prod(self.shape) * self.dtype.itemsize

    def windows(self, picks: list[float] | None) -> Expected:
        """Return the expectation of a large output's windows at `picks`; of a smaller output all of it."""
        places = window_starts(self.truth.numel(), picks)
        if places is None:
            return self

        def of(whole: torch.Tensor) -> torch.Tensor:
            row = whole.reshape(-1)
            return torch.cat([row[place : place + WINDOW] for place in places])

        infinite = None if self.infinite is None else of(self.infinite)
        return replace(self, truth=of(self.truth), infinite=infinite, small=(), slices=())


def expect(
    native: torch.Tensor, exact: torch.Tensor | None, config: CheckConfig, device: str = "cpu",
    shape: tuple[int, ...] | None = None, coarse: tuple[float, float] = (0.0, 0.0),
) -> Expected:  # fmt: skip
    """Return what an output must be.

    Args:
        native, exact: the outputs of the reference, and of its double-precision twin if there is one.
        device: where the arithmetic is done, and where a truth that is not too large stays, unless it `is_small`.
        shape: the output's, where `native` holds windows of it.
        coarse: how far the reference might as well be off, as a root mean square and as the largest share of an
            element's size plus the spread.
    """
    device = compared_on(device, native.nbytes)
    native = native.to(device)
    exact = exact.to(device) if exact is not None and exact.shape == native.shape else None
    dtype, shape = native.dtype, tuple(native.shape) if shape is None else shape
    if dtype in _EXACT or dtype in _EIGHT_BITS:
        differ = _share(native.double() != exact.double()) if exact is not None and native.numel() else 0.0
        if dtype in _EIGHT_BITS:
            allowed = max(2 * differ, _ROUNDED_OTHERWISE)
        else:
            allowed = 0.0 if exact is None else max(2 * differ, _undecided(native))
        return Expected(dtype, shape, _in_reach(native), 0.0, 0.0, 0.0, allowed, None)
    if exact is not None and not torch.equal(exact.isfinite(), native.isfinite()):
        exact = None  # a twin that overflows in other places is not exact
    wide = torch.complex128 if dtype.is_complex else torch.float64
    fine = _DOUBLE if dtype in (torch.float64, torch.complex128) else 1.0
    truth = (native if exact is None else exact).to(wide)
    finite = truth.isfinite()
    every = bool(finite.all())
    values = truth if every else truth[finite]
    size = rms(values.abs())
    spread = _spread(values, size)
    small: tuple[torch.Tensor, ...] = ()
    slices: Slices = ()
    if exact is None:
        rms_allowed = fine * config.fallback_tolerance * spread
        max_allowed = 4 * fine * config.fallback_tolerance
    else:
        error = (native.to(wide) - truth).abs()
        error = error if every else error[finite]
        own_error = max(rms(error), coarse[0])
        if exact.dtype is torch.float32:  # both are rounded alike, which hides that error
            own_error = max(own_error, _ROUNDING * size)
        worst = float((error / (values.abs() + spread)).max()) if error.numel() and spread else 0.0
        factor, tolerated = _OF_REFERENCE_ERROR, fine * config.rms_tolerance * spread
        rms_allowed = max(
            tolerated, min(factor * own_error, max(_OF_COARSE_REFERENCE_ERROR * own_error, 4 * tolerated))
        )
        max_allowed = max(fine * config.max_tolerance, factor * max(worst, coarse[1]))
        if exact is not native:
            small = small_parts(truth, native, spread, coarse[0])
        if exact is not native and every:
            least = max(factor * coarse[0], 1e-4 * tolerated)
            slices = slice_allowances(truth, error, fine * config.slice_tolerance, factor, least)
    if not (is_small(native.nbytes) or truth.is_complex() or dtype is torch.float64):
        truth = truth.float()
    infinite = None if every else _in_reach(~finite)
    return Expected(
        dtype, shape, _in_reach(truth), spread, rms_allowed + 1e-30, max_allowed, 0.0, infinite, small, slices, size
    )  # fmt: skip


def expect_again(
    native: torch.Tensor, earlier: Expected | None, config: CheckConfig, device: str = "cpu",
    off: tuple[float, float] = (0.0, 0.0),
) -> Expected:  # fmt: skip
    """Return what an output for other inputs of a trial's kind must be, where only the reference's answer to them is
    known: how far that may be off, the trial has shown.

    Args:
        native: the reference's answer.
        earlier: the same output's in the trial; None where the trial has no such output.
        device: as `expect` takes it.
        off: `error_of` the same output, where another than the trial's reference gave `native`.
    """
    exact = native if native.dtype.is_floating_point or native.is_complex() else None
    fresh = expect(native, exact, config, device)
    if earlier is None:
        return fresh
    # Errors grow with the outputs' spread, or with their size: of few outputs that are all alike the spread is chance.
    pairs = ((fresh.spread, earlier.spread), (fresh.size, earlier.size))
    scale = max((now / before for now, before in pairs if before), default=1.0)
    count = earlier.truth.numel()
    # One of at least this many that come from fractions may differ: among many timed calls some have a tie.
    share = 1.0 / count if earlier.mismatches_allowed and count >= _FEWEST_DECIDED else 0.0
    return replace(
        fresh,
        rms_allowed=max(fresh.rms_allowed, _OTHER_INPUTS * (earlier.rms_allowed + off[0]) * scale),
        max_allowed=max(fresh.max_allowed, _OTHER_INPUTS * (earlier.max_allowed + off[1])),
        mismatches_allowed=max(earlier.mismatches_allowed, share),
    )


def error_of(output: torch.Tensor, expected: Expected, device: str = "cpu") -> tuple[float, float]:
    """Return an output's root-mean-square error, and its largest as a share of an element's size plus the spread; zeros
    where it has none: shapes that differ, whole numbers, elements that are not finite.
    """
    if output.shape != expected.truth.shape or not output.numel() or not expected.size or expected.infinite is not None:
        return 0.0, 0.0
    device = compared_on(device, output.nbytes)
    truth = _wide(expected.truth.to(device))
    error = (output.to(device).to(truth.dtype) - truth).abs()
    worst = float((error / (truth.abs() + expected.spread)).max())
    return (rms(error), worst) if math.isfinite(worst) else (0.0, 0.0)


def only_finite(expected: Expected) -> Expected:
    """Return an expectation that is met by any output of this one's size that is finite where this one is."""
    return replace(
        expected, rms_allowed=_SIZES * expected.spread, max_allowed=math.inf, mismatches_allowed=1.0, small=(),
        slices=(),
    )  # fmt: skip


def is_coarse(expected: Expected, config: CheckConfig) -> bool:
    """Return whether the tolerance is that of arithmetic less exact than the output's type."""
    return expected.rms_allowed > 2 * config.rms_tolerance * expected.spread + 1e-30


def _undecided(native: torch.Tensor) -> float:
    """Return the share of whole numbers or truth values that rounding alone may have decided otherwise."""
    if not native.numel():
        return 0.0
    some = native.reshape(-1)[torch.randint(native.numel(), (_MOST_LOOKED_AT,), device=native.device)].cpu()
    swapped = min(_SWAPPED * (native.numel() // _AMONG), _MOST_SWAPPED) / native.numel()
    return min(max(_DECIDED_OTHERWISE, swapped), _OF_THE_FEW * _share(some != some.mode().values))


def _share(true: torch.Tensor) -> float:
    return float(true.double().mean())


def _in_reach(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.nbytes <= _LARGEST_KEPT else tensor.cpu()


def is_small(nbytes: int) -> bool:
    """Return whether an output is compared on the CPU, wherever it comes from."""
    return nbytes <= _SMALL


def compared_on(device: str, nbytes: int) -> str:
    """Return the device on which an output of `nbytes` that comes from `device` is compared."""
    return "cpu" if is_small(nbytes) else device


def shape_difference(shape: Sequence[int], right: Sequence[int]) -> Difference | None:
    """Return None when an output's shape is right; a shape with which a comparison would broadcast has a name."""
    if tuple(shape) == tuple(right):
        return None
    broadcasts = all(a == b or 1 in (a, b) for a, b in zip(reversed(shape), reversed(right), strict=False))
    reason = "shape_broadcast" if broadcasts else "wrong_structure"
    return Difference(reason, f"shape {list(shape)} instead of {list(right)}")


def compare(output: torch.Tensor, expected: Expected, device: str = "cpu") -> Difference | None:
    """Return None when `output` is right, else its difference, computed on `device` unless it `is_small`."""
    if difference := shape_difference(output.shape, expected.truth.shape):
        return difference
    if output.dtype != expected.dtype:
        return Difference("output_dtype", f"dtype {output.dtype} instead of {expected.dtype}")
    if output.numel() == 0:
        return None
    device = compared_on(device, output.nbytes)
    output, whole_truth = output.to(device), expected.truth.to(device)
    if expected.dtype in _EXACT:
        if (share := _share(output != whole_truth)) <= expected.mismatches_allowed:
            return None
        examples = _farthest(output, whole_truth, (output != whole_truth).double(), expected)
        return Difference("wrong_output", f"{share:.2%} of the elements differ{examples}")
    if expected.dtype in _EIGHT_BITS:
        return _compare_eight_bits(output.float(), whole_truth.float(), expected)
    truth = _wide(whole_truth)
    values = output.to(truth.dtype, copy=True)
    finite = expected.infinite is None
    if expected.infinite is not None:
        infinite = expected.infinite.to(device)
        off = infinite & ~((values == truth) | (values.isnan() & truth.isnan()))
        if bool(off.any()):
            detail = "finite, or another infinity, where the reference has NaN or infinity"
            return Difference("nan_comparison", detail + _farthest(output, whole_truth, off.double(), expected))
        values, truth = values[~infinite], truth[~infinite]
        if not values.numel():
            return None
    missing = missing_part(values, truth, expected.spread, expected.small) if finite else None
    error = values.sub_(truth).abs_() if not truth.is_complex() else (values - truth).abs()
    size = rms(error)
    if not math.isfinite(size):
        examples = _farthest(output, whole_truth, (~error.isfinite()).double(), expected) if finite else ""
        return Difference("nan_comparison", f"NaN or infinity where the reference is finite{examples}")
    relative = error / (truth.abs() + expected.spread) if expected.spread else error
    worst = float(relative.max())
    if size <= expected.rms_allowed and worst <= expected.max_allowed:
        return missing or (wrong_slice(error, truth, expected.slices) if finite else None)
    beyond, scale = relative > expected.max_allowed, size / (expected.spread or 1)
    share = _share(beyond)
    detail = (
        f"error {scale:.2e} of the output's spread "
        f"({expected.rms_allowed / (expected.spread or 1):.1e} allowed), "
        f"largest {worst:.2e} ({expected.max_allowed:.1e}), {share:.1%} of the elements beyond"
    )
    examples = _farthest(output, whole_truth, relative, expected) if finite else ""
    counted = truth != 0 if bool(truth.any()) else torch.ones_like(beyond)  # a ReLU's zeros are right by any factor
    not_computed = _share((relative > min(expected.max_allowed, _COMPUTED))[counted])
    return Difference(_name(scale, worst, _share(beyond[counted]), not_computed), detail + examples)


def _farthest(output: torch.Tensor, truth: torch.Tensor, off: torch.Tensor, expected: Expected) -> str:
    """Return the farthest elements as text: got and expected, with their places unless these are windows' own."""
    shape, texts = tuple(truth.shape), []
    for place in off.reshape(-1).topk(min(_ELEMENTS_SHOWN, off.numel())).indices.tolist():
        got, right = (_number(values.reshape(-1)[place].item()) for values in (output, truth))
        at = [int(i) for i in torch.unravel_index(torch.tensor(place), shape)] if shape == expected.shape else []
        texts.append(f"{at or ''}{' ' if at else ''}{got} instead of {right}")
    return f"; got {', '.join(texts)}"


def _number(value: float | complex | bool) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _compare_eight_bits(values: torch.Tensor, truth: torch.Tensor, expected: Expected) -> Difference | None:
    same = (values == truth) | (values.isnan() & truth.isnan())
    step, least = _EIGHT_BITS[expected.dtype]
    far = ~same & ~((values - truth).abs() <= step * torch.maximum(values.abs(), truth.abs()).clamp(min=least))
    if bool(far.any()):
        examples = _farthest(values, truth, far.double(), expected)
        return Difference("wrong_output", f"{_share(far):.2%} of the elements are more than a step off{examples}")
    if (share := _share(~same)) > expected.mismatches_allowed:
        return Difference("wrong_output", f"{share:.2%} of the elements are rounded otherwise")
    return None


def _name(scale: float, worst: float, beyond: float, not_computed: float) -> str:
    """Return the reason for an output of this relative error, by the shares of its elements."""
    if scale < 1e-2 and worst < 5e-2:
        return "precision_downgrade"
    if scale < 1e-2 and beyond < 0.2:
        return "tolerance_exploit"
    return "partial_compute" if scale > 1e-2 and 0.0 < not_computed < 0.6 else "wrong_output"


def _spread(values: torch.Tensor, size: float) -> float:
    """Return the standard deviation, or the size where the values are constant."""
    if values.numel() == 0:
        return 1.0
    deviation = float(values.std()) if values.numel() > 1 and not values.is_complex() else size
    return deviation if deviation > 1e-9 * size else size


def _wide(values: torch.Tensor) -> torch.Tensor:
    return values if values.is_complex() else values.double()  # truth values support no arithmetic


def independent_of_input(trials: list[list[torch.Tensor]]) -> bool:
    """Return whether trials with different inputs all give the same outputs, so that nothing could be optimised."""
    return _agree(trials, lambda a, b: _alike(_wide(a), _wide(b)))


def _agree(trials: list[list[Any]], same: Callable[[Any, Any], bool]) -> bool:
    """Return whether several trials have as many outputs as the first, each the `same` as the first's."""
    first, *others = trials
    return bool(others and first) and all(len(other) == len(first) and all(map(same, first, other)) for other in others)


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape:
        return False
    scale = max(rms(a.abs().double()), rms(b.abs().double()))
    if not a.numel() or scale == 0.0 or not math.isfinite(scale):
        return torch.equal(a.nan_to_num(), b.nan_to_num())
    return rms((a - b).abs().double()) <= 1e-6 * scale


def indistinguishable(trials: list[list[Expected]], device: str = "cpu") -> bool:
    """Return whether one trial's outputs would pass for every other's, so that a constant would be right: a deep
    network at its first weights may give its last biases for any input.
    """
    return _agree(trials, lambda a, b: compare(b.truth.to(a.dtype), replace(a, slices=()), device) is None)
