"""Pointwise functions: one read and one write per element, in Triton and in CUDA."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.corpus.level1.files import cuda_file, prose, triton_file
from benchmarks.corpus.record import Draft


@dataclass(frozen=True)
class Pointwise:
    """A problem whose output is a function of one element.

    `triton` and `cuda` assign `y` from `x`. `scalar` is an argument of the kernel, (name, its value in `forward`).
    `init` is the constructor's text where the model has arguments. `note` is a step of every design.
    """

    problem: int
    name: str
    triton: str
    cuda: str
    analysis: str
    note: str
    members: tuple[str, ...]
    scalar: tuple[str, str] | None = None
    init: str = ""
    arguments: str = "x"


TRITON = """
@triton.jit
def $name_kernel(x_ptr, out_ptr, n,$scalar BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
$body
    tl.store(out_ptr + at, y, mask=mask)
"""
TRITON_MODEL = """
class ModelNew(nn.Module):
$init    def forward(self, $arguments):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        $name_kernel[(triton.cdiv(n, $block),)](x, out, n,$value BLOCK=$block, num_warps=$warps)
        return out
"""
PERSISTENT = """
@triton.jit
def $name_kernel(x_ptr, out_ptr, n,$scalar BLOCK: tl.constexpr):
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, n, step):
        at = start + tl.arange(0, BLOCK)
        mask = at < n
        x = tl.load(x_ptr + at, mask=mask, eviction_policy="evict_first")
$body
        tl.store(out_ptr + at, y, mask=mask)
"""
PERSISTENT_MODEL = """
class ModelNew(nn.Module):
$init    def forward(self, $arguments):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        grid = (min(triton.cdiv(n, $block), 8 * sms),)
        $name_kernel[grid](x, out, n,$value BLOCK=$block, num_warps=$warps)
        return out
"""
CUDA_SCALAR = """
__device__ __forceinline__ float $name_value(float x$cscalar) {
$body
    return y;
}

__global__ void $name_kernel(const float* __restrict__ x, float* __restrict__ out, long n$cscalar) {
    const long at = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (at < n) out[at] = $name_value(x[at]$cvalue);
}

void $name(size_t x, size_t out, long n$cscalar, size_t stream) {
    const long blocks = (n + $threads - 1) / $threads;
    $name_kernel<<<blocks, $threads, 0, (cudaStream_t)stream>>>((const float*)x, (float*)out, n$cvalue);
}
"""
CUDA_FLOAT4 = """
__device__ __forceinline__ float $name_value(float x$cscalar) {
$body
    return y;
}

__global__ void $name_kernel(const float* __restrict__ x, float* __restrict__ out, long n$cscalar) {
    const long step = gridDim.x * (long)blockDim.x;
    const long first = blockIdx.x * (long)blockDim.x + threadIdx.x;
    const long quads = n / 4;
    for (long at = first; at < quads; at += step) {
        const float4 v = reinterpret_cast<const float4*>(x)[at];
        float4 r;
        r.x = $name_value(v.x$cvalue);
        r.y = $name_value(v.y$cvalue);
        r.z = $name_value(v.z$cvalue);
        r.w = $name_value(v.w$cvalue);
        reinterpret_cast<float4*>(out)[at] = r;
    }
    for (long at = 4 * quads + first; at < n; at += step) out[at] = $name_value(x[at]$cvalue);
}

void $name(size_t x, size_t out, long n$cscalar, size_t stream) {
    long blocks = (n / 4 + $threads - 1) / $threads;
    blocks = blocks < 1 ? 1 : blocks > $most ? $most : blocks;
    $name_kernel<<<blocks, $threads, 0, (cudaStream_t)stream>>>((const float*)x, (float*)out, n$cvalue);
}
"""
CUDA_MODEL = """
class ModelNew(nn.Module):
$init    def forward(self, $arguments):
        x = x.contiguous()
        if x.data_ptr() % 16:
            x = x.clone()
        out = torch.empty_like(x)
        stream = torch.cuda.current_stream().cuda_stream
        kernels.$name(x.data_ptr(), out.data_ptr(), x.numel(),$value stream)
        return out
"""

MEMBERS: dict[str, dict] = {
    "flat": {
        "block": 1024,
        "warps": 4,
        "design": """1. Treat the tensor as one flat array; program i owns elements i*1024 to i*1024+1023, so a warp
        always touches neighbouring addresses and each access is fully coalesced.

        2. $note

        3. With 4 warps a thread holds 8 elements, which the compiler moves as two 16-byte vectors: enough bytes in
        flight to cover DRAM latency, few enough registers for full occupancy.

        4. Mask the last block, store the result once. Nothing intermediate goes to memory.""",
        "techniques": ("memory coalescing", "operation fusion"),
    },
    "wide": {
        "block": 4096,
        "warps": 8,
        "design": """1. One flat index space, but blocks of 4096 elements with 8 warps: 16 elements per thread, four
        independent 16-byte loads issued before the first result is needed.

        2. $note

        3. Compared with 1024-element blocks this launches a quarter of the blocks, so scheduling and index
        arithmetic are spread over more bytes, at the price of more registers per thread.

        4. A mask guards the tail only; offsets are 64 bit, so the tensor may exceed 2^31 elements.""",
        "techniques": ("memory coalescing", "thread-block configuration", "operation fusion"),
    },
    "narrow": {
        "block": 256,
        "warps": 1,
        "design": """1. Blocks of 256 elements with a single warp, 8 elements per thread: the finest grain that still
        loads whole 16-byte vectors.

        2. $note

        3. Blocks finish quickly and independently, so the tail of the grid is short; the cost is that four times as
        many blocks have to be scheduled as with 1024 elements, and resident blocks per SM, not registers, limit how
        many loads are in flight.

        4. One masked load, one masked store per element.""",
        "techniques": ("memory coalescing", "thread-block configuration"),
    },
    "persistent": {
        "block": 2048,
        "warps": 8,
        "design": """1. Launch eight programs per streaming multiprocessor and let each walk over the array with a
        grid-wide stride, instead of one short-lived program per block.

        2. $note

        3. The loads are marked evict-first, because an input element is never read again and need not push the
        output out of L2.

        4. Neighbouring programs work on neighbouring 2048-element blocks at any moment, so DRAM pages are swept in
        order; the number of programs does not grow with the tensor.""",
        "techniques": ("persistent grid", "memory coalescing", "thread-block configuration"),
    },
    "scalar": {
        "threads": 256,
        "design": """1. One thread per element and 256 threads per block: thread t of a warp reads address t, so a
        warp's 32 loads are one 128-byte transaction.

        2. $note

        3. The function is inlined and lives in registers; there is a single 4-byte load and store per thread, which
        leaves latency to be hidden by occupancy alone. That is simple and coalesced, but issues four times as many
        memory instructions as vectorised code.

        4. Compile without PyTorch's headers, pass raw pointers and the current stream.""",
        "techniques": ("memory coalescing",),
    },
    "float4": {
        "threads": 256,
        "most": 4096,
        "design": """1. Read and write 16 bytes at a time through float4, a quarter of the memory instructions of scalar
        code, with the last n mod 4 elements done one by one.

        2. $note

        3. A grid-stride loop over at most 4096 blocks of 256 threads: enough to fill every SM several times over,
        with index arithmetic amortised over the loop.

        4. Vector access needs 16-byte alignment; allocations have it, and a view that starts elsewhere is copied
        first. The build avoids PyTorch's headers and takes seconds.""",
        "techniques": ("vectorised loads", "memory coalescing", "persistent grid"),
    },
    "float4_once": {
        "threads": 512,
        "most": 2147483647,
        "design": """1. Use float4 accesses with exactly one vector per thread: 512 threads per block, as many blocks
        as the
        tensor needs, so every thread does one 16-byte load and one 16-byte store.

        2. $note

        3. Without a loop there is no serial dependence between iterations and the hardware scheduler balances the
        blocks; the loop in the kernel only guards against grids that would be too small.

        4. The last n mod 4 elements are scalar; unaligned views are copied before.""",
        "techniques": ("vectorised loads", "memory coalescing", "thread-block configuration"),
    },
}


def drafts_of(problem: Pointwise) -> Iterator[Draft]:
    """Yield the problem's members."""
    scalar, value = problem.scalar or ("", "")
    texts = {
        "name": problem.name,
        "init": textwrap.indent(textwrap.dedent(problem.init).strip("\n"), "    ") + "\n\n" if problem.init else "",
        "arguments": problem.arguments,
        "scalar": f" {scalar}," if scalar else "",
        "value": f" {value}," if scalar else "",
        "cscalar": f", float {scalar}" if scalar else "",
        "cvalue": f", {scalar}" if scalar else "",
    }
    for member in problem.members:
        chosen = MEMBERS[member]
        numbers = {key: chosen[key] for key in ("block", "warps", "threads", "most") if key in chosen}
        if "block" in chosen:
            looped = member == "persistent"
            kernel, model = (PERSISTENT, PERSISTENT_MODEL) if looped else (TRITON, TRITON_MODEL)
            body = textwrap.indent(textwrap.dedent(problem.triton).strip(), " " * (8 if looped else 4))
            code, language = triton_file(kernel, model, body=body, **texts, **numbers), "triton"
        else:
            kernel = CUDA_FLOAT4 if "most" in chosen else CUDA_SCALAR
            body = textwrap.indent(textwrap.dedent(problem.cuda).strip(), "    ")
            launcher = f"void {problem.name}(size_t x, size_t out, long n{texts['cscalar']}, size_t stream)"
            code = cuda_file(f"{problem.name}_{member}", kernel, launcher, CUDA_MODEL, body=body, **texts, **numbers)
            language = "cuda"
        design = prose(chosen["design"], note=problem.note)
        yield Draft(problem.problem, member, code, prose(problem.analysis), design, chosen["techniques"], language)
