"""Kernels and calls for means over planes: words of `Member.constants` are replaced."""

from __future__ import annotations

# VALUE turns the window's reduced `w` into `v`; FINISH turns the mean into the output.
PLANE = """
@triton.jit
def NAME_plane_kernel(
    x_ptr, conv_bias_ptr, PARAMETERSy_ptr, channels, depth, height, width, out_depth, out_height, out_width,
    KD: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):
    plane = tl.program_id(0)
    channel = plane % channels
    conv_bias = tl.load(conv_bias_ptr + channel)
    base = x_ptr + plane.to(tl.int64) * depth * height * width
    count = out_depth * out_height * out_width
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        position = start + tl.arange(0, BLOCK)
        mask = position < count
        column = position % out_width
        row = (position // out_width) % out_height
        slab = position // (out_width * out_height)
        window = base + (slab * KD * height + row * K) * width + column * K
        w = tl.full((BLOCK,), float("-inf"), tl.float32)
        for i in tl.static_range(KD):
            for j in tl.static_range(K):
                for k in tl.static_range(K):
                    x = tl.load(window + (i * height + j) * width + k, mask=mask, other=0.0) + conv_bias
                    w = tl.maximum(w, ELEMENT)
        VALUE
        total += tl.where(mask, v, 0.0)
    mean = tl.sum(total, axis=0) / count
    FINISH
"""

PLANE_FORWARD = """
x = CALL.contiguous()
batch, channels = x.shape[:2]
SHAPES
y = x.NEW
NAME_plane_kernel[(batch * channels,)](
    x, self.LAYER.bias, ARGUMENTSy, channels, depth, height, width, depth // KD_, height // K_, width // K_,
    KD=KD_, K=K_, BLOCK=SIZE, num_warps=WARPS,
)
return y
"""

SPLIT = """
@triton.jit
def NAME_partial_kernel(
    x_ptr, conv_bias_ptr, PARAMETERSpartial_ptr, channels, depth, height, width, out_depth, out_height, out_width,
    KD: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):
    plane = tl.program_id(0)
    channel = plane % channels
    conv_bias = tl.load(conv_bias_ptr + channel)
    count = out_depth * out_height * out_width
    position = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = position < count
    column = position % out_width
    row = (position // out_width) % out_height
    slab = position // (out_width * out_height)
    window = x_ptr + plane.to(tl.int64) * depth * height * width
    window += (slab * KD * height + row * K) * width + column * K
    w = tl.full((BLOCK,), float("-inf"), tl.float32)
    for i in tl.static_range(KD):
        for j in tl.static_range(K):
            for k in tl.static_range(K):
                x = tl.load(window + (i * height + j) * width + k, mask=mask, other=0.0) + conv_bias
                w = tl.maximum(w, ELEMENT)
    VALUE
    tl.store(partial_ptr + plane * tl.num_programs(1) + tl.program_id(1), tl.sum(tl.where(mask, v, 0.0), axis=0))


@triton.jit
def NAME_finish_kernel(partial_ptr, END_PARAMETERSy_ptr, channels, parts, count, PARTS: tl.constexpr):
    plane = tl.program_id(0)
    part = tl.arange(0, PARTS)
    partial = tl.load(partial_ptr + plane * parts + part, mask=part < parts, other=0.0)
    mean = tl.sum(partial, axis=0) / count
    channel = plane % channels
    FINISH
"""

SPLIT_FORWARD = """
x = CALL.contiguous()
batch, channels = x.shape[:2]
SHAPES
count = (depth // KD_) * (height // K_) * (width // K_)
parts = triton.cdiv(count, SIZE)
partial = x.new_empty((batch * channels, parts))
y = x.NEW
NAME_partial_kernel[(batch * channels, parts)](
    x, self.LAYER.bias, ARGUMENTSpartial, channels, depth, height, width,
    depth // KD_, height // K_, width // K_, KD=KD_, K=K_, BLOCK=SIZE, num_warps=WARPS,
)
NAME_finish_kernel[(batch * channels,)](
    partial, END_ARGUMENTSy, channels, parts, count, PARTS=triton.next_power_of_2(parts), num_warps=1
)
return y
"""

STORE = "tl.store(y_ptr + plane, mean)"
IMAGE = {"SHAPES": "depth, (height, width) = 1, x.shape[2:]"}
VOLUME = {"SHAPES": "depth, height, width = x.shape[2:]"}
EMPTY = {
    "PARAMETERS": "",
    "ARGUMENTS": "",
    "END_PARAMETERS": "",
    "END_ARGUMENTS": "",
    "ELEMENT": "x",
    "VALUE": "v = w",
}

GELU = {
    **EMPTY,
    **IMAGE,
    "NAME": "gelu_mean",
    "CALL": "F.conv2d(x, self.conv.weight, None)",
    "LAYER": "conv",
    "KD_": 1,
    "K_": 1,
    "NEW": "new_empty((batch, channels))",
    "VALUE": "v = gelu(w)",
    "FINISH": STORE,
}
HARDTANH = {
    **EMPTY,
    **IMAGE,
    "NAME": "pool_hardtanh_mean",
    "CALL": (
        "F.conv_transpose2d(\n    x, self.conv_transpose.weight, None, self.conv_transpose.stride, "
        "self.conv_transpose.padding\n)"
    ),
    "LAYER": "conv_transpose",
    "PARAMETERS": "low, high, ",
    "ARGUMENTS": "self.hardtanh.min_val, self.hardtanh.max_val, ",
    "KD_": 1,
    "K_": "self.maxpool.kernel_size",
    "NEW": "new_empty((batch, channels, 1, 1))",
    "VALUE": "v = clamp(w, low, high)",
    "FINISH": "tl.store(y_ptr + plane, tanh(mean))",
}
SUM = {
    **EMPTY,
    **VOLUME,
    "NAME": "divide_pool_sum",
    "CALL": "F.conv3d(x, self.conv.weight, None)",
    "LAYER": "conv",
    "PARAMETERS": "bias_ptr, divisor, ",
    "ARGUMENTS": "self.bias, self.divisor, ",
    "END_PARAMETERS": "bias_ptr, ",
    "END_ARGUMENTS": "self.bias, ",
    "ELEMENT": "x / divisor",
    "KD_": "self.max_pool.kernel_size[0]",
    "K_": "self.max_pool.kernel_size[1]",
    "NEW": "new_zeros((batch, 1, 1, 1))",
    "FINISH": "tl.atomic_add(y_ptr + plane // channels, mean + tl.load(bias_ptr + channel))",
}
SUM_SPLIT = {**SUM, "PARAMETERS": "divisor, ", "ARGUMENTS": "self.divisor, "}
CLAMP = {
    **EMPTY,
    **VOLUME,
    "NAME": "scale_pool_mean",
    "CALL": (
        "F.conv_transpose3d(\n    x, self.conv_transpose.weight, None, self.conv_transpose.stride, "
        "self.conv_transpose.padding\n)"
    ),
    "LAYER": "conv_transpose",
    "PARAMETERS": "scale, ",
    "ARGUMENTS": "self.scale, ",
    "ELEMENT": "x * scale",
    "END_PARAMETERS": "low, high, ",
    "END_ARGUMENTS": "self.clamp_min, self.clamp_max, ",
    "KD_": "self.maxpool.kernel_size",
    "K_": "self.maxpool.kernel_size",
    "NEW": "new_empty((batch, channels, 1, 1, 1))",
    "FINISH": "tl.store(y_ptr + plane, clamp(mean, low, high))",
}
CLAMP_PLANE = {
    **CLAMP,
    "PARAMETERS": "scale, low, high, ",
    "ARGUMENTS": "self.scale, self.clamp_min, self.clamp_max, ",
}

GELU_CUDA = """
// One block reduces one plane.
extern "C" __global__ void gelu_mean(const float* __restrict__ x, const float* __restrict__ conv_bias,
                                     float* __restrict__ y, int channels, int size) {
    const float bias = conv_bias[blockIdx.x % channels];
    const float* plane = x + (long long)blockIdx.x * size;
    float total = 0.0f;
    if (size % 4 == 0) {
        #pragma unroll 2
        for (int i = threadIdx.x; i < size / 4; i += blockDim.x) {
            const float4 v = reinterpret_cast<const float4*>(plane)[i];
            total += gelu_f(v.x + bias) + gelu_f(v.y + bias) + gelu_f(v.z + bias) + gelu_f(v.w + bias);
        }
    } else {
        for (int i = threadIdx.x; i < size; i += blockDim.x) total += gelu_f(plane[i] + bias);
    }
    __shared__ float partial[32];
    for (int step = 16; step > 0; step >>= 1) total += __shfl_xor_sync(0xffffffffu, total, step);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; ++w) total += partial[w];
        y[blockIdx.x] = total / size;
    }
}
"""

REDUCED = ("operation fusion", "warp-level reduction")
