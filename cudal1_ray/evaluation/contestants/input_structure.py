"""What all inputs of a problem have in common: it may be solved by that, so no variation of them may break it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .input_kinds import map_tensors
from .places import tensors_in

_ALIKE, _MOST_ALIKE = 0.005, 0.02  # share of a tensor's elements that are the same in two draws, and in all
_DRAWS = 8  # further ones, to tell what is always the same from what often is


@dataclass(frozen=True)
class Structure:
    """What all draws of one tensor have in common, and a problem may be solved by."""

    kept: torch.Tensor | None = None  # where elements are always the same, as the noughts of a triangular matrix
    symmetric: bool = False

    def restore(self, tensor: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """``tensor`` made out of ``own``, a draw or the beginning of one, with the structure that it lost."""
        if self.kept is not None and tensor.shape == own.shape:
            tensor = torch.where(self.kept[: len(tensor)].to(tensor.device), own, tensor)
        return torch.triu(tensor) + torch.triu(tensor, 1).mT if self.symmetric and _square(tensor) else tensor


def structure_of(first: list[Any], second: list[Any], another: Callable[[int], Any]) -> list[Structure]:
    """Of each tensor, in two draws and, where these have something in common, ``another`` ones. Empty where there is
    nothing. What is the same as a whole is no structure: it is varied to see whether anybody looks at it.
    """
    ours, theirs = tensors_in(first), tensors_in(second)
    if [t.shape for t in ours] != [t.shape for t in theirs]:
        return []
    floats = [one.is_floating_point() and one.numel() > 1 for one in ours]
    same = [a == b if usable else None for usable, a, b in zip(floats, ours, theirs, strict=True)]
    symmetric = [
        one is not None and not one.all() and _symmetric(a) and _symmetric(b)
        for one, a, b in zip(same, ours, theirs, strict=True)
    ]

    def partly(least: float) -> list[torch.Tensor | None]:
        return [one if one is not None and least * one.numel() < int(one.sum()) < one.numel() else None for one in same]

    same = partly(_ALIKE)
    for number in range(_DRAWS if any(one is not None for one in same) else 0):
        drawn = tensors_in(another(number))
        same = [None if one is None else one & (a == b) for one, a, b in zip(same, ours, drawn, strict=True)]
    found = [Structure(*one) for one in zip(partly(_MOST_ALIKE), symmetric, strict=True)]
    return found if any(one.symmetric or one.kept is not None for one in found) else []


def with_structure(inputs: list[Any], own: list[Any], structure: list[Structure]) -> list[Any]:
    """``inputs``, which were made out of ``own``, with all of `structure_of`."""
    known = zip(structure, tensors_in(own), strict=True)

    def restore(tensor: torch.Tensor) -> torch.Tensor:
        one, before = next(known)
        return one.restore(tensor, before)

    return map_tensors(inputs, restore)


def no_longer_definite(inputs: list[Any], own: list[Any], structure: list[Structure]) -> bool:
    """Is a symmetric matrix of ``own`` positive definite, and what was made of it not?"""
    return any(
        one.symmetric and _definite(before) and not _definite(after)
        for one, after, before in zip(structure, tensors_in(inputs), tensors_in(own), strict=True)
    )


def _definite(tensor: torch.Tensor) -> bool:
    return _square(tensor) and bool((torch.linalg.cholesky_ex(tensor)[1] == 0).all())


def _symmetric(tensor: torch.Tensor) -> bool:
    return _square(tensor) and torch.equal(tensor, tensor.mT)


def _square(tensor: torch.Tensor) -> bool:
    return tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2]
