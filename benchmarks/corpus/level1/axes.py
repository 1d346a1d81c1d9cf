"""The lines of a convolution's kernel that depend on how many axes it has."""

from __future__ import annotations

from collections.abc import Iterable

_ROWS = {
    "w": "n = tl.program_id(0)",
    "hw": "n, oh = tl.program_id(0) // OH, tl.program_id(0) % OH",
    "dhw": "n, od, oh = tl.program_id(0) // (OD * OH), tl.program_id(0) // OH % OD, tl.program_id(0) % OH",
}
_DECODE = {
    "w": "kw = tap",
    "hw": "kh, kw = tap // KW, tap % KW",
    "dhw": "kd, kh, kw = tap // (KH * KW), tap // KW % KH, tap % KW",
}
_AT = {"w": "iw", "hw": "(ih * W + iw)", "dhw": "((id * H + ih) * W + iw)"}
_OUT_AT = {"w": "ow", "hw": "(oh * OW + ow)", "dhw": "((od * OH + oh) * OW + ow)"}


def axes(names: str, transposed: bool = False) -> dict[str, object]:
    """Return the texts for axes "w", "hw" or "dhw"; `n` is the sample, `o*` the output's and `i*` the input's place.

    Args:
        transposed: whether the convolution is a transposed one; its `inputs` are those with a stride of 1.
    """
    upper = names.upper()
    source = "o{0} + P{1} - k{0} * D{1}" if transposed else "o{0} * S{1} - P{1} + k{0} * D{1}"
    sides = ["extents", *(f"conv.{name}" for name in ("kernel_size", "stride", "padding", "dilation"))]
    length = "(i + 2 * p - d * (k - 1) - 1) // s + 1 for i, k, s, p, d"
    if transposed:
        sides.append("conv.output_padding")
        length = "(i - 1) * s - 2 * p + d * (k - 1) + more + 1 for i, k, s, p, d, more"
    kinds = [[f"{kind}{axis}" for axis in upper] for kind in "KSPD"]
    inside = [f"(i{axis} >= 0) & (i{axis} < {axis.upper()})" for axis in names]
    return {
        "sides": ", ".join(sides),
        "length": length,
        "extents": ", ".join(upper),
        "outs": ", ".join(f"O{axis}" for axis in upper),
        "window": ",\n                ".join(", ".join(f"{name}: tl.constexpr" for name in of) for of in kinds),
        "rows": _ROWS[names],
        "decode": _DECODE[names],
        "taps": _product(kinds[0]),
        "inputs": f"{', '.join('i' + axis for axis in names)} = "
        + ", ".join(source.format(axis, axis.upper()) for axis in names),
        "inside": f"({' & '.join(inside)})",
        "volume": _product(upper),
        "out_volume": _product([f"O{axis}" for axis in upper]),
        "at": _AT[names],
        "out_at": _OUT_AT[names],
    }


def _product(factors: Iterable[str]) -> str:
    text = " * ".join(factors)
    return f"({text})" if "*" in text else text
