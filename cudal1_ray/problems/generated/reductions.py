"""Reductions alone, along any axis: sums, means, variances, extremes and their indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1_ray.problems.generated.alone import Alone, kernel, launch
from cudal1_ray.problems.generated.kernels import NEUTRAL
from cudal1_ray.problems.generated.steps import one_of

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Reduction:
    """One value of all elements along an axis.

    Attributes:
        word: in a problem's name.
        forms: the reference's expressions; {d} stands for the axis and an option after it.
        at_once: the kernel's expression for a line `x` of `length` elements that a program holds.
        other: what masked elements of that line count as.
        walk: accumulator -> its value before the walk, and its new value for each element `x`, number `step`.
        result: expression of these that is stored.
        what: what a design reports of the elements.
    """

    word: str
    forms: tuple[str, ...]
    at_once: str
    other: str
    walk: tuple[tuple[str, str, str], ...]
    result: str
    what: str

    @property
    def index(self) -> bool:
        """Return whether the results are indices."""
        return self.word.startswith("Arg")


def _extreme(name: str, sign: str, neutral: str) -> tuple[Reduction, Reduction]:
    """Return the reductions to an extreme and to its index."""
    start = f"tl.full([BLOCK], {neutral}, tl.float32)"
    forms = (f"torch.{name}(x, {{d}})[0]", f"torch.{name}(x, {{d}}).values", f"torch.a{name}(x, {{d}})")
    value = ("best", start, f"tl.{name}imum(best, x)")
    index = ("index", "tl.zeros([BLOCK], tl.int32)", f"tl.where(x {sign} best, step, index)")
    arg_forms = (f"torch.arg{name}(x, {{d}})", f"torch.arg{name}(x, {{d}})", f"x.arg{name}({{d}})")
    return (
        Reduction(name.title(), forms, f"tl.{name}(x, 0)", neutral, (value,), "best", "are compared"),
        Reduction(f"Arg{name}", arg_forms, f"tl.arg{name}(x, 0)", neutral,
                  (index, ("best", start, f"tl.where(x {sign} best, x, best)")), "index",
                  "are compared, and the index of the best is kept; of equal ones, that of the first"),
    )  # fmt: skip


_TOTAL = ("total", "tl.zeros([BLOCK], tl.float32)", "total + x")
MAX, ARGMAX = _extreme("max", ">", NEUTRAL["max"])
MIN, ARGMIN = _extreme("min", "<", NEUTRAL["min"])
REDUCTIONS = (
    ARGMAX, ARGMIN, ARGMAX, ARGMIN, MAX, MIN,
    Reduction("Sum", ("torch.sum(x, {d})", "x.sum({d})"), "tl.sum(x, 0)", "0.0", (_TOTAL,), "total", "are summed"),
    Reduction("Mean", ("torch.mean(x, {d})", "x.mean({d})"), "tl.sum(x, 0) / length", "0.0", (_TOTAL,),
              "total / length", "are summed, and the sum is divided by their number"),
    Reduction("MeanSquare", ("torch.mean(x ** 2, {d})", "(x * x).mean({d})"), "tl.sum(x * x, 0) / length", "0.0",
              (("total", "tl.zeros([BLOCK], tl.float32)", "total + x * x"),), "total / length",
              "are squared and summed, and the sum is divided by their number"),
    Reduction("Range", ("torch.amax(x, {d}) - torch.amin(x, {d})",),
              'tl.max(x, 0) - tl.min(tl.where(mask, x, float("inf")), 0)', NEUTRAL["max"],
              (MAX.walk[0], ("least", MIN.walk[0][1], "tl.minimum(least, x)")), "best - least",
              "give their largest and their smallest value"),
)  # fmt: skip
# Positions of one program that walks along an axis before the last one.
POSITIONS = 128


def draw_reduction(rng: np.random.Generator) -> Alone:
    """Draw a reduction."""
    reduction, dims = one_of(REDUCTIONS, rng), one_of((3, 3, 3, 4), rng)
    axes = {
        3: (("batch_size", (32, 64, 128)), ("dim1", (512, 1024)), ("dim2", (512, 1000, 1024, 2048))),
        4: (("batch_size", (16, 32)), ("features", (32, 64)), ("dim1", (128, 256)), ("dim2", (128, 255))),
    }[dims]
    dim = one_of((0, *([1] * 3), 2, *([dims - 2] * (dims - 3)), dims - 1, -1), rng)
    at, keep, as_argument = dim % dims, bool(rng.random() < 0.35), bool(rng.random() < 0.7)
    name = one_of(("dim", "reduce_dim"), rng)
    option = f"dim={f'self.{name}' if as_argument else dim}{', keepdim=True' if keep else ''}"
    kept = (f"self.{name} = {name}",) if as_argument else ()
    last = at == dims - 1
    where = "last" if last else "first" if at == 0 else "middle"
    shape = ", ".join(axis for axis, _ in axes)
    kernel_name = f"{reduction.word.lower()}_kernel"
    allocation = "torch.empty(shape, dtype=torch.int64, device=x.device)" if reduction.index else "x.new_empty(shape)"
    kept_axes = [f"*x.shape[:{at}]" if at else "", "1" if keep else "", "" if last else f"*x.shape[{at + 1}:]"]
    return Alone(
        words=(reduction.word, f"{dims}d", where, *(["keepdim"] if keep else [])),
        sentence=f"{one_of(('Simple model of', 'Model that performs'), rng)} {reduction.word} over an axis.",
        arguments=((name, str(dim)),) if as_argument else (),
        state=kept,
        kept=kept,
        inputs=(("x", f"torch.rand({shape})"),),
        body=(f"return {one_of(reduction.forms, rng).format(d=option)}",),
        sizes=tuple((axis, str(one_of(values, rng))) for axis, values in axes),
        kernels=((_of_lines if last else _of_positions)(reduction, kernel_name),),
        forward=(
            "x = x.contiguous()",
            f"shape, length = [{', '.join(filter(None, kept_axes))}], x.shape[{at}]",
            f"out = {allocation}",
            *_launch(kernel_name, at, last),
            "return out",
        ),
        technique="memory coalescing",
        analysis="A reduction does an operation or two with each element that it loads, so memory bandwidth bounds it. "
        "A kernel has to read each element once, coalesced, with enough programs to fill the GPU.",
        design=_design(reduction, last),
    )


def _of_lines(reduction: Reduction, name: str) -> str:
    """Return a kernel whose programs each hold one line of the last axis."""
    lines = [
        "line = tl.program_id(0).to(tl.int64)",
        "at = tl.arange(0, BLOCK)",
        "mask = at < length",
        f"x = tl.load(x_ptr + line * length + at, mask=mask, other={reduction.other})",
        f"tl.store(out_ptr + line, {reduction.at_once})",
    ]
    return kernel(name, ["x_ptr", "out_ptr", "length", "BLOCK: tl.constexpr"], lines)


def _of_positions(reduction: Reduction, name: str) -> str:
    """Return a kernel whose lanes each walk along an axis before the last one."""
    lines = [
        "within = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "mask = within < inner",
        "outer = tl.program_id(1).to(tl.int64)",
        *(f"{each} = {start}" for each, start, _ in reduction.walk),
        "for step in range(0, length):",
        "    x = tl.load(x_ptr + (outer * length + step) * inner + within, mask=mask, other=0.0)",
        *(f"    {each} = {update}" for each, _, update in reduction.walk),
        f"tl.store(out_ptr + outer * inner + within, {reduction.result}, mask=mask)",
    ]
    return kernel(name, ["x_ptr", "out_ptr", "length", "inner", "BLOCK: tl.constexpr"], lines)


def _launch(name: str, at: int, last: bool) -> tuple[str, ...]:
    if last:
        block = "BLOCK=triton.next_power_of_2(length)"
        return launch(name, "(x.numel() // length,)", ["x", "out", "length", block])
    grid = f"(triton.cdiv(inner, {POSITIONS}), x.numel() // (length * inner))"
    return f"inner = x.stride({at})", *launch(name, grid, ["x", "out", "length", "inner", f"BLOCK={POSITIONS}"])


def _design(reduction: Reduction, last: bool) -> tuple[str, ...]:
    if last:
        return (
            "A program owns one line of the last axis, which is contiguous in memory and is loaded once.",
            f"In registers, its elements {reduction.what}.",
            "The program stores one value.",
        )
    return (
        f"A program owns {POSITIONS} neighbouring positions of the axes after the reduced one; each lane walks along "
        "the reduced axis at its position, so that every load is coalesced.",
        f"In registers, the elements of a position {reduction.what}.",
        "Each lane stores one value.",
    )
