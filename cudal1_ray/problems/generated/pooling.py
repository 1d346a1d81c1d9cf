"""Poolings alone: maxima or averages of windows, of one to three dimensions, with a kernel that computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cudal1_ray.problems.generated.alone import Alone, kernel, launch
from cudal1_ray.problems.generated.convolutions import AXES, coordinates, joined
from cudal1_ray.problems.generated.steps import one_of

if TYPE_CHECKING:
    import numpy as np

SIDES = {1: (16384, 32768, 65536), 2: (128, 255, 256), 3: (32, 48, 64)}
CHANNELS = {1: (64, 128), 2: (32, 64), 3: (16, 32)}
# Output positions of one program.
POSITIONS = 256


def draw_pooling(rng: np.random.Generator) -> Alone:
    """Draw a pooling."""
    dims, largest = one_of((1, 2, 2, 3), rng), bool(rng.random() < 0.5)
    size = one_of({1: (2, 3, 4, 5, 8), 2: (2, 3, 3, 4, 5), 3: (2, 3, 4)}[dims], rng)
    module = f"{'Max' if largest else 'Avg'}Pool{dims}d"
    options = [("stride", str(one_of((1, 2, 2, 3), rng)))] if rng.random() < 0.7 else []
    if rng.random() < 0.6:  # at most half of the window, as the library has it
        options.append(("padding", str(one_of((1, 2) if size > 3 else (1,), rng))))
    if largest and rng.random() < 0.4:
        options.append(("dilation", str(one_of((2, 3) if dims == 1 else (2,), rng)) if dims == 1 or size < 4 else "1"))
    padded = dict(options).get("padding")
    inside = not largest and padded is not None and rng.random() < 0.4
    axes, side = AXES[dims], one_of(SIDES[dims], rng)
    sizes = [("batch_size", str(one_of((8, 16), rng))), ("channels", str(one_of(CHANNELS[dims], rng)))]
    sizes += [(axis, str(side * one_of((1, 1, 2), rng) if dims < 3 else side)) for axis in axes]
    attribute = one_of(("pool", f"{module.lower()[:3]}_pool", module[:7].lower()), rng)
    kind = "maximum" if largest else "average"
    return Alone(
        words=(module, *(name for name, _ in options), *(["inside"] if inside else [])),
        sentence=f"{one_of(('Performs', 'Simple model of'), rng)} {dims}D {kind} pooling.",
        arguments=(("kernel_size", str(size)), *options),
        state=(f"self.{attribute} = nn.{module}({_options(options, inside)})",),
        kept=tuple(f"self.{name} = {name}" for name in ("kernel_size", *(name for name, _ in options))),
        inputs=(("x", f"torch.rand(batch_size, channels, {', '.join(axes)})"),),
        body=(f"return self.{attribute}(x)",),
        sizes=tuple(sizes),
        kernels=(_kernel(axes, largest, inside, dict(options)),),
        forward=_forward(axes, largest, dict(options)),
        technique="memory coalescing",
        analysis="The reference is one pooling, which does a few operations with each element that it loads, so memory "
        "bandwidth bounds it. A kernel that reads overlapping windows through the cache is near that bound.",
        design=_design(largest, inside, padded is not None),
    )


def _options(options: Sequence[tuple[str, str]], inside: bool) -> str:
    names = [f"{name}={name}" for name, _ in options] + (["count_include_pad=False"] if inside else [])
    return ", ".join(["kernel_size", *names])


def _kernel(axes: Sequence[str], largest: bool, inside: bool, options: dict[str, str]) -> str:
    """Return a kernel whose programs each own neighbouring output positions of one plane."""
    ends, letters = [f"{axis}_out" for axis in axes], [axis[0] for axis in axes]
    lines = [
        "plane = tl.program_id(0).to(tl.int64)",
        "position = tl.program_id(1) * POSITIONS + tl.arange(0, POSITIONS)",
        f"inside = position < {' * '.join(ends)}",
        *coordinates(axes),
        'best = tl.full([POSITIONS], float("-inf"), tl.float32)'
        if largest
        else "total = tl.zeros([POSITIONS], tl.float32)",
    ]
    if inside:
        lines.append("count = tl.zeros([POSITIONS], tl.float32)")
    indent = ""
    for axis, letter in zip(axes, letters, strict=True):
        lines.append(f"{indent}for k_{letter} in range(K):")
        indent += "    "
        padding = " - PADDING" if "padding" in options else ""
        dilation = " * DILATION" if "dilation" in options else ""
        lines.append(f"{indent}from_{letter} = at_{letter} * STRIDE{padding} + k_{letter}{dilation}")
        if padding:
            lines.append(f"{indent}fits_{letter} = (from_{letter} >= 0) & (from_{letter} < {axis})")
    place = joined([f"from_{letter}" for letter in letters], axes)
    mask = "inside"
    if "padding" in options:
        mask = "fits"
        lines.append(f"{indent}fits = {' & '.join(['inside', *(f'fits_{letter}' for letter in letters)])}")
    other = 'float("-inf")' if largest else "0.0"
    load = f"tl.load(x_ptr + plane * {' * '.join(axes)} + {place}, mask={mask}, other={other})"
    lines.append(f"{indent}x = {load}")
    lines.append(f"{indent}{'best = tl.maximum(best, x)' if largest else 'total += x'}")
    if inside:
        lines.append(f"{indent}count += tl.where(fits, 1.0, 0.0)")
    window = " * ".join(["K"] * len(axes))
    value = (
        "best" if largest else "total / count" if inside else f"total / {f'({window})' if len(axes) > 1 else window}"
    )
    lines.append(f"tl.store(out_ptr + plane * {' * '.join(ends)} + position, {value}, mask=inside)")
    constants = ["K", "STRIDE", *(name.upper() for name in ("padding", "dilation") if name in options), "POSITIONS"]
    parameters = ["x_ptr", "out_ptr", *axes, *ends, *(f"{name}: tl.constexpr" for name in constants)]
    return kernel(_name(largest), parameters, lines)


def _name(largest: bool) -> str:
    return f"{'max' if largest else 'avg'}_pool_kernel"


def _forward(axes: Sequence[str], largest: bool, options: dict[str, str]) -> tuple[str, ...]:
    ends = [f"{axis}_out" for axis in axes]
    stride = "self.stride" if "stride" in options else "self.kernel_size"
    lines = ["x = x.contiguous()", f"batch, channels, {', '.join(axes)} = x.shape"]
    if "dilation" in options:
        lines.append("reach = self.dilation * (self.kernel_size - 1) + 1")
    reach = "reach" if "dilation" in options else "self.kernel_size"
    lines += [
        f"{end} = ({axis}{' + 2 * self.padding' if 'padding' in options else ''} - {reach}) // {stride} + 1"
        for axis, end in zip(axes, ends, strict=True)
    ]
    constants = ["K=self.kernel_size", f"STRIDE={stride}"]
    constants += [f"{name.upper()}=self.{name}" for name in ("padding", "dilation") if name in options]
    grid = f"(batch * channels, triton.cdiv({' * '.join(ends)}, {POSITIONS}))"
    return (
        *lines,
        f"out = x.new_empty(batch, channels, {', '.join(ends)})",
        *launch(_name(largest), grid, ["x", "out", *axes, *ends, *constants, f"POSITIONS={POSITIONS}"]),
        "return out",
    )


def _design(largest: bool, inside: bool, padded: bool) -> tuple[str, ...]:
    taken = "compared with the largest value yet" if largest else "added to a sum"
    outside = "minus infinity" if largest else "zero"
    sentences = [
        f"A program computes {POSITIONS} neighbouring output positions of one plane, one in each lane.",
        f"It walks over the places of the window; each element is loaded and {taken}, in registers.",
    ]
    if padded:
        sentences.append(f"Places outside of the input are masked and count as {outside}.")
    if inside:
        sentences.append("The sum is divided by the number of places inside of the input, which is counted too.")
    elif not largest:
        sentences.append("The sum is divided by the size of the window.")
    return tuple(sentences)
