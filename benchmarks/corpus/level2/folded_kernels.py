"""Kernels and calls for averages that are folded into convolutions: words of `Member.constants` are replaced."""

from __future__ import annotations

PLANE_SUM = """
@triton.jit
def plane_sum_kernel(x_ptr, sum_ptr, plane_size, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    base = x_ptr + plane.to(tl.int64) * plane_size
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, plane_size, BLOCK):
        within = start + tl.arange(0, BLOCK)
        total += tl.load(base + within, mask=within < plane_size, other=0.0)
    tl.store(sum_ptr + plane, tl.sum(total, axis=0))
"""

PLANE_SUM_CALL = "plane_sum_kernel[(batch * channels,)](x, sums, plane_size, BLOCK=4096, num_warps=8)"

PLANE_ATOMIC = """
@triton.jit
def plane_sum_kernel(x_ptr, sum_ptr, plane_size, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + plane.to(tl.int64) * plane_size + within, mask=within < plane_size, other=0.0)
    tl.atomic_add(sum_ptr + plane, tl.sum(x, axis=0))
"""

PLANE_ATOMIC_CALL = (
    "plane_sum_kernel[(batch * channels, triton.cdiv(plane_size, 8192))](x, sums, plane_size, BLOCK=8192, num_warps=8)"
)

MEAN_LSE = """


@triton.jit
def mean_logsumexp_kernel(
    sum_ptr, weight_ptr, conv_bias_ptr, bias_ptr, y_ptr, positions, channels, outputs, TAPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    image = tl.program_id(0)
    output = tl.arange(0, BLOCK)
    mask = output < outputs
    # every tap of the kernel meets every input position, so the output's sum is a product of sums
    total = tl.zeros((BLOCK,), tl.float32)
    for channel in range(channels):
        taps = tl.zeros((BLOCK,), tl.float32)
        for tap in tl.static_range(TAPS):
            taps += tl.load(weight_ptr + (channel * outputs + output) * TAPS + tap, mask=mask, other=0.0)
        total += tl.load(sum_ptr + image * channels + channel) * taps
    value = total / positions + tl.load(conv_bias_ptr + output, mask=mask, other=0.0)
    value += tl.load(bias_ptr + output, mask=mask, other=0.0)
    value = tl.where(mask, value, float("-inf"))
    highest = tl.max(value, axis=0)
    lse = highest + tl.log(tl.sum(tl.exp(value - highest), axis=0))
    tl.store(y_ptr + image, lse * 10.0)
"""

MEAN_LSE_FORWARD = """
x = x.contiguous()
batch, channels, height, width = x.shape
weight = self.conv_transpose.weight.contiguous()
outputs, kernel_height, kernel_width = weight.shape[1:]
plane_size = height * width
sums = x.NEW(batch * channels)
y = x.new_empty((batch, 1))
CALL_SUM
mean_logsumexp_kernel[(batch,)](
    sums, weight, self.conv_transpose.bias, self.bias, y,
    (height + kernel_height - 1) * (width + kernel_width - 1), channels, outputs,
    TAPS=kernel_height * kernel_width, BLOCK=triton.next_power_of_2(outputs), num_warps=4,
)
return y
"""

DEPTH_SUM = """
@triton.jit
def depth_sum_kernel(x_ptr, sum_ptr, depth, out_depth, padding, plane_size, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    volume = tl.program_id(0).to(tl.int64)  # image x input channel
    tap = tl.program_id(2)
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = within < plane_size
    total = tl.zeros((BLOCK,), tl.float32)
    # tap k carries slab d to output slab d - padding + k, which counts if it exists
    for slab in range(tl.maximum(padding - tap, 0), tl.minimum(out_depth + padding - tap, depth)):
        total += tl.load(x_ptr + (volume * depth + slab) * plane_size + within, mask=mask, other=0.0)
    tl.store(sum_ptr + (volume * TAPS + tap) * plane_size + within, total, mask=mask)
"""

SOFTMAX_TANH = """


@triton.jit
def softmax_tanh_kernel(
    x_ptr, conv_bias_ptr, bias_ptr, y_ptr, divisor, scale, channels, plane_size,
    BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr,
):
    image = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, BLOCK_C)
    within = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)
    mask = (channel < channels)[:, None] & (within < plane_size)[None, :]
    offsets = (image * channels + channel[:, None]) * plane_size + within[None, :]
    bias = tl.load(conv_bias_ptr + channel, mask=channel < channels, other=0.0)
    bias += tl.load(bias_ptr + channel, mask=channel < channels, other=0.0)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0) / divisor + bias[:, None]
    x = tl.where((channel < channels)[:, None], x, float("-inf"))
    x = tl.exp(x - tl.max(x, axis=0)[None, :])
    x = x / tl.sum(x, axis=0)[None, :]
    tl.store(y_ptr + offsets, tanh(x) * scale, mask=mask)
"""

DEPTH_FORWARD = """
x = x.contiguous()
layer = self.conv_transpose
batch, channels, depth, height, width = x.shape
taps, padding = layer.kernel_size[0], layer.padding[0]
out_depth = depth - 2 * padding + taps - 1
plane_size = height * width
# sums over depth as an image with `taps` channels for each input channel
sums = x.new_empty((batch, channels * taps, height, width))
depth_sum_kernel[(batch * channels, triton.cdiv(plane_size, 1024), taps)](
    x, sums, depth, out_depth, padding, plane_size, TAPS=taps, BLOCK=1024, num_warps=4
)
weight = layer.weight.transpose(1, 2).reshape(channels * taps, layer.out_channels, *layer.kernel_size[1:])
y = F.conv_transpose2d(sums, weight, None, layer.stride[1:], layer.padding[1:]).contiguous()
outputs, out_size = y.shape[1], y[0, 0].numel()
softmax_tanh_kernel[(batch, triton.cdiv(out_size, 64))](
    y, layer.bias, self.bias, y, out_depth, self.scaling_factor, outputs, out_size,
    BLOCK_C=triton.next_power_of_2(outputs), BLOCK_S=64, num_warps=4,
)
return y.unsqueeze(2)
"""

MEAN_SOFTMAX = """
@triton.jit
def mean_softmax_tanh_kernel(
    x_ptr, conv_bias_ptr, bias_ptr, y_ptr, scale, channels, depth, plane_size,
    BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr,
):
    image = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, BLOCK_C)
    within = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)
    mask = (channel < channels)[:, None] & (within < plane_size)[None, :]
    row = image * channels + channel[:, None]
    total = tl.zeros((BLOCK_C, BLOCK_S), tl.float32)
    for slab in range(depth):
        total += tl.load(x_ptr + (row * depth + slab) * plane_size + within[None, :], mask=mask, other=0.0)
    bias = tl.load(conv_bias_ptr + channel, mask=channel < channels, other=0.0)
    bias += tl.load(bias_ptr + channel, mask=channel < channels, other=0.0)
    x = tl.where((channel < channels)[:, None], total / depth + bias[:, None], float("-inf"))
    x = tl.exp(x - tl.max(x, axis=0)[None, :])
    x = x / tl.sum(x, axis=0)[None, :]
    tl.store(y_ptr + row * plane_size + within[None, :], tanh(x) * scale, mask=mask)
"""

MEAN_SOFTMAX_FORWARD = """
layer = self.conv_transpose
x = F.conv_transpose3d(x, layer.weight, None, layer.stride, layer.padding).contiguous()
batch, channels, depth, height, width = x.shape
y = x.new_empty((batch, channels, 1, height, width))
mean_softmax_tanh_kernel[(batch, triton.cdiv(height * width, 64))](
    x, layer.bias, self.bias, y, self.scaling_factor, channels, depth, height * width,
    BLOCK_C=triton.next_power_of_2(channels), BLOCK_S=64, num_warps=4,
)
return y
"""

FOLD_POOL3D = """
@triton.jit
def fold_kernel(weight_ptr, conv_bias_ptr, scale1_ptr, bias_ptr, scale2_ptr, folded_ptr, folded_bias_ptr, inputs,
                outputs):
    # Stride 2, padding 1, kernel 3, averaged in pairs: taps 1 and 2 meet x[p], tap 0 meets x[p + 1].
    output, channel = tl.program_id(0), tl.program_id(1)
    scale1, scale2 = tl.load(scale1_ptr), tl.load(scale2_ptr)
    base = weight_ptr + (channel * outputs + output) * 27
    cell = tl.arange(0, 8)
    later_d, later_h, later_w = cell // 4 % 2, cell // 2 % 2, cell % 2
    total = tl.zeros((8,), tl.float32)
    for i in tl.static_range(3):
        for j in tl.static_range(3):
            for k in tl.static_range(3):
                here = (later_d == (i == 0)) & (later_h == (j == 0)) & (later_w == (k == 0))
                total += tl.where(here, tl.load(base + (i * 3 + j) * 3 + k), 0.0)
    tl.store(folded_ptr + (output * inputs + channel) * 8 + cell, total * 0.125 * scale1 * scale2)
    bias = tl.load(conv_bias_ptr + output) * scale1 + tl.load(bias_ptr + output)
    tl.store(folded_bias_ptr + output, bias * scale2, mask=channel == 0)


@triton.jit
def bias_kernel(y_ptr, bias_ptr, channels, plane_size, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ptrs = y_ptr + plane.to(tl.int64) * plane_size + within
    y = tl.load(ptrs, mask=within < plane_size) + tl.load(bias_ptr + plane % channels)
    tl.store(ptrs, y, mask=within < plane_size)
"""

FOLD_POOL3D_FORWARD = """
layer = self.conv_transpose
weight = layer.weight.contiguous()
inputs, outputs = weight.shape[:2]
folded, folded_bias = weight.new_empty((outputs, inputs, 2, 2, 2)), weight.new_empty(outputs)
fold_kernel[(outputs, inputs)](
    weight, layer.bias, self.scale1, self.bias, self.scale2, folded, folded_bias, inputs, outputs, num_warps=1
)
LAST
"""

POOL3D = """
@triton.jit
def scale_pool_kernel(
    x_ptr, conv_bias_ptr, scale1_ptr, bias_ptr, scale2_ptr, y_ptr, channels, depth, height, width,
    out_depth, out_height, out_width, K: tl.constexpr, BLOCK: tl.constexpr,
):
    plane = tl.program_id(0)
    channel = plane % channels
    scale1 = tl.load(scale1_ptr)
    position = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = position < out_depth * out_height * out_width
    w = position % out_width
    h = (position // out_width) % out_height
    d = position // (out_width * out_height)
    window = x_ptr + plane.to(tl.int64) * depth * height * width + (d * K * height + h * K) * width + w * K
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(K):
        for j in tl.static_range(K):
            for k in tl.static_range(K):
                total += tl.load(window + (i * height + j) * width + k, mask=mask, other=0.0)
    y = (total / (K * K * K) + tl.load(conv_bias_ptr + channel)) * scale1 + tl.load(bias_ptr + channel)
    y *= tl.load(scale2_ptr)
    tl.store(y_ptr + plane.to(tl.int64) * out_depth * out_height * out_width + position, y, mask=mask)
"""

POOL3D_FORWARD = """
layer = self.conv_transpose
x = F.conv_transpose3d(x, layer.weight, None, layer.stride, layer.padding).contiguous()
k = self.avg_pool.kernel_size
batch, channels, depth, height, width = x.shape
out_depth, out_height, out_width = depth // k, height // k, width // k
y = x.new_empty((batch, channels, out_depth, out_height, out_width))
scale_pool_kernel[(batch * channels, triton.cdiv(out_depth * out_height * out_width, 512))](
    x, layer.bias, self.scale1, self.bias, self.scale2, y, channels, depth, height, width,
    out_depth, out_height, out_width, K=k, BLOCK=512, num_warps=4,
)
return y
"""

FOLD_POOL2D = """
@triton.jit
def fold_kernel(weight_ptr, folded_ptr, K: tl.constexpr, POOL: tl.constexpr, BLOCK: tl.constexpr):
    # tap (u, v) of the folded kernel averages the taps (i, j) with u - i and v - j inside the pooling window
    WIDE: tl.constexpr = K + POOL - 1
    pair = tl.program_id(0)
    cell = tl.arange(0, BLOCK)
    u, v = cell // WIDE, cell % WIDE
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(K):
        for j in tl.static_range(K):
            inside = (u >= i) & (u < i + POOL) & (v >= j) & (v < j + POOL)
            total += tl.where(inside, tl.load(weight_ptr + (pair * K + i) * K + j), 0.0)
    tl.store(folded_ptr + pair * WIDE * WIDE + cell, total / (POOL * POOL), mask=cell < WIDE * WIDE)


@triton.jit
def sigmoid_sum_kernel(x_ptr, bias_ptr, y_ptr, channels, plane_size, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    bias = tl.load(bias_ptr + plane % channels)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, plane_size, BLOCK):
        within = start + tl.arange(0, BLOCK)
        mask = within < plane_size
        x = tl.load(x_ptr + plane.to(tl.int64) * plane_size + within, mask=mask, other=0.0)
        total += tl.where(mask, tl.sigmoid(x + bias), 0.0)
    tl.atomic_add(y_ptr + plane // channels, tl.sum(total, axis=0))
"""

FOLD_POOL2D_FORWARD = """
weight = self.conv.weight.contiguous()
outputs, inputs, k = weight.shape[:3]
pool = self.avg_pool.kernel_size
wide = k + pool - 1
folded = weight.new_empty((outputs, inputs, wide, wide))
fold_kernel[(outputs * inputs,)](
    weight, folded, K=k, POOL=pool, BLOCK=triton.next_power_of_2(wide * wide), num_warps=1
)
x = F.conv2d(x, folded, None, stride=pool).contiguous()
batch = x.shape[0]
y = x.new_zeros(batch)
sigmoid_sum_kernel[(batch * outputs,)](
    x, self.conv.bias, y, outputs, x[0, 0].numel(), BLOCK=2048, num_warps=4
)
return y
"""

POOL_SIGMOID_SUM = """
@triton.jit
def pool_sigmoid_sum_kernel(
    x_ptr, bias_ptr, y_ptr, channels, height, width, out_width, K: tl.constexpr, BLOCK: tl.constexpr
):
    plane = tl.program_id(0)
    out_row = tl.program_id(1)
    out_column = tl.arange(0, BLOCK)
    inside = out_column < out_width
    column = out_column[:, None] * K + tl.arange(0, K)[None, :]
    row = x_ptr + plane.to(tl.int64) * height * width + out_row * K * width
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(K):
        total += tl.sum(tl.load(row + i * width + column, mask=inside[:, None], other=0.0), axis=1)
    value = tl.sigmoid(total / (K * K) + tl.load(bias_ptr + plane % channels))
    tl.atomic_add(y_ptr + plane // channels, tl.sum(tl.where(inside, value, 0.0), axis=0))
"""

POOL_SIGMOID_SUM_FORWARD = """
x = F.conv2d(x, self.conv.weight, None).contiguous()
k = self.avg_pool.kernel_size
batch, channels, height, width = x.shape
y = x.new_zeros(batch)
pool_sigmoid_sum_kernel[(batch * channels, height // k)](
    x, self.conv.bias, y, channels, height, width, width // k,
    K=k, BLOCK=triton.next_power_of_2(width // k), num_warps=4,
)
return y
"""

SHORT = ("mathematical short-circuit", "algorithmic change", "operation fusion")
