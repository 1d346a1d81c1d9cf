"""Linear layers followed by a reduction over each row."""

from __future__ import annotations

from benchmarks.corpus.level2.members import Member, Problem, drafts
from benchmarks.corpus.level2.rows_kernels import (
    BOUNDED,
    BOUNDED_FORWARD,
    CUDA_FORWARD,
    CUDA_ROW,
    FUSED,
    LSE22,
    LSE45,
    LSE64,
    MIN_SUBTRACT,
    MIN_SUBTRACT_CUDA,
    ONLINE,
    ONLINE_FORWARD,
    POOL_SUM,
    POOL_SUM_FORWARD,
    SIGMOID,
    WHOLE_ROW,
    WHOLE_ROW_FORWARD,
)

__all__ = ["PROBLEMS", "drafts"]

PROBLEMS = (
    Problem(
        problem=22,
        arguments="input_size, hidden_size, scale_factor, clamp_min, clamp_max",
        body=(
            "self.matmul = nn.Linear(input_size, hidden_size)",
            "self.scale_factor = scale_factor",
            "self.clamp_min = clamp_min",
            "self.clamp_max = clamp_max",
        ),
        analysis="""Behind the GEMM the reference scales (read, write), adds the tensor to itself (read, write),
clamps (read, write) and takes logsumexp over the row, which PyTorch assembles from a maximum, a difference, an
exponential and a sum with a temporary of full size. Ten or more transfers of the matrix lead to one number per row.
A single read is enough. x + x after the scale is a factor of two, which merges with the scale exactly. The GEMM in
float32 bounds the total gain to some percent; the tail itself becomes several times faster.""",
        members=(
            Member(
                "bounded",
                BOUNDED,
                BOUNDED_FORWARD,
                """The clamp bounds every value from above, so its upper limit can stand for the maximum that a
stable logsumexp subtracts: exp(t - high) never overflows, and with the published limits of -10 and 10 it never
vanishes either. That removes the maximum pass and every rescaling. A program streams one row in blocks of 2048,
accumulates the exponentials lane by lane, and reduces once at the end. Scale and doubling are one multiplication,
and the final lse * mish(lse) is computed on the scalar.""",
                (*FUSED, "mathematical short-circuit"),
                ("clamp", "mish"),
            ),
            Member(
                "whole_row",
                WHOLE_ROW,
                WHOLE_ROW_FORWARD,
                """One program loads a whole row into registers (8192 floats on 8 warps, 32 for each thread), scales
and clamps it there, takes the maximum and then the sum of exponentials of the differences, both as block-wide
reductions, and finishes with the scalar tail. The row is read exactly once and never written. It is the textbook
stable form; its cost is that two reductions with a barrier each stand between the load and the result, while
nothing else of the program can overlap.""",
                (*FUSED, "register/shared-memory use"),
                ("clamp", "mish"),
                constants=LSE22,
            ),
            Member(
                "cuda_online",
                CUDA_ROW,
                CUDA_FORWARD,
                """A CUDA block of 256 threads per row. Each thread keeps a pair (maximum, sum of exponentials
relative to it) for its own columns, updated online, so one coalesced pass suffices. Pairs are merged by the same
associative operation through warp shuffles, then across eight warps through shared memory by thread 0, which also
does the scalar tail. The price of generality is two exponentials per value in the merge, where a form that uses the
clamp's bound would need one.""",
                (*FUSED, "algorithmic change"),
                ("clamp", "mish"),
                ("clamped_logsumexp",),
                LSE22,
            ),
        ),
    ),
    Problem(
        problem=64,
        arguments="in_features, out_features, bias=True",
        body=("self.linear = nn.Linear(in_features, out_features, bias=bias)",),
        analysis="""logsumexp over 8192 columns turns the GEMM's output into one number per row, and two LeakyReLU
and two GELU act on those. PyTorch's logsumexp runs a maximum, subtracts and exponentiates into a temporary, sums
and adds back, four passes over the matrix in some form; the four activations are launches on a kilobyte of data.
One read of the matrix is necessary, and the rest is scalar work at the end of a row. With a float32 GEMM in front,
the tail is a small share, and launches saved count as much as bytes.""",
        members=(
            Member(
                "whole_row",
                WHOLE_ROW,
                WHOLE_ROW_FORWARD,
                """A program of 8 warps holds a row in registers, 32 values per thread, so the stable two-step
logsumexp reads memory once: a block-wide maximum, then a block-wide sum of exponentials of the differences. The two
LeakyReLU and two GELU are evaluated on the scalar result before it is stored, instead of in four launches. One
program for each of a thousand rows fills the multiprocessors about two times over, enough to overlap one row's
reduction with another's loads.""",
                (*FUSED, "register/shared-memory use"),
                ("leaky_relu", "gelu"),
                constants=LSE64,
            ),
            Member(
                "online",
                ONLINE,
                ONLINE_FORWARD,
                """The row is streamed in blocks of 1024 columns by 4 warps. Every lane carries its own running
maximum and rescaled sum, so the loop contains no reduction and no barrier at all; lanes are merged once, at the end
of the row, by rescaling to the common maximum. That costs a second exponential for each value, which the memory
latency hides, and needs few registers, so that many rows are in flight on each multiprocessor. The activations run
on the final scalar.""",
                (*FUSED, "algorithmic change"),
                ("leaky_relu", "gelu"),
                constants=LSE64,
            ),
            Member(
                "cuda_online",
                CUDA_ROW,
                CUDA_FORWARD,
                """A block of 256 threads reduces a row with online pairs (maximum, sum), merged first within a
thread, then by warp shuffles, then over eight pairs in shared memory. All loads are coalesced and unrolled by four.
Thread 0 applies LeakyReLU twice and GELU twice to the result, so nothing but one float per row leaves the
multiprocessor. Because each merge step costs two exponentials per value, the loop is closer to the limit of the
special function units than a two-step form.""",
                (*FUSED, "algorithmic change"),
                ("leaky_relu", "gelu"),
                ("logsumexp_gelu",),
                LSE64,
            ),
        ),
    ),
    Problem(
        problem=45,
        arguments="input_size, hidden_size, output_size",
        body=(
            "self.linear1 = nn.Linear(input_size, hidden_size)",
            "self.linear2 = nn.Linear(hidden_size, output_size)",
        ),
        analysis="""Two GEMMs with a sigmoid between them and logsumexp at the end. The GEMMs carry almost all the
time and remain with cuBLAS in float32. Between them the sigmoid reads one matrix and writes another, because
autograd-free eager code still allocates; in place it would touch memory that may be in L2. At the end logsumexp
passes several times over rows of 1024 with a temporary, where one read is enough. What can be gained is an
allocation, a few transfers of the smaller matrix and three launches.""",
        members=(
            Member(
                "whole_row",
                SIGMOID + WHOLE_ROW.strip("\n"),
                WHOLE_ROW_FORWARD,
                """Two Triton kernels around the second GEMM. The sigmoid overwrites the hidden matrix in place, in
blocks of 2048, which saves the second buffer and keeps the footprint of the batch in L2 smaller. The final kernel
gives each row of the second GEMM's output a program that keeps the row in registers and computes the stable
logsumexp with one read: maximum, then sum of exponentials. Fusing the sigmoid into the GEMM's epilogue would mean
writing the GEMM, and a float32 GEMM that beats cuBLAS is not to be had.""",
                (*FUSED, "register/shared-memory use"),
                constants=LSE45,
            ),
            Member(
                "online",
                SIGMOID + ONLINE.strip("\n"),
                ONLINE_FORWARD,
                """The sigmoid runs in place on the hidden matrix. logsumexp is computed online: lanes stream the
row in blocks of 1024, each with a running maximum and a rescaled sum, and are merged at the end by one maximum and
one sum over the block. For rows of 1024 columns the loop has a single iteration, so this is nearly the two-step
form with the extra rescaling as overhead; it keeps working unchanged for rows that would not fit in registers.
Everything else is left to cuBLAS.""",
                (*FUSED, "algorithmic change"),
                constants=LSE45,
            ),
        ),
    ),
    Problem(
        problem=55,
        arguments="in_features, out_features, kernel_size, scale_factor",
        body=(
            "self.matmul = nn.Linear(in_features, out_features)",
            "self.max_pool = nn.MaxPool1d(kernel_size)",
            "self.scale_factor = scale_factor",
        ),
        analysis="""128 rows against a square weight of 32768 x 32768: the GEMM reads 4 GiB of weights, which sets
the time. Its output is only 16 MiB and may stay in L2, so the tail (max pooling over pairs with an index tensor, a
sum over the row, a scale) costs launches more than bytes: pooling writes half the matrix plus 64-bit indices as
large as the matrix itself. Fused, the row is read once and one float is written. With only 128 rows, one program
per row would leave multiprocessors without work.""",
        members=(
            Member(
                "row",
                POOL_SUM,
                POOL_SUM_FORWARD,
                """One program of 8 warps per row: a tile of 1024 windows by the window's width is loaded with
contiguous addresses, the maximum over a window is taken between neighbouring registers, and the sums are
accumulated per lane and reduced once. The scale multiplies the scalar at the end. No pooled tensor and no indices
are ever written. The grid has as many programs as rows, 128 at the published size, which is less than one per
multiprocessor, but it is free of atomics and deterministic.""",
                FUSED,
                constants={
                    "FINISH": "tl.store(y_ptr + row, tl.sum(total, axis=0) * scale)",
                    "NEW": "new_empty",
                    "PROGRAMS": 1,
                    "WARPS": 8,
                },
            ),
            Member(
                "split",
                POOL_SUM,
                POOL_SUM_FORWARD,
                """Eight programs share a row, each taking every eighth tile of 1024 windows, and add their scaled
part to the row's result with one atomic. That gives a thousand programs instead of 128, so all multiprocessors take
part in reading a matrix that is still warm in L2 from the GEMM. Pooling, sum and scale all happen in registers. The
price is a fill of 128 zeros before the kernel and a summation order that varies in the last bit between runs; eight
atomics per address are no contention.""",
                (*FUSED, "thread-block configuration"),
                constants={
                    "FINISH": "tl.atomic_add(y_ptr + row, tl.sum(total, axis=0) * scale)",
                    "NEW": "new_zeros",
                    "PROGRAMS": 8,
                    "WARPS": 4,
                },
            ),
        ),
    ),
    Problem(
        problem=68,
        arguments="in_features, out_features, constant",
        body=(
            "self.linear = nn.Linear(in_features, out_features)",
            "self.constant = nn.Parameter(torch.tensor(constant))",
        ),
        analysis="""A GEMM of 128 rows with a 16384 x 16384 weight reads a gibibyte of weights and produces 8 MiB.
The minimum with a scalar parameter and its subtraction are two broadcasting kernels of a few microseconds each on
data that is still in L2. They cannot matter more than their launches do: four transfers of 8 MiB beside a gibibyte.
One kernel instead of two, in place, without intermediate allocation, is all that is left to gain; anything that
slows the GEMM down would lose more.""",
        members=(
            Member(
                "in_place",
                MIN_SUBTRACT,
                """
y = F.linear(x, self.linear.weight, self.linear.bias).contiguous()
total = y.numel()
min_subtract_kernel[(triton.cdiv(total, 1024),)](y, self.constant, total, BLOCK=1024, num_warps=4)
return y
""",
                """One Triton kernel on the GEMM's own output: the constant is read from the parameter on the
device, so no host synchronisation is needed, the minimum and the subtraction are two instructions, and the result
goes back to the same address while the line is in L2. Two thousand programs of 1024 elements finish in one wave.
The expression is kept as min(x, c) - c rather than rewritten, which makes the clipped entries exactly zero as in
the reference.""",
                ("operation fusion", "memory coalescing"),
            ),
            Member(
                "float4",
                MIN_SUBTRACT_CUDA,
                """
y = F.linear(x, self.linear.weight, self.linear.bias).contiguous()
total = y.numel()
min_subtract()(grid=(-(-total // 1024), 1, 1), block=(256, 1, 1), args=[y, self.constant, total])
return y
""",
                """The same fusion in CUDA: a thread handles one float4 of the GEMM's output in place, so a warp
moves 512 bytes per instruction and the whole tail is a single short wave of blocks. The scalar parameter is a
pointer argument that every thread reads through the constant path of L1, which avoids bringing its value to the
host. A launch through the driver interface costs less on the host than a Triton launch, which is what counts for a
kernel of a few microseconds.""",
                ("operation fusion", "memory coalescing"),
                (),
                ("min_subtract",),
            ),
        ),
    ),
)
