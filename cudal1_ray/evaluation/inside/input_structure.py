"""What all inputs of a problem have in common: a solution may rely on it, so no variation of them may break it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import Any

import torch

from cudal1_ray.evaluation.inside.input_kinds import is_mask
from cudal1_ray.evaluation.inside.places import map_tensors, tensors_in

# Share of a tensor's elements that are the same in two draws, and in all. (One of 96 numbers is a hundredth.)
_ALIKE, _MOST_ALIKE = 0.005, 0.02
# Further draws, which distinguish what always holds from what often holds.
_DRAWS = 8
# Most whole numbers that are sorted to find duplicates.
_MOST_SORTED = 1 << 24
# Most deviation from 1 of the sum of shares, and of a unit vector's length.
_SUM = 1e-3

Property = Callable[[torch.Tensor], bool]


@dataclass(frozen=True)
class Common:
    """What all draws of one tensor have in common.

    Attributes:
        properties: hold for every draw.
        still: the values stay as the problem draws them (zeros and ones, one-hot rows, row pointers, permutations, unit
            vectors).
        bounds: whole numbers that mark where something else ends, or number all of it, so that sizes depend on them.
    """

    properties: tuple[Property, ...] = ()
    still: bool = False
    bounds: bool = False


class InputStructure:
    """What all draws of a problem's inputs have in common, tensor by tensor, and which tensors never exceed which.

    Attributes:
        still: numbers of the tensors that stay as the problem draws them.
    """

    def __init__(self, draws: list[list[torch.Tensor]], alike: float = _ALIKE) -> None:
        self._shapes = [tensor.shape for tensor in draws[0]]
        self._pairs = _ordered_pairs(draws)
        apart = {number for pair in self._pairs for number in pair}
        sizes = {size for shape in self._shapes for size in shape}
        tensors = enumerate(zip(*draws, strict=True))
        self._tensors = [_common(list(of_all), number in apart, sizes, alike) for number, of_all in tensors]
        self.still = [number for number, common in enumerate(self._tensors) if common.still]

    def __bool__(self) -> bool:
        return bool(self._pairs or self.still or any(common.properties for common in self._tensors))

    def restored(self, inputs: list[Any], own: list[Any], *, timed: bool) -> list[Any] | None:
        """Return `inputs`, made out of the draw `own`, with that draw's tensor in place of each that is `still` or has
        lost a property; None where sizes do not allow that. `timed`: as for timed calls, in which only `still` tensors
        are the draw's; None where others lose a property, or where nothing is new.
        """
        before, after = tensors_in(own), tensors_in(inputs)
        if any(common.bounds for common in self._tensors) and [tensor.shape for tensor in after] != self._shapes:
            return None
        for number in self.still:
            free = is_mask(before[number]) and _is_binary(after[number])
            if not free and after[number].shape == before[number].shape:
                after[number] = before[number]
        lost = self._lost(after)
        cut = any(after[number].shape != before[number].shape for number in lost)
        if lost and (timed or cut or self._lost(before)) or timed and all(map(is_, after, before)):
            return None
        rest = (before[number] if number in lost else tensor for number, tensor in enumerate(after))
        return map_tensors(inputs, lambda _: next(rest))

    def _lost(self, tensors: list[torch.Tensor]) -> set[int]:
        """Return the numbers of the tensors that lack a property that all draws have."""
        both = enumerate(zip(self._tensors, tensors, strict=True))
        without = {number for number, (common, tensor) in both if not all(holds(tensor) for holds in common.properties)}
        return without.union(*(pair for pair in self._pairs if not _never_above(*(tensors[number] for number in pair))))


def structure_of_inputs(first: list[Any], second: list[Any], another: Callable[[int], Any]) -> InputStructure | None:
    """Return what two draws and, if these have something in common, further ones of `another` share. Floats that are
    the same in all draws share only what their values show: they are varied to see whether code reads them.
    """
    draws = [tensors_in(first), tensors_in(second)]
    shapes = [tensor.shape for tensor in draws[0]]
    if [tensor.shape for tensor in draws[1]] != shapes or not InputStructure(draws):
        return None
    more = (tensors_in(another(number)) for number in range(_DRAWS))
    draws += [drawn for drawn in more if [tensor.shape for tensor in drawn] == shapes]
    return InputStructure(draws, _MOST_ALIKE) or None


def _common(draws: list[torch.Tensor], apart: bool, sizes: set[int], alike: float) -> Common:
    """Return what all draws of a tensor have in common; `apart`: it never exceeds, or is never below, another one."""
    first = draws[0]
    if first.numel() < 2 or first.is_complex():
        return Common()
    if first.is_floating_point() and first.element_size() < 2:
        return Common(still=True)
    same = torch.ones_like(first, dtype=torch.bool)
    for other in draws[1:]:
        same &= first == other
    uniform, truths = _all(draws, _is_uniform), first.dtype is torch.bool
    order = tuple(holds for holds in (_rises, _falls) if not truths and _all(draws, holds))
    if not first.is_floating_point():
        numbers = not truths and not uniform and 3 < first.numel() <= _MOST_SORTED
        distinct = bool(order) or numbers and _all(draws, _is_distinct)
        bounds = distinct and all({int(draw.max()), int(draw.max()) + 1} & sizes for draw in draws)
        return Common(order, distinct or apart or bool(same.all()) and not uniform, bounds)
    if _all(draws, _is_whole) and any(bool(draw.any()) for draw in draws):
        return Common(order, still=True)
    properties = order + tuple(holds for holds in (_is_uniform, _sums_to_one) if _all(draws, holds))
    if not properties and first.dim() > 1 and _all(draws, _is_unit):
        return Common(still=True)
    constant = int(same.sum())
    if constant < first.numel():
        properties += tuple(holds for holds in (_is_symmetric, _is_definite) if all(map(holds, draws)))
        if constant > alike * first.numel():
            properties += (partial(_keeps, first, same),)
    return Common(properties)


def _all(draws: list[torch.Tensor], holds: Property) -> bool:
    """Return whether a property holds for all draws; first rows are checked first, which excludes most draws."""
    return all(holds(draw[(0,) * (draw.dim() - 1)]) for draw in draws) and all(map(holds, draws))


def _ordered_pairs(draws: list[list[torch.Tensor]]) -> list[tuple[int, int]]:
    """Return pairs of the numbers of tensors of which the first never exceeds the second, as lower and upper bounds."""

    def comparable(tensor: torch.Tensor) -> bool:
        return not (tensor.dtype is torch.bool or tensor.is_complex() or tensor.element_size() < 2 or is_mask(tensor))

    return [
        (a, b)
        for a, low in enumerate(draws[0])
        for b, high in enumerate(draws[0])
        if a != b and low.shape == high.shape and low.dtype == high.dtype and comparable(low) and comparable(high)
        if all(_never_above(draw[a], draw[b]) for draw in draws)
        if not all(torch.equal(draw[a], draw[b]) for draw in draws)
    ]


def _never_above(low: torch.Tensor, high: torch.Tensor) -> bool:
    return bool((low <= high).all())


def _keeps(first: torch.Tensor, same: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Return whether a tensor, maybe cut, keeps the elements that are the `same` in all draws: a triangle's zeros."""
    rows = len(tensor)
    return rows <= len(first) and torch.equal(tensor[same[:rows]], first[:rows][same[:rows]])


def _is_binary(tensor: torch.Tensor) -> bool:
    """Return whether the tensor holds only zeros and ones."""
    return bool(((tensor == 0) | (tensor == 1)).all())


def _is_whole(tensor: torch.Tensor) -> bool:
    """Return whether the floats are whole numbers: masks of 0 and 1, signs, one-hot rows, counts."""
    return bool((tensor == tensor.round()).all()) and bool(tensor.isfinite().all())


def _is_uniform(tensor: torch.Tensor) -> bool:
    return bool((tensor == tensor.reshape(-1)[0]).all())


def _sums_to_one(tensor: torch.Tensor) -> bool:
    sums = tensor.sum(-1, dtype=torch.float32)
    return tensor.shape[-1] > 1 and bool((tensor >= 0).all()) and bool(((sums - 1).abs() < _SUM).all())


def _is_unit(tensor: torch.Tensor) -> bool:
    lengths = torch.linalg.vector_norm(tensor, dim=-1, dtype=torch.promote_types(tensor.dtype, torch.float32))
    return tensor.shape[-1] > 1 and bool(((lengths - 1).abs() < _SUM).all())


def _rises(tensor: torch.Tensor) -> bool:
    """Return whether the tensor is sorted upwards along the last axis, and not the same throughout."""
    before, after = tensor[..., :-1], tensor[..., 1:]
    return bool((before <= after).all()) and bool((before < after).any())


def _falls(tensor: torch.Tensor) -> bool:
    return _rises(tensor.flip(-1))


def _is_distinct(tensor: torch.Tensor) -> bool:
    """Return whether no number occurs twice along the last axis, as in a permutation."""
    return tensor.shape[-1] > 1 and bool((tensor.sort(dim=-1).values.diff(dim=-1) != 0).all())


def _is_symmetric(tensor: torch.Tensor) -> bool:
    return tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] and torch.equal(tensor, tensor.mT)


def _is_definite(tensor: torch.Tensor) -> bool:
    """Return whether the tensor is symmetric, and positive definite."""
    wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    return _is_symmetric(tensor) and bool((torch.linalg.cholesky_ex(wide)[1] == 0).all())
