"""Kernels and calls for BatchNorm in training mode behind a convolution: words of `Member.constants` are replaced."""

from __future__ import annotations

# Mean and sum of squared deviations of `v` in each (image, channel) plane.
PLANE_STATISTICS = """
@triton.jit
def plane_statistics_kernel(x_ptr, STATS_PARAMETERSmean_ptr, m2_ptr, channels, plane_size, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    base = x_ptr + plane.to(tl.int64) * plane_size
STATS_LOADS
    x = tl.load(base + tl.zeros((BLOCK,), tl.int32))
    BEFORE
    pivot = v  # differences from one of the values do not cancel
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
    offset = tl.sum(total, axis=0) / plane_size
    tl.store(mean_ptr + plane, tl.max(pivot, axis=0) + offset)
    tl.store(m2_ptr + plane, tl.maximum(tl.sum(squares, axis=0) - offset * offset * plane_size, 0.0))
"""

# One program for a channel merges the planes of all images.
MERGE = """


@triton.jit
def merge_kernel(
    mean_ptr, m2_ptr, MERGE_PARAMETERSgamma_ptr, beta_ptr, running_mean_ptr, running_var_ptr, slope_ptr, intercept_ptr,
    eps, momentum, batch, channels, plane_size, IMAGES: tl.constexpr,
):
    channel = tl.program_id(0)
    image = tl.arange(0, IMAGES)
    valid = image < batch
    means = tl.load(mean_ptr + image * channels + channel, mask=valid, other=0.0)
    mean = tl.sum(means, axis=0) / batch
    spread = tl.where(valid, means - mean, 0.0)
    m2 = tl.sum(tl.load(m2_ptr + image * channels + channel, mask=valid, other=0.0), axis=0)
    count = batch * plane_size
    variance = (m2 + plane_size * tl.sum(spread * spread, axis=0)) / count
AFFINE
    old_mean, old_var = tl.load(running_mean_ptr + channel), tl.load(running_var_ptr + channel)
    tl.store(running_mean_ptr + channel, old_mean + momentum * (TRUE_MEAN - old_mean))
    tl.store(running_var_ptr + channel, old_var + momentum * (TRUE_VARIANCE * count / (count - 1) - old_var))
    tl.store(slope_ptr + channel, slope)
    tl.store(intercept_ptr + channel, intercept)
"""

APPLY = """


@triton.jit
def apply_kernel(y_ptr, APPLY_PARAMETERSslope_ptr, intercept_ptr, channels, plane_size, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    channel = plane % channels
APPLY_LOADS
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = within < plane_size
    ptrs = y_ptr + plane.to(tl.int64) * plane_size + within
    x = tl.load(ptrs, mask=mask, other=0.0)
    BEFORE
    tl.store(ptrs, v * slope + intercept, mask=mask)
"""

STATISTICS_CALL = """
y = CALL.contiguous()
batch, channels = y.shape[:2]
plane_size = y[0, 0].numel()
norm = self.NORM
norm.num_batches_tracked.add_(1)
statistics = y.new_empty((2, batch * channels))
affine = y.new_empty((2, channels))
plane_statistics_kernel[(batch * channels,)](
    y, STATS_ARGUMENTSstatistics[0], statistics[1], channels, plane_size, BLOCK=SIZE, num_warps=8
)
merge_kernel[(channels,)](
    statistics[0], statistics[1], MERGE_ARGUMENTSnorm.weight, norm.bias, norm.running_mean, norm.running_var,
    affine[0], affine[1], norm.eps, norm.momentum, batch, channels, plane_size,
    IMAGES=triton.next_power_of_2(batch), num_warps=1,
)
"""

APPLY_CALL = """apply_kernel[(batch * channels, triton.cdiv(plane_size, 2048))](
    y, APPLY_ARGUMENTSaffine[0], affine[1], channels, plane_size, BLOCK=2048, num_warps=8
)
return y
"""

# Sums over whole channels by atomics, then one kernel that finishes.
ATOMIC = """
@triton.jit
def channel_sums_kernel(x_ptr, STATS_PARAMETERSsum_ptr, square_ptr, channels, plane_size, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    channel = plane % channels
STATS_LOADS
    zero = tl.zeros((BLOCK,), tl.int64)
    x = tl.load(x_ptr + zero + channel * plane_size)
    BEFORE
    pivot = v  # the first image's first value: the same for all planes of a channel
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = within < plane_size
    x = tl.load(x_ptr + plane.to(tl.int64) * plane_size + within, mask=mask, other=0.0)
    BEFORE
    difference = tl.where(mask, v - pivot, 0.0)
    tl.atomic_add(sum_ptr + channel, tl.sum(difference, axis=0))
    tl.atomic_add(square_ptr + channel, tl.sum(difference * difference, axis=0))


@triton.jit
def finish_kernel(
    x_ptr, y_ptr, STATS_PARAMETERSsum_ptr, square_ptr, MERGE_PARAMETERSgamma_ptr, beta_ptr, running_mean_ptr,
    running_var_ptr, eps, momentum, count, channels, plane_size, BLOCK: tl.constexpr,
):
    plane = tl.program_id(0)
    channel = plane % channels
STATS_LOADS
    zero = tl.zeros((BLOCK,), tl.int64)
    x = tl.load(x_ptr + zero + channel * plane_size)
    BEFORE
    offset = tl.load(sum_ptr + channel) / count
    mean = tl.max(v, axis=0) + offset
    variance = tl.maximum(tl.load(square_ptr + channel) / count - offset * offset, 0.0)
AFFINE
    if (plane < channels) & (tl.program_id(1) == 0):
        old_mean, old_var = tl.load(running_mean_ptr + channel), tl.load(running_var_ptr + channel)
        tl.store(running_mean_ptr + channel, old_mean + momentum * (TRUE_MEAN - old_mean))
        tl.store(running_var_ptr + channel, old_var + momentum * (TRUE_VARIANCE * count / (count - 1) - old_var))
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = within < plane_size
    offsets = plane.to(tl.int64) * plane_size + within
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    BEFORE
    tl.store(y_ptr + offsets, v * slope + intercept, mask=mask)
"""

ATOMIC_FORWARD = """
x = CALL.contiguous()
batch, channels = x.shape[:2]
plane_size = x[0, 0].numel()
norm = self.NORM
norm.num_batches_tracked.add_(1)
sums = x.new_zeros((2, channels))
y = torch.empty_like(x)
grid = (batch * channels, triton.cdiv(plane_size, SIZE))
channel_sums_kernel[grid](
    x, STATS_ARGUMENTSsums[0], sums[1], channels, plane_size, BLOCK=SIZE, num_warps=8
)
finish_kernel[grid](
    x, y, STATS_ARGUMENTSsums[0], sums[1], MERGE_ARGUMENTSnorm.weight, norm.bias, norm.running_mean, norm.running_var,
    norm.eps, norm.momentum, batch * plane_size, channels, plane_size, BLOCK=SIZE, num_warps=8,
)
return y
"""

PLAIN = {
    "STATS_PARAMETERS": "",
    "STATS_ARGUMENTS": "",
    "STATS_LOADS\n": "",
    "MERGE_PARAMETERS": "conv_bias_ptr, ",
    "APPLY_PARAMETERS": "",
    "APPLY_ARGUMENTS": "",
    "APPLY_LOADS": ("    slope = tl.load(slope_ptr + channel)\n    intercept = tl.load(intercept_ptr + channel)"),
    "BEFORE": "v = x",
    "AFFINE": (
        "    slope = tl.load(gamma_ptr + channel) * tl.rsqrt(variance + eps)\n"
        "    intercept = tl.load(beta_ptr + channel) - mean * slope"
    ),
    "TRUE_MEAN": "mean + tl.load(conv_bias_ptr + channel)",
    "TRUE_VARIANCE": "variance",
    "SIZE": 4096,
}
MISH = {
    **PLAIN,
    "CALL": "F.conv2d(x, self.conv.weight, None)",
    "NORM": "bn",
    "STATS_PARAMETERS": "conv_bias_ptr, ",
    "STATS_ARGUMENTS": "self.conv.bias, ",
    "STATS_LOADS": "    conv_bias = tl.load(conv_bias_ptr + tl.program_id(0) % channels)",
    "MERGE_PARAMETERS": "",
    "MERGE_ARGUMENTS": "",
    "APPLY_PARAMETERS": "conv_bias_ptr, ",
    "APPLY_ARGUMENTS": "self.conv.bias, ",
    "APPLY_LOADS": (
        "    conv_bias = tl.load(conv_bias_ptr + channel)\n"
        "    slope = tl.load(slope_ptr + channel)\n    intercept = tl.load(intercept_ptr + channel)"
    ),
    "BEFORE": "v = mish(x + conv_bias)",
    "TRUE_MEAN": "mean",
}
del MISH["STATS_LOADS\n"]
SCALING = {
    **PLAIN,
    "CALL": "F.conv2d(x, self.conv.weight, None)",
    "NORM": "bn",
    "MERGE_PARAMETERS": "conv_bias_ptr, scaling, ",
    "MERGE_ARGUMENTS": "self.conv.bias, self.scaling_factor, ",
    "AFFINE": (
        "    slope = tl.load(gamma_ptr + channel) * tl.rsqrt(variance + eps) * scaling\n"
        "    intercept = tl.load(beta_ptr + channel) * scaling - mean * slope"
    ),
}
TRANSPOSED = {
    **PLAIN,
    "CALL": (
        "F.conv_transpose3d(\n    x, self.conv_transpose.weight, None, self.conv_transpose.stride, "
        "self.conv_transpose.padding\n)"
    ),
    "NORM": "batch_norm",
    "MERGE_ARGUMENTS": "self.conv_transpose.bias, ",
}

SUBTRACT = """


@triton.jit
def centre_kernel(y_ptr, mean_ptr, slope_ptr, channels, plane_size, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    mean = tl.load(mean_ptr + plane)
    slope = tl.load(slope_ptr + plane % channels)
    within = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ptrs = y_ptr + plane.to(tl.int64) * plane_size + within
    x = tl.load(ptrs, mask=within < plane_size)
    tl.store(ptrs, (x - mean) * slope, mask=within < plane_size)
"""

PLANE_AFFINE = """


@triton.jit
def plane_affine_kernel(mean_ptr, slope_ptr, intercept_ptr, y_ptr, planes, channels, BLOCK: tl.constexpr):
    plane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = plane < planes
    slope = tl.load(slope_ptr + plane % channels, mask=mask)
    intercept = tl.load(intercept_ptr + plane % channels, mask=mask)
    tl.store(y_ptr + plane, tl.load(mean_ptr + plane, mask=mask) * slope + intercept, mask=mask)
"""

FUSED = ("operation fusion", "memory coalescing")
