"""What all inputs of a problem have in common: it may be solved by that, so no variation of them may break it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .input_kinds import MOVING, ORDERED, is_mask
from .places import map_tensors, tensors_in

# Share of a tensor's elements that are the same in two draws, and in all. (Of 96 numbers one is a hundredth.)
_ALIKE, _MOST_ALIKE = 0.005, 0.02
_DRAWS = 8  # further ones, to tell what is always so from what often is
_MOST_SORTED = 1 << 24  # whole numbers that are sorted to see whether one comes twice
_SUM = 1e-3  # by which rows of shares may miss 1, and rows of unit length theirs


@dataclass(frozen=True)
class Structure:
    """What all draws of one tensor have in common.

    ``kept``: where elements are always the same, as the zeros of a triangular matrix. ``still``: its values are whole
    as the problem draws them (zeros and ones, one-hot rows, row pointers, permutations, unit vectors). ``shares``: rows
    that sum to 1. ``ordered``: sorted, or on one side of another tensor. ``uniform``: all elements are one number.
    ``bounds``: whole numbers that say where something else ends, or number all of it, so sizes belong to them.
    """

    kept: torch.Tensor | None = None
    symmetric: bool = False
    still: bool = False
    shares: bool = False
    ordered: bool = False
    uniform: bool = False
    bounds: bool = False

    def __bool__(self) -> bool:
        return self.kept is not None or self.symmetric or self.still or self.shares or self.ordered or self.uniform

    @property
    def turns(self) -> bool:
        """May its elements change places, or are they left as they are anyway?"""
        return self.kept is None and not (self.symmetric or self.shares or self.ordered)

    @property
    def grows(self) -> bool:
        """May another draw's rows follow it?"""
        return self.kept is None and not (self.symmetric or self.ordered or self.bounds)

    def restore(self, tensor: torch.Tensor, own: torch.Tensor, kind: str) -> torch.Tensor:
        """``tensor`` made out of ``own``, a draw or the beginning of one, with the structure that it lost."""
        if self.still and not (is_mask(own) and is_binary(tensor)):
            return own
        if self.shares and kind not in ("mixed", "mixed_in_place"):
            return own
        if self.ordered and kind not in ORDERED or self.uniform and kind not in (*ORDERED, *MOVING):
            return own
        if self.kept is not None and tensor.shape == own.shape:
            tensor = torch.where(self.kept[: len(tensor)].to(tensor.device), own, tensor)
        return torch.triu(tensor) + torch.triu(tensor, 1).mT if self.symmetric and _square(tensor) else tensor


def structure_of_inputs(first: list[Any], second: list[Any], another: Callable[[int], Any]) -> list[Structure]:
    """Of each tensor, in two draws and, where these have something in common, ``another`` ones. Empty where there is
    nothing. Floats that are the same as a whole have only what their values show: they are varied to see whether they
    are looked at.
    """
    draws = [tensors_in(first), tensors_in(second)]
    if [t.shape for t in draws[0]] != [t.shape for t in draws[1]]:
        return []
    if not any(_structures(draws)):
        return []
    for number in range(_DRAWS):
        drawn = tensors_in(another(number))
        if [t.shape for t in drawn] == [t.shape for t in draws[0]]:
            draws.append(drawn)
    found = _structures(draws, _MOST_ALIKE)
    return found if any(found) else []


def _structures(draws: list[list[torch.Tensor]], alike: float = _ALIKE) -> list[Structure]:
    tensors = list(zip(*draws, strict=True))
    sizes = {size for tensor in draws[0] for size in tensor.shape}
    ordered = _apart(draws)
    return [_structure(list(one), number in ordered, sizes, alike) for number, one in enumerate(tensors)]


def _structure(draws: list[torch.Tensor], apart: bool, sizes: set[int], alike: float) -> Structure:
    """``apart``: on one side of another tensor."""
    one = draws[0]
    if one.numel() < 2 or one.is_complex():
        return Structure(ordered=apart and one.is_floating_point())
    same = torch.ones_like(one, dtype=torch.bool)
    for other in draws[1:]:
        same &= one == other
    uniform = _all(draws, _is_uniform)
    if not one.is_floating_point():
        numbers = one.dtype is not torch.bool and not uniform
        rising = numbers and _all(draws, _is_sorted)
        distinct = numbers and 3 < one.numel() <= _MOST_SORTED and _all(draws, _is_distinct)
        bounds = (rising or distinct) and all({int(draw.max()), int(draw.max()) + 1} & sizes for draw in draws)
        return Structure(still=rising or distinct or apart or bool(same.all()) and not uniform, bounds=bounds)
    if one.element_size() < 2:
        return Structure(still=True)
    if _all(draws, _is_whole) and not (uniform and not any(draw.any() for draw in draws)):
        return Structure(still=True)
    if uniform:
        return Structure(uniform=True, ordered=apart)
    if one.shape[-1] > 1 and _all(draws, _sums_to_one):
        return Structure(shares=True)
    if one.dim() > 1 and one.shape[-1] > 1 and _all(draws, _is_unit):
        return Structure(still=True)
    known = int(same.sum())
    kept = same if alike * one.numel() < known < one.numel() else None
    symmetric = known < one.numel() and all(map(_symmetric, draws))
    return Structure(kept, symmetric, ordered=apart or _all(draws, _is_sorted))


def _all(draws: list[torch.Tensor], holds: Callable[[torch.Tensor], bool]) -> bool:
    """Of all draws, what holds of a whole tensor only if it holds of its first row, where most others are found out."""
    rows = [draw[(0,) * (draw.dim() - 1)] if draw.dim() else draw for draw in draws]
    return all(map(holds, rows)) and all(map(holds, draws))


def _apart(draws: list[list[torch.Tensor]]) -> set[int]:
    """Numbers of tensors of which one is nowhere above the other, in every draw, as lower and upper bounds are."""
    found: set[int] = set()
    first = draws[0]
    for a in range(len(first)):
        for b in range(a + 1, len(first)):
            alike = first[a].shape == first[b].shape and first[a].dtype == first[b].dtype
            calculable = first[a].dtype is not torch.bool and not first[a].is_complex() and first[a].element_size() > 1
            if not alike or not calculable or is_mask(first[a]) or is_mask(first[b]):
                continue
            below = all(bool((draw[a] <= draw[b]).all()) for draw in draws)
            above = all(bool((draw[a] >= draw[b]).all()) for draw in draws)
            if (below or above) and not all(torch.equal(draw[a], draw[b]) for draw in draws):
                found |= {a, b}
    return found


def with_structure(inputs: list[Any], own: list[Any], structure: list[Structure], kind: str) -> list[Any]:
    """``inputs`` of ``kind``, which were made out of ``own``, with all of `structure_of`."""
    known = zip(structure, tensors_in(own), strict=True)

    def restore(tensor: torch.Tensor) -> torch.Tensor:
        one, before = next(known)
        return one.restore(tensor, before, kind)

    return map_tensors(inputs, restore)


def no_longer_definite(inputs: list[Any], own: list[Any], structure: list[Structure]) -> bool:
    """Is a symmetric matrix of ``own`` positive definite, and what was made of it not?"""
    return any(
        one.symmetric and _definite(before) and not _definite(after)
        for one, after, before in zip(structure, tensors_in(inputs), tensors_in(own), strict=True)
    )


def is_binary(tensor: torch.Tensor) -> bool:
    """Only zeros and ones?"""
    return bool(((tensor == 0) | (tensor == 1)).all())


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whole numbers in floating point: masks of 0 and 1, signs, one-hot rows, counts."""
    return bool((tensor == tensor.round()).all()) and bool(tensor.isfinite().all())


def _is_uniform(tensor: torch.Tensor) -> bool:
    return bool((tensor == tensor.reshape(-1)[0]).all())


def _sums_to_one(tensor: torch.Tensor) -> bool:
    sums = tensor.sum(-1, dtype=torch.float32)
    return bool((tensor >= 0).all()) and bool(((sums - 1).abs() < _SUM).all())


def _is_unit(tensor: torch.Tensor) -> bool:
    lengths = torch.linalg.vector_norm(tensor, dim=-1, dtype=torch.promote_types(tensor.dtype, torch.float32))
    return bool(((lengths - 1).abs() < _SUM).all())


def _is_sorted(tensor: torch.Tensor) -> bool:
    """Along the last axis, upwards or downwards."""
    if tensor.shape[-1] < 2:
        return False
    steps = tensor.diff(dim=-1)
    return bool((steps >= 0).all() or (steps <= 0).all())


def _is_distinct(tensor: torch.Tensor) -> bool:
    """No number twice along the last axis, as in a permutation."""
    return tensor.shape[-1] > 1 and bool((tensor.sort(dim=-1).values.diff(dim=-1) != 0).all())


def _definite(tensor: torch.Tensor) -> bool:
    return _square(tensor) and bool((torch.linalg.cholesky_ex(tensor)[1] == 0).all())


def _symmetric(tensor: torch.Tensor) -> bool:
    return _square(tensor) and torch.equal(tensor, tensor.mT)


def _square(tensor: torch.Tensor) -> bool:
    return tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2]
