"""Kernels and calls for tails that pool and reduce over channels: words of `Member.constants` are replaced."""

from __future__ import annotations

CONV3D = "F.conv3d(x, self.conv.weight, None)"
TRANSPOSED = """F.conv_transpose3d(
    x, self.conv_transpose.weight, None,
    self.conv_transpose.stride, self.conv_transpose.padding, self.conv_transpose.output_padding
)"""

# A tile of all channels x some pooled positions. `x` is one element of each window.
WINDOWS = """
@triton.jit
def NAME_kernel(
    x_ptr, conv_bias_ptr, PARAMETERSy_ptr, channels, depth, height, width, out_depth, out_height, out_width,
    KD: tl.constexpr, K: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr,
):
    image = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, BLOCK_C)
    position = tl.program_id(1) * BLOCK_P + tl.arange(0, BLOCK_P)
    inside = position < out_depth * out_height * out_width
    mask = (channel < channels)[:, None] & inside[None, :]
    w = position % out_width
    h = (position // out_width) % out_height
    d = position // (out_width * out_height)
    corner = (d * KD * height + h * K) * width + w * K
    windows = x_ptr + (image * channels + channel[:, None]) * (depth * height * width) + corner[None, :]
    conv_bias = tl.load(conv_bias_ptr + channel, mask=channel < channels, other=0.0)[:, None]
    pooled = tl.full((BLOCK_C, BLOCK_P), float("-inf"), tl.float32)
    for i in range(KD):
        for j in tl.static_range(K):
            for k in tl.static_range(K):
                x = tl.load(windows + (i * height + j) * width + k, mask=mask, other=0.0)
                POOL
    REDUCE
"""

WINDOWS_FORWARD = """
x = CALL.contiguous()
kd = k = KERNEL
batch, channels, depth, height, width = x.shape
out_depth, out_height, out_width = depth // kd, height // k, width // k
y = x.new_empty(SHAPE)
NAME_kernel[(batch, triton.cdiv(out_depth * out_height * out_width, POSITIONS))](
    x, self.LAYER.bias, ARGUMENTSy, channels, depth, height, width, out_depth, out_height, out_width,
    KD=kd, K=k, BLOCK_C=triton.next_power_of_2(channels), BLOCK_P=POSITIONS, num_warps=WARPS,
)
return y
"""

SOFTMAX = """x = tl.where((channel < channels)[:, None], x + conv_bias, float("-inf"))
                e = tl.exp(x - tl.max(x, axis=0)[None, :])
                pooled = tl.maximum(pooled, e / tl.sum(e, axis=0)[None, :])"""
STORE_ALL = """where = (image * channels + channel[:, None]) * (out_depth * out_height * out_width) + position[None, :]
    tl.store(y_ptr + where, pooled, mask=mask)"""
MAXIMUM = "pooled = tl.maximum(pooled, x)"
STORE_ONE = "tl.store(y_ptr + image * (out_depth * out_height * out_width) + position, y, mask=inside)"

LSE_THEN_POOL = """
@triton.jit
def logsumexp_kernel(x_ptr, conv_bias_ptr, lse_ptr, channels, plane_size, BLOCK: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = within < plane_size
    highest = tl.full((BLOCK,), -1e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for channel in range(channels):
        x = tl.load(x_ptr + (image * channels + channel) * plane_size + within, mask=mask, other=0.0)
        x += tl.load(conv_bias_ptr + channel)
        larger = tl.maximum(highest, x)
        total = total * tl.exp(highest - larger) + tl.exp(x - larger)
        highest = larger
    tl.store(lse_ptr + image * plane_size + within, highest + tl.log(total), mask=mask)


@triton.jit
def softmax_pool_kernel(
    x_ptr, conv_bias_ptr, lse_ptr, y_ptr, channels, depth, height, width, out_depth, out_height, out_width,
    K: tl.constexpr, BLOCK: tl.constexpr,
):
    plane = tl.program_id(0).to(tl.int64)
    volume = depth * height * width
    position = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = position < out_depth * out_height * out_width
    w = position % out_width
    h = (position // out_width) % out_height
    d = position // (out_width * out_height)
    corner = (d * K * height + h * K) * width + w * K
    # softmax is exp(x - lse), and exp increases: pool the differences
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for i in tl.static_range(K):
        for j in tl.static_range(K):
            for k in tl.static_range(K):
                where = corner + (i * height + j) * width + k
                x = tl.load(x_ptr + plane * volume + where, mask=mask, other=0.0)
                lse = tl.load(lse_ptr + (plane // channels) * volume + where, mask=mask, other=0.0)
                best = tl.maximum(best, x - lse)
    y = tl.exp(best + tl.load(conv_bias_ptr + plane % channels))
    tl.store(y_ptr + plane * (out_depth * out_height * out_width) + position, y, mask=mask)
"""

LSE_THEN_POOL_FORWARD = """
x = F.conv3d(x, self.conv.weight, None).contiguous()
k = self.pool1.kernel_size * self.pool2.kernel_size
batch, channels, depth, height, width = x.shape
out_depth, out_height, out_width = depth // k, height // k, width // k
lse = x.new_empty((batch, depth, height, width))
y = x.new_empty((batch, channels, out_depth, out_height, out_width))
logsumexp_kernel[(batch, triton.cdiv(depth * height * width, 512))](
    x, self.conv.bias, lse, channels, depth * height * width, BLOCK=512, num_warps=4
)
softmax_pool_kernel[(batch * channels, triton.cdiv(out_depth * out_height * out_width, 128))](
    x, self.conv.bias, lse, y, channels, depth, height, width, out_depth, out_height, out_width,
    K=k, BLOCK=128, num_warps=4,
)
return y
"""

MIN_SOFTMAX = """
@triton.jit
def min_softmax_kernel(
    x_ptr, conv_bias_ptr, y_ptr, channels, depth, plane_size, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr
):
    image = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, BLOCK_C)
    within = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)
    mask = (channel < channels)[:, None] & (within < plane_size)[None, :]
    row = image * channels + channel[:, None]
    lowest = tl.full((BLOCK_C, BLOCK_S), float("inf"), tl.float32)
    for slab in range(depth):
        x = tl.load(x_ptr + (row * depth + slab) * plane_size + within[None, :], mask=mask, other=0.0)
        lowest = tl.minimum(lowest, x)
    x = lowest + tl.load(conv_bias_ptr + channel, mask=channel < channels, other=0.0)[:, None]
    x = tl.where((channel < channels)[:, None], x, float("-inf"))
    x = tl.exp(x - tl.max(x, axis=0)[None, :])
    tl.store(y_ptr + row * plane_size + within[None, :], x / tl.sum(x, axis=0)[None, :], mask=mask)
"""

MIN_SOFTMAX_FORWARD = """
x = F.conv3d(x, self.conv.weight, None).contiguous()
batch, channels, depth, height, width = x.shape
y = x.new_empty((batch, channels, height, width))
min_softmax_kernel[(batch, triton.cdiv(height * width, POSITIONS))](
    x, self.conv.bias, y, channels, depth, height * width,
    BLOCK_C=triton.next_power_of_2(channels), BLOCK_S=POSITIONS, num_warps=WARPS,
)
return y
"""

POOL_SUM = """
@triton.jit
def pool_sum_kernel(
    x_ptr, conv_bias_ptr, y_ptr, channels, depth, height, width, out_height, out_width,
    K: tl.constexpr, LANES: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_W: tl.constexpr,
):
    image, row, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    channel = part * BLOCK_C + tl.arange(0, BLOCK_C)[:, None, None]
    window = tl.arange(0, BLOCK_W)[None, :, None]
    lane = tl.arange(0, LANES)[None, None, :]
    mask = (channel < channels) & (window < out_width) & (lane < K)
    slab = (row // out_height) * K
    line = (row % out_height) * K
    base = x_ptr + (image * channels + channel) * (depth * height * width) + window * K + lane
    best = tl.full((BLOCK_C, BLOCK_W, LANES), float("-inf"), tl.float32)
    for i in range(K):
        for j in range(K):
            x = tl.load(base + ((slab + i) * height + line + j) * width, mask=mask, other=float("-inf"))
            best = tl.maximum(best, x)
    pooled = tl.max(best, axis=2)
    index = part * BLOCK_C + tl.arange(0, BLOCK_C)
    pooled += tl.load(conv_bias_ptr + index, mask=index < channels, other=0.0)[:, None]
    total = tl.sum(tl.where((index < channels)[:, None], pooled, 0.0), axis=0)
    column = tl.arange(0, BLOCK_W)
    where = y_ptr + (image * tl.num_programs(1) + row) * out_width + column
    STORE
"""

POOL_SUM_FORWARD = """
x = F.conv_transpose3d(
    x, self.conv_transpose.weight, None, self.conv_transpose.stride, self.conv_transpose.padding
).contiguous()
k = self.max_pool1.kernel_size * self.max_pool2.kernel_size
batch, channels, depth, height, width = x.shape
out_depth, out_height, out_width = depth // k, height // k, width // k
y = x.NEW((batch, 1, out_depth, out_height, out_width))
pool_sum_kernel[(batch, out_depth * out_height, PARTS)](
    x, self.conv_transpose.bias, y, channels, depth, height, width, out_height, out_width,
    K=k, LANES=triton.next_power_of_2(k), BLOCK_C=CHANNELS,
    BLOCK_W=triton.next_power_of_2(out_width), num_warps=8,
)
return y
"""

ROW_NORM = """
@triton.jit
def row_norm_gelu_kernel(x_ptr, gamma_ptr, beta_ptr, eps, scale, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    mask = (row < rows)[:, None] & (column < width)[None, :]
    ptrs = x_ptr + row[:, None] * width + column[None, :]
    x = tl.load(ptrs, mask=mask, other=0.0)
    # the layer's bias is constant along a row and cancels
    centred = tl.where(mask, x - (tl.sum(x, axis=1) / width)[:, None], 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=1) / width + eps)
    gamma = tl.load(gamma_ptr + column, mask=column < width, other=0.0)
    beta = tl.load(beta_ptr + column, mask=column < width, other=0.0)
    y = gelu(centred * rstd[:, None] * gamma[None, :] + beta[None, :]) * scale
    tl.store(ptrs, y, mask=mask)
"""

ROW_NORM_FORWARD = """
x = F.conv_transpose3d(
    x, self.conv_transpose.weight, None, self.conv_transpose.stride, self.conv_transpose.padding
).contiguous()
norm = self.layer_norm
width = x.shape[-1]
rows = x.numel() // width
row_norm_gelu_kernel[(triton.cdiv(rows, LINES),)](
    x, norm.weight, norm.bias, norm.eps, self.scaling_factor, rows, width,
    ROWS=LINES, BLOCK=triton.next_power_of_2(width), num_warps=WARPS,
)
return x
"""

ROW_NORM_CUDA = """
__device__ __forceinline__ float warp_sum(float value) {
    for (int step = 16; step > 0; step >>= 1) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

// One warp normalises one row of at most 256 values.
extern "C" __global__ void row_norm_gelu(float* __restrict__ x, const float* __restrict__ gamma,
                                         const float* __restrict__ beta, double eps, double scale, int rows,
                                         int width) {
    const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const int lane = threadIdx.x % 32;
    float* line = x + (long long)row * width;
    float value[8];
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int column = lane + 32 * i;
        value[i] = column < width ? line[column] : 0.0f;
        sum += value[i];
    }
    const float mean = warp_sum(sum) / width;
    float squares = 0.0f;
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float d = lane + 32 * i < width ? value[i] - mean : 0.0f;
        value[i] = d;
        squares += d * d;
    }
    const float rstd = rsqrtf(warp_sum(squares) / width + (float)eps);
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int column = lane + 32 * i;
        if (column < width) line[column] = gelu_f(value[i] * rstd * gamma[column] + beta[column]) * (float)scale;
    }
}
"""

NORM_POOL = """
@triton.jit
def norm_pool_gelu_kernel(
    x_ptr, gamma_ptr, beta_ptr, y_ptr, eps, outputs, depth, height, width, out_depth, out_height, out_width,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    # Rows of the output; each needs 2 x 2 rows of the input, normalised along the width.
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    valid = row < outputs
    h = row % out_height
    d = (row // out_height) % out_depth
    volume = row // (out_height * out_depth)
    pair = tl.arange(0, 2)[None, None, :]
    column = 2 * tl.arange(0, BLOCK)[None, :, None] + pair
    mask = valid[:, None, None] & (column < width)
    gamma = tl.load(gamma_ptr + column, mask=column < width, other=0.0)
    beta = tl.load(beta_ptr + column, mask=column < width, other=0.0)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for i in tl.static_range(2):
        for j in tl.static_range(2):
            line = ((volume * depth + 2 * d + i) * height + 2 * h + j) * width
            x = tl.load(x_ptr + line[:, None, None] + column, mask=mask, other=0.0)
            mean = tl.sum(tl.sum(x, axis=2), axis=1) / width
            centred = tl.where(mask, x - mean[:, None, None], 0.0)
            rstd = tl.rsqrt(tl.sum(tl.sum(centred * centred, axis=2), axis=1) / width + eps)
            total += tl.sum(centred * rstd[:, None, None] * gamma + beta, axis=2)
    out_column = tl.arange(0, BLOCK)[None, :]
    y = gelu(total * 0.125)
    tl.store(y_ptr + row[:, None] * out_width + out_column, y, mask=valid[:, None] & (out_column < out_width))
"""

NORM_POOL_FORWARD = """
x = CALL.contiguous()
batch, channels, depth, height, width = x.shape
out_depth, out_height, out_width = depth // 2, height // 2, width // 2
y = x.new_empty((batch, channels, out_depth, out_height, out_width))
outputs = batch * channels * out_depth * out_height
norm_pool_gelu_kernel[(triton.cdiv(outputs, LINES),)](
    x, self.norm.weight, self.norm.bias, y, self.norm.eps, outputs, depth, height, width,
    out_depth, out_height, out_width, ROWS=LINES, BLOCK=triton.next_power_of_2((width + 1) // 2), num_warps=WARPS,
)
return y
"""

FUSED = ("operation fusion", "register/shared-memory use")
SIX = {
    "NAME": "softmax_pool",
    "CALL": CONV3D,
    "LAYER": "conv",
    "PARAMETERS": "",
    "ARGUMENTS": "",
    "KERNEL": "self.pool1.kernel_size * self.pool2.kernel_size",
    "SHAPE": "(batch, channels, out_depth, out_height, out_width)",
    "POOL": SOFTMAX,
    "REDUCE": STORE_ALL,
}
LSE43 = {
    "NAME": "pool_logsumexp",
    "CALL": "F.conv3d(x, self.conv.weight, None, self.conv.stride, self.conv.padding)",
    "LAYER": "conv",
    "PARAMETERS": "",
    "ARGUMENTS": "",
    "KERNEL": "self.max_pool.kernel_size",
    "SHAPE": "(batch, 1, out_depth, out_height, out_width)",
    "POOL": MAXIMUM,
    "REDUCE": f"""pooled = tl.where((channel < channels)[:, None], pooled + conv_bias, float("-inf"))
    highest = tl.max(pooled, axis=0)
    y = relu(highest + tl.log(tl.sum(tl.exp(pooled - highest[None, :]), axis=0)))
    {STORE_ONE}""",
}
SWISH89 = {
    "NAME": "pool_softmax_swish_max",
    "CALL": TRANSPOSED,
    "LAYER": "conv_transpose",
    "PARAMETERS": "subtract_ptr, ",
    "ARGUMENTS": "self.subtract, ",
    "KERNEL": "self.max_pool.kernel_size",
    "SHAPE": "(batch, out_depth, out_height, out_width)",
    "POOL": MAXIMUM,
    "REDUCE": f"""real = (channel < channels)[:, None]
    pooled = tl.where(real, pooled + conv_bias, float("-inf"))
    pooled = tl.exp(pooled - tl.max(pooled, axis=0)[None, :])
    pooled = pooled / tl.sum(pooled, axis=0)[None, :]
    pooled -= tl.load(subtract_ptr + channel, mask=channel < channels, other=0.0)[:, None]
    y = tl.max(tl.where(real, silu(pooled), float("-inf")), axis=0)
    {STORE_ONE}""",
}
