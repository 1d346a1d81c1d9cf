"""Kernels and calls for norms whose result is pooled or reduced: words of `Member.constants` are replaced."""

from __future__ import annotations

# Mean and sum of squared deviations of each plane, then slope and intercept for each plane from its group's planes.
GROUP_AFFINE = """


@triton.jit
def group_affine_kernel(
    mean_ptr, m2_ptr, MORE_PARAMETERSgamma_ptr, beta_ptr, slope_ptr, intercept_ptr, eps, channels, plane_size,
    PER_GROUP: tl.constexpr, PADDED: tl.constexpr,
):
    plane = tl.program_id(0)
    channel = plane % channels
    member = tl.arange(0, PADDED)
    valid = member < PER_GROUP
    first = plane - channel % PER_GROUP
    # the convolution's bias differs between the channels of a group
    means = tl.load(mean_ptr + first + member, mask=valid, other=0.0)
    means += tl.load(conv_bias_ptr + first % channels + member, mask=valid, other=0.0)
    mean = tl.sum(means, axis=0) / PER_GROUP
    spread = tl.where(valid, means - mean, 0.0)
    m2 = tl.sum(tl.load(m2_ptr + first + member, mask=valid, other=0.0), axis=0)
    m2 += plane_size * tl.sum(spread * spread, axis=0)
    slope = tl.load(gamma_ptr + channel) * tl.rsqrt(m2 / (PER_GROUP * plane_size) + eps)
    intercept = tl.load(beta_ptr + channel) + (tl.load(conv_bias_ptr + channel) - mean) * slope
    SCALE
    tl.store(slope_ptr + plane, slope)
    tl.store(intercept_ptr + plane, intercept)
"""

GROUP_CALL = """
x = F.conv2d(x, self.conv.weight, None).contiguous()
batch, channels, height, width = x.shape
plane_size = height * width
norm = self.group_norm
per_group = channels // norm.num_groups
statistics, affine = x.new_empty((2, batch * channels)), x.new_empty((2, batch * channels))
plane_statistics_kernel[(batch * channels,)](
    x, statistics[0], statistics[1], channels, plane_size, BLOCK=4096, num_warps=8
)
group_affine_kernel[(batch * channels,)](
    statistics[0], statistics[1], self.conv.bias, MORE_ARGUMENTSnorm.weight, norm.bias, affine[0], affine[1],
    norm.eps, channels, plane_size, PER_GROUP=per_group, PADDED=triton.next_power_of_2(per_group), num_warps=1,
)
"""

EXTREME_POOL = """


@triton.jit
def extreme_pool_kernel(
    x_ptr, slope_ptr, intercept_ptr, y_ptr, low, high, height, width, out_height, out_width,
    K: tl.constexpr, BLOCK: tl.constexpr,
):
    plane = tl.program_id(0)
    slope = tl.load(slope_ptr + plane)
    sign = tl.where(slope < 0.0, -1.0, 1.0)
    position = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = position < out_height * out_width
    corner = (position // out_width) * (K * width) + (position % out_width) * K
    window = x_ptr + plane.to(tl.int64) * height * width + corner
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for i in tl.static_range(K):
        for j in tl.static_range(K):
            best = tl.maximum(best, tl.load(window + i * width + j, mask=mask, other=0.0) * sign)
    y = clamp(best * sign * slope + tl.load(intercept_ptr + plane), low, high)
    tl.store(y_ptr + plane.to(tl.int64) * out_height * out_width + position, y, mask=mask)
"""

EXTREME_ROWS = """


@triton.jit
def extreme_pool_kernel(
    x_ptr, slope_ptr, intercept_ptr, y_ptr, low, high, height, width, out_height, out_width,
    K: tl.constexpr, BLOCK: tl.constexpr,
):
    plane = tl.program_id(0)
    out_row = tl.program_id(1)
    slope = tl.load(slope_ptr + plane)
    sign = tl.where(slope < 0.0, -1.0, 1.0)
    out_column = tl.arange(0, BLOCK)
    inside = out_column < out_width
    column = out_column[:, None] * K + tl.arange(0, K)[None, :]
    row = x_ptr + plane.to(tl.int64) * height * width + out_row * K * width
    best = tl.full((BLOCK, K), float("-inf"), tl.float32)
    for i in tl.static_range(K):
        best = tl.maximum(best, tl.load(row + i * width + column, mask=inside[:, None], other=0.0) * sign)
    y = clamp(tl.max(best, axis=1) * sign * slope + tl.load(intercept_ptr + plane), low, high)
    tl.store(y_ptr + (plane.to(tl.int64) * out_height + out_row) * out_width + out_column, y, mask=inside)
"""

EXTREME_CALL = """k = self.maxpool.kernel_size
out_height, out_width = height // k, width // k
y = x.new_empty((batch, channels, out_height, out_width))
extreme_pool_kernel[(batch * channels, GRID)](
    x, affine[0], affine[1], y, self.clamp_min, self.clamp_max, height, width, out_height, out_width,
    K=k, BLOCK=SIZE, num_warps=WARPS,
)
return y
"""

RESIDUAL_LOOP = """


@triton.jit
def residual_logsumexp_kernel(
    x_ptr, conv_bias_ptr, slope_ptr, intercept_ptr, y_ptr, channels, plane_size, BLOCK: tl.constexpr
):
    image = tl.program_id(0)
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = within < plane_size
    base = x_ptr + image.to(tl.int64) * channels * plane_size + within
    highest = tl.full((BLOCK,), -1e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for channel in range(channels):
        x = tl.load(base + channel * plane_size, mask=mask, other=0.0)
        plane = image * channels + channel
        t = tanh(x * tl.load(slope_ptr + plane) + tl.load(intercept_ptr + plane))
        # |t| <= 1, where hardswish needs no clamp
        r = x + tl.load(conv_bias_ptr + channel) + t * (t + 3.0) * 0.16666666666666666
        larger = tl.maximum(highest, r)
        total = total * tl.exp(highest - larger) + tl.exp(r - larger)
        highest = larger
    tl.store(y_ptr + image.to(tl.int64) * plane_size + within, highest + tl.log(total), mask=mask)
"""

RESIDUAL_TILE = """


@triton.jit
def residual_logsumexp_kernel(
    x_ptr, conv_bias_ptr, slope_ptr, intercept_ptr, y_ptr, channels, plane_size,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
):
    image = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    real = channel < channels
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = real[:, None] & (within < plane_size)[None, :]
    plane = image * channels + channel
    x = tl.load(x_ptr + plane.to(tl.int64)[:, None] * plane_size + within[None, :], mask=mask, other=0.0)
    slope = tl.load(slope_ptr + plane, mask=real, other=0.0)
    intercept = tl.load(intercept_ptr + plane, mask=real, other=0.0)
    t = tanh(x * slope[:, None] + intercept[:, None])
    # |t| <= 1, where hardswish needs no clamp
    r = x + tl.load(conv_bias_ptr + channel, mask=real, other=0.0)[:, None] + t * (t + 3.0) * 0.16666666666666666
    r = tl.where(real[:, None], r, float("-inf"))
    highest = tl.max(r, axis=0)
    y = highest + tl.log(tl.sum(tl.exp(r - highest[None, :]), axis=0))
    tl.store(y_ptr + image.to(tl.int64) * plane_size + within, y, mask=within < plane_size)
"""

RESIDUAL_CALL = """y = x.new_empty((batch, 1, height, width))
residual_logsumexp_kernel[(batch, triton.cdiv(plane_size, SIZE))](
    x, self.conv.bias, affine[0], affine[1], y, channels, plane_size, EXTRABLOCK=SIZE, num_warps=WARPS
)
return y
"""

INSTANCE_LOOP = """


@triton.jit
def norm_max_kernel(
    x_ptr, mean_ptr, m2_ptr, multiplier_ptr, y_ptr, eps, low, high, channels, plane_size, BLOCK: tl.constexpr
):
    image = tl.program_id(0)
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = within < plane_size
    base = x_ptr + image.to(tl.int64) * channels * plane_size + within
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for channel in range(channels):
        plane = image * channels + channel
        multiplier = tl.load(multiplier_ptr + channel)
        # variance of m x is m^2 times that of x, and the convolution's bias cancels
        variance = tl.load(m2_ptr + plane) / plane_size * multiplier * multiplier
        slope = multiplier * tl.rsqrt(variance + eps)
        x = tl.load(base + channel * plane_size, mask=mask, other=0.0)
        best = tl.maximum(best, clamp((x - tl.load(mean_ptr + plane)) * slope, low, high) * multiplier)
    tl.store(y_ptr + image.to(tl.int64) * plane_size + within, best, mask=mask)
"""

INSTANCE_TILE = """


@triton.jit
def norm_max_kernel(
    x_ptr, mean_ptr, m2_ptr, multiplier_ptr, y_ptr, eps, low, high, channels, plane_size,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
):
    image = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    real = channel < channels
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = real[:, None] & (within < plane_size)[None, :]
    plane = image * channels + channel
    multiplier = tl.load(multiplier_ptr + channel, mask=real, other=0.0)
    # variance of m x is m^2 times that of x, and the convolution's bias cancels
    variance = tl.load(m2_ptr + plane, mask=real, other=0.0) / plane_size * multiplier * multiplier
    slope = multiplier * tl.rsqrt(variance + eps)
    mean = tl.load(mean_ptr + plane, mask=real, other=0.0)
    x = tl.load(x_ptr + plane.to(tl.int64)[:, None] * plane_size + within[None, :], mask=mask, other=0.0)
    v = clamp((x - mean[:, None]) * slope[:, None], low, high) * multiplier[:, None]
    y = tl.max(tl.where(real[:, None], v, float("-inf")), axis=0)
    tl.store(y_ptr + image.to(tl.int64) * plane_size + within, y, mask=within < plane_size)
"""

INSTANCE_CALL = """
x = F.conv3d(x, self.conv.weight, None).contiguous()
batch, channels = x.shape[:2]
plane_size = x[0, 0].numel()
statistics = x.new_empty((2, batch * channels))
y = x.new_empty((batch, *x.shape[2:]))
plane_statistics_kernel[(batch * channels,)](
    x, statistics[0], statistics[1], channels, plane_size, BLOCK=2048, num_warps=8
)
norm_max_kernel[(batch, triton.cdiv(plane_size, SIZE))](
    x, statistics[0], statistics[1], self.multiplier, y, self.instance_norm.eps, self.clamp_min, self.clamp_max,
    channels, plane_size, EXTRABLOCK=SIZE, num_warps=WARPS,
)
return y
"""
