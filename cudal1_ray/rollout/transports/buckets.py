"""Many tensors as few: packed one after another into flat byte buffers, and found again as views."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cudal1_ray.rollout.transports.base import NamedTensors

# Bytes: a view as any dtype must start at a multiple of its size.
ALIGNMENT = 16


@dataclass(frozen=True)
class Entry:
    """One tensor of a bucket: `shape` elements of `dtype` ("bfloat16") from byte `offset` on."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class BucketLayout:
    """What lies where in a flat buffer of `nbytes` bytes."""

    entries: tuple[Entry, ...]
    nbytes: int

    def views(self, buffer: Tensor) -> list[tuple[str, Tensor]]:
        """Return the tensors of a buffer, uint8 [nbytes] or longer, without a copy."""
        return [(entry.name, _view(buffer, entry)) for entry in self.entries]


def pack(
    weights: NamedTensors, bucket_bytes: int, device: str, dtype: torch.dtype | None = None
) -> Iterator[tuple[BucketLayout, Tensor]]:
    """Pack tensors in their order; yield each bucket's layout and its buffer, uint8 [nbytes] on `device`.

    Args:
        bucket_bytes: a bucket holds no more, unless one tensor alone is larger; 0 gives every tensor its own.
        dtype: floating-point tensors are sent as this; None sends every tensor as it is.
    """
    tensors: list[Tensor] = []
    entries: list[Entry] = []
    size = 0
    for name, tensor in weights:
        sent = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
        nbytes = tensor.numel() * sent.itemsize
        if tensors and size + nbytes > bucket_bytes:
            yield _fill(tensors, BucketLayout(tuple(entries), size), device)
            tensors, entries, size = [], [], 0
        entries.append(Entry(name, str(sent).removeprefix("torch."), tuple(tensor.shape), size))
        tensors.append(tensor.detach())
        size += math.ceil(nbytes / ALIGNMENT) * ALIGNMENT
    if tensors:
        yield _fill(tensors, BucketLayout(tuple(entries), size), device)


def _fill(tensors: list[Tensor], layout: BucketLayout, device: str) -> tuple[BucketLayout, Tensor]:
    buffer = torch.empty(layout.nbytes, dtype=torch.uint8, device=device)
    for (_, view), tensor in zip(layout.views(buffer), tensors, strict=True):
        view.copy_(tensor)  # casts and moves in one pass
    return layout, buffer


def _view(buffer: Tensor, entry: Entry) -> Tensor:
    dtype = getattr(torch, entry.dtype)
    nbytes = math.prod(entry.shape) * dtype.itemsize
    return buffer[entry.offset : entry.offset + nbytes].view(dtype).view(entry.shape)
