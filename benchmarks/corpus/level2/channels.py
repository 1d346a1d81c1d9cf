"""Convolutions whose tail reduces over the channels at each position."""

from __future__ import annotations

from benchmarks.corpus.level2.members import Member, Problem, drafts

__all__ = ["PROBLEMS", "drafts"]

# A tile of all channels x some positions; REDUCE turns `x` (channels, positions) into `y` (positions).
_TILE = """
@triton.jit
def NAME_tile_kernel(
    x_ptr, bias_ptr, EXTRA_SIGNATUREy_ptr, channels, plane_size, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr
):
    image = tl.program_id(0).to(tl.int64)
    position = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)
    channel = tl.arange(0, BLOCK_C)
    inside = position < plane_size
    mask = (channel[:, None] < channels) & inside[None, :]
    offsets = (image * channels + channel[:, None]) * plane_size + position[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=FILL)
    x += tl.load(bias_ptr + channel, mask=channel < channels, other=0.0)[:, None]
    REDUCE
    tl.store(y_ptr + image * plane_size + position, y, mask=inside)
"""

_TILE_FORWARD = """
x = CALL.contiguous()
batch, channels = x.shape[:2]
plane_size = x[0, 0].numel()
y = x.new_empty((batch, 1, *x.shape[2:]))
grid = (batch, triton.cdiv(plane_size, POSITIONS))
NAME_tile_kernel[grid](
    x, self.LAYER.bias, EXTRA_ARGUMENTSy, channels, plane_size,
    BLOCK_C=triton.next_power_of_2(channels), BLOCK_S=POSITIONS, num_warps=WARPS,
)
return y
"""

_LOOP = """
@triton.jit
def NAME_loop_kernel(x_ptr, bias_ptr, EXTRA_SIGNATUREy_ptr, channels, plane_size, BLOCK: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    position = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = position < plane_size
    x_ptrs = x_ptr + image * channels * plane_size + position
    START
    for channel in range(channels):
        x = tl.load(x_ptrs, mask=inside, other=0.0) + tl.load(bias_ptr + channel)
        STEP
        x_ptrs += plane_size
    FINISH
    tl.store(y_ptr + image * plane_size + position, y, mask=inside)
"""

_LOOP_FORWARD = """
x = CALL.contiguous()
batch, channels = x.shape[:2]
plane_size = x[0, 0].numel()
y = x.new_empty((batch, 1, *x.shape[2:]))
grid = (batch, triton.cdiv(plane_size, POSITIONS))
NAME_loop_kernel[grid](
    x, self.LAYER.bias, EXTRA_ARGUMENTSy, channels, plane_size, BLOCK=POSITIONS, num_warps=WARPS
)
return y
"""

_CUDA = """
// One thread reduces the channels of four neighbouring positions.
extern "C" __global__ void NAME(const float* __restrict__ x, const float* __restrict__ bias,
                                EXTRA_C_SIGNATUREfloat* __restrict__ y, int channels, int plane_size) {
    const long long image = blockIdx.y;
    const int position = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (position >= plane_size) return;
    const float* column = x + image * channels * plane_size + position;
    float* out = y + image * plane_size + position;
    if (plane_size % 4 == 0) {
        float4 best = make_float4(C_START, C_START, C_START, C_START);
        #pragma unroll 8
        for (int c = 0; c < channels; ++c) {
            const float4 v = *reinterpret_cast<const float4*>(column + (long long)c * plane_size);
            const float b = bias[c];
            best.x = step(best.x, v.x + bC_MORE);
            best.y = step(best.y, v.y + bC_MORE);
            best.z = step(best.z, v.z + bC_MORE);
            best.w = step(best.w, v.w + bC_MORE);
        }
        *reinterpret_cast<float4*>(out) = make_float4(
            finish(best.x), finish(best.y), finish(best.z), finish(best.w));
    } else {
        for (int i = 0; i < 4 && position + i < plane_size; ++i) {
            float best = C_START;
            for (int c = 0; c < channels; ++c) {
                best = step(best, column[(long long)c * plane_size + i] + bias[c]C_MORE);
            }
            out[i] = finish(best);
        }
    }
}
"""

_CUDA_FORWARD = """
x = CALL.contiguous()
batch, channels = x.shape[:2]
plane_size = x[0, 0].numel()
y = x.new_empty((batch, 1, *x.shape[2:]))
blocks = -(-plane_size // (4 * THREADS))
NAME()(
    grid=(blocks, batch, 1), block=(THREADS, 1, 1),
    args=[x, self.LAYER.bias, EXTRA_C_ARGUMENTSy, channels, plane_size],
)
return y
"""

_NONE = {
    "EXTRA_SIGNATURE": "",
    "EXTRA_ARGUMENTS": "",
    "EXTRA_C_SIGNATURE": "",
    "EXTRA_C_ARGUMENTS": "",
    "C_MORE": "",
}
_CONV2D = {"CALL": "F.conv2d(x, self.conv.weight, None)", "LAYER": "conv"}

MIN_TANH = {**_NONE, **_CONV2D, "NAME": "min_tanh"}
SCALED_MIN = {
    **_CONV2D,
    "NAME": "scaled_min",
    "EXTRA_SIGNATURE": "scale, ",
    "EXTRA_ARGUMENTS": "self.scale_factor, ",
    "EXTRA_C_SIGNATURE": "double scale, ",
    "EXTRA_C_ARGUMENTS": "float(self.scale_factor), ",
    "C_MORE": ", (float)scale",
}
LOGSUMEXP = {
    **_NONE,
    "NAME": "logsumexp_gate",
    "CALL": (
        "F.conv_transpose3d(\n    x, self.conv_transpose.weight, None, self.conv_transpose.stride, "
        "self.conv_transpose.padding\n)"
    ),
    "LAYER": "conv_transpose",
    "EXTRA_SIGNATURE": "shift_ptr, ",
    "EXTRA_ARGUMENTS": "self.bias, ",
}
_GATE = """lse = highest + tl.log(total)
    y = lse * tl.sigmoid(lse + 3.0) * 0.16666666666666666 - tl.load(shift_ptr)
    y = clamp(y, -1.0, 1.0)"""

_FUSED = ("operation fusion", "memory coalescing")

PROBLEMS = (
    Problem(
        problem=25,
        arguments="in_channels, out_channels, kernel_size",
        body=("self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",),
        analysis="""The convolution writes 64 channels, and the minimum over them throws 63 of 64 values away. The
reference still passes over the full map twice after cuDNN: once to add the bias (read and write), once for
torch.min, which also writes an int64 index per position that nothing uses. The two tanh that follow touch only 1/64
of the data, but are two more launches. The necessary traffic after the convolution is a single read of the map and
a write of one channel, so a third of the bytes and one launch instead of four.""",
        members=(
            Member(
                "tile",
                _TILE,
                _TILE_FORWARD,
                """One program takes a tile of all 64 channels by 128 neighbouring positions: the loads are rows of
128 contiguous floats, 512 bytes each, and the minimum runs along the tile's first axis in registers and across
warps. The bias of the convolution is added to the tile, because it differs by channel and must enter before the
minimum, and both tanh are applied to the 128 results that are left. Nothing but the final channel is written. The
tile of 8192 floats is held by 8 warps, 32 registers for each thread.""",
                (*_FUSED, "warp-level reduction"),
                ("tanh",),
                constants={
                    **MIN_TANH,
                    "FILL": 'float("inf")',
                    "REDUCE": "y = tanh(tanh(tl.min(x, axis=0)))",
                    "POSITIONS": 128,
                    "WARPS": 8,
                },
            ),
            Member(
                "loop",
                _LOOP,
                _LOOP_FORWARD,
                """Each thread keeps the running minimum of its own positions and walks down the channels, so no
value crosses a thread: there is no shared memory, no shuffle and no synchronisation. A program covers 512
neighbouring positions with 4 warps, which makes every load of the loop a fully coalesced 2 KiB. The channel's bias
is a scalar load that hits L1. Parallelism comes from the positions alone, which suffices because there are 64
thousand of them per image; loads of successive channels overlap since only the minimum depends on them.""",
                _FUSED,
                ("tanh",),
                constants={
                    **MIN_TANH,
                    "START": 'lowest = tl.full((BLOCK,), float("inf"), tl.float32)',
                    "STEP": "lowest = tl.minimum(lowest, x)",
                    "FINISH": "y = tanh(tanh(lowest))",
                    "POSITIONS": 512,
                    "WARPS": 4,
                },
            ),
            Member(
                "cuda",
                "__device__ __forceinline__ float step(float best, float v) { return fminf(best, v); }\n"
                "__device__ __forceinline__ float finish(float v) { return tanh_f(tanh_f(v)); }\n" + _CUDA,
                _CUDA_FORWARD,
                """A CUDA kernel in which a thread owns four neighbouring positions and reads them as one float4 per
channel: a warp then fetches 512 contiguous bytes per instruction, and the loop over 64 channels is unrolled by
eight so that eight such loads are in flight before the first fminf needs one. The minima stay in four registers,
the bias comes through the read-only cache, and the two tanh and a float4 store end the thread. Planes that are no
multiple of four long fall to scalar accesses within the same kernel.""",
                (*_FUSED, "register/shared-memory use"),
                ("tanh",),
                ("min_tanh",),
                constants={**MIN_TANH, "C_START": "3.402823466e38f", "THREADS": 128},
            ),
        ),
    ),
    Problem(
        problem=32,
        arguments="in_channels, out_channels, kernel_size, scale_factor",
        body=(
            "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
            "self.scale_factor = scale_factor",
        ),
        analysis="""After the convolution to 128 channels the reference adds the bias (read, write), multiplies by a
constant (read, write) and takes the minimum over channels (read), with an index tensor besides: five transfers of a
map of which one channel in 128 survives. One read of the map is all that the result needs. The scale cannot simply
be moved behind the minimum, because with a negative factor the smallest product comes from the largest value;
multiplying before the comparison costs one instruction per element and is right for either sign.""",
        members=(
            Member(
                "tile",
                _TILE,
                _TILE_FORWARD,
                """A program loads 128 channels by 64 positions as one tile (rows of 256 contiguous bytes), adds the
bias of each row, multiplies by the scale and reduces along the channel axis with tl.min, so the map is read exactly
once and one float per position is written. Channels beyond the true number are filled with +inf after scaling, as a
filled value times a negative scale would win the minimum otherwise. Eight warps share the 8192 values; the last
step of the reduction goes through shared memory.""",
                (*_FUSED, "warp-level reduction"),
                constants={
                    **SCALED_MIN,
                    "FILL": "0.0",
                    "REDUCE": 'y = tl.min(tl.where(mask, x * scale, float("inf")), axis=0)',
                    "POSITIONS": 64,
                    "WARPS": 8,
                },
            ),
            Member(
                "loop",
                _LOOP,
                _LOOP_FORWARD,
                """The channel loop runs inside a thread: 1024 positions belong to a program of 8 warps, each thread
holds four running minima and reads four floats per channel as one 16-byte access. There is no exchange between
threads. The scale is applied to each value before the comparison, in the shadow of the loads, which makes the
kernel right for any sign of the factor. Against a tile over all channels it needs an eighth of the registers and
can keep more loads in flight.""",
                _FUSED,
                constants={
                    **SCALED_MIN,
                    "START": 'y = tl.full((BLOCK,), float("inf"), tl.float32)',
                    "STEP": "y = tl.minimum(y, x * scale)",
                    "    FINISH\n": "",
                    "POSITIONS": 1024,
                    "WARPS": 8,
                },
            ),
            Member(
                "cuda",
                "__device__ __forceinline__ float step(float best, float v, float scale) {\n"
                "    return fminf(best, v * scale);\n}\n"
                "__device__ __forceinline__ float finish(float v) { return v; }\n" + _CUDA,
                _CUDA_FORWARD,
                """Written in CUDA with float4 columns: a thread reduces four adjacent positions over all 128
channels, a warp reads 512 contiguous bytes per channel, and the unrolled loop issues eight independent loads before
it waits. Bias and scale are applied on the way to fminf, four minima live in registers, and the only store is one
float4 per thread. With 256 threads a block covers 1024 positions of one image; blocks of the same image lie next to
each other in the grid, so DRAM pages are read in order.""",
                (*_FUSED, "register/shared-memory use"),
                entries=("scaled_min",),
                constants={**SCALED_MIN, "C_START": "3.402823466e38f", "THREADS": 256},
            ),
        ),
    ),
    Problem(
        problem=58,
        arguments="in_channels, out_channels, kernel_size, stride, padding, bias_shape",
        body=(
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding",
            ")",
            "self.bias = nn.Parameter(torch.randn(1, 1, 1, 1))",
        ),
        analysis="""A transposed 3D convolution from 3 to 16 channels with stride 2 is cheap, and its output is
eight times as large as the input per channel. The reference adds the layer's bias (2 transfers), computes
logsumexp, which itself makes a maximum, a subtraction, an exponential and a sum out of several kernels with
temporaries of the full size, and then gates, shifts and clamps the single channel that is left in six small
kernels. Everything behind the convolution can be one read of 16 values per position and one write.""",
        members=(
            Member(
                "tile",
                _TILE,
                _TILE_FORWARD,
                """A tile of 16 channels by 256 positions is loaded once and kept in registers, so the stable
two-step logsumexp (maximum, then the sum of exponentials of the differences) needs no second pass over memory. The
bias is added before, per channel. The gate lse * sigmoid(lse + 3) / 6, the learnt shift and the clamp are computed
on the 256 results and stored as one contiguous line. 4096 values on 4 warps are 32 registers a thread, which leaves
room for several programs on each multiprocessor.""",
                (*_FUSED, "register/shared-memory use"),
                ("clamp",),
                constants={
                    **LOGSUMEXP,
                    "FILL": 'float("-inf")',
                    "REDUCE": "highest = tl.max(x, axis=0)\n"
                    "    total = tl.sum(tl.exp(x - highest[None, :]), axis=0)\n    " + _GATE,
                    "POSITIONS": 256,
                    "WARPS": 4,
                },
            ),
            Member(
                "online",
                _LOOP,
                _LOOP_FORWARD,
                """The online form: a thread walks down the 16 channels of its position and carries a running
maximum and a running sum, which is rescaled by exp(old maximum - new maximum) whenever the maximum moves. One pass,
no exchange between threads, two registers of state per position. It computes two exponentials for each value where
the two-step form needs one, but those are hidden behind the loads of the next channel. Gate, shift and clamp follow
in the same registers, and a program of 512 positions stores its part of the single output channel.""",
                (*_FUSED, "algorithmic change"),
                ("clamp",),
                constants={
                    **LOGSUMEXP,
                    "START": 'highest = tl.full((BLOCK,), float("-inf"), tl.float32)\n'
                    "    total = tl.zeros((BLOCK,), tl.float32)",
                    "STEP": "new_highest = tl.maximum(highest, x)\n"
                    "        total = total * tl.exp(highest - new_highest) + tl.exp(x - new_highest)\n"
                    "        highest = new_highest",
                    "FINISH": _GATE,
                    "POSITIONS": 512,
                    "WARPS": 4,
                },
            ),
            Member(
                "tile_small",
                _TILE,
                _TILE_FORWARD,
                """The same tiling over all 16 channels, but with only 64 positions and 2 warps in a program: many
more, smaller programs. The exact two-step logsumexp runs on registers, bias first, then maximum and sum along the
channel axis, then the gate with its sigmoid, the shift and the clamp. Rows of 64 floats are still whole 128-byte
lines, but each program has little work to amortise its start and its index arithmetic; it shows how much the
block's shape matters when the traffic is the same.""",
                (*_FUSED, "thread-block configuration"),
                ("clamp",),
                constants={
                    **LOGSUMEXP,
                    "FILL": 'float("-inf")',
                    "REDUCE": "highest = tl.max(x, axis=0)\n"
                    "    total = tl.sum(tl.exp(x - highest[None, :]), axis=0)\n    " + _GATE,
                    "POSITIONS": 64,
                    "WARPS": 2,
                },
            ),
        ),
    ),
)
