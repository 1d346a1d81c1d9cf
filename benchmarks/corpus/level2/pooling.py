"""Convolutions followed by pointwise operations and pooling over windows that do not overlap."""

from __future__ import annotations

from benchmarks.corpus.level2.members import Member, Problem, drafts

__all__ = ["PROBLEMS", "drafts"]

_FLAT2D = """
@triton.jit
def NAME_kernel(
    x_ptr, PARAMETERSy_ptr, channels, height, width, out_height, out_width, K: tl.constexpr, BLOCK: tl.constexpr
):
    plane = tl.program_id(0)
    channel = plane % channels
LOADS
    position = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = position < out_height * out_width
    corner = (position // out_width) * (K * width) + (position % out_width) * K
    window = x_ptr + plane.to(tl.int64) * height * width + corner
START
    for i in tl.static_range(K):
        for j in tl.static_range(K):
            x = tl.load(window + i * width + j, mask=mask, other=0.0)
            STEP
    FINISH
    tl.store(y_ptr + plane.to(tl.int64) * out_height * out_width + position, y, mask=mask)
"""

_FLAT2D_FORWARD = """
x = CALL.contiguous()
k = POOL_SIZE
batch, channels, height, width = x.shape
out_height, out_width = height // k, width // k
y = x.new_empty((batch, channels, out_height, out_width))
grid = (batch * channels, triton.cdiv(out_height * out_width, WIDTH))
NAME_kernel[grid](
    x, ARGUMENTSy, channels, height, width, out_height, out_width, K=k, BLOCK=WIDTH, num_warps=WARPS
)
return y
"""

_ROWS2D = """
@triton.jit
def NAME_rows_kernel(
    x_ptr, PARAMETERSy_ptr, channels, height, width, out_height, out_width, K: tl.constexpr, BLOCK: tl.constexpr
):
    plane = tl.program_id(0)
    channel = plane % channels
LOADS
    out_row = tl.program_id(1)
    out_column = tl.arange(0, BLOCK)
    inside = out_column < out_width
    # a tile of output columns x window columns is a contiguous run of the input's row
    column = out_column[:, None] * K + tl.arange(0, K)[None, :]
    row = x_ptr + plane.to(tl.int64) * height * width + out_row * K * width
START
    for i in tl.static_range(K):
        x = tl.load(row + i * width + column, mask=inside[:, None], other=0.0)
        ROW_STEP
    FINISH
    tl.store(y_ptr + (plane.to(tl.int64) * out_height + out_row) * out_width + out_column, y, mask=inside)
"""

_ROWS2D_FORWARD = """
x = CALL.contiguous()
k = POOL_SIZE
batch, channels, height, width = x.shape
out_height, out_width = height // k, width // k
y = x.new_empty((batch, channels, out_height, out_width))
NAME_rows_kernel[(batch * channels, out_height)](
    x, ARGUMENTSy, channels, height, width, out_height, out_width,
    K=k, BLOCK=triton.next_power_of_2(out_width), num_warps=WARPS,
)
return y
"""

_CUDA2D = """
// One thread makes one pooled value; blockIdx.x is image x channel.
extern "C" __global__ void NAME(const float* __restrict__ x, CSIGNATUREfloat* __restrict__ out, int channels,
                                int height, int width, int out_height, int out_width, int k) {
    const int channel = blockIdx.x % channels;
    CLOADS
    const float* plane = x + (long long)blockIdx.x * height * width;
    for (int p = blockIdx.y * blockDim.x + threadIdx.x; p < out_height * out_width; p += gridDim.y * blockDim.x) {
        const float* window = plane + (p / out_width) * k * width + (p % out_width) * k;
        CSTART
        for (int i = 0; i < k; ++i) {
            #pragma unroll 2
            for (int j = 0; j < k; ++j) {
                const float v = window[i * width + j];
                CSTEP
            }
        }
        CFINISH
        out[(long long)blockIdx.x * out_height * out_width + p] = y;
    }
}
"""

_CUDA2D_FORWARD = """
x = CALL.contiguous()
k = POOL_SIZE
batch, channels, height, width = x.shape
out_height, out_width = height // k, width // k
y = x.new_empty((batch, channels, out_height, out_width))
NAME()(
    grid=(batch * channels, min(-(-out_height * out_width // 512), 256), 1), block=(256, 1, 1),
    args=[x, CARGUMENTSy, channels, height, width, out_height, out_width, k],
)
return y
"""

_CONV = {
    "CALL": "F.conv2d(x, self.conv.weight, None)",
    "LOADS": "    conv_bias = tl.load(conv_bias_ptr + channel)",
    "PARAMETERS": "conv_bias_ptr, ",
    "ARGUMENTS": "self.conv.bias, ",
    "CSIGNATURE": "const float* __restrict__ conv_bias_of, ",
    "CLOADS": "const float conv_bias = conv_bias_of[channel];",
    "CARGUMENTS": "self.conv.bias, ",
    "WIDTH": 512,
    "WARPS": 4,
}
_HARDSWISH = {
    **_CONV,
    "NAME": "hardswish_pool_mish",
    "POOL_SIZE": "self.pool.kernel_size",
    "PARAMETERS": "conv_bias_ptr, subtract, ",
    "ARGUMENTS": "self.conv.bias, self.subtract_value, ",
    "START": '    best = tl.full((BLOCK,), float("-inf"), tl.float32)',
    "STEP": "best = tl.maximum(best, hardswish(x + conv_bias - subtract))",
    "ROW_STEP": "best = tl.maximum(best, tl.max(hardswish(x + conv_bias - subtract), axis=1))",
    "FINISH": "y = mish(best)",
    "CSIGNATURE": "const float* __restrict__ conv_bias_of, double subtract_in, ",
    "CLOADS": "const float conv_bias = conv_bias_of[channel], subtract = (float)subtract_in;",
    "CARGUMENTS": "self.conv.bias, float(self.subtract_value), ",
    "CSTART": "float best = -3.402823466e38f;",
    "CSTEP": "best = fmaxf(best, hardswish_f(v + conv_bias - subtract));",
    "CFINISH": "const float y = mish_f(best);",
}
_TANH = {
    **_CONV,
    "NAME": "tanh_average",
    "POOL_SIZE": "self.avgpool.kernel_size",
    "PARAMETERS": "conv_bias_ptr, first_value, second_value, ",
    "ARGUMENTS": "self.conv.bias, self.subtract1_value, self.subtract2_value, ",
    "START": "    total = tl.zeros((BLOCK,), tl.float32)",
    "STEP": "total += tanh(x + conv_bias - first_value)",
    "ROW_STEP": "total += tl.sum(tanh(x + conv_bias - first_value), axis=1)",
    "FINISH": "y = total / (K * K) - second_value",
    "CSIGNATURE": "const float* __restrict__ conv_bias_of, double first_in, double second_in, ",
    "CLOADS": (
        "const float conv_bias = conv_bias_of[channel], first_value = (float)first_in, second_value = (float)second_in;"
    ),
    "CARGUMENTS": "self.conv.bias, float(self.subtract1_value), float(self.subtract2_value), ",
    "CSTART": "float total = 0.0f;",
    "CSTEP": "total += tanh_f(v + conv_bias - first_value);",
    "CFINISH": "const float y = total / (k * k) - second_value;",
}
_MAXIMUM = {
    **_CONV,
    "NAME": "tanh_scale_pool",
    "POOL_SIZE": "self.max_pool.kernel_size",
    "PARAMETERS": "conv_bias_ptr, scale, shift_ptr, ",
    "ARGUMENTS": "self.conv.bias, self.scaling_factor, self.bias, ",
    "LOADS": ("    conv_bias = tl.load(conv_bias_ptr + channel)\n    shift = tl.load(shift_ptr + channel)"),
    "START": (
        "    # tanh increases, so the pooled value comes from the largest input, or the smallest if scale < 0\n"
        '    best = tl.full((BLOCK,), float("-inf"), tl.float32)'
    ),
    "STEP": "best = tl.maximum(best, tl.where(scale < 0, -x, x))",
    "ROW_STEP": "best = tl.maximum(best, tl.max(tl.where(scale < 0, -x, x), axis=1))",
    "FINISH": "y = tanh(tl.where(scale < 0, -best, best) + conv_bias) * scale + shift",
    "CSIGNATURE": "const float* __restrict__ conv_bias_of, double scale_in, const float* __restrict__ shift_of, ",
    "CLOADS": "const float conv_bias = conv_bias_of[channel], shift = shift_of[channel], scale = (float)scale_in;",
    "CARGUMENTS": "self.conv.bias, float(self.scaling_factor), self.bias, ",
    "CSTART": "float best = -3.402823466e38f;",
    "CSTEP": "best = fmaxf(best, scale < 0.0f ? -v : v);",
    "CFINISH": "const float y = tanh_f((scale < 0.0f ? -best : best) + conv_bias) * scale + shift;",
}

_FUSED = ("operation fusion", "memory coalescing")


def _members(constants: dict[str, object], triton: tuple[str, ...], cuda: tuple[str, ...], note: str, rows: str):
    """Return the three ways to deal pooled values to threads."""
    return (
        Member(
            "window",
            _FLAT2D,
            _FLAT2D_FORWARD,
            f"""Each lane produces one pooled value: it computes the corner of its window from the output index and
loads the window's elements one after the other in an unrolled loop. Lanes read with a stride of the window's width,
but the loads of one row of windows together use every byte of the lines they touch, so L1 serves all but the first.
{note} A program covers 512 outputs of one plane, the channel's bias is one scalar, and only the pooled map is
written.""",
            _FUSED,
            triton,
            constants=constants,
        ),
        Member(
            "rows",
            _ROWS2D,
            _ROWS2D_FORWARD,
            f"""A program makes one row of pooled values. The tile (output column, window column) is one contiguous
run of the input's row, so that loads are fully coalesced and wide, and the reduction over the window's columns
happens between neighbouring registers of a thread; the window's rows are an unrolled loop. {note} {rows} The grid
is (image x channel, output row): no divisions at all, but short programs when rows are short.""",
            (*_FUSED, "thread-block configuration"),
            triton,
            constants=constants,
        ),
        Member(
            "cuda",
            _CUDA2D,
            _CUDA2D_FORWARD,
            f"""CUDA with one thread for a pooled value and blocks that belong to one plane: 256 threads stride over
its outputs, about two each, with the per-channel parameters in registers. The window is read through L1, in which
the neighbouring thread finds the rest of each line. {note} Compiled at run time from raw-pointer source in well
under a second, launched without any shared memory, so that occupancy is limited by registers alone.""",
            (*_FUSED, "register/shared-memory use"),
            cuda,
            (str(constants["NAME"]),),
            constants,
        ),
    )


_LEAKY3D = """
@triton.jit
def leaky_pool_kernel(
    x_ptr, conv_bias_ptr, multiplier_ptr, y_ptr, slope, channels, depth, height, width,
    out_depth, out_height, out_width, K: tl.constexpr, BLOCK: tl.constexpr,
):
    plane = tl.program_id(0)
    channel = plane % channels
    conv_bias = tl.load(conv_bias_ptr + channel)
    multiplier = tl.load(multiplier_ptr + channel)
    position = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = position < out_depth * out_height * out_width
    w = position % out_width
    h = (position // out_width) % out_height
    d = position // (out_width * out_height)
    window = x_ptr + plane.to(tl.int64) * depth * height * width + ((d * K) * height + h * K) * width + w * K
    BODY
    tl.store(y_ptr + plane.to(tl.int64) * out_depth * out_height * out_width + position, y, mask=mask)
"""

_LEAKY3D_FORWARD = """
x = F.conv_transpose3d(
    x, self.conv_transpose.weight, None,
    self.conv_transpose.stride, self.conv_transpose.padding, self.conv_transpose.output_padding
).contiguous()
k = self.max_pool.kernel_size
batch, channels, depth, height, width = x.shape
out_depth, out_height, out_width = depth // k, height // k, width // k
y = x.new_empty((batch, channels, out_depth, out_height, out_width))
grid = (batch * channels, triton.cdiv(out_depth * out_height * out_width, WIDTH))
leaky_pool_kernel[grid](
    x, self.conv_transpose.bias, self.multiplier, y, self.leaky_relu.negative_slope, channels,
    depth, height, width, out_depth, out_height, out_width, K=k, BLOCK=WIDTH, num_warps=4,
)
return y
"""

_MONOTONE = """sign = tl.where(multiplier < 0.0, -1.0, 1.0)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for i in tl.static_range(K):
        for j in tl.static_range(K):
            for k in tl.static_range(K):
                x = tl.load(window + (i * height + j) * width + k, mask=mask, other=0.0)
                best = tl.maximum(best, x * sign)
    y = leaky_relu(leaky_relu(best * sign + conv_bias, slope) * multiplier, slope)"""

_DIRECT = """y = tl.full((BLOCK,), float("-inf"), tl.float32)
    for i in tl.static_range(K):
        for j in tl.static_range(K):
            for k in tl.static_range(K):
                x = tl.load(window + (i * height + j) * width + k, mask=mask, other=0.0) + conv_bias
                y = tl.maximum(y, leaky_relu(leaky_relu(x, slope) * multiplier, slope))"""

PROBLEMS = (
    Problem(
        problem=35,
        arguments="in_channels, out_channels, kernel_size, subtract_value, pool_kernel_size",
        body=(
            "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
            "self.subtract_value = subtract_value",
            "self.pool = nn.MaxPool2d(pool_kernel_size)",
        ),
        analysis="""The tail subtracts a constant, applies hardswish, pools 2x2 by maximum and applies Mish. In
eager mode the full map of 128 channels is read and written for the convolution's bias, for the subtraction and for
hardswish, then read for pooling, which writes a quarter and an int64 index map, and Mish passes over that quarter:
more than seven transfers of the map. Needed are one read of the map and one write of a quarter. hardswish has a dip
below zero, so it cannot be moved behind the maximum.""",
        members=_members(
            _HARDSWISH,
            ("hardswish", "mish"),
            ("hardswish", "mish"),
            "Hardswish is applied to each of the four elements, because it is not monotone, and Mish once per window.",
            "With 63 outputs in a row, a tile of 64 x 2 wastes almost nothing.",
        ),
    ),
    Problem(
        problem=46,
        arguments="in_channels, out_channels, kernel_size, subtract1_value, subtract2_value, kernel_size_pool",
        body=(
            "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
            "self.subtract1_value = subtract1_value",
            "self.subtract2_value = subtract2_value",
            "self.avgpool = nn.AvgPool2d(kernel_size_pool)",
        ),
        analysis="""Subtract, tanh, subtract, average over 2x2: with the convolution's bias that is four pointwise
passes over the full map, eight transfers, before pooling reads it once more and writes a quarter. One read of the
map and one write of a quarter are enough. The second constant can be subtracted after the average, since averaging
preserves constants, which makes it one subtraction per window; tanh is not linear and has to see every element. The
convolution (64 to 128 channels) keeps the larger share of the time.""",
        members=_members(
            _TANH,
            ("tanh",),
            ("tanh",),
            "tanh is applied to every element, the second constant is subtracted once per window after averaging.",
            "The average divides by the window's size, a compile-time constant.",
        ),
    ),
    Problem(
        problem=82,
        arguments="in_channels, out_channels, kernel_size, scaling_factor, bias_shape, pool_kernel_size",
        body=(
            "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
            "self.scaling_factor = scaling_factor",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
            "self.max_pool = nn.MaxPool2d(pool_kernel_size)",
        ),
        analysis="""An 8-channel convolution on large images writes 64 channels; then bias, tanh, scale, second bias
and 4x4 max pooling. The four pointwise passes move the full map eight times, and pooling reads it a ninth time and
keeps one value in sixteen. tanh(x + b) * s + c is monotone in x, increasing for s >= 0 and decreasing otherwise, so
the maximum can be taken over raw convolution outputs and the function applied to one value per window: a sixteenth
of the tanh evaluations. One read of the map remains, and the output is small.""",
        members=_members(
            _MAXIMUM,
            ("tanh",),
            ("tanh",),
            "As the tail is monotone, the window's extremum of the raw values decides, and tanh runs once per window.",
            "Every load instruction covers four neighbouring columns of each window.",
        ),
    ),
    Problem(
        problem=74,
        arguments="in_channels, out_channels, kernel_size, stride, padding, output_padding, multiplier_shape",
        body=(
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding",
            ")",
            "self.multiplier = nn.Parameter(torch.randn(multiplier_shape))",
            "self.leaky_relu = nn.LeakyReLU(negative_slope=0.2)",
            "self.max_pool = nn.MaxPool3d(kernel_size=2)",
        ),
        analysis="""A transposed convolution upsamples by two in each direction, and max pooling by two takes the
volume back to the input's extents. Between them the full volume goes through the bias, LeakyReLU, a multiplier per
channel and LeakyReLU again: eight transfers, then a ninth for pooling, whose result has an eighth of the size (and
an index tensor beside it). The chain between is monotone in its argument, increasing or decreasing with the sign of
the multiplier, so it may be applied after pooling to an eighth of the values. A single read of the volume remains.""",
        members=(
            Member(
                "monotone",
                _LEAKY3D,
                _LEAKY3D_FORWARD,
                """One lane per pooled value: it takes the maximum of the eight raw values of its window, or their
minimum where the channel's multiplier is negative (by flipping the sign, a multiplication by -1 or 1), and only
then adds the bias and applies LeakyReLU, multiplier and LeakyReLU, once per window instead of eight times. The
volume is read once, with the eight loads unrolled and shared lines served from L1; an eighth is written, and no
indices. 256 outputs per program keep the index arithmetic cheap.""",
                (*_FUSED, "mathematical short-circuit"),
                ("leaky_relu",),
                constants={"BODY": _MONOTONE, "WIDTH": 256},
            ),
            Member(
                "direct",
                _LEAKY3D,
                _LEAKY3D_FORWARD,
                """The direct fusion: each lane loads the eight values of its 2x2x2 window in an unrolled loop,
applies bias, LeakyReLU, multiplier and LeakyReLU to each, and keeps the maximum. It reads the volume once and
writes the pooled eighth, the same traffic as a version that uses monotonicity, with eight times the arithmetic,
which is still only some forty instructions per output and hidden behind the loads. 1024 outputs per program give
each lane several windows.""",
                _FUSED,
                ("leaky_relu",),
                constants={"BODY": _DIRECT, "WIDTH": 1024},
            ),
        ),
    ),
)
