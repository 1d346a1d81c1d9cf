"""Candidates of generated problems: the library's layer, then one kernel for everything after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cudal1_ray.problems.generated.kernels import (
    Kernel,
    loads_of,
    statistic_at_once,
    statistic_in_segment,
    statistic_over_channels,
)
from cudal1_ray.problems.generated.layers import Layer
from cudal1_ray.problems.generated.statistics import GROUPS, PLANES, ROWS, Statistic
from cudal1_ray.problems.generated.steps import Step

POINTWISE_BLOCK = 1024
# Elements that one program holds at once, in registers.
MOST_AT_ONCE = 8192
# Blocks of elements that one program sums where a statistic is over everything.
BLOCKS_PER_PROGRAM = 16


@dataclass(frozen=True)
class Tail:
    """What follows the layer: steps, a statistic over some of the elements, steps.

    Attributes:
        before: steps before the statistic; all of them where there is none.
        statistic: the operation between the steps.
        over: what the statistic is over, one of `statistics`; empty without a statistic.
        forward: the reference's line of the statistic.
        after: steps after it, on its result.
        affine: attribute of the norm whose weight and bias the statistic's result has; empty for none.
        count: elements that one statistic is over; 0 where that is not known before a convolution runs.
    """

    before: tuple[Step, ...]
    statistic: Statistic | None = None
    over: str = ""
    forward: str = ""
    after: tuple[Step, ...] = ()
    affine: str = ""
    count: int = 0

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps before and after the statistic."""
        return (*self.before, *self.after)


@dataclass(frozen=True)
class Written:
    """A kernel and what goes with it.

    Attributes:
        kernel: complete.
        forward: the lines of `forward` that call it and return its result.
        design: what it does, a sentence or two each.
        reads: how many times it loads each element.
    """

    kernel: Kernel
    forward: tuple[str, ...]
    design: tuple[str, ...]
    reads: int = 1


def pointwise(name: str, layer: Layer, tail: Tail, folded: str) -> Written:
    """Return a kernel for pointwise steps.

    Args:
        name: the kernel's.
        folded: name, in the kernel, of the layer's bias that it adds; empty where the library adds it.
    """
    kernel, steps = Kernel(name), tail.before
    in_place = bool(layer.kind)
    out = "x" if in_place else "out"
    kernel.take("x_ptr", "x")
    others = [step.same_shape for step in steps if step.same_shape]
    for other in others:
        kernel.take(f"{other}_ptr", other)
    if not in_place:
        kernel.take("out_ptr", "out")
    if folded:
        kernel.take(f"{folded}_ptr", f"self.{layer.attribute}.bias")
    kernel.take_steps(steps)
    per_channel = bool(folded) or any(step.per_channel for step in steps)
    if per_channel and layer.dims > 2:
        where, setup, grid, sentence = _within_planes(kernel)
        channel = ("channel", "")
    else:
        where, setup, grid, sentence = _over_elements(kernel, per_channel)
        channel = ("column", "mask")
    load = ["x = tl.load(x_ptr + offsets, mask=mask)"]
    if folded:
        load = [f"{folded} = tl.load({folded}_ptr + channel)", f"{load[0]} + {folded}"]
    load += [f"{other} = tl.load({other}_ptr + offsets, mask=mask)" for other in others]
    kernel.lines = [*where, *load, *loads_of(steps, *channel), *(step.kernel for step in steps)]
    kernel.lines.append(f"tl.store({out}_ptr + offsets, x, mask=mask)")
    lines = [f"{other} = {other}.contiguous()" for other in others] + setup
    if not in_place:
        lines.insert(0, "out = torch.empty_like(x)")
    lines += _call(kernel, grid, str(POINTWISE_BLOCK), 4)
    return Written(kernel, (*lines, f"return {out}"), (sentence, _registers(steps)))


def _within_planes(kernel: Kernel) -> tuple[list[str], list[str], str, str]:
    """Return a kernel's lines for where a program is within a plane, `forward`'s for it, the grid, and a sentence."""
    kernel.take("channels", "x.shape[1]")
    kernel.take("plane_size", "plane_size")
    where = [
        "plane = tl.program_id(0)",
        "channel = plane % channels",
        "within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        "mask = within < plane_size",
        "offsets = plane.to(tl.int64) * plane_size + within",
    ]
    sentence = (
        f"The grid is (batch * channels, tiles of a plane): a program handles {POINTWISE_BLOCK} neighbouring elements "
        "of one plane, so the channel is a scalar and its parameters are loaded once."
    )
    grid = f"(x.shape[0] * x.shape[1], triton.cdiv(plane_size, {POINTWISE_BLOCK}))"
    return where, ["plane_size = x[0, 0].numel()"], grid, sentence


def _over_elements(kernel: Kernel, per_channel: bool) -> tuple[list[str], list[str], str, str]:
    """Return what `_within_planes` does, for programs that divide all elements between them."""
    kernel.take("total", "total")
    where = ["offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)", "mask = offsets < total"]
    sentence = f"A program handles {POINTWISE_BLOCK} neighbouring elements, masked at the end."
    if per_channel:
        kernel.take("features", "x.shape[1]")
        where.append("column = offsets % features")
        sentence += " The column, by which parameters are loaded, is the offset modulo the number of features."
    return where, ["total = x.numel()"], f"(triton.cdiv(total, {POINTWISE_BLOCK}),)", sentence


def in_segments(name: str, layer: Layer, tail: Tail) -> Written:
    """Return a kernel with one program for each contiguous segment: a row, a group of channels, a plane."""
    kernel, statistic, out = _begun(name, layer, tail)
    length = {ROWS: "x.shape[-1]", GROUPS: f"x[0].numel() // self.{tail.affine}.num_groups", PLANES: "x[0, 0].numel()"}
    per_channel = any(step.per_channel for step in tail.steps) or tail.affine
    channel, mask = _channel_in_segment(kernel, layer, tail) if per_channel else ("", "")
    norm = []
    if tail.affine:
        for part in ("weight", "bias"):
            kernel.take(f"norm_{part}_ptr", f"self.{tail.affine}.{part}")
            norm.append(f"{part} = tl.load(norm_{part}_ptr + {channel}{f', mask={mask}' if mask else ''})")
        kernel.take("eps", f"self.{tail.affine}.eps")
    kernel.take("length", "length")
    load = ["x = tl.load(x_ptr + base + at, mask=mask, other=0.0)", *loads_of(tail.before, channel, mask)]
    load += [step.kernel for step in tail.before]
    place = f"{out}_ptr + segment, x" if statistic.reduces else f"{out}_ptr + base + at, x, mask=mask"
    store = [*loads_of(tail.after, channel, mask), *(step.kernel for step in tail.after), f"tl.store({place})"]
    at_once = 0 < tail.count <= MOST_AT_ONCE
    walk = statistic_at_once if at_once else statistic_in_segment
    kernel.lines = [
        "segment = tl.program_id(0)",
        "base = segment.to(tl.int64) * length",
        *walk(statistic, load, norm, store),
    ]
    lines = [f"length = {length[tail.over]}"]
    if at_once:
        lines.append("block = triton.next_power_of_2(length)")
    shape = {ROWS: "*x.shape[:-1], 1", PLANES: f"*x.shape[:2]{', 1' * (layer.dims - 2)}"}
    lines += _allocation(out, shape[tail.over] if statistic.reduces else "")
    lines += _call(kernel, "(x.numel() // length,)", "block" if at_once else "1024", 8 if at_once else 4)
    group = "group of features of a row" if layer.dims == 2 else "group of channels of an image"
    segment = {ROWS: "row", GROUPS: group, PLANES: "plane"}[tail.over]
    held = "is loaded once and stays in registers" if at_once else "is walked over in blocks of 1024 elements"
    owner = f"A program owns one {segment}, which is contiguous in memory and {held}."
    sentences = (owner, *_around(tail, f"The elements {statistic.effect}."))
    return Written(kernel, (*lines, f"return {out}"), sentences, 1 if at_once else statistic.walks)


def _begun(name: str, layer: Layer, tail: Tail) -> tuple[Kernel, Statistic, str]:
    """Return a kernel with the parameters of a tail with a statistic, the statistic, and the name of the result: that
    of the layer's output where it is written in place.
    """
    kernel, statistic = Kernel(name), tail.statistic
    assert statistic is not None
    out = "out" if statistic.reduces or not layer.kind else "x"
    for tensor in dict.fromkeys(("x", out)):
        kernel.take(f"{tensor}_ptr", tensor)
    kernel.take_steps(tail.steps)
    return kernel, statistic, out


def _allocation(out: str, shape: str) -> list[str]:
    """Return the line of `forward` that makes the result, of this shape or, where it is empty, of that of `x`."""
    if out == "x":
        return []
    return [f"out = x.new_empty({shape})" if shape else "out = torch.empty_like(x)"]


def _channel_in_segment(kernel: Kernel, layer: Layer, tail: Tail) -> tuple[str, str]:
    """Return the expression of the channel of elements `at` of a segment, and the mask of a load by it."""
    if tail.over == ROWS:
        return "at", "mask"
    if tail.over == PLANES:
        kernel.take("channels", "x.shape[1]")
        return "segment % channels", ""
    kernel.take("groups", f"self.{tail.affine}.num_groups")
    if layer.dims == 2:
        return "(segment % groups) * length + at", "mask"
    kernel.take("plane_size", "x[0, 0].numel()")
    return "(segment % groups) * (length // plane_size) + at // plane_size", "mask"


def over_channels(name: str, layer: Layer, tail: Tail) -> Written:
    """Return a kernel whose programs own neighbouring positions and walk over all channels of each."""
    kernel, statistic, out = _begun(name, layer, tail)
    kernel.take("channels", "x.shape[1]")
    kernel.take("inner", "inner")
    load = ["x = tl.load(x_ptr + base + channel * inner, mask=mask, other=0.0)", *loads_of(tail.before, "channel", "")]
    load += [step.kernel for step in tail.before]
    place = "image * inner + within" if statistic.reduces else "base + channel * inner"
    store = [*loads_of(tail.after, "channel", ""), *(step.kernel for step in tail.after)]
    store.append(f"tl.store({out}_ptr + {place}, x, mask=mask)")
    kernel.lines = [
        "image = tl.program_id(0).to(tl.int64)",
        "within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        "mask = within < inner",
        "base = image * channels * inner + within",
        *statistic_over_channels(statistic, load, store),
    ]
    lines = ["inner = x[0, 0].numel()", *_allocation(out, "x.shape[0], 1, *x.shape[2:]" if statistic.reduces else "")]
    lines += _call(kernel, "(x.shape[0], triton.cdiv(inner, 256))", "256", 4)
    owner = (
        "A program owns 256 neighbouring positions of an image; each lane walks over the channels of its position, so "
        "that every load is coalesced."
    )
    sentences = (owner, *_around(tail, f"The values of a position {statistic.effect}."))
    return Written(kernel, (*lines, f"return {out}"), sentences, statistic.walks)


def over_everything(name: str, tail: Tail) -> Written:
    """Return a kernel whose programs each sum a piece of the input; PyTorch adds their few sums."""
    kernel, statistic = Kernel(name), tail.statistic
    assert statistic is not None
    others = [step.same_shape for step in tail.before if step.same_shape]
    for source in ("x", *others):
        kernel.take(f"{source}_ptr", source)
    kernel.take("partial_ptr", "partial")
    kernel.take_steps(tail.before)
    kernel.take("total", "total")
    kernel.take("BLOCKS: tl.constexpr", f"BLOCKS={BLOCKS_PER_PROGRAM}")
    body = [
        "offsets = first + block * BLOCK + tl.arange(0, BLOCK)",
        "mask = offsets < total",
        *(f"{source} = tl.load({source}_ptr + offsets, mask=mask, other=0.0)" for source in ("x", *others)),
        *loads_of(tail.before, "", ""),
        *(step.kernel for step in tail.before),
        "summed += tl.where(mask, x, 0.0)",
    ]
    kernel.lines = [
        "program = tl.program_id(0)",
        "first = program.to(tl.int64) * BLOCKS * BLOCK",
        "summed = tl.zeros([BLOCK], tl.float32)",
        "for block in range(BLOCKS):",
        *(f"    {line}" for line in body),
        "tl.store(partial_ptr + program, tl.sum(summed, 0))",
    ]
    division, divided = (" / total", " and divides by the number of elements") if statistic.word == "Mean" else ("", "")
    lines = [
        *(f"{other} = {other}.contiguous()" for other in others),
        "total = x.numel()",
        f"programs = triton.cdiv(total, {BLOCKS_PER_PROGRAM} * 1024)",
        "partial = x.new_empty(programs)",
        *_call(kernel, "(programs,)", "1024", 4),
        f"return partial.sum(){division}",
    ]
    sentences = (
        f"A program handles {BLOCKS_PER_PROGRAM} neighbouring blocks of 1024 elements and keeps one sum per lane.",
        _registers(tail.before),
        f"Each program stores one sum; PyTorch adds these few{divided}.",
    )
    return Written(kernel, tuple(lines), sentences)


def _around(tail: Tail, statistic: str) -> list[str]:
    """Return the sentences of a design on steps, a statistic, steps."""
    before = [f"{_registers(tail.before)} This happens on the way in."] if tail.before else []
    after = [f"{_registers(tail.after)} Then the result is stored."] if tail.after else []
    return [*before, statistic, *after]


def _registers(steps: Sequence[Step]) -> str:
    """Return a design's sentence on steps."""
    words = [step.word for step in steps if step.word]
    joined = " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
    return f"{joined} {'are' if len(words) > 1 else 'is'} computed in registers, in the reference's order."


def _call(kernel: Kernel, grid: str, block: str, warps: int) -> list[str]:
    """Return the lines of `forward` that launch a kernel."""
    arguments = ", ".join([*kernel.arguments, f"BLOCK={block}", f"num_warps={warps}"])
    return [f"grid = {grid}", f"{kernel.name}[grid](", f"    {arguments}", ")"]
