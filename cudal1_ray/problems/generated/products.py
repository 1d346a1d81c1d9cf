"""Matrix products alone, with a tiled kernel of the candidate's own in full single precision.

KernelBench holds out the product of a matrix and a vector, and that with a diagonal matrix: no axis here has length 1,
and both operands are full matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1_ray.problems.generated.alone import Alone, kernel, launch
from cudal1_ray.problems.generated.steps import one_of

if TYPE_CHECKING:
    import numpy as np

# Lengths of the axes: of the results', and of the one that is summed over.
SIDES, DEPTHS = (512, 1000, 1024, 2048, 4096), (64, 256, 500, 1024, 4096)
# Rows, columns and summed elements of a program's tile: 32 sums in each of 128 threads.
ROWS, COLUMNS, DEPTH = 64, 64, 32


@dataclass(frozen=True)
class Product:
    """A form of product.

    Attributes:
        word: in a problem's name after "MatrixProduct"; empty for two plain matrices.
        shapes: axes of both operands when neither is transposed.
        forms: the reference's expressions of {a} and {b}.
    """

    word: str
    shapes: tuple[tuple[str, ...], tuple[str, ...]]
    forms: tuple[str, ...]


PRODUCTS = (
    Product("", (("M", "K"), ("K", "N")), ("torch.matmul({a}, {b})", "torch.matmul({a}, {b})", "torch.mm({a}, {b})")),
    Product("batched", (("batch_size", "M", "K"), ("batch_size", "K", "N")),
            ("torch.bmm({a}, {b})", "torch.matmul({a}, {b})")),
    Product("3d", (("batch_size", "M", "K"), ("K", "N")), ("torch.matmul({a}, {b})", "{a} @ {b}")),
    Product("4d", (("batch_size", "dim1", "M", "K"), ("K", "N")), ("torch.matmul({a}, {b})", "{a} @ {b}")),
)  # fmt: skip


def draw_product(rng: np.random.Generator) -> Alone:
    """Draw a product."""
    product = one_of((PRODUCTS[0], *PRODUCTS), rng)
    left, right = (list(shape) for shape in product.shapes)
    batched = product.word == "batched"
    matrices = batched or not product.word  # not a tensor of more axes beside a matrix
    flipped_a = matrices and bool(rng.random() < 0.3)
    flipped_b = bool(rng.random() < 0.3)
    flip = ".transpose(1, 2)" if batched else ".T"
    a, b = f"A{flip if flipped_a else ''}", f"B{flip if flipped_b else ''}"
    if flipped_a:
        left[-2:] = left[:-3:-1]
    if flipped_b:
        right[-2:] = right[:-3:-1]
    # Rows of a higher tensor are counted on, so the kernel's row is not that of a triangle.
    triangle = one_of(("triu", "tril"), rng) if rng.random() < 0.15 and matrices else ""
    value = one_of(product.forms, rng).format(a=a, b=b)
    words = [product.word, "transposedA" if flipped_a else "", "transposedB" if flipped_b else "", triangle]
    return Alone(
        words=("MatrixProduct", *filter(None, words)),
        sentence=f"{one_of(('Performs a', 'Simple model of one'), rng)} matrix product.",
        arguments=(),
        state=(),
        kept=(),
        inputs=(("A", f"torch.rand({', '.join(left)})"), ("B", f"torch.rand({', '.join(right)})")),
        body=(f"return torch.{triangle}({value})" if triangle else f"return {value}",),
        sizes=_sizes(product, rng),
        kernels=(_kernel(batched, triangle),),
        forward=_forward(product, a, b),
        technique="register blocking",
        analysis="Arithmetic bounds it: each element of the result sums over a whole row and column. A kernel has to "
        "reuse what it loads for a tile of results; full single precision rules out tensor cores, which round to TF32.",
        design=_design(batched, triangle, flipped_a or flipped_b),
    )


def _sizes(product: Product, rng: np.random.Generator) -> tuple[tuple[str, str], ...]:
    """Draw the axes' lengths: smaller ones where there is a batch."""
    few = 2 if product.word else len(SIDES)
    lengths = {
        "batch_size": (4, 8) if product.word == "4d" else (8, 16, 32),
        "dim1": (8, 16),
        "M": (64, 128) if product.word == "4d" else SIDES[:few],
        "K": DEPTHS[:-2] if product.word else DEPTHS,
        "N": SIDES[:few],
    }
    axes = dict.fromkeys((*product.shapes[0], *product.shapes[1]))
    return tuple((axis, str(one_of(lengths[axis], rng))) for axis in axes)


def _kernel(batched: bool, triangle: str) -> str:
    """Return a kernel whose programs each compute one tile of the result, of operands with any strides."""
    lines = [
        "row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)",
        "column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)",
    ]
    if batched:
        lines += [
            "batch = tl.program_id(2).to(tl.int64)",
            "a_ptr += batch * stride_ab",
            "b_ptr += batch * stride_bb",
            "out_ptr += batch * m * n",
        ]
    lines += [
        "total = tl.zeros([ROWS, COLUMNS], tl.float32)",
        "for start in range(0, k, DEPTH):",
        "    at = start + tl.arange(0, DEPTH)",
        "    a_mask = (row < m)[:, None] & (at < k)[None, :]",
        "    a = tl.load(a_ptr + row[:, None] * stride_am + at[None, :] * stride_ak, mask=a_mask, other=0.0)",
        "    b_mask = (at < k)[:, None] & (column < n)[None, :]",
        "    b = tl.load(b_ptr + at[:, None] * stride_bk + column[None, :] * stride_bn, mask=b_mask, other=0.0)",
        '    total += tl.dot(a, b, input_precision="ieee")',
    ]
    if triangle:
        sign = "<=" if triangle == "triu" else ">="
        lines.append(f"total = tl.where(row[:, None] {sign} column[None, :], total, 0.0)")
    lines += [
        "mask = (row < m)[:, None] & (column < n)[None, :]",
        "tl.store(out_ptr + row[:, None] * n + column[None, :], total, mask=mask)",
    ]
    strides = ["stride_am", "stride_ak", "stride_bk", "stride_bn"]
    if batched:
        strides = ["stride_ab", *strides[:2], "stride_bb", *strides[2:]]
    constants = [f"{name}: tl.constexpr" for name in ("ROWS", "COLUMNS", "DEPTH")]
    return kernel("matmul_kernel", ["a_ptr", "b_ptr", "out_ptr", "m", "n", "k", *strides, *constants], lines)


def _forward(product: Product, a: str, b: str) -> tuple[str, ...]:
    batched, higher = product.word == "batched", product.word in ("3d", "4d")
    first = f"A.reshape(-1, A.shape[-1]), {b}" if higher else f"{a}, {b}"
    grid = f"triton.cdiv(m, {ROWS}), triton.cdiv(n, {COLUMNS})"
    shape = "A.shape[0], m, n" if batched else "m, n"
    constants = [f"ROWS={ROWS}", f"COLUMNS={COLUMNS}", f"DEPTH={DEPTH}"]
    return (
        f"a, b = {first}",
        "(m, k), n = a.shape[-2:], b.shape[-1]",
        f"out = a.new_empty({shape})",
        *launch(
            "matmul_kernel",
            f"({grid}, A.shape[0])" if batched else f"({grid})",
            ["a", "b", "out", "m", "n", "k", "*a.stride()", "*b.stride()", *constants],
        ),
        "return out.view(*A.shape[:-1], n)" if higher else "return out",
    )


def _design(batched: bool, triangle: str, flipped: bool) -> tuple[str, ...]:
    sentences = [
        f"A program computes a tile of {ROWS} rows and {COLUMNS} columns of the result"
        f"{' of one matrix of the batch' if batched else ''}, as sums in registers.",
        f"It walks over the summed axis in steps of {DEPTH}: a tile of either operand is loaded, masked at the edges, "
        "and `tl.dot` multiplies them in full single precision.",
    ]
    if flipped:
        sentences.append("A transposed operand is a view: the kernel takes its strides, and nothing is copied.")
    if triangle:
        sentences.append(f"Elements {'below' if triangle == 'triu' else 'above'} the diagonal are stored as zero.")
    return tuple(sentences)
