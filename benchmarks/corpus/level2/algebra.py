"""Tails that commute with the linear operation before them, for all inputs: most of the work disappears.

Sums of weights are made anew at each call from the current parameters.
"""

from __future__ import annotations

from benchmarks.corpus.level2.algebra_kernels import (
    ATOMIC_CALL,
    COLUMN_ATOMIC,
    COLUMN_PARTIAL,
    CUDA_SUM,
    CUDA_SUM_CALL,
    DOT,
    DOT_CALL,
    GELU_ADD,
    GELU_CALL,
    PARTIAL_CALL,
    POOL_TAIL,
    POOL_TAIL_CALL,
    POOL_WEIGHTS,
    POOL_WEIGHTS_CALL,
    SHORT,
)
from benchmarks.corpus.level2.members import Member, Problem, drafts

__all__ = ["PROBLEMS", "drafts"]

PROBLEMS = (
    Problem(
        problem=18,
        arguments="in_features, out_features",
        body=("self.linear = nn.Linear(in_features, out_features)",),
        analysis="""The row sum right behind the linear layer leaves one number per row, and what follows (max, mean
and two logsumexp over an axis of length 1) is the identity on it. The reference nevertheless computes a full GEMM,
2 N K F flops in float32, and five launches. Summation over outputs commutes with the matrix product: sum_f (x W^T +
b)_f = x . (sum_f W_f) + sum_f b_f. The work collapses to one pass over the weights, bound by their size, and one
pass over x; the GEMM's milliseconds become the time of reading W once.""",
        members=(
            Member(
                "atomic",
                COLUMN_ATOMIC + DOT,
                ATOMIC_CALL + DOT_CALL,
                """Two kernels instead of a GEMM. The first sums the rows of W into a vector: a program owns 512
columns and 128 rows, keeps its sum in registers, and adds it to the result with one atomic per column, so that the
grid is large enough to saturate memory although the result is small. The second takes one row of x per program,
multiplies by the vector and reduces, with the sum of the biases added in the same pass. The identity operations at
the end are dropped. The vector is rebuilt from the current weights at each call.""",
                (*SHORT, "memory coalescing"),
                constants={"LAYER": "linear"},
            ),
            Member(
                "partial",
                COLUMN_PARTIAL + DOT,
                PARTIAL_CALL + DOT_CALL,
                """The same algebra with a deterministic tree instead of atomics: tiles of 64 rows by 128 columns of
W are loaded at once, summed along the rows in registers and written as partial sums (1/64 of the weight's bytes),
which a second kernel merges column by column. The third kernel forms the dot product of each row of x with the
vector and adds the biases' sum. One more launch than with atomics and a small buffer, but the result does not
depend on the order of execution, and 64 independent loads per column are in flight.""",
                (*SHORT, "warp-level reduction"),
                constants={"LAYER": "linear"},
            ),
            Member(
                "cuda",
                CUDA_SUM,
                CUDA_SUM_CALL,
                """CUDA for both halves. column_sum reads W as float4 with a warp on 512 contiguous bytes, eight
rows unrolled per iteration, and ends with four atomicAdd per thread into the vector of column sums; a chunk of 64
rows per block gives a thousand blocks at the published size. row_dot assigns a block of 256 threads to a row of x
and reduces products and biases together by shuffles and one exchange in shared memory. The GEMM is gone: the bytes
of W and x are read once, and nothing else moves.""",
                (*SHORT, "warp-level reduction"),
                (),
                ("column_sum", "row_dot"),
            ),
        ),
    ),
    Problem(
        problem=51,
        arguments="in_features, out_features, bias=True",
        body=(
            "self.gemm = nn.Linear(in_features, out_features, bias=bias)",
            "self.subtract = nn.Parameter(torch.randn(out_features))",
        ),
        analysis="""The mean over all outputs of the linear layer, with a vector subtracted before, is linear in x:
it equals x . mean_f(W_f) + mean_f(b_f - s_f). logsumexp over the single remaining column is the identity. So the
GEMM, the subtraction and its temporaries can be replaced by one pass over W, which averages its rows, and a dot
product per row. The result goes through GELU and is broadcast-added to x, which has to be read and written anyway.
From a compute-bound model of milliseconds it becomes three memory-bound passes over W, x and y.""",
        members=(
            Member(
                "atomic",
                COLUMN_ATOMIC
                + GELU_ADD.replace(
                    "SHIFT",
                    "shift += tl.load(bias_ptr + output, mask=mask, other=0.0)\n"
                    "        shift -= tl.load(subtract_ptr + output, mask=mask, other=0.0)",
                ),
                ATOMIC_CALL + GELU_CALL,
                """First kernel: column sums of W, 128 rows per program in registers, merged by atomics, coalesced
along the row. Second kernel: one program per row of x computes the dot product with that vector, adds the summed
bias minus the summed subtrahend, divides by the number of outputs, applies GELU to the one scalar, and immediately
streams the row again to write x plus that scalar; the second read comes from L1 or L2, since the row is 32 KiB. The
clone of x in the reference and the logsumexp over one element are dropped.""",
                (*SHORT, "memory coalescing"),
                ("gelu",),
                constants={"LAYER": "gemm"},
            ),
            Member(
                "partial",
                COLUMN_PARTIAL
                + GELU_ADD.replace(
                    "SHIFT",
                    "shift += tl.load(bias_ptr + output, mask=mask, other=0.0)\n"
                    "        shift -= tl.load(subtract_ptr + output, mask=mask, other=0.0)",
                ),
                PARTIAL_CALL + GELU_CALL,
                """The mean of W's rows is built without atomics: register tiles of 64 x 128 are summed over their
rows, written as partial sums, and merged in a second small kernel, which makes the result reproducible. The row
kernel then does everything that is left: dot product, mean of bias minus subtrahend, GELU on the scalar, and the
residual addition over the row it has just read. W is read once, x once from DRAM and once from cache, y written
once. Weights are summed at each call, because they may have changed.""",
                (*SHORT, "warp-level reduction"),
                ("gelu",),
                constants={"LAYER": "gemm"},
            ),
        ),
    ),
    Problem(
        problem=98,
        arguments="in_features, out_features, pool_kernel_size, scale_factor",
        body=(
            "self.matmul = nn.Linear(in_features, out_features)",
            "self.avg_pool = nn.AvgPool1d(kernel_size=pool_kernel_size)",
            "self.scale_factor = scale_factor",
        ),
        analysis="""Average pooling over 16 neighbouring outputs follows the linear layer directly, and the mean of
16 dot products with x is one dot product with the mean of 16 weight rows. So the weight can be pooled instead of
the result: one pass over W makes a matrix with 1/16 of the rows, and the GEMM needs 1/16 of the flops. GELU is not
monotone, so the maximum has to come after it, but it then runs over 512 columns instead of 8192. A compute-bound
model turns into one that is bound by reading W once.""",
        members=(
            Member(
                "pooled_weight",
                POOL_WEIGHTS,
                POOL_WEIGHTS_CALL,
                """The first kernel averages each 16 consecutive rows of W (and their biases) into one row: a
program owns 1024 columns of one pooled row, so its 16 loads are independent, coalesced and all in flight together.
cuBLAS then does the GEMM that is left, in the same float32 as before. The second kernel walks over the 512 pooled
columns of a row, applies GELU and the scale, and keeps the maximum. Every weight is read once per call and never
kept between calls.""",
                (*SHORT, "memory coalescing"),
                ("gelu",),
                constants={"WIDTH": 1024, "WARPS": 8},
            ),
            Member(
                "pooled_weight_narrow",
                POOL_WEIGHTS,
                POOL_WEIGHTS_CALL,
                """Pooling the weight instead of the output, with small programs: 256 columns and 2 warps each,
which gives four times as many programs for the pass over W and spreads the tail of the grid more evenly, at the
price of shorter contiguous runs (1 KiB per row) and more launches of scalar bias work. Everything behind it is the
same: a GEMM with one sixteenth of the outputs in float32, then GELU, scale and the row's maximum in one kernel that
reads the small result once.""",
                (*SHORT, "thread-block configuration"),
                ("gelu",),
                constants={"WIDTH": 256, "WARPS": 2},
            ),
            Member(
                "tail_only",
                POOL_TAIL,
                POOL_TAIL_CALL,
                """The conservative form: the GEMM is left as it is, and only its tail is fused. One program per row
loads tiles of 128 windows by 16 columns, averages each window along the second axis in registers, applies GELU and
the scale and keeps the maximum, so the output of the GEMM is read once and pooled values are never written. It
saves four launches and some traffic, but the GEMM's flops dominate and stay; it shows how little fusion gives where
algebra would give an order of magnitude.""",
                ("operation fusion", "warp-level reduction"),
                ("gelu",),
            ),
        ),
    ),
)
