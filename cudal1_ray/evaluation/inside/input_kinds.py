"""Input distributions other than the problem's own, which may hide what a candidate leaves out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cudal1_ray.evaluation.inside.places import map_tensors, tensors_in

# Most outputs that may each be a mean of thousands of numbers, in which rounding errors cancel.
_FEW = 64
_SCALE, _SHIFT = 2.5, 0.75
# Magnified inputs are beyond the range of half precision, and far within that of single.
_SCALES_AND_SHIFTS = {
    "scaled": (_SCALE, 0.0), "magnified": (2.0**20, 0.0), "negated": (-1.0, 0.0),
    "lowered": (1.0, -_SHIFT), "raised": (1.0, _SHIFT),
}  # fmt: skip
# Share of the largest output below which outputs cannot be distinguished from zero.
_FAINT = 1e-6
# Relative change by which any two ways to calculate may round an input apart.
_NUDGE = 2.0**-23
# Most change by nudges, as a share of an output's size; correct ways to calculate differ by a hundredth of it.
_MOST_ROUNDING = 1e-3


def varied(inputs: list[Any], kind: str, seed: int, another: Callable[[], Any]) -> list[Any] | None:
    """Return inputs of another distribution or batch size; None where nothing can vary so. Whole numbers and truth
    values that are not all the same keep theirs. `another`: draws a second set.
    """
    generator = torch.Generator().manual_seed(seed)
    if kind.startswith("mixed"):
        return _mixed(inputs, list(another()), kind, generator)
    if kind.startswith("one_row"):
        return _one_row(inputs, kind, generator)
    if kind == "batch":
        return smaller_batch(inputs)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if kind == "sparse" and is_mask(tensor):
            return _coins(tensor, generator).to(tensor.dtype)
        if kind == "sparse" and _counts_everything(tensor):
            drawn = torch.rand(tensor.shape, generator=generator).to(tensor.device)
            return (1 + drawn * tensor).to(tensor.dtype).minimum(tensor)
        if not _can_be_calculated_with(tensor):
            return tensor
        if kind == "coherent":
            return _coherent(tensor, generator)
        if kind.startswith("sparse"):
            return tensor * _coins(tensor, generator).to(tensor)
        scale, shift = _SCALES_AND_SHIFTS.get(kind, (1.0, 0.0))
        return tensor if (scale, shift) == (1.0, 0.0) else tensor * scale + shift

    return map_tensors(inputs, change)


def smaller_batch(inputs: list[Any], most_bytes: int = 0) -> list[Any] | None:
    """Return the inputs with the batch size, the first float's leading size, reduced in every tensor that has it; None
    where it cannot be. `most_bytes`: the limit of all inputs together, 0 = none.
    """
    tensors = tensors_in(inputs)
    sizes = [t.shape[0] for t in tensors if t.dim() >= 1 and t.is_floating_point()]
    if not sizes or sizes[0] < 2:
        return None
    size = sizes[0]
    smaller = max(1, size - 1 - size // 3)
    if most_bytes:
        smaller = max(1, min(smaller, size * most_bytes // sum(t.nbytes for t in tensors_in(inputs))))
    return map_tensors(inputs, lambda t: t[:smaller].clone() if t.dim() >= 1 and t.shape[0] == size else t)


def larger_batch(inputs: list[Any], others: list[Any]) -> list[Any] | None:
    """Return the inputs with a third of another set's batch behind each tensor of the batch size; None where there is
    no batch, or where the sets differ in shape.
    """
    first, second = tensors_in(inputs), tensors_in(others)
    sizes = [t.shape[0] for t in first if t.dim() >= 1 and t.is_floating_point()]
    if not sizes or [t.shape for t in first] != [t.shape for t in second]:
        return None
    size, rest = sizes[0], iter(second)

    def more(tensor: torch.Tensor) -> torch.Tensor:
        other = next(rest)
        return torch.cat([tensor, other[: 1 + size // 3]]) if tensor.dim() >= 1 and tensor.shape[0] == size else tensor

    return map_tensors(inputs, more)


def hides_errors(outputs: list[torch.Tensor]) -> bool:
    """Return whether each output may be a mean of many numbers, or most of a tensor's are too close to zero."""
    sizes = [values.abs() for values in outputs if _can_be_calculated_with(values) and values.numel()]
    return bool(sizes) and (
        are_few(outputs) or any(float((values < _FAINT * values.max()).float().mean()) > 0.5 for values in sizes)
    )


def are_few(outputs: list[torch.Tensor]) -> bool:
    """Return whether each output may be a reduction of thousands of numbers."""
    sizes = [output.numel() for output in outputs if output.is_floating_point()]
    return bool(sizes) and max(sizes) <= _FEW


def nudged(inputs: list[Any]) -> list[Any]:
    """Return inputs in double precision, in turn raised and lowered by a rounding error, to change what cancels."""
    sign = -1.0

    def nudge(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal sign
        if not tensor.is_floating_point():
            return tensor
        sign = -sign
        return tensor.double() * (1 + sign * _NUDGE)

    return map_tensors(inputs, nudge)


def is_mostly_rounding(of_nudged: list[torch.Tensor], outputs: list[torch.Tensor]) -> bool:
    """Return whether nudges changed an output by more than `_MOST_ROUNDING` of the largest one."""
    both = zip(of_nudged, outputs, strict=True)
    return any(bool(((a - b).abs() > _MOST_ROUNDING * b.abs().max()).any()) for a, b in both if b.is_floating_point())


def _rotate(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if tensor.numel() < 2:
        return tensor
    shift = int(torch.randint(1, tensor.numel(), (1,), generator=generator))
    return tensor.reshape(-1).roll(shift).reshape(tensor.shape)


def _coherent(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return numbers of about one size, on both sides of a power of two, that coarser formats round in the same
    direction: bfloat16 to that power, by 2**-8 and 2**-9, float16 and TF32 towards zero, by up to 2**-11 and 2**-12. So
    no mean hides the rounding. A quarter is negative, and a long product of them is neither zero nor infinite.
    """
    if tensor.element_size() < 4 or not tensor.numel():
        return tensor
    noise, which, sign = torch.rand(3, tensor.numel(), generator=generator).view(3, *tensor.shape)
    above = 1 + 2**-8 - 2**-11 - 2**-12 * noise
    below = 1 - 2**-9 + 2**-11 + 2**-14 + 2**-13 * noise
    size = torch.where(which < 0.5, above, below)
    return torch.where(sign < 0.25, -size, size).to(tensor)


def _one_row(inputs: list[Any], kind: str, generator: torch.Generator) -> list[Any] | None:
    """Return inputs with one row scaled, lowered and sparse (`one_row_scaled`: not lowered; `one_row_sparse`: nor
    scaled); None where nothing changes. The row is the same in all tensors of one length, and neither the first nor the
    last: a shortcut that infers it from the first row, or from a sample of rows, is wrong about it.
    """
    rows: dict[int, int] = {}
    changed = []

    def change(tensor: torch.Tensor) -> torch.Tensor:
        length = tensor.shape[0] if tensor.dim() else 0
        binary = is_mask(tensor)
        if length < 3 or not (binary or _can_be_calculated_with(tensor)):
            return tensor
        if length not in rows:
            rows[length] = int(torch.randint(1, length - 1, (1,), generator=generator))
        result, row = tensor.clone(), rows[length]
        if binary:
            result[row] = _coins(result[row], generator).to(tensor.dtype)
        else:
            if kind != "one_row_sparse":
                result[row] = _SCALE * result[row] - (_SHIFT if kind == "one_row" else 0.0)
            result[row] *= _coins(result[row], generator).to(result)
        changed.append(result)
        return result

    result = map_tensors(inputs, change)
    return result if changed else None


def is_mask(tensor: torch.Tensor) -> bool:
    """Return whether a mask lets all (or, as truth values, nothing) through: code that ignores it seems right."""
    if tensor.numel() < 2 or not (tensor.dtype is torch.bool or _can_be_calculated_with(tensor)):
        return False
    return bool(tensor.all() == tensor.any()) if tensor.dtype is torch.bool else bool((tensor == 1).all())


def _can_be_calculated_with(tensor: torch.Tensor) -> bool:
    """Return whether the tensor holds floats of more than 8 bits."""
    return tensor.is_floating_point() and tensor.element_size() > 1


def _counts_everything(tensor: torch.Tensor) -> bool:
    """Return whether a tensor may hold lengths that all reach the end: code that ignores them seems right."""
    whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)
    return whole and tensor.numel() > 1 and int(tensor.min()) == int(tensor.max()) > 1


def _coins(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return truth values of the tensor's shape, on its device, half of them true."""
    return torch.rand(tensor.shape, generator=generator).to(tensor.device) < 0.5


def _mixed(inputs: list[Any], others: list[Any], kind: str, generator: torch.Generator) -> list[Any] | None:
    """Return two sets mixed as those of timed calls are; None where there is no float, or shapes differ."""
    first, second = tensors_in(inputs), tensors_in(others)
    if [t.shape for t in first] != [t.shape for t in second] or not any(t.is_floating_point() for t in first):
        return None
    rest = iter(second)

    def mix(tensor: torch.Tensor) -> torch.Tensor:
        both = [tensor, next(rest)]
        if kind == "mixed" or (kind == "mixed_floats" and tensor.is_floating_point()):
            both = [_rotate(drawn, generator) for drawn in both]
        return torch.lerp(*both, 0.4) if _can_be_calculated_with(tensor) else both[0]

    return map_tensors(inputs, mix)
