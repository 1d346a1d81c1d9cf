"""What is left of a result where convolutions run in TF32, which PyTorch lets them on a GPU unless told otherwise.

Whether a convolution does is the choice of a library, by its shape and layout. So a candidate's may, where the
reference's did not, and is as right as that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_CONVOLUTIONS = {
    torch.convolution, torch.conv1d, torch.conv2d, torch.conv3d,
    torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d,
}  # fmt: skip
_HALF, _DROPPED = 1 << 12, (1 << 13) - 1  # of float32's 23 bits behind the point TF32 has the first ten


class CoarseConvolutions(TorchFunctionMode):
    """Within it all convolutions of float32 get their inputs and weights rounded to TF32. (Functions, not what they
    dispatch to: to see that, torch would import its compiler, for more than a second.)

    Attributes:
        any: was there one?
    """

    any = False

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if function in _CONVOLUTIONS:
            self.any = True
            args = (*map(rounded, args[:2]), *args[2:])
            given |= {name: rounded(given[name]) for name in ("input", "weight") if name in given}
        return function(*args, **given)


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    """To the nearest number of TF32, in float32; other types stay as they are."""
    if tensor.dtype is not torch.float32:
        return tensor
    bits = tensor.clone().view(torch.int32)
    return bits.add_(_HALF).bitwise_and_(~_DROPPED).view(torch.float32)


def errors(outputs: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> list[list[float]]:
    """Of each output against the exact one [root-mean-square error, largest error as a share of the element's size plus
    the standard deviation of all]; noughts where they cannot be compared.
    """
    found = [[0.0, 0.0] for _ in outputs]
    if len(outputs) != len(exact):
        return found
    for place, (got, right) in enumerate(zip(outputs, exact, strict=True)):
        if got.shape != right.shape or got.numel() < 2 or not right.is_floating_point():
            continue
        error = (got.to(right.dtype) - right).abs()
        worst = error / (right.abs() + right.std())
        if torch.isfinite(worst).all():
            found[place] = [float(error.square().mean().sqrt()), float(worst.max())]
    return found
