"""Losses that are a mean of a pointwise function, 94, 96, 100; and the norms over channels, 36, and over batches,
33."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus.level1.member import Member, Problem, drafts_of
from benchmarks.corpus.record import Draft

PARTIAL = """
@triton.jit
def partial_kernel(p_ptr, t_ptr, part_ptr, n, columns, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, n, step):
        at = start + tl.arange(0, BLOCK)
        inside = at < n
        p = tl.load(p_ptr + at, mask=inside, other=0.0)
        t = tl.load(t_ptr + $where, mask=inside, other=0.0)
        $value
        total += tl.where(inside, value, 0.0)
    tl.store(part_ptr + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def finish_kernel(part_ptr, out_ptr, parts, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    part = tl.load(part_ptr + at, mask=at < parts, other=0.0)
    tl.store(out_ptr, tl.sum(part, 0) / n)
"""
MODEL = """
class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        $prepare
        n, columns = predictions.numel(), predictions.shape[-1]
        programs = min(triton.cdiv(n, $block), $programs)
        part = torch.empty(programs, device=predictions.device)
        out = torch.empty((), device=predictions.device)
        partial_kernel[(programs,)](predictions, targets, part, n, columns, BLOCK=$block, num_warps=$warps)
        finish_kernel[(1,)](part, out, programs, n, BLOCK=triton.next_power_of_2(programs))
        return out
"""
CUDA = """
__device__ __forceinline__ float block_sum(float value) {
    __shared__ float sums[32];
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffff, value, distance);
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = value;
    __syncthreads();
    value = threadIdx.x < (blockDim.x >> 5) ? sums[threadIdx.x] : 0.0f;
    if (threadIdx.x < 32)
        for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffff, value, distance);
    return value;
}

__device__ __forceinline__ float loss(float p, float t) {
    $cvalue
    return value;
}

__global__ void partial_kernel(const float* __restrict__ p, const float* __restrict__ t, float* part, long n, long
columns) {
    const long step = gridDim.x * (long)blockDim.x;
    float total = 0.0f;
    for (long at = blockIdx.x * (long)blockDim.x + threadIdx.x; at < n; at += step) total += loss(p[at], t[$where]);
    total = block_sum(total);
    if (threadIdx.x == 0) part[blockIdx.x] = total;
}

__global__ void finish_kernel(const float* part, float* out, long parts, long n) {
    float total = 0.0f;
    for (long at = threadIdx.x; at < parts; at += blockDim.x) total += part[at];
    total = block_sum(total);
    if (threadIdx.x == 0) *out = total / n;
}

void mean_loss(size_t p, size_t t, size_t part, size_t out, long n, long columns, long parts, size_t stream) {
    partial_kernel<<<parts, $threads, 0, (cudaStream_t)stream>>>(
        (const float*)p, (const float*)t, (float*)part, n, columns);
    finish_kernel<<<1, 256, 0, (cudaStream_t)stream>>>((const float*)part, (float*)out, parts, n);
}
"""
CUDA_MODEL = """
class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        $prepare
        n, columns = predictions.numel(), predictions.shape[-1]
        parts = $parts
        part = torch.empty(parts, device=predictions.device)
        out = torch.empty((), device=predictions.device)
        stream = torch.cuda.current_stream().cuda_stream
        kernels.mean_loss(
            predictions.data_ptr(), targets.data_ptr(), part.data_ptr(), out.data_ptr(), n, columns, parts, stream
        )
        return out
"""
_FUSED = ("operation fusion", "split reduction", "memory coalescing")
LAUNCHER = (
    "void mean_loss(size_t p, size_t t, size_t part, size_t out, long n, long columns, long parts, size_t stream)"
)
TEXT = """1. Fuse loss and mean: at most $programs programs walk over the flat arrays with a grid-wide stride, $block
elements at
    a time, and add each element's loss to a per-lane sum in registers. $note

    2. Each program collapses its lanes once, after the loop, and stores one float.

    3. A single small program adds the partial sums in a fixed order and divides by the number of elements; no atomics,
    so the result is reproducible, and summing in many lanes keeps the rounding error of fp32 small.

    4. Traffic is exactly the inputs; no tensor of element-wise losses is ever written."""
CUDA_TEXT = """1. $parts blocks of $threads threads stride over the elements; each thread accumulates its losses in a
register, with
    coalesced reads of both inputs. $note

    2. A block's sums are combined by xor shuffles inside warps and one exchange through shared memory, and thread 0
    writes the block's partial sum.

    3. A second kernel of one block adds the partial sums the same way and divides by n.

    4. Both kernels are queued by one call from Python, so the second launch costs a few microseconds at most; only
    partial sums, some kilobytes, are written between them."""


def _members() -> tuple[Member, ...]:
    shapes = (("stride1k", 1024, 4, 1024), ("stride4k", 4096, 8, 1024), ("few_programs", 4096, 8, 132))
    triton = [
        Member(name, PARTIAL, MODEL, TEXT, _FUSED, constants={"block": block, "warps": warps, "programs": programs})
        for name, block, warps, programs in shapes
    ]
    cuda = [
        Member(
            f"cuda{parts}",
            CUDA,
            CUDA_MODEL,
            CUDA_TEXT,
            (*_FUSED, "warp-level reduction"),
            LAUNCHER,
            {"parts": parts, "threads": threads},
        )
        for parts, threads in ((1056, 256), (264, 1024))
    ]
    return (*triton, *cuda)


_SHARED_FIELDS = {
    "where": "at",
    "prepare": "predictions, targets = torch.broadcast_tensors(predictions, targets)\n"
    "        predictions, targets = predictions.contiguous(), targets.contiguous()",
    "note": "",
}

PROBLEMS = [
    Problem(
        94,
        """Mean squared error over two tensors of a hundred megabytes each is three kernels in eager PyTorch: the
        difference
        is written to a temporary, its square to another one, and a reduction reads that. Per element: 8 bytes in and
        4 out, 4 in and 4 out, 4 in, 24 bytes in all, where the inputs are only 8. There is a subtraction, a product and
        an addition per element, so everything is DRAM traffic, and fusing the three steps is worth up to three
        times.""",
        _members(),
        {
            **_SHARED_FIELDS,
            "value": "value = (p - t) * (p - t)",
            "cvalue": "const float d = p - t;\n    const float value = d * d;",
        },
    ),
    Problem(
        96,
        """smooth_l1_loss computes a piecewise function of each difference and then its mean. The library runs two
        kernels:
        an elementwise one reads both inputs and writes a tensor of losses, and a reduction reads it back, 16 bytes of
        traffic per element where reading the inputs takes 8. The branch between the quadratic and the linear part is
        a select. Since the losses are used exactly once, they can be summed where they are computed.""",
        _members(),
        {
            **_SHARED_FIELDS,
            "value": "d = tl.abs(p - t)\n        value = tl.where(d < 1.0, 0.5 * d * d, d - 0.5)",
            "cvalue": "const float d = fabsf(p - t);\n    const float value = d < 1.0f ? 0.5f * d * d : d - 0.5f;",
            "note": "Both branches of the loss, with the default beta of 1, are computed and selected without "
            "divergence.",
        },
    ),
    Problem(
        100,
        """The hinge loss mean(clamp(1 - p*t, 0)) is a chain of four kernels: a product with the targets broadcast
        along rows,
        a subtraction from one, a clamp, and a mean, with three temporaries as large as the predictions. Reads and
        writes add up to 28 bytes per element, although only the 4 bytes of each prediction are new; the targets are a
        single row that stays in cache. Fusion leaves one read of the predictions: about a sevenfold saving in
        traffic.""",
        _members(),
        {
            **_SHARED_FIELDS,
            "value": "value = 1.0 - p * t\n        value = tl.where(value < 0.0, 0.0, value)",
            "cvalue": "float value = 1.0f - p * t;\n    value = value < 0.0f ? 0.0f : value;",
            "where": "at % columns",
            "prepare": "shape = torch.broadcast_shapes(predictions.shape, targets.shape)\n"
            "        predictions = predictions.expand(shape).contiguous()\n"
            "        targets = targets.expand(shape[-1:]) if targets.dim() < 2 else targets.expand(shape)\n"
            "        if targets.dim() > 1:\n"
            "            predictions, targets = predictions.reshape(-1), targets.reshape(-1)\n"
            "        targets = targets.contiguous()",
            "note": "The target's index is the element's column, so the row of targets is read from cache.",
        },
    ),
]


def drafts() -> Iterator[Draft]:
    """Yield the candidates of these losses."""
    for problem in PROBLEMS:
        yield from drafts_of(problem)
