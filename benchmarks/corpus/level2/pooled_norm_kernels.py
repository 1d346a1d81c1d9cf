"""Kernels and calls for pooled BatchNorm and for softmax behind a clamp or a norm."""

from __future__ import annotations

POOL_AFFINE = """


@triton.jit
def pool_affine_kernel(
    x_ptr, slope_ptr, intercept_ptr, y_ptr, channels, depth, height, width, out_depth, out_height, out_width,
    K: tl.constexpr, BLOCK: tl.constexpr,
):
    plane = tl.program_id(0)
    position = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = position < out_depth * out_height * out_width
    w = position % out_width
    h = (position // out_width) % out_height
    d = position // (out_width * out_height)
    window = x_ptr + plane.to(tl.int64) * depth * height * width + (d * K * height + h * K) * width + w * K
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(K):
        for j in tl.static_range(K):
            for k in tl.static_range(K):
                total += tl.load(window + (i * height + j) * width + k, mask=mask, other=0.0)
    y = total / (K * K * K) * tl.load(slope_ptr + plane % channels) + tl.load(intercept_ptr + plane % channels)
    tl.store(y_ptr + plane.to(tl.int64) * out_depth * out_height * out_width + position, y, mask=mask)
"""

POOL_AFFINE_CALL = """k = self.avg_pool1.kernel_size * self.avg_pool2.kernel_size
depth, height, width = y.shape[2:]
out_depth, out_height, out_width = depth // k, height // k, width // k
pooled = y.new_empty((batch, channels, out_depth, out_height, out_width))
pool_affine_kernel[(batch * channels, triton.cdiv(out_depth * out_height * out_width, 256))](
    y, affine[0], affine[1], pooled, channels, depth, height, width, out_depth, out_height, out_width,
    K=k, BLOCK=256, num_warps=4,
)
return pooled
"""

# Statistics and window means in one read: a tile of K x K rows, whose columns are cut into windows.
POOL_STATISTICS = """
@triton.jit
def pool_statistics_kernel(
    x_ptr, pooled_ptr, mean_ptr, m2_ptr, depth, height, width, out_depth, out_height, out_width,
    K: tl.constexpr, BLOCK: tl.constexpr,
):
    plane = tl.program_id(0)
    base = x_ptr + plane.to(tl.int64) * depth * height * width
    out = pooled_ptr + plane.to(tl.int64) * out_depth * out_height * out_width
    line = tl.arange(0, K * K)[:, None, None]
    window = tl.arange(0, BLOCK)[None, :, None]
    column = window * K + tl.arange(0, K)[None, None, :]
    pivot = tl.load(base)
    total = tl.zeros((K * K, BLOCK, K), tl.float32)
    squares = tl.zeros((K * K, BLOCK, K), tl.float32)
    for d in range(0, depth, K):
        for h in range(0, height, K):
            slab, row = d + line // K, h + line % K
            mask = (slab < depth) & (row < height) & (column < width)
            x = tl.load(base + (slab * height + row) * width + column, mask=mask, other=0.0)
            difference = tl.where(mask, x - pivot, 0.0)
            total += difference
            squares += difference * difference
            mean = pivot + tl.sum(tl.sum(difference, axis=2), axis=0) / (K * K * K)
            position = tl.arange(0, BLOCK)
            whole = (position < out_width) & (d + K <= depth) & (h + K <= height)
            tl.store(out + ((d // K) * out_height + h // K) * out_width + position, mean, mask=whole)
    plane_size = depth * height * width
    offset = tl.sum(tl.sum(tl.sum(total, axis=2), axis=1), axis=0) / plane_size
    square = tl.sum(tl.sum(tl.sum(squares, axis=2), axis=1), axis=0)
    tl.store(mean_ptr + plane, pivot + offset)
    tl.store(m2_ptr + plane, tl.maximum(square - offset * offset * plane_size, 0.0))
"""

PLANE_APPLY = """


@triton.jit
def apply_kernel(y_ptr, slope_ptr, intercept_ptr, channels, plane_size, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    slope = tl.load(slope_ptr + plane % channels)
    intercept = tl.load(intercept_ptr + plane % channels)
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ptrs = y_ptr + plane.to(tl.int64) * plane_size + within
    y = tl.load(ptrs, mask=within < plane_size) * slope + intercept
    tl.store(ptrs, y, mask=within < plane_size)
"""

POOL_STATISTICS_CALL = """
x = F.conv_transpose3d(
    x, self.conv_transpose.weight, None, self.conv_transpose.stride, self.conv_transpose.padding
).contiguous()
batch, channels, depth, height, width = x.shape
k = self.avg_pool1.kernel_size * self.avg_pool2.kernel_size
out_depth, out_height, out_width = depth // k, height // k, width // k
norm = self.batch_norm
norm.num_batches_tracked.add_(1)
y = x.new_empty((batch, channels, out_depth, out_height, out_width))
statistics, affine = x.new_empty((2, batch * channels)), x.new_empty((2, channels))
pool_statistics_kernel[(batch * channels,)](
    x, y, statistics[0], statistics[1], depth, height, width, out_depth, out_height, out_width,
    K=k, BLOCK=triton.next_power_of_2(triton.cdiv(width, k)), num_warps=4,
)
merge_kernel[(channels,)](
    statistics[0], statistics[1], self.conv_transpose.bias, norm.weight, norm.bias, norm.running_mean,
    norm.running_var, affine[0], affine[1], norm.eps, norm.momentum, batch, channels, depth * height * width,
    IMAGES=triton.next_power_of_2(batch), num_warps=1,
)
out_size = out_depth * out_height * out_width
apply_kernel[(batch * channels, triton.cdiv(out_size, 1024))](
    y, affine[0], affine[1], channels, out_size, BLOCK=1024, num_warps=4
)
return y
"""

CLAMP_SOFTMAX = """
@triton.jit
def clamp_softmax_kernel(
    x_ptr, conv_bias_ptr, scale_ptr, low, high, channels, plane_size, BLOCK: tl.constexpr
):
    plane = tl.program_id(0)
    conv_bias = tl.load(conv_bias_ptr + plane % channels)
    base = x_ptr + plane.to(tl.int64) * plane_size
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, plane_size, BLOCK):
        within = start + tl.arange(0, BLOCK)
        mask = within < plane_size
        v = clamp(tl.load(base + within, mask=mask, other=0.0) + conv_bias, low, high)
        total += tl.where(mask, tl.exp(v - high), 0.0)
    factor = tl.load(scale_ptr + plane % channels) / tl.sum(total, axis=0)
    for start in range(0, plane_size, BLOCK):
        within = start + tl.arange(0, BLOCK)
        mask = within < plane_size
        v = clamp(tl.load(base + within, mask=mask, other=0.0) + conv_bias, low, high)
        tl.store(base + within, tl.exp(v - high) * factor, mask=mask)
"""

CLAMP_SOFTMAX_SPLIT = """
@triton.jit
def exp_sum_kernel(x_ptr, conv_bias_ptr, partial_ptr, low, high, channels, plane_size, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = within < plane_size
    x = tl.load(x_ptr + plane.to(tl.int64) * plane_size + within, mask=mask, other=0.0)
    v = clamp(x + tl.load(conv_bias_ptr + plane % channels), low, high)
    total = tl.sum(tl.where(mask, tl.exp(v - high), 0.0), axis=0)
    tl.store(partial_ptr + plane * tl.num_programs(1) + tl.program_id(1), total)


@triton.jit
def normalise_kernel(
    x_ptr, conv_bias_ptr, scale_ptr, partial_ptr, low, high, channels, plane_size,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):
    plane = tl.program_id(0)
    parts = tl.num_programs(1)
    part = tl.arange(0, PARTS)
    total = tl.sum(tl.load(partial_ptr + plane * parts + part, mask=part < parts, other=0.0), axis=0)
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = within < plane_size
    ptrs = x_ptr + plane.to(tl.int64) * plane_size + within
    v = clamp(tl.load(ptrs, mask=mask, other=0.0) + tl.load(conv_bias_ptr + plane % channels), low, high)
    tl.store(ptrs, tl.exp(v - high) * (tl.load(scale_ptr + plane % channels) / total), mask=mask)
"""

CLAMP_SOFTMAX_CALL = """
layer = self.conv_transpose
x = F.avg_pool3d(x, self.avg_pool.kernel_size)
x = F.conv_transpose3d(
    x, layer.weight, None, layer.stride, layer.padding, layer.output_padding
).contiguous()
batch, channels = x.shape[:2]
plane_size = x[0, 0].numel()
"""

ROW_SOFTMAX = """


@triton.jit
def affine_softmax_kernel(y_ptr, slope_ptr, intercept_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    ptrs = y_ptr + row.to(tl.int64) * columns + column
    slope = tl.load(slope_ptr + column, mask=mask, other=0.0)
    t = tl.load(ptrs, mask=mask, other=0.0) * slope + tl.load(intercept_ptr + column, mask=mask, other=0.0)
    t = tl.where(mask, t, float("-inf"))
    e = tl.exp(t - tl.max(t, axis=0))
    tl.store(ptrs, e / tl.sum(e, axis=0), mask=mask)
"""

ROW_SOFTMAX_LOOP = """


@triton.jit
def affine_softmax_kernel(y_ptr, slope_ptr, intercept_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = y_ptr + row.to(tl.int64) * columns
    highest = tl.full((BLOCK,), -1e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        slope = tl.load(slope_ptr + column, mask=mask, other=0.0)
        t = tl.load(base + column, mask=mask, other=0.0) * slope
        t = tl.where(mask, t + tl.load(intercept_ptr + column, mask=mask, other=0.0), -1e30)
        larger = tl.maximum(highest, t)
        total = total * tl.exp(highest - larger) + tl.where(mask, tl.exp(t - larger), 0.0)
        highest = larger
    peak = tl.max(highest, axis=0)
    lse = peak + tl.log(tl.sum(total * tl.exp(highest - peak), axis=0))
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        slope = tl.load(slope_ptr + column, mask=mask, other=0.0)
        t = tl.load(base + column, mask=mask, other=0.0) * slope
        t += tl.load(intercept_ptr + column, mask=mask, other=0.0)
        tl.store(base + column, tl.exp(t - lse), mask=mask)
"""
