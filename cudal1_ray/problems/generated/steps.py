"""Pointwise operations of a generated problem: as the reference writes each, and as a kernel's line computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np

Choice = TypeVar("Choice")

# word in a problem's name -> forms in a reference, a kernel's expression, the device function that it calls
ACTIVATIONS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "ReLU": (("nn.ReLU()", "torch.relu(x)", "F.relu(x)"), "relu(x)", "relu"),
    "Sigmoid": (("nn.Sigmoid()", "torch.sigmoid(x)"), "tl.sigmoid(x)", ""),
    "Tanh": (("nn.Tanh()", "torch.tanh(x)"), "tanh(x)", "tanh"),
    "GELU": (("nn.GELU()", "F.gelu(x)", "torch.nn.functional.gelu(x)"), "gelu(x)", "gelu"),
    "Swish": (("nn.SiLU()", "F.silu(x)", "torch.sigmoid(x) * x", "x * torch.sigmoid(x)"), "silu(x)", "silu"),
    "Mish": (("nn.Mish()", "F.mish(x)", "torch.nn.functional.mish(x)"), "mish(x)", "mish"),
    "HardSwish": (("nn.Hardswish()", "F.hardswish(x)"), "hardswish(x)", "hardswish"),
    "HardSigmoid": (("nn.Hardsigmoid()", "F.hardsigmoid(x)"), "hardsigmoid(x)", "hardsigmoid"),
    "Softplus": (("nn.Softplus()", "F.softplus(x)"), "softplus(x)", "softplus"),
    "Softsign": (("nn.Softsign()", "F.softsign(x)", "x / (1 + torch.abs(x))"), "x / (1.0 + tl.abs(x))", ""),
    "SELU": (("nn.SELU()", "torch.selu(x)", "F.selu(x)"), "selu(x)", "selu"),
    "Abs": (("torch.abs(x)", "x.abs()"), "tl.abs(x)", ""),
    "Square": (("x * x", "x ** 2", "torch.pow(x, 2)", "torch.square(x)"), "x * x", ""),
    "Double": (("x + x", "x * 2", "2 * x"), "x * 2.0", ""),
}
ARITHMETIC = {"Scale": "*", "Multiply": "*", "Add": "+", "BiasAdd": "+", "Subtract": "-", "Divide": "/"}
# Names of an argument or parameter, by operation.
NAMES = {
    "Scale": ("scaling_factor", "scale", "scale_factor"),
    "Multiply": ("multiplier", "multiply_value", "factor"),
    "Add": ("add_value", "sum_tensor", "constant"),
    "BiasAdd": ("bias", "extra_bias", "add_bias"),
    "Subtract": ("subtract_value", "subtract", "offset"),
    "Divide": ("divisor", "division_factor", "divide_by"),
}
VALUES = ("0.1", "0.25", "0.5", "0.75", "1.25", "1.5", "2.0", "2.5", "3.0", "4.0", "10.0")


@dataclass(frozen=True)
class Step:
    """One operation on `x`.

    Attributes:
        word: in the problem's name; empty for a line that is no operation.
        forward: the reference's line.
        kernel: the kernel's line.
        function: the device function that it calls; empty for none.
        arguments: the constructor's arguments, name -> value as text.
        state: the reference's lines in the constructor.
        kept: the candidate's lines in the constructor.
        scalars: the kernel's parameters that are numbers, name -> expression of the candidate.
        per_channel: those that are tensors with a value for each channel, likewise.
        single: those that are tensors with one value, likewise.
        same_shape: name of a further input, of the shape of `x`; empty for none.
    """

    word: str
    forward: str
    kernel: str
    function: str = ""
    arguments: tuple[tuple[str, str], ...] = ()
    state: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    scalars: tuple[tuple[str, str], ...] = ()
    per_channel: tuple[tuple[str, str], ...] = ()
    single: tuple[tuple[str, str], ...] = ()
    same_shape: str = ""


class FreshNames:
    """Gives each thing of a problem a name of its own."""

    def __init__(self, *taken: str) -> None:
        self._taken = set(taken)

    def take(self, name: str) -> str:
        """Return the name, or with a number where it is taken."""
        number, free = 1, name
        while free in self._taken:
            number += 1
            free = f"{name}_{number}"
        self._taken.add(free)
        return free


def one_of(options: Sequence[Choice], rng: np.random.Generator) -> Choice:
    """Draw one of the options, each with the same probability."""
    return options[int(rng.integers(len(options)))]


def draw_steps(
    count: int, names: FreshNames, rng: np.random.Generator, channels: str = "", dims: int = 2
) -> list[Step]:
    """Draw consecutive pointwise operations; some have an addition of an earlier `x` besides.

    Args:
        count: the number of operations.
        names: those that the problem has already.
        channels: the constructor's argument with the number of channels; empty: no parameter per channel.
        dims: dimensions of `x`.
    """
    draws: list[Callable[[], Step]] = [
        lambda: _activation(names, rng),
        lambda: _activation(names, rng),
        lambda: _bounded(names, rng),
        lambda: _number(names, rng),
        lambda: _number(names, rng),
        lambda: _parameter(names, rng, channels, dims),
    ]
    steps: list[Step] = []
    while len(steps) < count:
        step = one_of(draws, rng)()
        if not steps or step.word != steps[-1].word or rng.random() < 0.2:
            steps.append(step)
    if count > 1 and rng.random() < 0.12:
        steps = _with_residual(steps, names, rng)
    return steps


def further_input(name: str, rng: np.random.Generator) -> Step:
    """Draw arithmetic with another input of the module."""
    word = one_of(("Add", "Multiply", "Subtract"), rng)
    sign = ARITHMETIC[word]
    return Step(f"{word}Input", f"x = x {sign} {name}", f"x = x {sign} {name}", same_shape=name)


def _activation(names: FreshNames, rng: np.random.Generator) -> Step:
    """Draw an activation: mostly one of the first seven, a module or a function."""
    common = list(ACTIVATIONS)[:7]
    word = one_of(common, rng) if rng.random() < 0.7 else one_of(list(ACTIVATIONS), rng)
    forms, kernel, function = ACTIVATIONS[word]
    form = one_of(forms, rng)
    if not form.startswith("nn."):
        return Step(word, f"x = {form}", f"x = {kernel}", function)
    attribute = names.take(one_of((word.lower(), "activation", "act"), rng))
    return Step(word, f"x = self.{attribute}(x)", f"x = {kernel}", function, state=(f"self.{attribute} = {form}",))


def _bounded(names: FreshNames, rng: np.random.Generator) -> Step:
    """Draw an operation with bounds or a slope: each a number in the text, or an argument of the constructor."""
    word = one_of(("LeakyReLU", "Hardtanh", "Clamp", "Clamp", "ClampMin", "ClampMax", "ELU"), rng)
    low, high = f"-{one_of(VALUES, rng)}", one_of(VALUES, rng)
    slope = one_of(("0.01", "0.05", "0.1", "0.2"), rng)
    parts = {
        "LeakyReLU": (("negative_slope", slope),),
        "Hardtanh": (("min_val", low), ("max_val", high)),
        "Clamp": (("min_value", low), ("max_value", high)),
        "ClampMin": (("min_value", one_of((low, "0.0"), rng)),),
        "ClampMax": (("max_value", high),),
        "ELU": (("alpha", one_of(("1.0", "0.5"), rng)),),
    }[word]
    as_arguments = rng.random() < 0.5
    own = [(names.take(name) if as_arguments else name, value) for name, value in parts]
    in_kernel = [name if as_arguments else value for name, value in own]
    module = word in ("LeakyReLU", "Hardtanh", "ELU") and rng.random() < 0.5
    written = [(name if module else f"self.{name}") if as_arguments else value for name, value in own]
    kernel, function = {
        "LeakyReLU": (f"leaky_relu(x, {in_kernel[0]})", "leaky_relu"),
        "Hardtanh": (f"clamp(x, {', '.join(in_kernel)})", "clamp"),
        "Clamp": (f"clamp(x, {', '.join(in_kernel)})", "clamp"),
        "ClampMin": (f"tl.where(x < {in_kernel[0]}, {in_kernel[0]}, x)", ""),
        "ClampMax": (f"tl.where(x > {in_kernel[0]}, {in_kernel[0]}, x)", ""),
        "ELU": (f"elu(x, {in_kernel[0]})", "elu"),
    }[word]
    kept = tuple(f"self.{name} = {name}" for name, _ in own) if as_arguments else ()
    call = {
        "LeakyReLU": f"(negative_slope={written[0]})",
        "Hardtanh": f"(min_val={written[0]}, max_val={written[-1]})",
        "Clamp": f"(x, min={written[0]}, max={written[-1]})",
        "ClampMin": f"(x, min={written[0]})",
        "ClampMax": f"(x, max={written[0]})",
        "ELU": f"(alpha={written[0]})",
    }[word]
    if module:
        attribute = names.take(word.lower())
        state: tuple[str, ...] = (f"self.{attribute} = nn.{word}{call}",)
        forward = f"x = self.{attribute}(x)"
    else:
        function_name = {"LeakyReLU": "F.leaky_relu", "Hardtanh": "F.hardtanh", "ELU": "F.elu"}.get(word, "torch.clamp")
        state, forward = kept, f"x = {function_name}{call if '(x' in call else call.replace('(', '(x, ', 1)}"
    return Step(
        "Clamp" if word.startswith("Clamp") else word,
        forward,
        f"x = {kernel}",
        function,
        arguments=tuple(own) if as_arguments else (),
        state=state,
        kept=kept,
        scalars=tuple((name, f"self.{name}") for name, _ in own) if as_arguments else (),
    )


def _number(names: FreshNames, rng: np.random.Generator) -> Step:
    """Draw arithmetic with a number: in the text, or an argument of the constructor."""
    word = one_of(("Scale", "Multiply", "Add", "Subtract", "Divide"), rng)
    sign, value = ARITHMETIC[word], one_of(VALUES, rng)
    if rng.random() < 0.35:
        return Step(word, f"x = x {sign} {value}", f"x = x {sign} {value}")
    name = names.take(one_of(NAMES[word], rng))
    kept = (f"self.{name} = {name}",)
    scalars = ((name, f"self.{name}"),)
    line = f"x = x {sign} "
    return Step(word, f"{line}self.{name}", line + name, "", ((name, value),), kept, kept, scalars)


def _parameter(names: FreshNames, rng: np.random.Generator, channels: str, dims: int) -> Step:
    """Draw arithmetic with a parameter: a value for each channel, or one for all."""
    word = one_of(("BiasAdd", "BiasAdd", "Add", "Multiply", "Scale", "Subtract"), rng)
    sign, name = ARITHMETIC[word], names.take(one_of(NAMES[word], rng))
    forward, kernel = f"x = x {sign} self.{name}", f"x = x {sign} {name}"
    if not channels or rng.random() < 0.15:
        value = one_of(VALUES, rng)
        line = f"self.{name} = nn.Parameter(torch.tensor({value}))"
        return Step(word, forward, kernel, state=(line,), kept=(line,), single=((name, f"self.{name}"),))
    shape, argument = channels + ", 1" * (dims - 2), names.take(f"{name}_shape")
    line = f"self.{name} = nn.Parameter(torch.randn({argument}))"
    arguments: tuple[tuple[str, str], ...] = ((argument, f"({shape}{',' if dims == 2 else ''})"),)
    if rng.random() < 0.4:
        line, arguments = f"self.{name} = nn.Parameter(torch.randn({shape}))", ()
    per_channel = ((name, f"self.{name}"),)
    return Step(word, forward, kernel, "", arguments, (line,), (line,), per_channel=per_channel)


def _with_residual(steps: list[Step], names: FreshNames, rng: np.random.Generator) -> list[Step]:
    """Return the steps with an addition of `x` as it was before some of them."""
    name = names.take(one_of(("original", "residual", "identity"), rng))
    start = int(rng.integers(len(steps)))
    saved = Step("", f"{name} = x", f"{name} = x")
    added = Step("ResidualAdd", f"x = x + {name}", f"x = x + {name}")
    return [*steps[:start], saved, *steps[start:], added]
