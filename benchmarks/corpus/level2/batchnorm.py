"""Linear layers and convolutions followed by a BatchNorm in training mode."""

from __future__ import annotations

from benchmarks.corpus.level2.members import Member, Problem, drafts

__all__ = ["PROBLEMS", "drafts"]

_COLUMNS = """
@triton.jit
def NAME_columns_kernel(
    y_ptr, PARAMETERSgamma_ptr, beta_ptr, running_mean_ptr, running_var_ptr, eps, momentum, rows, columns,
    BLOCK_N: tl.constexpr, BLOCK_F: tl.constexpr,
):
    column = tl.program_id(0) * BLOCK_F + tl.arange(0, BLOCK_F)
    inside = column < columns
    row = tl.arange(0, BLOCK_N)
LOADS
    pivot = tl.load(y_ptr + column, mask=inside, other=0.0)[None, :]
    total = tl.zeros((BLOCK_N, BLOCK_F), tl.float32)
    squares = tl.zeros((BLOCK_N, BLOCK_F), tl.float32)
    for start in range(0, rows, BLOCK_N):
        mask = ((start + row) < rows)[:, None] & inside[None, :]
        x = tl.load(y_ptr + (start + row).to(tl.int64)[:, None] * columns + column[None, :], mask=mask, other=0.0)
        difference = tl.where(mask, x - pivot, 0.0)
        total += difference
        squares += difference * difference
    offset = tl.sum(total, axis=0) / rows
    variance = tl.maximum(tl.sum(squares, axis=0) / rows - offset * offset, 0.0)
    mean = offset + tl.load(y_ptr + column, mask=inside, other=0.0)
    tl.debug_barrier()  # row 0 is overwritten below
AFFINE
    old_mean = tl.load(running_mean_ptr + column, mask=inside)
    old_var = tl.load(running_var_ptr + column, mask=inside)
    tl.store(running_mean_ptr + column, old_mean + momentum * (MEAN - old_mean), mask=inside)
    tl.store(running_var_ptr + column, old_var + momentum * (VARIANCE * rows / (rows - 1) - old_var), mask=inside)
    for start in range(0, rows, BLOCK_N):
        mask = ((start + row) < rows)[:, None] & inside[None, :]
        ptrs = y_ptr + (start + row).to(tl.int64)[:, None] * columns + column[None, :]
        n = tl.load(ptrs, mask=mask, other=0.0) * slope[None, :] + intercept[None, :]
        AFTER
        tl.store(ptrs, y, mask=mask)
"""

_COLUMNS_FORWARD = """
y = F.linear(x, self.LAYER.weight, self.LAYER.bias).contiguous()
rows, columns = y.shape
norm = self.NORM
norm.num_batches_tracked.add_(1)
NAME_columns_kernel[(triton.cdiv(columns, WIDTH),)](
    y, ARGUMENTSnorm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps, norm.momentum,
    rows, columns, BLOCK_N=HEIGHT, BLOCK_F=WIDTH, num_warps=WARPS,
)
return y
"""

SPLIT = """
@triton.jit
def NAME_partial_kernel(x_ptr, mean_ptr, m2_ptr, rows, columns, CHUNK: tl.constexpr, BLOCK_F: tl.constexpr):
    column = tl.program_id(0) * BLOCK_F + tl.arange(0, BLOCK_F)
    row = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row.to(tl.int64)[:, None] * columns + column[None, :], mask=mask, other=0.0)
    count = tl.minimum(rows - tl.program_id(1) * CHUNK, CHUNK)
    mean = tl.sum(x, axis=0) / count
    centred = tl.where(mask, x - mean[None, :], 0.0)
    where = tl.program_id(1) * columns + column
    tl.store(mean_ptr + where, mean, mask=column < columns)
    tl.store(m2_ptr + where, tl.sum(centred * centred, axis=0), mask=column < columns)


@triton.jit
def NAME_merge_kernel(
    mean_ptr, m2_ptr, PARAMETERSgamma_ptr, beta_ptr, running_mean_ptr, running_var_ptr, slope_ptr, intercept_ptr,
    eps, momentum, rows, columns, chunks, CHUNK: tl.constexpr, BLOCK_F: tl.constexpr,
):
    column = tl.program_id(0) * BLOCK_F + tl.arange(0, BLOCK_F)
    inside = column < columns
LOADS
    mean = tl.zeros((BLOCK_F,), tl.float32)
    m2 = tl.zeros((BLOCK_F,), tl.float32)
    seen = 0.0
    for chunk in range(chunks):  # Chan's formula
        count = tl.minimum(rows - chunk * CHUNK, CHUNK).to(tl.float32)
        difference = tl.load(mean_ptr + chunk * columns + column, mask=inside, other=0.0) - mean
        mean += difference * (count / (seen + count))
        m2 += tl.load(m2_ptr + chunk * columns + column, mask=inside, other=0.0)
        m2 += difference * difference * (seen * count / (seen + count))
        seen += count
    variance = m2 / rows
AFFINE
    old_mean = tl.load(running_mean_ptr + column, mask=inside)
    old_var = tl.load(running_var_ptr + column, mask=inside)
    tl.store(running_mean_ptr + column, old_mean + momentum * (MEAN - old_mean), mask=inside)
    tl.store(running_var_ptr + column, old_var + momentum * (VARIANCE * rows / (rows - 1) - old_var), mask=inside)
    tl.store(slope_ptr + column, slope, mask=inside)
    tl.store(intercept_ptr + column, intercept, mask=inside)


@triton.jit
def NAME_apply_kernel(y_ptr, slope_ptr, intercept_ptr, APPLYrows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    slope = tl.load(slope_ptr + column, mask=column < columns)
    intercept = tl.load(intercept_ptr + column, mask=column < columns)
    ptrs = y_ptr + row.to(tl.int64)[:, None] * columns + column[None, :]
    n = tl.load(ptrs, mask=mask, other=0.0) * slope[None, :] + intercept[None, :]
    AFTER
    tl.store(ptrs, y, mask=mask)
"""

SPLIT_FORWARD = """
y = F.linear(x, self.LAYER.weight, self.LAYER.bias).contiguous()
rows, columns = y.shape
norm = self.NORM
norm.num_batches_tracked.add_(1)
chunks = triton.cdiv(rows, TALL)
partial = y.new_empty((2, chunks, columns))
affine = y.new_empty((2, columns))
NAME_partial_kernel[(triton.cdiv(columns, 64), chunks)](
    y, partial[0], partial[1], rows, columns, CHUNK=TALL, BLOCK_F=64, num_warps=8
)
NAME_merge_kernel[(triton.cdiv(columns, 64),)](
    partial[0], partial[1], ARGUMENTSnorm.weight, norm.bias, norm.running_mean, norm.running_var,
    affine[0], affine[1], norm.eps, norm.momentum, rows, columns, chunks, CHUNK=TALL, BLOCK_F=64, num_warps=2,
)
NAME_apply_kernel[(triton.cdiv(columns, 256), triton.cdiv(rows, 8))](
    y, affine[0], affine[1], VALUESrows, columns, ROWS=8, BLOCK=256, num_warps=4
)
return y
"""

PLAIN = {
    "PARAMETERS": "",
    "ARGUMENTS": "",
    "APPLY": "",
    "VALUES": "",
    "LOADS\n": "",
    "AFFINE": (
        "    slope = tl.load(gamma_ptr + column, mask=inside, other=0.0) * tl.rsqrt(variance + eps)\n"
        "    intercept = tl.load(beta_ptr + column, mask=inside, other=0.0) - mean * slope"
    ),
    "VARIANCE": "variance",
    "MEAN": "mean",
}
# BatchNorm of x * s: mean and variance scale with s and s * s, so s is folded into the affine map.
_SCALED = {
    **PLAIN,
    "NAME": "scaled_batch_norm",
    "LAYER": "gemm",
    "NORM": "bn",
    "PARAMETERS": "scale_ptr, ",
    "ARGUMENTS": "self.scale, ",
    "LOADS": "    scale = tl.load(scale_ptr + column, mask=inside, other=0.0)",
    "AFFINE": (
        "    slope = scale * tl.load(gamma_ptr + column, mask=inside, other=0.0)\n"
        "    slope *= tl.rsqrt(variance * scale * scale + eps)\n"
        "    intercept = tl.load(beta_ptr + column, mask=inside, other=0.0) - mean * slope"
    ),
    "MEAN": "scale * mean",
    "VARIANCE": "scale * scale * variance",
    "AFTER": "y = n",
}
del _SCALED["LOADS\n"]
_GELU = {**PLAIN, "NAME": "batch_norm_gelu", "LAYER": "gemm", "NORM": "batch_norm", "AFTER": "y = relu(gelu(n))"}
_SWISH = {
    **PLAIN,
    "NAME": "batch_norm_swish",
    "LAYER": "matmul",
    "NORM": "bn",
    "PARAMETERS": "shift_ptr, divisor, ",
    "ARGUMENTS": "self.bias, self.divide_value, ",
    "AFFINE": (
        "    slope = tl.load(gamma_ptr + column, mask=inside, other=0.0) * tl.rsqrt(variance + eps) / divisor\n"
        "    shift = tl.load(beta_ptr + column, mask=inside, other=0.0) + tl.load(shift_ptr)\n"
        "    intercept = shift / divisor - mean * slope"
    ),
    "AFTER": "y = silu(n)",
}

_FUSED = ("operation fusion", "memory coalescing")


def _columns(constants: dict[str, object], width: int, height: int, warps: int, functions: tuple[str, ...], note: str):
    return Member(
        f"columns{width}",
        _COLUMNS,
        _COLUMNS_FORWARD,
        f"""One kernel does statistics, running averages and normalisation: a program owns WIDTH neighbouring
columns, which nothing outside it needs, so no global synchronisation is required. It walks down all rows in tiles
of HEIGHT x WIDTH, summing differences from the first row (no cancellation), reduces at the end, updates the running
buffers, and walks down again to write the result in place. {note} Each row of a tile is {width * 4} contiguous
bytes. The second walk finds part of its columns in L2. The grid is only as wide as the number of columns divided by
WIDTH.""",
        (*_FUSED, "thread-block configuration"),
        functions,
        constants={**constants, "WIDTH": width, "HEIGHT": height, "WARPS": warps},
    )


def _split(constants: dict[str, object], functions: tuple[str, ...], note: str, rows: int = 128):
    return Member(
        "split",
        SPLIT,
        SPLIT_FORWARD,
        f"""Three kernels, so that every pass fills the device. The first cuts the matrix into tiles of {rows} rows by
64 columns and writes each tile's column means and centred sums of squares, exact because the tile is in registers.
A small second kernel merges the tiles of a column by Chan's formula, updates the running buffers and reduces norm
and affine parameters to a slope and an intercept per column. The third streams the matrix once with coalesced rows
and applies them. {note} Against one program per column block this costs two launches and a few megabytes of partial
results.""",
        (*_FUSED, "algorithmic change"),
        functions,
        constants={**constants, "TALL": rows},
    )


_SCALED_MODEL = {
    "arguments": "in_features, out_features, scale_shape, eps=1e-5, momentum=0.1",
    "body": (
        "self.gemm = nn.Linear(in_features, out_features)",
        "self.scale = nn.Parameter(torch.randn(scale_shape))",
        "self.bn = nn.BatchNorm1d(out_features, eps=eps, momentum=momentum)",
    ),
}
_SCALE_NOTE = (
    "The scale never touches an element on its own: BatchNorm of s x has mean s m and variance s^2 v, so s joins gamma "
    "in the slope."
)

PROBLEMS = (
    Problem(
        problem=33,
        **_SCALED_MODEL,
        analysis="""A square GEMM of 8192 x 8192 weights with about a thousand rows, then a scale per column and
BatchNorm in training mode. The scale is a pass of its own (read and write), BatchNorm reads for the statistics and
reads and writes to normalise: five transfers of the output. The statistics need all rows of a column, so a read
before the final read and write cannot be avoided, but the scale can be moved into the affine step: three transfers.
In float32 the GEMM takes most of the time; the tail is a matter of percent.""",
        members=(_columns(_SCALED, 32, 64, 4, (), _SCALE_NOTE), _split(_SCALED, (), _SCALE_NOTE)),
    ),
    Problem(
        problem=39,
        **_SCALED_MODEL,
        analysis="""GEMM with 4096 features in and out over a long batch, a learnt factor per column, BatchNorm1d
with batch statistics. The output has sixteen thousand rows, and PyTorch walks over it for the factor (2 transfers),
for mean and variance (1) and for the normalisation (2). Reductions go down the columns of a row-major matrix, so a
kernel must read rows of several columns together to stay coalesced. With the factor folded into the normalisation,
three transfers are left, and the running averages can be updated where the statistics are made.""",
        members=(
            _columns(_SCALED, 32, 128, 8, (), _SCALE_NOTE),
            _columns(_SCALED, 64, 64, 8, (), _SCALE_NOTE),
            _split(_SCALED, (), _SCALE_NOTE, rows=256),
        ),
    ),
    Problem(
        problem=41,
        arguments="in_features, out_features",
        body=(
            "self.gemm = nn.Linear(in_features, out_features)",
            "self.batch_norm = nn.BatchNorm1d(out_features)",
        ),
        analysis="""After the GEMM come BatchNorm with batch statistics (read, read, write), GELU (read, write) and
ReLU (read, write): seven transfers of a matrix of many rows. Statistics run down the columns; everything after them
is local to an element once a slope and an intercept per column are known. The minimum is one read for the
statistics and one read and one write to finish, with GELU and ReLU applied in registers. The GEMM stays with cuBLAS
in float32 and bounds the gain.""",
        members=(
            _columns(_GELU, 32, 128, 8, ("gelu", "relu"), "GELU and ReLU finish the value before the only store."),
            _split(_GELU, ("gelu", "relu"), "GELU and ReLU finish the value before the only store."),
        ),
    ),
    Problem(
        problem=97,
        arguments="in_features, out_features, bn_eps=1e-5, bn_momentum=0.1, bias_shape=(1,), divide_value=1.0",
        body=(
            "self.matmul = nn.Linear(in_features, out_features)",
            "self.bn = nn.BatchNorm1d(out_features, eps=bn_eps, momentum=bn_momentum)",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
            "self.divide_value = divide_value",
        ),
        analysis="""BatchNorm in training mode is followed by a scalar bias, a division, and Swish written as
sigmoid and product. The norm makes three transfers of the GEMM's output, bias and division two each, sigmoid two,
the product three: twelve. Bias and division are affine and merge with the norm's own affine map into one slope and
one intercept per column, after which only x * sigmoid(x) is left. Three transfers remain, the fewest possible when
statistics of the whole batch come first.""",
        members=(
            _columns(_SWISH, 32, 64, 4, ("silu",), "Scalar bias and divisor are folded into the column's affine map."),
            _split(_SWISH, ("silu",), "Scalar bias and divisor are folded into the column's affine map."),
        ),
    ),
)
