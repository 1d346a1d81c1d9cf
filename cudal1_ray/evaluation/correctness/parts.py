"""Parts of an output that could hide an error which is allowed for the whole: its small elements, and slices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

# Decades of size, far below the spread, whose elements are compared if there are enough: where the reference is right
# to a thousandth, most have to be right to a half. (At a millionth a sum in another order still is.)
_DECADES = (-6, -5, -4, -3, -2)
_FEWEST_SMALL, _MOST_LOOKED_AT = 32, 1 << 16
_REFERENCE_RIGHT, _HALF_RIGHT = 1e-3, 0.5
_FEWEST_IN_A_SLICE = 8
# Multiple of the reference's error in most slices that a slice with a single small number may have.
_OF_THE_USUAL = 2.0
# Largest error, as a share of a slice's size, that a coarser format explains.
_COARSE = 0.05

Slices = tuple[tuple[int, torch.Tensor], ...]


@dataclass(frozen=True)
class Difference:
    """Why an output is wrong: a name of reasons.py and a line for a person."""

    reason: str
    detail: str


def small_parts(truth: torch.Tensor, native: torch.Tensor, spread: float, error: float) -> tuple[torch.Tensor, ...]:
    """Return groups of elements, at random places, that an error of the whole output's size would hide, where the
    reference's own arithmetic does not. `error`: by how much the reference may be off anyway.
    """
    count = truth.numel()
    if count <= _MOST_LOOKED_AT:
        places = torch.arange(count, device=truth.device)
    else:
        places = torch.randint(count, (_MOST_LOOKED_AT,), device=truth.device)
    sizes = truth.reshape(-1)[places].abs()
    errors = (native.reshape(-1)[places].to(truth.dtype) - truth.reshape(-1)[places]).abs().clamp(min=error)
    groups = []
    for decade in _DECADES:
        inside = (sizes >= 10.0**decade * spread) & (sizes < 10.0 ** (decade + 1) * spread)
        if int(inside.sum()) < _FEWEST_SMALL:
            continue
        if rms(errors[inside] / sizes[inside]) <= _REFERENCE_RIGHT:
            groups.append(places[inside].cpu())
    return tuple(groups)


def missing_part(
    values: torch.Tensor, truth: torch.Tensor, spread: float, small: tuple[torch.Tensor, ...]
) -> Difference | None:
    """Return the difference if most elements of one small size are far off, else None."""
    for places in small:
        places = places.to(values.device)
        right = truth.reshape(-1)[places]
        off = (values.reshape(-1)[places] - right).abs() > _HALF_RIGHT * right.abs()
        if (share := float(off.double().mean())) > 0.5:
            size = float(right.abs().double().mean()) / spread
            detail = f"of the elements of about {size:.0e} of the output's spread {share:.0%} are off by more than half"
            return Difference("tolerance_exploit", detail)
    return None


def slice_allowances(truth: torch.Tensor, error: torch.Tensor, tolerance: float, factor: float, least: float) -> Slices:
    """Return how far each channel, and each place along the last axis, may be off as a root mean square: one group of
    features may be a thousandth of another's size. `error`: the reference's own, of which `factor` as much is allowed;
    behind a ReLU a slice may hold one small number, which the reference gets right by chance, so that of most slices
    counts, too. `tolerance`: as a share of the slice's own size. `least`: allowed whatever its size.
    """
    allowances = []
    for axis in sorted({1, truth.dim() - 1} if truth.dim() > 1 else ()):
        if truth.shape[axis] > 1 and truth.numel() >= _FEWEST_IN_A_SLICE * truth.shape[axis]:
            sizes, errors = _along(truth.abs(), axis), _along(error, axis)
            usual = float(errors[errors > 0].median()) if bool((errors > 0).any()) else 0.0
            allowed = torch.maximum(tolerance * sizes, factor * errors)
            allowances.append((axis, allowed.clamp(min=max(least, _OF_THE_USUAL * usual)).cpu()))
    return tuple(allowances)


def wrong_slice(error: torch.Tensor, truth: torch.Tensor, slices: Slices) -> Difference | None:
    """Return the difference where a slice is farther off than allowed, else None; `error`: absolute, per element."""
    for axis, allowed in slices:
        allowed = allowed.to(error.device)
        off = _along(error, axis)
        if not bool((off > allowed).any()):
            continue
        worst = int((off / allowed).argmax())
        share = float(off[worst] / _along(truth.abs(), axis)[worst])
        detail = f"of axis {axis} slice {worst} is off by {share:.1e} of its own size, {int((off > allowed).sum())} are"
        return Difference("precision_downgrade" if share < _COARSE else "tolerance_exploit", detail)
    return None


def _along(values: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the root mean square of each slice along `axis`."""
    others = [other for other in range(values.dim()) if other != axis]
    return torch.linalg.vector_norm(values, dim=others) / math.sqrt(values.numel() // values.shape[axis])


def rms(values: torch.Tensor) -> float:
    """Return the root mean square."""
    return float(torch.linalg.vector_norm(values)) / math.sqrt(max(1, values.numel()))
