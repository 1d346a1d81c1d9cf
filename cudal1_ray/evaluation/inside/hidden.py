"""Inputs that lie on a device but cannot be read yet."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import torch

# Captured before any candidate.
_reshape, _view, _flip = torch.Tensor.reshape, torch.Tensor.view, torch.bitwise_xor
_numel, _element_size, _empty_like = torch.Tensor.numel, torch.Tensor.element_size, torch.empty_like
# Types of the words that are flipped; the widest that fits is used.
_WORDS = (torch.int64, torch.int32, torch.uint8)


def hide(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Make a dense, contiguous tensor unreadable, and return a call that makes it anew, elsewhere, in one kernel."""
    nbytes = _numel(tensor) * _element_size(tensor)
    word = next(kind for kind in _WORDS if nbytes % kind.itemsize == 0)
    key = secrets.randbits(8 * word.itemsize - 1) | 1
    words = _view(_reshape(tensor, (-1,)), word)
    _flip(words, key, out=words)

    def made_readable() -> torch.Tensor:
        result = _empty_like(tensor)
        _flip(words, key, out=_view(_reshape(result, (-1,)), word))
        return result

    return made_readable
