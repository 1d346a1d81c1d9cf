"""Equality of a reference's tensors: bit by bit, or up to what a parallel sum may change."""

from __future__ import annotations

from typing import Any

import torch

from cudal1_ray.evaluation.inside.places import tensors_in

_WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)


def finite(value: Any) -> bool:
    return all(bool(torch.isfinite(_calculable(t)).all()) for t in tensors_in(value) if t.is_floating_point())


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bits, in which NaN equals itself, in the widest words that fit: comparing takes a byte each."""
    row = tensor.contiguous().reshape(-1)
    row = row.clone() if row.storage_offset() else row
    return row.view(next(word for word in _WORDS if row.nbytes % word.itemsize == 0))


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return len(first) == len(second) and all(
        a.shape == b.shape and torch.equal(bits(a), bits(b)) for a, b in zip(first, second, strict=True)
    )


def alike(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    """Return whether the tensors are equal, and in the same order in memory."""
    return same(first, second) and all(
        a.dtype is b.dtype and a.stride() == b.stride() for a, b in zip(first, second, strict=True)
    )


def close(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    """Return whether tensors are equal up to what a parallel sum may change (atomics on CUDA)."""
    return len(first) == len(second) and all(
        a.shape == b.shape and torch.allclose(_calculable(a), _calculable(b), rtol=1e-3, atol=1e-5, equal_nan=True)
        for a, b in zip(first, second, strict=True)
    )


def _calculable(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in a type that supports arithmetic, itself where possible: copying gigabytes takes long."""
    wide = tensor.is_complex() or tensor.dtype in (torch.float32, torch.float64)
    return tensor if wide else tensor.double()
