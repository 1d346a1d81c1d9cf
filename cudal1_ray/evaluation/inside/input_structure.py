"""What all inputs of a problem have in common: a solution may rely on it, so no variation of them may break it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement, permutations
from operator import is_
from typing import Any

import torch

from cudal1_ray.evaluation.inside.equality import finite
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
# Most difference between numbers that are the same except for rounding, as a share of the largest.
_ROUNDING = 1e-5
# Most different values of codes, as floats: as many as four bits have. A tensor has at least eight elements for each.
_CODES, _OF_EACH_CODE = 16, 8
# Most columns of boxes (three centres, sizes, an angle and a score), and fewest rows by which their order shows.
_COLUMNS, _ROWS = 8, 8

Property = Callable[[torch.Tensor], bool]


@dataclass(frozen=True)
class Common:
    """What all draws of one tensor have in common.

    Attributes:
        properties: hold for every draw.
        still: the values stay as the problem draws them (zeros and ones, one-hot rows, row pointers, permutations, unit
            vectors, codes, padding).
        bounds: whole numbers that mark where something else ends, or number all of it, so that sizes depend on them.
        in_place: its elements must not change places, nor those of two draws meet in one tensor.
    """

    properties: tuple[Property, ...] = ()
    still: bool = False
    bounds: bool = False
    in_place: bool = False


class InputStructure:
    """What all draws of a problem's inputs have in common, tensor by tensor, and which tensors never exceed which.

    Attributes:
        still: numbers of the tensors that stay as the problem draws them.
    """

    def __init__(self, draws: list[list[torch.Tensor]], alike: float = _ALIKE) -> None:
        self._shapes = [tensor.shape for tensor in draws[0]]
        self._pairs = _ordered_pairs(draws)
        apart = {number for pair in (*self._pairs, *_counting_pairs(draws)) for number in pair}
        sizes = {size for shape in self._shapes for size in shape}
        tensors = enumerate(zip(*draws, strict=True))
        self._tensors = [_common(list(of_all), number in apart, sizes, alike) for number, of_all in tensors]
        self.still = [number for number, common in enumerate(self._tensors) if common.still]

    def __bool__(self) -> bool:
        return bool(self._pairs or self.still or any(common.properties for common in self._tensors))

    def restored(self, inputs: list[Any], own: list[Any], mixed: str = "") -> list[Any] | None:
        """Return `inputs`, made out of the draw `own`, with that draw's tensor in place of each that is `still` or has
        lost a property; None where sizes do not allow that. `mixed`: the way in which timed calls mix two draws, in
        which only `still` tensors are the draw's; None where others lose a property, or where nothing is new.
        """
        before, after = tensors_in(own), tensors_in(inputs)
        if mixed and not finite([before[number] for number in self.still]):
            return None  # infinities cannot be mixed with themselves
        if mixed not in ("", "mixed_in_place") and any(common.in_place for common in self._tensors):
            return None
        if any(common.bounds for common in self._tensors) and [tensor.shape for tensor in after] != self._shapes:
            return None
        for number in self.still:
            free = is_mask(before[number]) and _is_binary(after[number])
            if not free and after[number].shape == before[number].shape:
                after[number] = before[number]
        lost = self._lost(after)
        cut = any(after[number].shape != before[number].shape for number in lost)
        if lost and (mixed or cut or self._lost(before)) or mixed and all(map(is_, after, before)):
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
    """Return what all draws of a tensor have in common; `apart`: another tensor bounds it, is bounded by it, counts its
    elements or is counted by it.
    """
    first = draws[0]
    if first.numel() < 2 or first.is_complex():
        return Common()
    if first.is_floating_point() and first.element_size() < 2:
        return Common(still=True)
    same = torch.ones_like(first, dtype=torch.bool)
    for other in draws[1:]:
        same &= first == other
    constant = int(same.sum())
    uniform, properties = _all(draws, _is_uniform), _orders(draws)
    properties += () if first.dtype is torch.bool else _orders_of_slices(draws)
    if not first.is_floating_point():
        truths = first.dtype is torch.bool
        ordered = bool(properties) and not truths
        numbers = not truths and not uniform and 3 < first.numel() <= _MOST_SORTED
        distinct = ordered or numbers and _all(draws, _is_distinct)
        properties += () if uniform else _sums(draws)
        bounds = distinct and all({int(draw.max()), int(draw.max()) + 1} & sizes for draw in draws)
        fixed = not uniform and constant == first.numel()
        apart |= not truths and _differ_in_range(draws)
        return Common(properties, bool(properties) or distinct or apart or fixed, bounds)
    if _all(draws, _is_whole) and any(bool(draw.any()) for draw in draws):
        return Common(properties, still=True)
    if constant < first.numel() and _are_codes(draws):
        return Common(properties, still=True)
    properties += _along(draws, _sums_to_one) + _along(draws, _are_logarithms_of_shares) + _ordered_columns(draws)
    properties += () if uniform else _along(draws, _repeats, together=False)
    if not properties and (units := _along(draws, _is_unit)):
        return Common(units, still=True)
    if constant < first.numel():
        properties += tuple(holds for holds in (_is_symmetric, _is_definite) if all(map(holds, draws)))
        if constant > alike * first.numel() or _whole_diagonal(same):
            properties += (partial(_keeps, first, same),)
    in_place = bool(properties) or uniform and constant < first.numel()
    return Common(properties + ((_is_uniform,) if uniform else ()), in_place=in_place)


def _along(draws: list[torch.Tensor], of_rows: Property, *, together: bool = True) -> tuple[Property, ...]:
    """Return a property of rows once for every axis, or adjacent axes `together`, along which all draws have it."""
    return tuple(partial(_holds, of_rows, axes) for axes in sorted(_axes(draws, of_rows, together=together)))


def _axes(draws: list[torch.Tensor], of_rows: Property, *, together: bool = False) -> set[tuple[int, int]]:
    """Return the axes, as the first and the last of adjacent ones, along which all draws have a property of rows."""
    together = together and all(draw.is_contiguous() for draw in draws)  # others would be copied
    spans = combinations_with_replacement(range(draws[0].dim()), 2 if together else 1)
    both = [(span[0], span[-1]) for span in spans]
    return {axes for axes in both if _all([_rows(draw, *axes) for draw in draws], of_rows)}


def _rows(tensor: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """Return the tensor with its axes from `first` to `last` as one, which lies last."""
    return tensor.flatten(first, last).movedim(first, -1)


def _holds(of_rows: Property, axes: tuple[int, int], tensor: torch.Tensor) -> bool:
    return of_rows(_rows(tensor, *axes))


def _orders(draws: list[torch.Tensor]) -> tuple[Property, ...]:
    """Return the orders that all draws have, along whichever axis; what never changes along an axis has none there."""
    rising, falling = _axes(draws, _rises), _axes(draws, _falls)
    orders = [partial(_holds, _rises, axes) for axes in sorted(rising - falling)]
    return (*orders, *(partial(_holds, _falls, axes) for axes in sorted(falling - rising)))


def _slices(tensor: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Yield the places, (axis, number), of slices along short axes: rows and columns of indices."""
    for axis, size in enumerate(tensor.shape):
        if 1 < size <= _COLUMNS and tensor.numel() >= _ROWS * size:
            yield from ((axis, number) for number in range(size))


def _orders_of_slices(draws: list[torch.Tensor]) -> tuple[Property, ...]:
    """Return the orders that all draws have in one slice: edges sorted by their ends, values beside their times."""
    places = list(_slices(draws[0]))
    return tuple(
        partial(_holds_in, holds, axis, number)
        for axis, number in places
        for holds in _orders([draw.select(axis, number) for draw in draws])
    )


def _holds_in(holds: Property, axis: int, number: int, tensor: torch.Tensor) -> bool:
    return number < tensor.shape[axis] and holds(tensor.select(axis, number))


def _differ_in_range(draws: list[torch.Tensor]) -> bool:
    """Return whether one slice along a short axis always has many numbers above another's: rows beside columns."""
    pairs = [
        ((axis, low), (axis, high))
        for (axis, low), (other, high) in permutations(_slices(draws[0]), 2)
        if axis == other
    ]
    return any(
        all(int((draw.select(*high) > draw.select(*low).max()).sum()) >= _ROWS for draw in draws) for low, high in pairs
    )


def _all(draws: list[torch.Tensor], holds: Property) -> bool:
    """Return whether a property holds for all draws; first rows are checked first, which excludes most draws."""
    return all(holds(draw[(0,) * (draw.dim() - 1)]) for draw in draws) and all(map(holds, draws))


def _ordered_pairs(draws: list[list[torch.Tensor]]) -> list[tuple[int, int]]:
    """Return pairs of the numbers of tensors of which the first never exceeds the second, as lower and upper bounds."""

    def comparable(tensor: torch.Tensor) -> bool:
        plain = not (tensor.dtype is torch.bool or tensor.is_complex() or tensor.element_size() < 2)
        return plain and tensor.numel() > 0 and not is_mask(tensor)

    return [
        (a, b)
        for a, low in enumerate(draws[0])
        for b, high in enumerate(draws[0])
        if a != b and low.dtype == high.dtype and comparable(low) and comparable(high) and _beside(low, high)
        if all(_never_above(draw[a], draw[b]) for draw in draws)
        if not all(torch.equal(draw[a], draw[b]) for draw in draws)
    ]


def _beside(low: torch.Tensor, high: torch.Tensor) -> bool:
    """Return whether shapes let one tensor bound the other, element by element, or each of its rows."""
    last = min(low.dim(), high.dim())
    rows = last > 0 and low.shape[-last:] == high.shape[-last:] and not (_is_uniform(low) or _is_uniform(high))
    return low.shape == high.shape or rows


def _counting_pairs(draws: list[torch.Tensor]) -> list[tuple[int, int]]:
    """Return pairs of the numbers of tensors of which the second is the sums of the first's rows: a mask's lengths."""
    return [
        (a, b)
        for a, rows in enumerate(draws[0])
        for b, sums in enumerate(draws[0])
        if rows.dim() and rows.shape[:-1] == sums.shape and sums.numel() > 1
        if not (rows.is_complex() or rows.is_floating_point() and rows.element_size() < 2)
        if all(torch.equal(draw[a].sum(-1).to(sums.dtype), draw[b]) for draw in draws)
    ]


def _never_above(low: torch.Tensor, high: torch.Tensor) -> bool:
    return bool((low <= high).all())


def _keeps(first: torch.Tensor, same: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Return whether a tensor, maybe cut, keeps the elements that are the `same` in all draws: a triangle's zeros. A
    matrix that was square stays square.
    """
    rows = len(tensor)
    if _is_square(first) and not _is_square(tensor):
        return False
    return rows <= len(first) and torch.equal(tensor[same[:rows]], first[:rows][same[:rows]])


def _is_binary(tensor: torch.Tensor) -> bool:
    """Return whether the tensor holds only zeros and ones."""
    return bool(((tensor == 0) | (tensor == 1)).all())


def _is_whole(tensor: torch.Tensor) -> bool:
    """Return whether the floats are whole numbers: masks of 0 and 1, or of 0 and infinity, signs, one-hot rows."""
    return bool((tensor == tensor.round()).all())


def _are_codes(draws: list[torch.Tensor]) -> bool:
    """Return whether floats are some few values, the same ones in all draws: masks, levels, smoothed labels."""
    codes = torch.unique(draws[0].reshape(-1)[: _CODES * _OF_EACH_CODE].float()).to(draws[0])
    few = 2 <= len(codes) <= min(_CODES, draws[0].numel() // _OF_EACH_CODE)
    return few and all(bool(torch.isin(draw, codes).all()) for draw in draws)


def _sums(draws: list[torch.Tensor]) -> tuple[Property, ...]:
    """Return the axes along which all sums are one number, as properties: one-hot rows, lengths that fill a batch."""
    totals = [int(draws[0].sum(axis).reshape(-1)[0]) for axis in range(draws[0].dim())]
    sums = (partial(_adds_up, axis, total) for axis, total in enumerate(totals) if draws[0].shape[axis] > 1)
    return tuple(adds_up for adds_up in sums if all(map(adds_up, draws)))


def _adds_up(axis: int, total: int, tensor: torch.Tensor) -> bool:
    return bool((tensor.sum(axis) == total).all())


def _ordered_columns(draws: list[torch.Tensor]) -> tuple[Property, ...]:
    """Return the order of each two columns of which one never exceeds the other: the corners of boxes."""
    rows, columns = draws[0].numel() // max(1, draws[0].shape[-1]), draws[0].shape[-1]
    if rows < _ROWS or columns > _COLUMNS:
        return ()
    both = [(low, high) for low in range(columns) for high in range(columns) if low != high]
    orders = [partial(_never_above_in, low, high) for low, high in both]
    first = [draw[(0,) * (draw.dim() - 2)][:_ROWS] for draw in draws]  # excludes most orders
    return tuple(order for order in orders if all(map(order, first)) and all(map(order, draws)))


def _never_above_in(low: int, high: int, tensor: torch.Tensor) -> bool:
    return _never_above(tensor[..., low], tensor[..., high])


def _is_uniform(tensor: torch.Tensor) -> bool:
    return bool((tensor == tensor.reshape(-1)[0]).all())


def _sums_to_one(tensor: torch.Tensor) -> bool:
    sums = tensor.sum(-1, dtype=torch.float32)
    return tensor.shape[-1] > 1 and bool((tensor >= 0).all()) and bool(((sums - 1).abs() < _SUM).all())


def _are_logarithms_of_shares(tensor: torch.Tensor) -> bool:
    return bool((tensor <= 0).all()) and _sums_to_one(tensor.exp())


def _is_unit(tensor: torch.Tensor) -> bool:
    lengths = torch.linalg.vector_norm(tensor, dim=-1, dtype=torch.promote_types(tensor.dtype, torch.float32))
    return tensor.shape[-1] > 1 and bool(((lengths - 1).abs() < _SUM).all())


def _rises(tensor: torch.Tensor) -> bool:
    """Return whether no number along the last axis is below the one before it."""
    return bool((tensor[..., :-1] <= tensor[..., 1:]).all())


def _falls(tensor: torch.Tensor) -> bool:
    return _rises(tensor.flip(-1))


def _is_distinct(tensor: torch.Tensor) -> bool:
    """Return whether no number occurs twice along the last axis, as in a permutation."""
    return tensor.shape[-1] > 1 and bool((tensor.sort(dim=-1).values.diff(dim=-1) != 0).all())


def _repeats(tensor: torch.Tensor) -> bool:
    """Return whether nothing changes along the last axis, as in a table that is repeated for each batch."""
    return tensor.shape[-1] > 1 and bool((tensor == tensor[..., :1]).all())


def _is_square(tensor: torch.Tensor) -> bool:
    return tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2]


def _whole_diagonal(same: torch.Tensor) -> bool:
    """Return whether square matrices have the same diagonal in all draws: that of distances, or of correlations."""
    return _is_square(same) and bool(same.diagonal(dim1=-2, dim2=-1).all())


def _is_symmetric(tensor: torch.Tensor) -> bool:
    """Return whether square matrices are symmetric except for rounding, as distances are, or antisymmetric."""
    if not _is_square(tensor):
        return False
    rows, columns = tensor[..., :1, :].abs(), tensor[..., :, :1].mT.abs()
    return _are_close(rows, columns) and _are_close(tensor.abs(), tensor.mT.abs())


def _are_close(some: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(((some - other).abs() <= _ROUNDING * some.max()).all())


def _is_definite(tensor: torch.Tensor) -> bool:
    """Return whether the tensor is symmetric, and positive definite."""
    wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    return _is_symmetric(tensor) and bool((torch.linalg.cholesky_ex(wide)[1] == 0).all())
