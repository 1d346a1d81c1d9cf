"""Examples of arguments, as callers give them: a number, a Python expression, or the shape and dtype of a tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from cudal1_ray.errors import UserError

FloatName = Literal["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
IntName = Literal["int8", "int16", "int32", "int64", "uint8"]
DtypeName = FloatName | IntName | Literal["bool"]
MAX_DIMENSIONS = 8
MAX_ELEMENTS = 2**32
MAX_CHARACTERS = 2000


@dataclass(frozen=True)
class TensorExample:
    """A tensor of random values: normally distributed floats, or, with bounds, uniform in low <= x < high.

    Integers are uniform and want `high`: only the caller knows what an index may be.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float | None = None
    high: float | None = None


Example = TensorExample | str | int | float | bool | None  # a text is an expression


def expression_of(example: Example, what: str) -> str:
    """Return Python for one example.

    Raises:
        UserError: naming `what` for a shape, a dtype or bounds that make no tensor.
    """
    if isinstance(example, TensorExample):
        return _tensor(example, what)
    if isinstance(example, str):
        if not example.strip() or len(example) > MAX_CHARACTERS:
            raise UserError(f"{what}: an expression of 1 to {MAX_CHARACTERS} characters is wanted")
        return example
    if isinstance(example, float) and not math.isfinite(example):
        return f"float('{example}')"
    return repr(example)


def _tensor(example: TensorExample, what: str) -> str:
    shape = tuple(example.shape)
    if len(shape) > MAX_DIMENSIONS or any(size < 0 for size in shape) or math.prod(shape) > MAX_ELEMENTS:
        raise UserError(
            f"{what}: shape {list(shape)[: MAX_DIMENSIONS + 1]}: at most {MAX_DIMENSIONS} sizes of 0 or more, "
            f"and {MAX_ELEMENTS} elements"
        )
    low, high = example.low, example.high
    if any(bound is not None and not math.isfinite(bound) for bound in (low, high)):
        raise UserError(f"{what}: low and high must be finite")
    if example.dtype == "bool":
        return f"torch.randint(0, 2, {shape}).bool()"
    if example.dtype in get_args(IntName):
        return _integers(example, int(low or 0), what)
    if example.dtype not in get_args(FloatName):
        raise UserError(f"{what}: dtype {example.dtype!r}: one of {', '.join(dtype_names())}")
    kind = "" if example.dtype == "float32" else f", dtype=torch.{example.dtype}"
    if low is None and high is None:
        return f"torch.randn({shape}{kind})"
    bottom, top = low or 0.0, 1.0 if high is None else high
    if bottom >= top:
        raise UserError(f"{what}: low={bottom:g} must be below high={top:g}")
    return f"torch.rand({shape}{kind}) * {top - bottom!r} + {bottom!r}"


def _integers(example: TensorExample, low: int, what: str) -> str:
    if example.high is None:
        raise UserError(f"{what}: {example.dtype} wants high: values are drawn from low (0) to high - 1")
    high, bits = int(example.high), int("".join(c for c in example.dtype if c.isdigit()))
    least, most = (0, 2**bits) if example.dtype == "uint8" else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    if not least <= low < high <= most:
        raise UserError(f"{what}: low={low}, high={high}: must be {least} <= low < high <= {most} for {example.dtype}")
    high = min(high, 2**63 - 1)  # torch takes the upper bound as a 64-bit integer
    return f"torch.randint({low}, {high}, {tuple(example.shape)}, dtype=torch.{example.dtype})"


def dtype_names() -> tuple[str, ...]:
    """Return all that `TensorExample.dtype` may be."""
    return (*get_args(FloatName), *get_args(IntName), "bool")
