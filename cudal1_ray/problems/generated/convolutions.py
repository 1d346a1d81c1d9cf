"""Convolutions alone, plain or transposed, with a kernel of the candidate's own that computes them.

KernelBench has held-out problems of plain convolutions of two dimensions and of transposed ones of one, so neither is
drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1_ray.problems.corpus import CorpusEntry
from cudal1_ray.problems.generated.steps import one_of
from cudal1_ray.problems.generated.writing import numbered
from cudal1_ray.problems.problem import Problem

if TYPE_CHECKING:
    import numpy as np

# Dimensions of each kind that is drawn, and whether it is transposed.
KINDS = ((1, False), (3, False), (2, True), (3, True))
AXES = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
# Defaults of the options, in the order of the constructor's arguments.
OPTIONS = {"stride": "1", "padding": "0", "output_padding": "0", "dilation": "1", "groups": "1"}
SIDES = {1: (16384, 65536), 2: (64, 128, 256), 3: (16, 24, 32)}
# Output positions and channels of one program: 32 sums in each thread.
POSITIONS, CHANNELS = 128, 32


@dataclass(frozen=True)
class Convolution:
    """A module of one convolution.

    Attributes:
        options: what it takes besides channels and kernel size, with values.
        sizes: those of the input.
    """

    dims: int
    transposed: bool
    attribute: str
    channels: tuple[int, int]
    kernel_size: str
    groups: int
    options: tuple[tuple[str, str], ...]
    bias: bool
    sizes: tuple[tuple[str, int], ...]

    @property
    def module(self) -> str:
        return f"Conv{'Transpose' if self.transposed else ''}{self.dims}d"

    @property
    def axes(self) -> tuple[str, ...]:
        return AXES[self.dims]


def convolution_pair(rng: np.random.Generator, identity: str) -> tuple[Problem, CorpusEntry]:
    """Return a problem of one convolution and a candidate that computes it without the library."""
    drawn = _draw(rng)
    words = [drawn.module, *(name for name, _ in drawn.options if name != "groups")]
    name = "_".join([*words, "grouped"] if drawn.groups > 1 else words)
    entry = CorpusEntry(
        problem_id=identity,
        entry_id=f"{identity}/generated",
        code=_candidate(drawn),
        technique="register blocking",
        analysis=_analysis(drawn),
        design=_design(drawn),
        expected="accepted",
    )
    return Problem(identity, _reference(drawn, rng), name), entry


def _draw(rng: np.random.Generator) -> Convolution:
    dims, transposed = KINDS[int(rng.integers(len(KINDS)))]
    groups = one_of((2, 4), rng) if rng.random() < 0.2 else 1
    into, out = one_of((16, 32, 64), rng), one_of((16, 32, 64), rng)
    if not transposed and rng.random() < 0.15:
        groups, out = into, into  # a filter for each channel
    widths = [one_of((3, 3, 5, 7) if dims < 3 else (3, 3, 5), rng) for _ in range(dims)]
    kernel_size = str(widths[0]) if rng.random() < 0.6 or dims == 1 else f"({', '.join(map(str, widths))})"
    options = []
    for option, values, share in (("stride", ("2", "3"), 0.5), ("padding", ("1", "2"), 0.6), ("dilation", ("2",), 0.3)):
        if rng.random() < share:
            options.append((option, one_of(values, rng)))
    if transposed and any(name == "stride" for name, _ in options) and rng.random() < 0.3:
        options.append(("output_padding", "1"))
    if groups > 1:
        options.append(("groups", "in_channels" if groups == into else str(groups)))
    forms = [f"conv{dims}d", "conv"]
    if transposed:
        forms = [f"conv_transpose{dims}d", f"conv{dims}d_transpose", "conv_transpose"]
    side = one_of(SIDES[dims], rng)
    sizes = (("batch_size", one_of((4, 8, 16), rng)), *((axis, side * one_of((1, 1, 2), rng)) for axis in AXES[dims]))
    bias = bool(rng.random() < 0.3)
    return Convolution(
        dims, transposed, one_of(forms, rng), (into, out), kernel_size, groups, tuple(options), bias, sizes
    )


def _arguments(of: Convolution) -> str:
    defaults = "".join(f", {name}: int = {value}" for name, value in OPTIONS.items() if name in dict(of.options))
    kernel = "tuple" if "(" in of.kernel_size else "int"
    return f"self, in_channels: int, out_channels: int, kernel_size: {kernel}{defaults}, bias: bool = False"


def _layer(of: Convolution) -> str:
    names = "".join(f", {name}={name}" for name, _ in of.options)
    return f"self.{of.attribute} = nn.{of.module}(in_channels, out_channels, kernel_size{names}, bias=bias)"


def _reference(of: Convolution, rng: np.random.Generator) -> str:
    kind = f"{'transposed ' if of.transposed else ''}{of.dims}D convolution"
    docstring = f'    """\n    {one_of(("Performs a", "Model of one"), rng)} {kind}.\n    """\n'
    values = [("in_channels", of.channels[0]), ("out_channels", of.channels[1]), ("kernel_size", of.kernel_size)]
    values += [(name, dict(of.options)[name]) for name in OPTIONS if name in dict(of.options)]
    values += [("bias", "True")] if of.bias else []
    constants = "".join(f"{name} = {value}\n" for name, value in [*of.sizes, *values])
    shape = ", ".join(["batch_size", "in_channels", *of.axes])
    return f"""import torch
import torch.nn as nn


class Model(nn.Module):
{docstring if rng.random() < 0.7 else ""}    def __init__({_arguments(of)}):
        super(Model, self).__init__()
        {_layer(of)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.{of.attribute}(x)


{constants}

def get_inputs():
    return [torch.rand({shape})]


def get_init_inputs():
    return [{", ".join(name for name, _ in values)}]
"""


def _candidate(of: Convolution) -> str:
    kernel = f"{of.attribute}_kernel"
    ends = [f"{axis}_out" for axis in of.axes]
    per_axis = [(axis, axis[0]) for axis in of.axes]
    parameters = ["x_ptr", "weight_ptr", *(["bias_ptr"] if of.bias else []), "out_ptr", "channels_in", "channels_out"]
    parameters += ["groups", *of.axes, *ends]
    for name in ("stride", "padding", "dilation"):
        parameters += [f"{name}_{letter}" for _, letter in per_axis]
    constants = [f"K{letter.upper()}: tl.constexpr" for _, letter in per_axis]
    constants += ["POSITIONS: tl.constexpr", "CHANNELS: tl.constexpr"]
    lines = [
        "image = tl.program_id(2).to(tl.int64)",
        "of_group, in_group = channels_out // groups, channels_in // groups",
        "blocks = tl.cdiv(of_group, CHANNELS)",
        "group = tl.program_id(1) // blocks",
        "channel = (tl.program_id(1) % blocks) * CHANNELS + tl.arange(0, CHANNELS)",
        "position = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)",
        f"inside = position < {' * '.join(ends)}",
        *coordinates(of.axes),
        "total = tl.zeros([POSITIONS, CHANNELS], tl.float32)",
        "for source in range(0, in_group):",
        f"    plane = (image * channels_in + group * in_group + source) * {' * '.join(of.axes)}",
    ]
    indent = "    "
    for axis, letter in per_axis:
        lines.append(f"{indent}for k_{letter} in range(0, K{letter.upper()}):")
        indent += "    "
        lines += [f"{indent}{line}" for line in _read_place(of, axis, letter)]
    masks = " & ".join(["inside", *(f"fits_{letter}" for _, letter in per_axis)])
    place = joined([f"from_{letter}" for _, letter in per_axis], of.axes)
    tap = joined([f"k_{letter}" for _, letter in per_axis], [f"K{letter.upper()}" for _, letter in per_axis])
    taps = " * ".join(f"K{letter.upper()}" for _, letter in per_axis)
    weight = "(group * of_group + channel) * in_group + source"
    if of.transposed:
        weight = "(group * in_group + source) * of_group + channel"
    lines += [
        f"{indent}x = tl.load(x_ptr + plane + {place}, mask={masks}, other=0.0)",
        f"{indent}at = ({weight}) * ({taps}) + {tap}",
        f"{indent}weight = tl.load(weight_ptr + at, mask=channel < of_group, other=0.0)",
        f"{indent}total += x[:, None] * weight[None, :]",
    ]
    if of.bias:
        lines += [
            "bias = tl.load(bias_ptr + group * of_group + channel, mask=channel < of_group, other=0.0)",
            "total += bias[None, :]",
        ]
    lines += [
        f"plane = (image * channels_out + group * of_group + channel) * ({' * '.join(ends)})",
        "mask = inside[:, None] & (channel < of_group)[None, :]",
        "tl.store(out_ptr + plane[None, :] + position[:, None], total, mask=mask)",
    ]
    body = "\n".join(f"    {line}" for line in lines)
    return f"""import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def {kernel}(
    {", ".join(parameters)},
    {", ".join(constants)},
):
{body}


class ModelNew(nn.Module):
    def __init__({_arguments(of)}):
        super().__init__()
        {_layer(of)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
{_forward(of, kernel)}"""


def joined(indices: Sequence[str], sizes: Sequence[str]) -> str:
    """Return the offset of an element in row-major order."""
    offset = indices[0]
    for index, size in zip(indices[1:], sizes[1:], strict=True):
        offset = f"{f'({offset})' if '+' in offset else offset} * {size} + {index}"
    return offset


def coordinates(axes: Sequence[str]) -> list[str]:
    """Return the lines that split the output's position into its axes."""
    lines, ends = [], [f"{axis}_out" for axis in axes]
    for number, axis in enumerate(axes):
        later, place = ends[number + 1 :], "position"
        if later:
            size = " * ".join(later)
            place += f" // ({size})" if len(later) > 1 else f" // {size}"
        if number:  # the first axis has nothing before it to leave out
            place = f"{f'({place})' if later else place} % {ends[number]}"
        lines.append(f"at_{axis[0]} = {place}")
    return lines


def _read_place(of: Convolution, axis: str, letter: str) -> list[str]:
    """Return the lines that give the input's place on an axis for one tap, and whether there is one."""
    if not of.transposed:
        return [
            f"from_{letter} = at_{letter} * stride_{letter} - padding_{letter} + k_{letter} * dilation_{letter}",
            f"fits_{letter} = (from_{letter} >= 0) & (from_{letter} < {axis})",
        ]
    return [
        f"scaled_{letter} = at_{letter} + padding_{letter} - k_{letter} * dilation_{letter}",
        f"from_{letter} = scaled_{letter} // stride_{letter}",
        f"fits_{letter} = (scaled_{letter} >= 0) & (scaled_{letter} % stride_{letter} == 0) & (from_{letter} < {axis})",
    ]


def _forward(of: Convolution, kernel: str) -> str:
    ends = [f"{axis}_out" for axis in of.axes]
    lines = [f"conv, x = self.{of.attribute}, x.contiguous()", f"batch, _, {', '.join(of.axes)} = x.shape"]
    lines.append(f"{', '.join(f'k_{axis[0]}' for axis in of.axes)}{',' if of.dims == 1 else ''} = conv.kernel_size")
    for number, (axis, end) in enumerate(zip(of.axes, ends, strict=True)):
        reach = f"conv.dilation[{number}] * (k_{axis[0]} - 1) + 1"
        if of.transposed:
            more = f" + conv.output_padding[{number}]"
            lines.append(f"{end} = ({axis} - 1) * conv.stride[{number}] - 2 * conv.padding[{number}] + {reach}{more}")
        else:
            lines.append(f"{end} = ({axis} + 2 * conv.padding[{number}] - ({reach})) // conv.stride[{number}] + 1")
    shape = ", ".join(["batch", "conv.out_channels", *ends])
    arguments = ["x", "conv.weight", *(["conv.bias"] if of.bias else []), "out", "conv.in_channels"]
    arguments += ["conv.out_channels", "conv.groups", *of.axes, *ends]
    arguments += [f"*conv.{option}" for option in ("stride", "padding", "dilation")]
    taps = ", ".join(f"K{axis[0].upper()}=k_{axis[0]}" for axis in of.axes)
    lines += [
        f"out = x.new_empty({shape})",
        f"blocks = conv.groups * triton.cdiv(conv.out_channels // conv.groups, {CHANNELS})",
        f"grid = (triton.cdiv({' * '.join(ends)}, {POSITIONS}), blocks, batch)",
        f"{kernel}[grid](",
        f"    {', '.join(arguments)},",
        f"    {taps}, POSITIONS={POSITIONS}, CHANNELS={CHANNELS}, num_warps=4,",
        ")",
        "return out",
    ]
    return "".join(f"        {line}\n" for line in lines)


def _analysis(of: Convolution) -> str:
    what = "transposed convolution" if of.transposed else "convolution"
    text = f"The reference is one {what}, so there is no traffic between operations to save. "
    if of.groups == of.channels[0] == of.channels[1]:
        return text + (
            "Each output channel reads one input channel, so a few multiplications go with every load, and memory "
            "bandwidth bounds it. A kernel that reads the input's neighbourhood through the cache is near that bound."
        )
    return text + (
        "Arithmetic bounds it: every output sums over all taps of all input channels of its group. A kernel has to "
        "reuse each loaded input for many output channels, in registers."
    )


def _design(of: Convolution) -> str:
    sentences = [
        f"A program computes {POSITIONS} neighbouring output positions of {CHANNELS} output channels of one image, as "
        "an array of sums in registers.",
        "It walks over the input channels of its group and the taps of the filter; positions outside of the input are "
        "masked and count as zero.",
        "For each tap it loads the inputs of its positions and the weights of its channels once, and adds their outer "
        "product to the sums.",
    ]
    if of.transposed:
        sentences.insert(
            2,
            "A tap of a transposed convolution reaches an output only where the output's place less the tap's is a "
            "multiple of the stride; the mask tests that.",
        )
    if of.bias:
        sentences.append("The bias is added before the sums are stored.")
    return numbered(sentences)
