"""Triton kernels of generated candidates: pointwise, over contiguous segments, over channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cudal1_ray.problems.generated.statistics import Pass, Statistic
from cudal1_ray.problems.generated.steps import Step

NEUTRAL = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}


@dataclass
class Kernel:
    """One kernel under construction.

    Attributes:
        name: the name of its function.
        signature: its parameters, without the last one, BLOCK.
        arguments: the expressions that a candidate gives for them.
        lines: the lines of its body.
        functions: the device functions that it calls.
    """

    name: str
    signature: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)

    def take(self, parameter: str, argument: str) -> None:
        """Add a parameter unless the kernel has it."""
        if parameter not in self.signature:
            self.signature.append(parameter)
            self.arguments.append(argument)

    def take_steps(self, steps: Sequence[Step]) -> None:
        """Add the parameters and device functions of the steps: tensors first, then numbers."""
        for step in steps:
            for name, value in (*step.per_channel, *step.single):
                self.take(f"{name}_ptr", value)
        for step in steps:
            for name, value in step.scalars:
                self.take(name, value)
            if step.function and step.function not in self.functions:
                self.functions.append(step.function)

    def text(self) -> str:
        """Return the kernel's source."""
        parameters = ", ".join([*self.signature, "BLOCK: tl.constexpr"])
        body = "\n".join(f"    {line}" for line in self.lines)
        return f"@triton.jit\ndef {self.name}({parameters}):\n{body}\n"


def loads_of(steps: Sequence[Step], channel: str, mask: str) -> list[str]:
    """Return the lines that load the parameters of the steps.

    Args:
        channel: expression of the channel.
        mask: the mask of loads by a channel that is a vector; empty for a scalar.
    """
    lines = []
    for step in steps:
        for name, _ in step.single:
            lines.append(f"{name} = tl.load({name}_ptr)")
        for name, _ in step.per_channel:
            lines.append(f"{name} = tl.load({name}_ptr + {channel}{f', mask={mask}' if mask else ''})")
    return list(dict.fromkeys(lines))


def statistic_in_segment(
    statistic: Statistic, load: Sequence[str], norm: Sequence[str], store: Sequence[str]
) -> list[str]:
    """Return the lines of a kernel whose program walks over one segment of `length` elements, once for each pass.

    Args:
        load: lines that give `x` of the elements `at`.
        norm: lines that load `weight` and `bias` of an affine norm.
        store: lines that end it: of each element, or of the one value.
    """
    lines: list[str] = []
    loop = "for start in range(0, length, BLOCK):"
    inner = ["at = start + tl.arange(0, BLOCK)", "mask = at < length", *load]
    for each in statistic.passes:
        of_lane = f"{each.name}_of_lane"
        lines += _accumulated(each, of_lane, loop, inner, f"tl.where(mask, {each.element}, {NEUTRAL[each.kind]})")
        lines += [f"{each.name} = tl.{each.kind}({of_lane}, 0)", *_after(each, "length")]
    result = f"x = {statistic.result}".replace("{n}", "length")
    if statistic.reduces:
        return [*lines, result, *store]
    return [*lines, loop, *_indented([*inner, *norm, result, *store])]


def statistic_at_once(
    statistic: Statistic, load: Sequence[str], norm: Sequence[str], store: Sequence[str]
) -> list[str]:
    """Return the lines of a kernel whose program holds its whole segment, loaded once, as `statistic_in_segment`."""
    lines = ["at = tl.arange(0, BLOCK)", "mask = at < length", *load, *norm]
    for each in statistic.passes:
        lines.append(f"{each.name} = tl.{each.kind}(tl.where(mask, {each.element}, {NEUTRAL[each.kind]}), 0)")
        lines += _after(each, "length")
    return [*lines, f"x = {statistic.result}".replace("{n}", "length"), *store]


def statistic_over_channels(statistic: Statistic, load: Sequence[str], store: Sequence[str]) -> list[str]:
    """Return the lines of a kernel whose lanes each walk over all channels of one position, once for each pass."""
    lines: list[str] = []
    loop = "for channel in range(0, channels):"
    for each in statistic.passes:
        lines += [*_accumulated(each, each.name, loop, load, each.element), *_after(each, "channels")]
    result = f"x = {statistic.result}".replace("{n}", "channels")
    if statistic.reduces:
        return [*lines, result, *store]
    return [*lines, loop, *_indented([*load, result, *store])]


def _accumulated(each: Pass, name: str, loop: str, load: Sequence[str], value: str) -> list[str]:
    """Return the lines of one pass: the variable `name` takes in a value in every round of the loop."""
    if each.kind == "sum":
        first, update = "tl.zeros([BLOCK], tl.float32)", f"{name} + {value}"
    else:
        first, update = f"tl.full([BLOCK], {NEUTRAL[each.kind]}, tl.float32)", f"tl.{each.kind}imum({name}, {value})"
    return [f"{name} = {first}", loop, *_indented([*load, f"{name} = {update}"])]


def _after(each: Pass, count: str) -> list[str]:
    return [each.after.replace("{n}", count)] if each.after else []


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
