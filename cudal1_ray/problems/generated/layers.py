"""What a generated problem begins with: a matrix product, a convolution, or its input alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cudal1_ray.problems.generated.steps import FreshNames, one_of

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Layer:
    """The first part of a module, which a candidate leaves to the library.

    Attributes:
        word: in the problem's name; empty where there is no layer.
        kind: "gemm", "conv", or empty where there is no layer.
        attribute: the module's attribute that holds the layer; "weight" for a product with a parameter.
        arguments: the constructor's arguments, name -> value as text.
        state: lines of the constructor.
        forward: the line of the reference.
        without_bias: an expression of the result before its bias is added; empty where a kernel never adds it.
        channels: the argument with the number of channels or features; empty where there is no layer.
        dims: dimensions of the result.
        sizes: constants of the file that are no arguments, name -> value as text.
        inputs: their shapes, as text.
        names: those that the problem has.
    """

    word: str
    kind: str
    attribute: str
    arguments: tuple[tuple[str, str], ...]
    state: tuple[str, ...]
    forward: str
    without_bias: str
    channels: str
    dims: int
    sizes: tuple[tuple[str, str], ...]
    inputs: tuple[str, ...]
    names: FreshNames = field(default_factory=FreshNames)


def draw_gemm(rng: np.random.Generator) -> Layer:
    """Draw `nn.Linear`, or a product with a parameter."""
    attribute = one_of(("gemm", "linear", "matmul", "fc"), rng)
    before, after = one_of((("in_features", "out_features"), ("input_size", "hidden_size")), rng)
    sizes = ((before, str(one_of((512, 1024, 2048, 4096), rng))), (after, str(one_of((512, 1024, 2048, 4096), rng))))
    batch = (("batch_size", str(one_of((256, 512, 1024, 2048), rng))),)
    inputs = (f"batch_size, {before}",)
    word = "Gemm" if attribute == "gemm" else "Matmul"
    names = FreshNames(attribute, before, after, "weight", "x", "channels", "batch")
    if rng.random() < 0.12:
        state = (f"self.weight = nn.Parameter(torch.randn({after}, {before}))",)
        forward = one_of(("x = torch.matmul(x, self.weight.T)", "x = x @ self.weight.T"), rng)
        return Layer(word, "gemm", "weight", sizes, state, forward, "", after, 2, batch, inputs, names)
    bias = rng.random() < 0.9
    state = (f"self.{attribute} = nn.Linear({before}, {after}{'' if bias else ', bias=False'})",)
    forward = f"x = self.{attribute}(x)"
    return Layer(word, "gemm", attribute, sizes, state, forward, "", after, 2, batch, inputs, names)


def draw_convolution(rng: np.random.Generator) -> Layer:
    """Draw a convolution, plain or transposed, of two or three dimensions."""
    transposed, space = rng.random() < 0.5, int(one_of((2, 2, 3), rng))
    attribute = one_of(("conv_transpose", "conv_transpose", "conv") if transposed else ("conv", "conv", "conv1"), rng)
    channels_out = one_of((16, 32, 64, 128), rng)
    arguments = [
        ("in_channels", str(one_of((3, 8, 16, 32, 64), rng))),
        ("out_channels", str(channels_out)),
        ("kernel_size", str(one_of((3, 3, 4, 5), rng))),
    ]
    more = []
    if transposed or rng.random() < 0.3:
        more = [("stride", "2" if transposed else "1"), ("padding", "1")]
    if transposed and rng.random() < 0.5:
        more.append(("output_padding", "1"))
    arguments += more
    module = f"nn.Conv{'Transpose' if transposed else ''}{space}d"
    options = "".join(f", {name}={name}" for name, _ in more)
    state = (f"self.{attribute} = {module}(in_channels, out_channels, kernel_size{options})",)
    function = f"F.conv{'_transpose' if transposed else ''}{space}d"
    own = f"self.{attribute}"
    called = f"x, {own}.weight, None, {own}.stride, {own}.padding"
    if transposed and ("output_padding", "1") in more:
        called += f", {own}.output_padding"
    side = one_of((32, 64, 128), rng) if space == 2 else one_of((16, 24, 32), rng)
    axes = ("height", "width") if space == 2 else ("depth", "height", "width")
    sizes = (("batch_size", str(one_of((8, 16, 32), rng))), *((axis, str(side)) for axis in axes))
    inputs = (f"batch_size, in_channels, {', '.join(axes)}",)
    names = FreshNames(attribute, *(name for name, _ in arguments), *axes, "x", "channels", "batch", "plane")
    word = f"Conv{'Transpose' if transposed else ''}{space}d"
    folded = f"{function}({called})"
    return Layer(
        word, "conv", attribute, tuple(arguments), state, f"x = self.{attribute}(x)", folded, "out_channels",
        space + 2, sizes, inputs, names,
    )  # fmt: skip


def draw_input(rng: np.random.Generator, dims: int) -> Layer:
    """Draw no layer: the input is what the operations begin with."""
    axes = {
        2: (("batch_size", (2048, 4096)), ("dim", (4096, 8192, 16384))),
        3: (("batch_size", (16, 64, 128)), ("dim1", (256, 512, 1024)), ("dim2", (255, 512, 2048))),
        4: (("batch_size", (16, 32)), ("features", (32, 64)), ("dim1", (128, 256)), ("dim2", (128, 256))),
    }[dims]
    sizes = tuple((name, str(one_of(options, rng))) for name, options in axes)
    names = FreshNames(*(name for name, _ in sizes), "x")
    return Layer("", "", "", (), (), "", "", "", dims, sizes, (", ".join(name for name, _ in sizes),), names)
