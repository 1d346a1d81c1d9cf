"""Scans alone: running sums, products and extremes, by chunks with a carry, or by lanes with a line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1_ray.problems.generated.alone import Alone, kernel, launch
from cudal1_ray.problems.generated.kernels import NEUTRAL
from cudal1_ray.problems.generated.steps import one_of

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Scan:
    """A running result of all elements up to each.

    Attributes:
        word: in a problem's name.
        forward: the reference's expression of the scan of {x} along {d}.
        neutral: the carry of no elements.
        chunk: the kernel's expression of the scan of a chunk `x`.
        joined: expression of two results, {a} and {b}, as one.
        what: what a design calls the results.
    """

    word: str
    forward: str
    neutral: str
    chunk: str
    joined: str
    what: str

    @property
    def function(self) -> tuple[str, ...]:
        """Return the device function that `chunk` needs."""
        if "combine" not in self.chunk:
            return ()
        return (kernel("combine", ["a", "b"], [f"return {self.joined.format(a='a', b='b')}"]),)


SUM = Scan("Cumsum", "torch.cumsum({x}, dim={d})", "0.0", "tl.cumsum(x, 0)", "{a} + {b}", "running sums")
SCANS = (
    SUM,
    Scan("Cumprod", "torch.cumprod({x}, dim={d})", "1.0", "tl.cumprod(x, 0)", "{a} * {b}", "running products"),
    Scan("Cummax", "torch.cummax({x}, dim={d})[0]", NEUTRAL["max"], "tl.associative_scan(x, 0, combine)",
         "tl.maximum({a}, {b})", "largest values yet"),
    Scan("Cummin", "torch.cummin({x}, dim={d})[0]", NEUTRAL["min"], "tl.associative_scan(x, 0, combine)",
         "tl.minimum({a}, {b})", "smallest values yet"),
)  # fmt: skip
# Elements of a chunk, and positions of one program where each lane has a line of its own.
CHUNK, POSITIONS = 1024, 128


def draw_scan(rng: np.random.Generator) -> Alone:
    """Draw a scan."""
    scan = one_of((SUM, SUM, SUM, *SCANS), rng)
    way = one_of(("", "reversed", "exclusive", "masked") if scan is SUM else ("", "reversed"), rng)
    dims = one_of((2, 2, 2, 3), rng)
    sizes, options = {
        2: ((("batch_size", (2048, 4096, 8192)), ("sequence_length", (4096, 8190, 16384))), (1, 1, -1)),
        3: ((("batch_size", (16, 32, 64)), ("dim1", (512, 1024)), ("dim2", (512, 1024, 2047))), (1, 1, 2, -1)),
    }[dims]
    dim = one_of(options, rng)
    last, as_argument = dim % dims == dims - 1, bool(rng.random() < 0.7)
    written = "self.dim" if as_argument else str(dim)
    shape = ", ".join(name for name, _ in sizes)
    inputs = [("x", f"torch.rand({shape})")]
    inputs += [("mask", f"torch.randint(0, 2, ({shape})).bool()")] if way == "masked" else []
    kept = ("self.dim = dim",) if as_argument else ()
    words = {"": "", "reversed": "Reversed", "exclusive": "Exclusive", "masked": "Masked"}[way]
    name = f"{scan.word.lower()}_kernel"
    lines, parameters, forward = (_by_chunks if last else _by_lanes)(scan, way, name, dim % dims)
    return Alone(
        words=(f"{words}{scan.word}", f"{dims}d", "last" if last else "middle"),
        sentence=f"{one_of(('Computes', 'A model that computes'), rng)} {scan.what} along an axis.",
        arguments=(("dim", str(dim)),) if as_argument else (),
        state=kept,
        kept=kept,
        inputs=tuple(inputs),
        body=_body(scan, way, written),
        sizes=tuple((each, str(one_of(values, rng))) for each, values in sizes),
        kernels=(*(scan.function if last else ()), kernel(name, parameters, lines)),
        forward=forward,
        technique="operation fusion" if way else "memory coalescing",
        analysis=_analysis(way),
        design=_design(scan, way, last),
    )


def _body(scan: Scan, way: str, dim: str) -> tuple[str, ...]:
    """Return the reference's lines."""
    if way == "reversed":
        flipped = f"torch.flip(x, dims=[{dim}])"
        return (f"return torch.flip({scan.forward.format(x=flipped, d=dim)}, dims=[{dim}])",)
    if way == "exclusive":
        shorter = f"x.narrow({dim}, 0, x.size({dim}) - 1)"
        return (
            f"sums = {scan.forward.format(x=shorter, d=dim)}",
            f"first = torch.zeros_like(x.narrow({dim}, 0, 1))",
            f"return torch.cat([first, sums], dim={dim})",
        )
    return (f"return {scan.forward.format(x='x * mask' if way == 'masked' else 'x', d=dim)}",)


# Lines and parameters of a kernel, and the lines of `forward` that launch it.
Written = tuple[list[str], list[str], tuple[str, ...]]


def _by_chunks(scan: Scan, way: str, name: str, dim: int) -> Written:
    """Return a kernel's lines and parameters, and those of `forward`, with a program for each line of the last axis."""
    summed = scan is SUM
    loads = [f"x = tl.load(x_ptr + base + at, mask=mask, other={scan.neutral})"]
    if way == "masked":
        loads += ["keep = tl.load(mask_ptr + base + at, mask=mask, other=0)", "x = tl.where(keep != 0, x, 0.0)"]
    store = "tl.store(out_ptr + base + at, scanned, mask=mask)"
    if way == "exclusive":
        store = "tl.store(out_ptr + base + at + 1, scanned, mask=at + 1 < length)"
    carry = "tl.sum(tl.where(lane == BLOCK - 1, scanned, 0.0), 0)"
    place = "start + lane"
    lines = [
        "base = tl.program_id(0).to(tl.int64) * length",
        "lane = tl.arange(0, BLOCK)",
        f"carry = {scan.neutral}",
        *(["tl.store(out_ptr + base, 0.0)"] if way == "exclusive" else []),
        "for start in range(0, length, BLOCK):",
        f"    at = {f'length - 1 - ({place})' if way == 'reversed' else place}",
        f"    mask = {'at >= 0' if way == 'reversed' else 'at < length'}",
        *(f"    {line}" for line in loads),
        f"    scanned = {scan.joined.format(a='carry', b=scan.chunk)}",
        f"    {store}",
        "    carry += tl.sum(x, 0)" if summed else f"    carry = {carry}",
    ]
    tensors = ["x", *(["mask"] if way == "masked" else []), "out"]
    forward = (
        *_contiguous(way),
        "out = torch.empty_like(x)",
        "length = x.shape[-1]",
        *launch(name, "(x.numel() // length,)", [*tensors, "length", f"BLOCK={CHUNK}"]),
        "return out",
    )
    return lines, [*(f"{each}_ptr" for each in tensors), "length", "BLOCK: tl.constexpr"], forward


def _by_lanes(scan: Scan, way: str, name: str, dim: int) -> Written:
    """Return what `_by_chunks` does, with a lane for each line of an axis before the last one."""
    row = "length - 1 - step" if way == "reversed" else "step"
    loads = ["x = tl.load(x_ptr + at, mask=inside, other=0.0)"]
    if way == "masked":
        loads += ["keep = tl.load(mask_ptr + at, mask=inside, other=0)", "x = tl.where(keep != 0, x, 0.0)"]
    update = f"carry = {scan.joined.format(a='carry', b='x')}"
    store = "tl.store(out_ptr + at, carry, mask=inside)"
    lines = [
        "within = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "inside = within < inner",
        "base = tl.program_id(1).to(tl.int64) * length * inner + within",
        f"carry = tl.full([BLOCK], {scan.neutral}, tl.float32)",
        "for step in range(0, length):",
        f"    at = base + {f'({row})' if ' ' in row else row} * inner",
        *(f"    {line}" for line in (*loads, *((store, update) if way == "exclusive" else (update, store)))),
    ]
    tensors = ["x", *(["mask"] if way == "masked" else []), "out"]
    forward = (
        *_contiguous(way),
        "out = torch.empty_like(x)",
        f"length, inner = x.shape[{dim}], x.shape[{dim + 1}]",
        *launch(
            name,
            f"(triton.cdiv(inner, {POSITIONS}), x.numel() // (length * inner))",
            [*tensors, "length", "inner", f"BLOCK={POSITIONS}"],
        ),
        "return out",
    )
    return lines, [*(f"{each}_ptr" for each in tensors), "length", "inner", "BLOCK: tl.constexpr"], forward


def _contiguous(way: str) -> Sequence[str]:
    return ["x, mask = x.contiguous(), mask.contiguous()" if way == "masked" else "x = x.contiguous()"]


def _analysis(way: str) -> str:
    bound = "A scan does one operation with each element, so memory bandwidth bounds it"
    if not way:
        return (
            f"{bound}, unless the elements of a line wait for each other. A kernel that scans many lines at a time and "
            "passes over them once is near that bound."
        )
    beside = {
        "reversed": "two flips copy the tensor before and after the scan",
        "exclusive": "a concatenation copies all sums once more",
        "masked": "the product with the mask is written to memory and read again",
    }[way]
    saved = "A kernel that reads each element once and writes each result once saves it."
    return f"{bound}. In the reference, {beside}. {saved}"


def _design(scan: Scan, way: str, last: bool) -> tuple[str, ...]:
    if last:
        sentences = [
            f"A program owns one line of the last axis and walks over it in chunks of {CHUNK} elements.",
            f"{scan.chunk.partition('(')[0]} gives the {scan.what} of a chunk, which are joined with the carry of the "
            "chunks before it.",
            "The carry is updated once for each chunk; masked elements do not change it.",
        ]
    else:
        sentences = [
            f"A program owns {POSITIONS} neighbouring positions; each lane walks along the scanned axis at its own.",
            "Neighbouring lanes read neighbouring elements, so that every load is coalesced.",
            f"The {scan.what} stay in a register of the lane.",
        ]
    if way == "reversed":
        sentences.append("The walk begins at the end of the axis, which takes the place of both flips.")
    elif way == "exclusive":
        further = "Each sum is stored one place further on; the first place is zero."
        sentences.append(further if last else "The sum is stored before the element is added to it.")
    elif way == "masked":
        sentences.append("An element whose mask is false counts as zero.")
    return tuple(sentences)
