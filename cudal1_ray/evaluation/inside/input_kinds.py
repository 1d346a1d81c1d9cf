"""Inputs of other kinds than the problem's own: where those would hide what a candidate leaves out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cudal1_ray.evaluation.inside.places import map_tensors, tensors_in

_FEW = 64  # outputs of which each may be a mean of thousands, in which rounding errors cancel
_SCALE, _SHIFT = 2.5, 0.75
# Magnified inputs are beyond the range of half precision, and far within that of single.
_SCALES_AND_SHIFTS = {
    "scaled": (_SCALE, 0.0), "magnified": (2.0**20, 0.0), "negated": (-1.0, 0.0),
    "lowered": (1.0, -_SHIFT), "raised": (1.0, _SHIFT),
}  # fmt: skip
_FAINT = 1e-6  # of the largest output: smaller ones cannot be told from zero
_NUDGE = 2.0**-23  # by which any two ways to calculate may round an input apart
_MOST_ROUNDING = 1e-3  # of an output's size: right ways to calculate it differ by a hundredth of what nudges change


def varied(inputs: list[Any], kind: str, seed: int, another: Callable[[], Any]) -> list[Any] | None:
    """Return the inputs of another distribution or batch size. Whole numbers and truth values that are not all the same
    keep theirs. None where there is nothing that could vary so. `another`: draws a second set.
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
    """Return every tensor of the leading size b, cut to a smaller one; None where there is nothing to cut.
    `most_bytes`: all inputs together are to be no larger than that.
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
    """Return every tensor of the leading size b, with a third of another set's behind it; None where there is none, or
    where the sets differ in shape.
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
    """Return whether all outputs may be means of many numbers, or products too close to zero to be missed."""
    sizes = [values.abs() for values in outputs if _can_be_calculated_with(values) and values.numel()]
    return bool(sizes) and (
        are_few(outputs) or any(float((values < _FAINT * values.max()).float().mean()) > 0.5 for values in sizes)
    )


def are_few(outputs: list[torch.Tensor]) -> bool:
    """Return whether each output may be what is left of thousands of numbers."""
    sizes = [output.numel() for output in outputs if output.is_floating_point()]
    return bool(sizes) and max(sizes) <= _FEW


def nudged(inputs: list[Any]) -> list[Any]:
    """Return, in double precision, every other tensor's numbers larger by a rounding error and the rest's smaller,
    which changes what cancels.
    """
    sign = -1.0

    def nudge(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal sign
        if not tensor.is_floating_point():
            return tensor
        sign = -sign
        return tensor.double() * (1 + sign * _NUDGE)

    return map_tensors(inputs, nudge)


def is_mostly_rounding(of_nudged: list[torch.Tensor], outputs: list[torch.Tensor]) -> bool:
    """Return whether nudges changed an output by more than its tolerance could bear."""
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
    no mean hides it. A quarter is negative, and a long product of them is neither zero nor infinity.
    """
    if tensor.element_size() < 4 or not tensor.numel():
        return tensor
    noise, which, sign = torch.rand(3, tensor.numel(), generator=generator).view(3, *tensor.shape)
    above = 1 + 2**-8 - 2**-11 - 2**-12 * noise
    below = 1 - 2**-9 + 2**-11 + 2**-14 + 2**-13 * noise
    size = torch.where(which < 0.5, above, below)
    return torch.where(sign < 0.25, -size, size).to(tensor)


def _one_row(inputs: list[Any], kind: str, generator: torch.Generator) -> list[Any] | None:
    """Return inputs of which one row is scaled, lowered and sparse; `one_row_scaled`: not lowered;
    `one_row_sparse`: nor scaled. It is the same of all tensors of one length, and neither the first nor the last: a
    short cut for what the first row, or a sample of rows, is like is wrong about it. None where nothing changes.
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
    """Return whether a mask lets all (or, of truth values, nothing) through: code that ignores it seems right."""
    if tensor.numel() < 2 or not (tensor.dtype is torch.bool or _can_be_calculated_with(tensor)):
        return False
    return bool(tensor.all() == tensor.any()) if tensor.dtype is torch.bool else bool((tensor == 1).all())


def _can_be_calculated_with(tensor: torch.Tensor) -> bool:
    """Return whether the tensor is of floats of more than 8 bits."""
    return tensor.is_floating_point() and tensor.element_size() > 1


def _counts_everything(tensor: torch.Tensor) -> bool:
    """Return whether a tensor may hold lengths that all reach to the end: code that ignores them seems right."""
    whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)
    return whole and tensor.numel() > 1 and int(tensor.min()) == int(tensor.max()) > 1


def _coins(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return truth values of the tensor's shape, on its device, half of them true."""
    return torch.rand(tensor.shape, generator=generator).to(tensor.device) < 0.5


def _mixed(inputs: list[Any], others: list[Any], kind: str, generator: torch.Generator) -> list[Any] | None:
    """Return two sets in one, as those of timed calls are; None where there is no float, or shapes differ."""
    first, second = tensors_in(inputs), tensors_in(others)
    if [t.shape for t in first] != [t.shape for t in second] or not any(t.is_floating_point() for t in first):
        return None
    rest = iter(second)

    def mix(tensor: torch.Tensor) -> torch.Tensor:
        both = [tensor, next(rest)]
        if kind == "mixed" or (kind == "mixed_floats" and tensor.is_floating_point()):
            both = [_rotate(drawn, generator) for drawn in both]
        calculable = tensor.dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
        return torch.lerp(*both, 0.4) if calculable else both[0]

    return map_tensors(inputs, mix)
