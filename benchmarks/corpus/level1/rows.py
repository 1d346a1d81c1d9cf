"""Softmax and its logarithm over long rows: 23, 24."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus.level1.member import Member, Problem, drafts_of
from benchmarks.corpus.record import Draft

SOFTMAX_ONLINE = """
@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    peak = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + at, mask=at < columns, other=float("-inf"))
        higher = tl.maximum(peak, x)
        safe = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(peak - safe) + tl.exp(x - safe)
        peak = higher
    top = tl.max(peak, 0)
    total = tl.sum(total * tl.exp(peak - top), 0)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + at, mask=at < columns)
        tl.store(out_ptr + row + at, $last, mask=at < columns)
"""
SOFTMAX_MODEL = """
class ModelNew(nn.Module):
    def forward(self, x):
        x, columns = x.contiguous(), x.shape[-1]
        out = torch.empty_like(x)
        softmax_kernel[(x.numel() // columns,)](x, out, columns, BLOCK=$block, num_warps=$warps)
        return out
"""
SOFTMAX_SPLIT = """
@triton.jit
def partial_kernel(x_ptr, peak_ptr, total_ptr, columns, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    row, chunk = tl.program_id(0), tl.program_id(1)
    base = row.to(tl.int64) * columns
    peak = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, CHUNK, BLOCK):
        at = chunk * CHUNK + start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < columns, other=float("-inf"))
        higher = tl.maximum(peak, x)
        safe = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(peak - safe) + tl.exp(x - safe)
        peak = higher
    top = tl.max(peak, 0)
    total = tl.sum(total * tl.exp(peak - tl.where(top == float("-inf"), 0.0, top)), 0)
    tl.store(peak_ptr + row * tl.num_programs(1) + chunk, top)
    tl.store(total_ptr + row * tl.num_programs(1) + chunk, total)


@triton.jit
def finish_kernel(x_ptr, peak_ptr, total_ptr, out_ptr, columns, chunks, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
                  CHUNKS: tl.constexpr):
    row, chunk = tl.program_id(0), tl.program_id(1)
    base = row.to(tl.int64) * columns
    part = tl.arange(0, CHUNKS)
    peaks = tl.load(peak_ptr + row * chunks + part, mask=part < chunks, other=float("-inf"))
    totals = tl.load(total_ptr + row * chunks + part, mask=part < chunks, other=0.0)
    top = tl.max(peaks, 0)
    total = tl.sum(totals * tl.exp(peaks - top), 0)
    for start in range(0, CHUNK, BLOCK):
        at = chunk * CHUNK + start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < columns)
        tl.store(out_ptr + base + at, $last, mask=at < columns)
"""
SOFTMAX_SPLIT_MODEL = """
class ModelNew(nn.Module):
    def forward(self, x):
        x, columns = x.contiguous(), x.shape[-1]
        rows = x.numel() // columns
        chunks = triton.cdiv(columns, $chunk)
        out = torch.empty_like(x)
        peak = torch.empty(rows, chunks, device=x.device)
        total = torch.empty_like(peak)
        partial_kernel[(rows, chunks)](x, peak, total, columns, CHUNK=$chunk, BLOCK=2048, num_warps=8)
        finish_kernel[(rows, chunks)](
            x, peak, total, out, columns, chunks, CHUNK=$chunk, BLOCK=2048,
            CHUNKS=triton.next_power_of_2(chunks), num_warps=8,
        )
        return out
"""
SOFTMAX_CUDA = """
__device__ __forceinline__ void merge(float& peak, float& total, float other_peak, float other_total) {
    const float top = fmaxf(peak, other_peak);
    if (top == -INFINITY) return;
    total = total * expf(peak - top) + other_total * expf(other_peak - top);
    peak = top;
}

__global__ void softmax_kernel(const float* __restrict__ x, float* __restrict__ out, long columns) {
    __shared__ float peaks[32];
    __shared__ float totals[32];
    const float* in = x + blockIdx.x * columns;
    float* to = out + blockIdx.x * columns;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    float peak = -INFINITY, total = 0.0f;
    for (long at = threadIdx.x; at < columns; at += blockDim.x) merge(peak, total, in[at], 1.0f);
    for (int distance = 16; distance > 0; distance /= 2) {
        const float other_peak = __shfl_xor_sync(0xffffffff, peak, distance);
        const float other_total = __shfl_xor_sync(0xffffffff, total, distance);
        merge(peak, total, other_peak, other_total);
    }
    if (lane == 0) {
        peaks[warp] = peak;
        totals[warp] = total;
    }
    __syncthreads();
    peak = -INFINITY, total = 0.0f;
    for (int w = 0; w < warps; ++w) merge(peak, total, peaks[w], totals[w]);
    $prepare
    for (long at = threadIdx.x; at < columns; at += blockDim.x) to[at] = $clast;
}

void softmax(size_t x, size_t out, long rows, long columns, size_t stream) {
    softmax_kernel<<<rows, $threads, 0, (cudaStream_t)stream>>>((const float*)x, (float*)out, columns);
}
"""
SOFTMAX_CUDA_MODEL = """
class ModelNew(nn.Module):
    def forward(self, x):
        x, columns = x.contiguous(), x.shape[-1]
        out = torch.empty_like(x)
        stream = torch.cuda.current_stream().cuda_stream
        kernels.softmax(x.data_ptr(), out.data_ptr(), x.numel() // columns, columns, stream)
        return out
"""
ONLINE = ("online softmax", "memory coalescing", "register/shared-memory use")
SOFTMAX_MEMBERS = (
    *(
        Member(
            f"online{block}",
            SOFTMAX_ONLINE,
            SOFTMAX_MODEL,
            """1. One program per row keeps a running maximum and a running sum per lane of a $block-wide block; when a
            maximum rises, that lane's sum is rescaled by exp(old - new). Maximum and sum thus come out of one pass.

            2. The lanes are merged once, at the end of the row, instead of after every block: no reduction across
            threads lies on the critical path of the loop.

            3. A second loop reads the row again and writes $result.

            4. The input crosses DRAM twice and the output once, 12 bytes per element, where separate passes for
            maximum and sum would need 16.""",
            ONLINE,
            constants={"block": block, "warps": warps},
        )
        for block, warps in ((2048, 8), (8192, 16))
    ),
    Member(
        "split",
        SOFTMAX_SPLIT,
        SOFTMAX_SPLIT_MODEL,
        """1. Cut each row into chunks of 16384 elements and give every chunk a program of its own, so that a hundred
        long
        rows become thousands of programs and the last wave of the grid is short.

        2. The first kernel computes each chunk's maximum and its sum of exponentials online, and stores these two
        numbers.

        3. The second kernel merges the row's partial results, a few dozen numbers that come from L2, and writes
        $result for its own chunk.

        4. Two launches and some kilobytes of partial results buy an even load on all SMs; the order of additions is
        fixed, so results are reproducible.""",
        (*ONLINE, "split reduction", "thread-block configuration"),
        constants={"chunk": 16384},
    ),
    Member(
        "cuda_block",
        SOFTMAX_CUDA,
        SOFTMAX_CUDA_MODEL,
        """1. A block of 1024 threads per row; thread t visits elements t, t+1024, ..., so warps read whole cache lines.

        2. Every thread holds a pair (maximum, sum of exponentials relative to it) and merges one element at a time,
        rescaling when the maximum rises.

        3. Pairs are merged across a warp by xor shuffles in five steps, and across the 32 warps through shared memory
        with a single barrier.

        4. A second pass over the row writes $result. Per-thread rescaling costs two exponentials per element, which
        is the price of this simple form.""",
        (*ONLINE, "warp-level reduction"),
        "void softmax(size_t x, size_t out, long rows, long columns, size_t stream)",
        {"threads": 1024},
    ),
)

PROBLEMS = [
    Problem(
        23,
        """Softmax over rows of 393216 elements: too long for registers or shared memory of one block, so the row has
        to be
        read from memory more than once. PyTorch's kernel for long rows makes separate passes for the maximum, the sum
        of exponentials, and the output: three reads and one write, 16 bytes per element. The work is bound by DRAM,
        since an exponential per element is cheap beside it. Computing maximum and sum in a single pass removes a
        quarter of the traffic; with only a hundred rows, balance over the SMs is the second concern.""",
        SOFTMAX_MEMBERS,
        {
            "last": "tl.exp(x - top) / total",
            "prepare": "const float scale = 1.0f / total;",
            "clast": "expf(in[at] - peak) * scale",
            "result": "exp(x - maximum) divided by the sum",
        },
    ),
    Problem(
        24,
        """Log-softmax subtracts from each element the logarithm of the row's summed exponentials. The rows are long,
        so the
        reference reads each of them three times (maximum, sum, output) and writes once: 16 bytes of DRAM traffic per
        element. The last pass is a mere subtraction. A running maximum with a rescaled sum gives the normaliser in one
        pass, and the subtraction in a second one, 12 bytes in all. With fewer rows than the device can hold blocks, how
        rows are spread over SMs matters as well.""",
        SOFTMAX_MEMBERS,
        {
            "last": "x - top - tl.log(total)",
            "prepare": "const float shift = logf(total);",
            "clast": "in[at] - peak - shift",
            "result": "x - maximum - log(sum)",
        },
    ),
]


def drafts() -> Iterator[Draft]:
    """Yield the candidates of softmax."""
    for problem in PROBLEMS:
        yield from drafts_of(problem)
