"""Convolutions followed by pointwise operations around a GroupNorm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.corpus.level2.parts import cuda_file, model, triton_file
from benchmarks.corpus.record import Draft


@dataclass(frozen=True)
class GroupNorm:
    """A tail `y = after(norm(before(x)))`; `before` gives `v` from `x`, `after` gives `y` from the normalised `n`.
    `channel`: per-channel parameters of `before`, name -> attribute. `norm` is the GroupNorm's attribute."""

    problem: int
    name: str
    arguments: str
    body: tuple[str, ...]
    call: str
    before: str
    after: str
    before_cuda: str
    after_cuda: str
    analysis: str
    note: str
    functions: tuple[str, ...]
    functions_cuda: tuple[str, ...]
    channel: dict[str, str] = field(default_factory=dict)
    norm: str = "group_norm"
    block: int = 4096


def drafts(spec: GroupNorm) -> Iterator[Draft]:
    """Yield the problem's candidates."""
    yield group(spec)
    yield planes(spec)
    yield cuda(spec)


def _loads(spec: GroupNorm, spaces: int) -> str:
    pad = " " * spaces
    return "".join(f"{pad}{name} = tl.load({name}_ptr + channel)\n" for name in spec.channel)


def _filled(text: str, spec: GroupNorm, **words: str) -> str:
    words |= {
        "NAME": spec.name,
        "PARAMETERS": "".join(f"{name}_ptr, " for name in spec.channel),
        "ARGUMENTS": "".join(f"{value}, " for value in spec.channel.values()),
        "BEFORE": spec.before,
        "AFTER": spec.after,
        "NORM": f"self.{spec.norm}",
        "CALL": spec.call,
        "SIZE": str(spec.block),
        "LOADS4\n": _loads(spec, 4),
        "LOADS8\n": _loads(spec, 8),
    }
    for word, value in words.items():
        text = text.replace(word, value)
    return text


_GROUP = """@triton.jit
def NAME_group_kernel(
    y_ptr, PARAMETERSgamma_ptr, beta_ptr, eps, channels, per_group, plane_size, BLOCK: tl.constexpr
):
    program = tl.program_id(0)  # image x group
    first = (program % (channels // per_group)) * per_group
    base = y_ptr + program.to(tl.int64) * per_group * plane_size

    # Sums of differences from one of the values: no cancellation when the mean is large.
    channel = first
LOADS4
    x = tl.load(base + tl.zeros((BLOCK,), tl.int32))
    BEFORE
    pivot = v
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for c in range(per_group):
        channel = first + c
LOADS8
        for start in range(0, plane_size, BLOCK):
            within = start + tl.arange(0, BLOCK)
            mask = within < plane_size
            x = tl.load(base + c * plane_size + within, mask=mask, other=0.0)
            BEFORE
            difference = tl.where(mask, v - pivot, 0.0)
            total += difference
            squares += difference * difference
    count = per_group * plane_size
    offset = tl.sum(total) / count
    mean = tl.max(pivot, axis=0) + offset
    rstd = tl.rsqrt(tl.maximum(tl.sum(squares) / count - offset * offset, 0.0) + eps)

    for c in range(per_group):
        channel = first + c
LOADS8
        scale = tl.load(gamma_ptr + channel) * rstd
        bias = tl.load(beta_ptr + channel) - mean * scale
        for start in range(0, plane_size, BLOCK):
            within = start + tl.arange(0, BLOCK)
            mask = within < plane_size
            ptrs = base + c * plane_size + within
            x = tl.load(ptrs, mask=mask, other=0.0)
            BEFORE
            n = v * scale + bias
            AFTER
            tl.store(ptrs, y, mask=mask)
"""


def group(spec: GroupNorm) -> Draft:
    """Return the member in which one program owns a group of one image."""
    forward = _filled(
        """y = CALL.contiguous()
batch, channels = y.shape[:2]
norm = NORM
NAME_group_kernel[(batch * norm.num_groups,)](
    y, ARGUMENTSnorm.weight, norm.bias, norm.eps,
    channels, channels // norm.num_groups, y[0, 0].numel(), BLOCK=SIZE, num_warps=16,
)
return y""",
        spec,
    )
    design = f"""One program owns one group of one image, which is contiguous in memory. It streams the group once
to accumulate sum and sum of squares (of differences from one of the values, so that float32 does not cancel),
reduces them at the end, and streams it a second time to normalise and finish; what the second pass reads was read
shortly before and partly comes from L2. {spec.note} No statistics go through memory and there is a single launch,
in place. The grid has batch x groups programs of 16 warps, so small batches leave multiprocessors idle."""
    return _draft(spec, "group", _filled(_GROUP, spec), forward, design, ("operation fusion", "warp-level reduction"))


_PLANES = """@triton.jit
def NAME_stats_kernel(x_ptr, PARAMETERSmean_ptr, m2_ptr, channels, plane_size, BLOCK: tl.constexpr):
    plane = tl.program_id(0)  # image x channel
    channel = plane % channels
LOADS4
    base = x_ptr + plane.to(tl.int64) * plane_size
    x = tl.load(base + tl.zeros((BLOCK,), tl.int32))
    BEFORE
    pivot = v
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, plane_size, BLOCK):
        within = start + tl.arange(0, BLOCK)
        mask = within < plane_size
        x = tl.load(base + within, mask=mask, other=0.0)
        BEFORE
        difference = tl.where(mask, v - pivot, 0.0)
        total += difference
        squares += difference * difference
    offset = tl.sum(total) / plane_size
    tl.store(mean_ptr + plane, tl.max(pivot, axis=0) + offset)
    tl.store(m2_ptr + plane, tl.maximum(tl.sum(squares) - offset * offset * plane_size, 0.0))


@triton.jit
def NAME_apply_kernel(
    y_ptr, PARAMETERSmean_ptr, m2_ptr, gamma_ptr, beta_ptr, eps, channels, plane_size,
    PER_GROUP: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):
    plane = tl.program_id(0)
    channel = plane % channels
    # Chan's formula merges the statistics of the group's channels, which all have plane_size values.
    member = tl.arange(0, PADDED)
    valid = member < PER_GROUP
    first = plane - channel % PER_GROUP
    means = tl.load(mean_ptr + first + member, mask=valid, other=0.0)
    mean = tl.sum(means) / PER_GROUP
    spread = tl.where(valid, means - mean, 0.0)
    m2 = tl.sum(tl.load(m2_ptr + first + member, mask=valid, other=0.0)) + plane_size * tl.sum(spread * spread)
    scale = tl.load(gamma_ptr + channel) * tl.rsqrt(m2 / (PER_GROUP * plane_size) + eps)
    bias = tl.load(beta_ptr + channel) - mean * scale
LOADS4
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = within < plane_size
    ptrs = y_ptr + plane.to(tl.int64) * plane_size + within
    x = tl.load(ptrs, mask=mask, other=0.0)
    BEFORE
    n = v * scale + bias
    AFTER
    tl.store(ptrs, y, mask=mask)
"""


def planes(spec: GroupNorm) -> Draft:
    """Return the member with statistics for each plane and a second kernel that merges and applies them."""
    forward = _filled(
        """y = CALL.contiguous()
batch, channels = y.shape[:2]
plane_size = y[0, 0].numel()
norm = NORM
per_group = channels // norm.num_groups
statistics = y.new_empty((2, batch * channels))
NAME_stats_kernel[(batch * channels,)](
    y, ARGUMENTSstatistics[0], statistics[1], channels, plane_size, BLOCK=SIZE, num_warps=8
)
NAME_apply_kernel[(batch * channels, triton.cdiv(plane_size, 2048))](
    y, ARGUMENTSstatistics[0], statistics[1], norm.weight, norm.bias, norm.eps, channels, plane_size,
    PER_GROUP=per_group, PADDED=triton.next_power_of_2(per_group), BLOCK=2048, num_warps=8,
)
return y""",
        spec,
    )
    design = f"""Two kernels, split where the data splits by itself: the first gives each (image, channel) plane a
program and writes the plane's mean and sum of squared deviations; the second has a program for every 2048 elements,
merges the handful of per-channel statistics of its group by Chan's formula (exact, no cancellation) and finishes
the tail in place. {spec.note} The grid is several times larger than one program per group, so the device fills even
for small batches, and the only price is a few floats per plane through memory and a second launch."""
    return _draft(
        spec, "planes", _filled(_PLANES, spec), forward, design, ("operation fusion", "thread-block configuration")
    )


_CUDA = """__device__ __forceinline__ float before(float x CPARAMETERS) {
    CBEFORE
    return v;
}

__device__ __forceinline__ float after(float n) {
    CAFTER
    return y;
}

__device__ __forceinline__ float2 block_sum(float2 value) {
    __shared__ float2 partial[32];
    for (int step = 16; step > 0; step >>= 1) {
        value.x += __shfl_xor_sync(0xffffffffu, value.x, step);
        value.y += __shfl_xor_sync(0xffffffffu, value.y, step);
    }
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    float2 sum = make_float2(0.0f, 0.0f);
    for (int w = 0; w < warps; ++w) {
        sum.x += partial[w].x;
        sum.y += partial[w].y;
    }
    return sum;
}

// One block for each group of each image.
extern "C" __global__ void NAME(float* __restrict__ y, CSIGNATUREconst float* __restrict__ gamma,
                                const float* __restrict__ beta, double eps, int channels, int per_group,
                                int plane_size) {
    const int first = (blockIdx.x % (channels / per_group)) * per_group;
    float* base = y + (long long)blockIdx.x * per_group * plane_size;
    const float pivot = before(base[0] CFIRST);
    __syncthreads();
    float2 sums = make_float2(0.0f, 0.0f);
    for (int c = 0; c < per_group; ++c) {
        const float* row = base + (long long)c * plane_size;
        CLOADS
        #pragma unroll 4
        for (int i = threadIdx.x; i < plane_size; i += blockDim.x) {
            const float d = before(row[i] CVALUES) - pivot;
            sums.x += d;
            sums.y += d * d;
        }
    }
    sums = block_sum(sums);
    const float count = (float)per_group * plane_size;
    const float offset = sums.x / count;
    const float mean = pivot + offset;
    const float rstd = rsqrtf(fmaxf(sums.y / count - offset * offset, 0.0f) + (float)eps);
    for (int c = 0; c < per_group; ++c) {
        float* row = base + (long long)c * plane_size;
        CLOADS
        const float scale = gamma[first + c] * rstd;
        const float bias = beta[first + c] - mean * scale;
        #pragma unroll 4
        for (int i = threadIdx.x; i < plane_size; i += blockDim.x) {
            row[i] = after(before(row[i] CVALUES) * scale + bias);
        }
    }
}
"""


def cuda(spec: GroupNorm) -> Draft:
    """Return the member in CUDA with one block for a group of one image."""
    names = list(spec.channel)
    source = _filled(
        _CUDA,
        spec,
        CPARAMETERS="".join(f", float {name}" for name in names),
        CBEFORE=spec.before_cuda,
        CAFTER=spec.after_cuda,
        CSIGNATURE="".join(f"const float* __restrict__ {name}_of, " for name in names),
        CFIRST="".join(f", {name}_of[first]" for name in names),
        CLOADS="\n        ".join(f"const float {name} = {name}_of[first + c];" for name in names),
        CVALUES="".join(f", {name}" for name in names),
    )
    source = source.replace("        \n", "")
    forward = _filled(
        """y = CALL.contiguous()
batch, channels = y.shape[:2]
norm = NORM
NAME()(
    grid=(batch * norm.num_groups, 1, 1),
    block=(1024, 1, 1),
    args=[y, ARGUMENTSnorm.weight, norm.bias, norm.eps,
          channels, channels // norm.num_groups, y[0, 0].numel()],
)
return y""",
        spec,
    )
    design = f"""A CUDA block of 1024 threads for every group of every image, compiled at run time from raw-pointer
source. Threads accumulate shifted sums over the group's planes, neighbouring threads on neighbouring addresses and
four iterations unrolled; a butterfly of warp shuffles and one exchange through 256 bytes of shared memory give
every thread mean and 1/sigma. The second sweep re-reads the group, which L2 still holds in part, recomputes the
cheap prologue instead of storing it, and writes the finished value in place. {spec.note}"""
    return Draft(
        spec.problem,
        "cuda",
        cuda_file(spec.functions_cuda, source, [spec.name], model(spec.arguments, spec.body, "x", forward)),
        " ".join(spec.analysis.split()),
        " ".join(design.split()),
        ("operation fusion", "warp-level reduction", "register/shared-memory use"),
        "cuda",
    )


def _draft(spec: GroupNorm, member: str, kernels: str, forward: str, design: str, techniques: tuple[str, ...]) -> Draft:
    source = triton_file(spec.functions, kernels, model(spec.arguments, spec.body, "x", forward))
    return Draft(
        spec.problem, member, source, " ".join(spec.analysis.split()), " ".join(design.split()), techniques, "triton"
    )
