"""The errors of results whose convolutions run in TF32, which PyTorch allows on a GPU by default, or whose products do,
which a baseline of that kind allows.

A library chooses TF32 for a convolution by its shape and layout. So a candidate's convolution may run in it where the
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
_PRODUCTS = {
    torch.matmul, torch.mm, torch.bmm, torch.mv, torch.addmm, torch.addbmm, torch.baddbmm, torch.addmv, torch.einsum,
    torch.bilinear, torch.nn.functional.linear, torch.nn.functional.scaled_dot_product_attention,
    *(getattr(torch.Tensor, name) for name in (
        "__matmul__", "__rmatmul__", "matmul", "mm", "bmm", "mv", "addmm", "addbmm", "baddbmm", "addmv",
    )),
}  # fmt: skip
_HALF, _DROPPED = 1 << 12, (1 << 13) - 1  # TF32 keeps the first ten of float32's 23 bits behind the point


class CoarseArithmetic(TorchFunctionMode):
    """Rounds inputs and weights of all convolutions of float32 within it to TF32, and with `products` those of all
    products. `any`: whether there was one. It sees functions, not what they dispatch to: for that torch would import
    its compiler, for more than a second.
    """

    def __init__(self, *, convolutions: bool = True, products: bool = False) -> None:
        super().__init__()
        self.any, self._convolutions, self._products = False, convolutions, products

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if self._products and function in _PRODUCTS:
            self.any = True
            args, named = _all_rounded(args), {name: _all_rounded(value) for name, value in named.items()}
        elif self._convolutions and function in _CONVOLUTIONS:
            self.any = True
            args = (*map(rounded, args[:2]), *args[2:])
            named |= {name: rounded(named[name]) for name in ("input", "weight") if name in named}
        return function(*args, **named)


def _all_rounded(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_all_rounded, value))
    return rounded(value) if isinstance(value, torch.Tensor) else value


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    """Return the nearest numbers of TF32, in float32; other types stay as they are."""
    if tensor.dtype is not torch.float32:
        return tensor
    bits = tensor.clone().view(torch.int32)
    return bits.add_(_HALF).bitwise_and_(~_DROPPED).view(torch.float32)


def errors(outputs: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> list[tuple[float, float]]:
    """Return each output's root-mean-square error against the exact one, and its largest error as a share of the
    element's size plus the standard deviation of all; zeros where they cannot be compared.
    """
    if len(outputs) != len(exact):
        return [(0.0, 0.0)] * len(outputs)
    return [_errors(output, right) for output, right in zip(outputs, exact, strict=True)]


def _errors(output: torch.Tensor, right: torch.Tensor) -> tuple[float, float]:
    if output.shape != right.shape or output.numel() < 2 or not right.is_floating_point():
        return 0.0, 0.0
    error = (output.to(right.dtype) - right).abs()
    worst = error / (right.abs() + right.std())
    return (float(error.square().mean().sqrt()), float(worst.max())) if worst.isfinite().all() else (0.0, 0.0)
