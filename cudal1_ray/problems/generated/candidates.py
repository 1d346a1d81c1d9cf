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
from cudal1_ray.problems.generated.statistics import Statistic
from cudal1_ray.problems.generated.steps import Step

POINTWISE_BLOCK = 1024
# Elements that one program holds at once, in registers.
MOST_AT_ONCE = 8192
# A statistic is over these.
ROWS, GROUPS, PLANES, CHANNELS, EVERYTHING = "rows", "groups", "planes", "channels", "everything"
# Blocks of elements that one program sums where a statistic is over everything.
BLOCKS_PER_PROGRAM = 16


@dataclass(frozen=True)
class Tail:
    """What follows the layer: steps, a statistic over some of the elements, steps.

    Attributes:
        over: `ROWS`, `GROUPS` of channels, `PLANES`, `CHANNELS` or `EVERYTHING`; empty without a statistic.
        affine: attribute of the norm whose weight and bias the statistic's result has; empty for none.
        count: elements that a statistic is over, where that is known.
    """

    before: tuple[Step, ...]
    statistic: Statistic | None = None
    over: str = ""
    after: tuple[Step, ...] = ()
    affine: str = ""
    count: int = 0

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.before, *self.after)


@dataclass(frozen=True)
class Written:
    """A kernel, the lines of `forward` that call it, and what it does, as numbered sentences."""

    kernel: Kernel
    forward: tuple[str, ...]
    design: tuple[str, ...]


def pointwise(name: str, layer: Layer, tail: Tail, folded: str) -> Written:
    """Return a kernel for pointwise steps.

    Args:
        folded: the kernel's name of the layer's bias, which it adds; empty: the library does.
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
    needs_channel = folded or any(step.per_channel for step in steps)
    by_plane = layer.dims > 2 and needs_channel
    if by_plane:
        kernel.take("channels", "x.shape[1]")
        kernel.take("plane_size", "plane_size")
        where = [
            "plane = tl.program_id(0)",
            "channel = plane % channels",
            "within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
            "mask = within < plane_size",
            "offsets = plane.to(tl.int64) * plane_size + within",
        ]
        setup = ["plane_size = x[0, 0].numel()"]
        grid = f"(x.shape[0] * x.shape[1], triton.cdiv(plane_size, {POINTWISE_BLOCK}))"
        each = (
            f"The grid is (batch * channels, tiles of a plane): a program handles {POINTWISE_BLOCK} neighbouring elements "
            "of one plane, so the channel is a scalar and its parameters are loaded once."
        )
    else:
        kernel.take("total", "total")
        where = [
            "offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
            "mask = offsets < total",
        ]
        setup = ["total = x.numel()"]
        grid = f"(triton.cdiv(total, {POINTWISE_BLOCK}),)"
        each = f"A program handles {POINTWISE_BLOCK} neighbouring elements, masked at the end."
        if needs_channel:
            kernel.take("features", "x.shape[1]")
            where.append("column = offsets % features")
            each += " The column, by which parameters are loaded, is the offset modulo the number of features."
    load = ["x = tl.load(x_ptr + offsets, mask=mask)"]
    if folded:
        load = [f"{folded} = tl.load({folded}_ptr + channel)", f"{load[0]} + {folded}"]
    load += [f"{other} = tl.load({other}_ptr + offsets, mask=mask)" for other in others]
    channel = ("channel", "") if by_plane else ("column", "mask")
    loads = loads_of(steps, *channel)
    kernel.lines = [
        *where, *load, *loads, *(step.kernel for step in steps), f"tl.store({out}_ptr + offsets, x, mask=mask)",
    ]  # fmt: skip
    lines = [f"{other} = {other}.contiguous()" for other in others] + setup
    if not in_place:
        lines.insert(0, "out = torch.empty_like(x)")
    lines += _call(kernel, grid, str(POINTWISE_BLOCK), 4)
    return Written(kernel, (*lines, f"return {out}"), (each, _registers(steps)))


def in_segments(name: str, layer: Layer, tail: Tail) -> Written:
    """Return a kernel with one program for each contiguous segment: a row, a group of channels, a plane."""
    kernel, statistic = Kernel(name), tail.statistic
    assert statistic is not None
    kernel.take("x_ptr", "x")
    writes_new = statistic.reduces or not layer.kind
    if writes_new:
        kernel.take("out_ptr", "out")
    kernel.take_steps(tail.steps)
    of = {ROWS: "x.shape[-1]", GROUPS: f"x[0].numel() // self.{tail.affine}.num_groups", PLANES: "x[0, 0].numel()"}
    setup = [f"length = {of[tail.over]}"]
    per_channel = any(step.per_channel for step in tail.steps) or tail.affine
    channel, vector = _channel_in_segment(kernel, layer, tail) if per_channel else ("", "")
    if tail.affine:
        for of_norm in ("weight", "bias"):
            kernel.take(f"norm_{of_norm}_ptr", f"self.{tail.affine}.{of_norm}")
        kernel.take("eps", f"self.{tail.affine}.eps")
    kernel.take("length", "length")
    at_once = 0 < tail.count <= MOST_AT_ONCE
    if at_once:
        setup.append("block = triton.next_power_of_2(length)")
    load = ["x = tl.load(x_ptr + base + at, mask=mask, other=0.0)", *loads_of(tail.before, channel, vector)]
    load += [step.kernel for step in tail.before]
    mask = f", {vector}" if vector else ""
    norm = [f"{of} = tl.load(norm_{of}_ptr + {channel}{mask.replace(', ', ', mask=')})" for of in ("weight", "bias")]
    after = [*loads_of(tail.after, channel, vector), *(step.kernel for step in tail.after)]
    where = "out_ptr" if writes_new else "x_ptr"
    if statistic.reduces:
        store = [*after, f"tl.store({where} + segment, x)"]
    else:
        store = [*after, f"tl.store({where} + base + at, x, mask=mask)"]
    walk = statistic_at_once if at_once else statistic_in_segment
    kernel.lines = [
        "segment = tl.program_id(0)",
        "base = segment.to(tl.int64) * length",
        *walk(statistic, [*load, *(norm if tail.affine and at_once else [])], "length", store),
    ]
    if tail.affine and not at_once:
        result = next(i for i, line in enumerate(kernel.lines) if "* weight + bias" in line)
        kernel.lines[result:result] = [f"    {line}" for line in norm]
    lines = [*setup]
    if writes_new:
        shape = {ROWS: "*x.shape[:-1], 1", PLANES: f"*x.shape[:2]{', 1' * (layer.dims - 2)}"}
        lines.append(f"out = x.new_empty({shape[tail.over]})" if statistic.reduces else "out = torch.empty_like(x)")
    lines += _call(kernel, "(x.numel() // length,)", "block" if at_once else "1024", 8 if at_once else 4)
    what = {ROWS: "row", GROUPS: "group of channels of an image", PLANES: "plane"}[tail.over]
    held = "is loaded once and stays in registers" if at_once else "is walked over in blocks of 1024 elements"
    sentences = [f"A program owns one {what}, which is contiguous in memory and {held}."]
    if tail.before:
        sentences.append(f"{_registers(tail.before)} This happens on the way in.")
    sentences.append(f"The elements {statistic.says}.")
    if tail.after:
        sentences.append(f"{_registers(tail.after)} Then the result is stored.")
    return Written(kernel, (*lines, f"return {'out' if writes_new else 'x'}"), tuple(sentences))


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
    kernel, statistic = Kernel(name), tail.statistic
    assert statistic is not None
    kernel.take("x_ptr", "x")
    writes_new = statistic.reduces or not layer.kind
    if writes_new:
        kernel.take("out_ptr", "out")
    kernel.take_steps(tail.steps)
    kernel.take("channels", "x.shape[1]")
    kernel.take("inner", "inner")
    load = ["x = tl.load(x_ptr + base + channel * inner, mask=mask, other=0.0)", *loads_of(tail.before, "channel", "")]
    load += [step.kernel for step in tail.before]
    where = "out_ptr" if writes_new else "x_ptr"
    place = "image * inner + within" if statistic.reduces else "base + channel * inner"
    store = [*loads_of(tail.after, "channel", ""), *(step.kernel for step in tail.after)]
    store.append(f"tl.store({where} + {place}, x, mask=mask)")
    kernel.lines = [
        "image = tl.program_id(0).to(tl.int64)",
        "within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        "mask = within < inner",
        "base = image * channels * inner + within",
        *statistic_over_channels(statistic, load, store),
    ]
    lines = ["inner = x[0, 0].numel()"]
    if writes_new:
        lines.append(
            "out = x.new_empty(x.shape[0], 1, *x.shape[2:])" if statistic.reduces else "out = torch.empty_like(x)"
        )
    lines += _call(kernel, "(x.shape[0], triton.cdiv(inner, 256))", "256", 4)
    sentences = [
        "A program owns 256 neighbouring positions of an image; each lane walks over the channels of its position, so "
        "that every load is coalesced.",
    ]
    if tail.before:
        sentences.append(f"{_registers(tail.before)} This happens on the way in.")
    sentences.append(f"The values of a position {statistic.says}.")
    if tail.after:
        sentences.append(f"{_registers(tail.after)} Then the result is stored.")
    return Written(kernel, (*lines, f"return {'out' if writes_new else 'x'}"), tuple(sentences))


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
    result = "partial.sum() / total" if statistic.word == "Mean" else "partial.sum()"
    lines = [
        *(f"{other} = {other}.contiguous()" for other in others),
        "total = x.numel()",
        f"programs = triton.cdiv(total, {BLOCKS_PER_PROGRAM} * 1024)",
        "partial = x.new_empty(programs)",
        *_call(kernel, "(programs,)", "1024", 4),
        f"return {result}",
    ]
    sentences = (
        f"A program handles {BLOCKS_PER_PROGRAM} neighbouring blocks of 1024 elements and keeps one sum per lane.",
        _registers(tail.before),
        "Each program stores one sum; PyTorch adds these few, and divides where a mean is asked for.",
    )
    return Written(kernel, tuple(lines), sentences)


def _registers(steps: Sequence[Step]) -> str:
    words = [step.word for step in steps if step.word]
    joined = " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
    return f"{joined} {'are' if len(words) > 1 else 'is'} computed in registers, in the reference's order."


def _call(kernel: Kernel, grid: str, block: str, warps: int) -> list[str]:
    arguments = ", ".join([*kernel.arguments, f"BLOCK={block}", f"num_warps={warps}"])
    return [f"grid = {grid}", f"{kernel.name}[grid](", f"    {arguments}", ")"]
