"""Kernels and calls for reductions over the rows of a linear layer: words of `Member.constants` are replaced."""

from __future__ import annotations

WHOLE_ROW = """
@triton.jit
def NAME_row_kernel(x_ptr, y_ptr, SCALARScolumns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row.to(tl.int64) * columns + column, mask=mask, other=0.0)
    BEFORE
    t = tl.where(mask, t, float("-inf"))
    highest = tl.max(t, axis=0)
    lse = highest + tl.log(tl.sum(tl.exp(t - highest), axis=0))
    AFTER
    tl.store(y_ptr + row, y)
"""

WHOLE_ROW_FORWARD = """
FIRSTx = F.linear(x, self.LAYER.weight, self.LAYER.bias).contiguous()
rows, columns = x.shape
y = x.new_empty(SHAPE)
NAME_row_kernel[(rows,)](x, y, VALUEScolumns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
return y
"""

ONLINE = """
@triton.jit
def NAME_online_kernel(x_ptr, y_ptr, SCALARScolumns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = x_ptr + row.to(tl.int64) * columns
    highest = tl.full((BLOCK,), -1e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(base + column, mask=mask, other=0.0)
        BEFORE
        t = tl.where(mask, t, -1e30)
        larger = tl.maximum(highest, t)
        total = total * tl.exp(highest - larger) + tl.where(mask, tl.exp(t - larger), 0.0)
        highest = larger
    peak = tl.max(highest, axis=0)
    lse = peak + tl.log(tl.sum(total * tl.exp(highest - peak), axis=0))
    AFTER
    tl.store(y_ptr + row, y)
"""

ONLINE_FORWARD = """
FIRSTx = F.linear(x, self.LAYER.weight, self.LAYER.bias).contiguous()
rows, columns = x.shape
y = x.new_empty(SHAPE)
NAME_online_kernel[(rows,)](x, y, VALUEScolumns, BLOCK=1024, num_warps=4)
return y
"""

CUDA_ROW = """
__device__ __forceinline__ float2 merge(float2 a, float2 b) {  // (maximum, sum of exp(value - maximum))
    const float highest = fmaxf(a.x, b.x);
    return make_float2(highest, a.y * expf(a.x - highest) + b.y * expf(b.x - highest));
}

// One block reduces one row.
extern "C" __global__ void NAME(const float* __restrict__ x, float* __restrict__ out, CSCALARSint columns) {
    CLOADSconst float* row = x + (long long)blockIdx.x * columns;
    float2 state = make_float2(-1e30f, 0.0f);
    #pragma unroll 4
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        const float v = row[i];
        CBEFORE
        state = merge(state, make_float2(t, 1.0f));
    }
    for (int step = 16; step > 0; step >>= 1) {
        const float2 other = make_float2(__shfl_xor_sync(0xffffffffu, state.x, step),
                                         __shfl_xor_sync(0xffffffffu, state.y, step));
        state = merge(state, other);
    }
    __shared__ float2 partial[32];
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = state;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; ++w) state = merge(state, partial[w]);
        const float lse = state.x + logf(state.y);
        CAFTER
        out[blockIdx.x] = y;
    }
}
"""

CUDA_FORWARD = """
FIRSTx = F.linear(x, self.LAYER.weight, self.LAYER.bias).contiguous()
rows, columns = x.shape
y = x.new_empty(SHAPE)
NAME()(grid=(rows, 1, 1), block=(256, 1, 1), args=[x, y, CVALUEScolumns])
return y
"""

LSE22 = {
    "NAME": "clamped_logsumexp",
    "LAYER": "matmul",
    "FIRST": "",
    "SHAPE": "(rows, 1)",
    "SCALARS": "scale, low, high, ",
    "VALUES": "2.0 * self.scale_factor, self.clamp_min, self.clamp_max, ",
    "CVALUES": "2.0 * self.scale_factor, float(self.clamp_min), float(self.clamp_max), ",
    "CSCALARS": "double scale_in, double low_in, double high_in, ",
    "CLOADS": "const float scale = (float)scale_in, low = (float)low_in, high = (float)high_in;\n    ",
    "BEFORE": "t = clamp(x * scale, low, high)",
    "AFTER": "y = lse * mish(lse)",
    "CBEFORE": "const float t = clamp_f(v * scale, low, high);",
    "CAFTER": "const float y = lse * mish_f(lse);",
}
LSE64 = {
    "NAME": "logsumexp_gelu",
    "LAYER": "linear",
    "FIRST": "",
    "SHAPE": "(rows, 1)",
    "SCALARS": "",
    "VALUES": "",
    "CVALUES": "",
    "CSCALARS": "",
    "CLOADS": "",
    "BEFORE": "t = x",
    "AFTER": "y = gelu(gelu(leaky_relu(leaky_relu(lse, 0.01), 0.01)))",
    "CBEFORE": "const float t = v;",
    "CAFTER": "const float y = gelu_f(gelu_f(leaky_relu_f(leaky_relu_f(lse, 0.01f), 0.01f)));",
}
SIGMOID = """
@triton.jit
def sigmoid_kernel(y_ptr, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    tl.store(y_ptr + offsets, tl.sigmoid(tl.load(y_ptr + offsets, mask=mask)), mask=mask)


"""
LSE45 = {
    "NAME": "logsumexp",
    "LAYER": "linear2",
    "FIRST": (
        "x = F.linear(x, self.linear1.weight, self.linear1.bias).contiguous()\n"
        "sigmoid_kernel[(triton.cdiv(x.numel(), 2048),)](x, x.numel(), BLOCK=2048, num_warps=8)\n"
    ),
    "SHAPE": "(rows,)",
    "SCALARS": "",
    "VALUES": "",
    "BEFORE": "t = x",
    "AFTER": "y = lse",
}

BOUNDED = """
@triton.jit
def clamped_logsumexp_kernel(x_ptr, y_ptr, scale, low, high, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = x_ptr + row.to(tl.int64) * columns
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        t = clamp(tl.load(base + column, mask=mask, other=0.0) * scale, low, high)
        # no value exceeds the clamp's upper bound, which serves as the maximum
        total += tl.where(mask, tl.exp(t - high), 0.0)
    lse = high + tl.log(tl.sum(total, axis=0))
    tl.store(y_ptr + row, lse * mish(lse))
"""

BOUNDED_FORWARD = """
x = F.linear(x, self.matmul.weight, self.matmul.bias).contiguous()
rows, columns = x.shape
y = x.new_empty((rows, 1))
clamped_logsumexp_kernel[(rows,)](
    x, y, 2.0 * self.scale_factor, self.clamp_min, self.clamp_max, columns, BLOCK=2048, num_warps=4
)
return y
"""

POOL_SUM = """
@triton.jit
def pool_sum_kernel(x_ptr, y_ptr, scale, columns, pooled, CHUNK: tl.constexpr, K: tl.constexpr, LANES: tl.constexpr):
    row = tl.program_id(0)
    base = x_ptr + row.to(tl.int64) * columns
    lane = tl.arange(0, LANES)
    total = tl.zeros((CHUNK,), tl.float32)
    for start in range(tl.program_id(1) * CHUNK, pooled, tl.num_programs(1) * CHUNK):
        window = start + tl.arange(0, CHUNK)
        mask = (window < pooled)[:, None] & (lane < K)[None, :]
        x = tl.load(base + window[:, None] * K + lane[None, :], mask=mask, other=float("-inf"))
        total += tl.where(window < pooled, tl.max(x, axis=1), 0.0)
    FINISH
"""

POOL_SUM_FORWARD = """
x = F.linear(x, self.matmul.weight, self.matmul.bias).contiguous()
rows, columns = x.shape
k = self.max_pool.kernel_size
pooled = columns // k
y = x.NEW(rows)
pool_sum_kernel[(rows, PROGRAMS)](
    x, y, self.scale_factor, columns, pooled,
    CHUNK=1024, K=k, LANES=triton.next_power_of_2(k), num_warps=WARPS,
)
return y
"""

MIN_SUBTRACT = """
@triton.jit
def min_subtract_kernel(y_ptr, constant_ptr, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    constant = tl.load(constant_ptr)
    x = tl.load(y_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x > constant, constant, x) - constant, mask=mask)
"""

MIN_SUBTRACT_CUDA = """
extern "C" __global__ void min_subtract(float* __restrict__ y, const float* __restrict__ constant_of, int total) {
    const float constant = constant_of[0];
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i + 3 < total) {
        float4 v = *reinterpret_cast<float4*>(y + i);
        v.x = (v.x > constant ? constant : v.x) - constant;
        v.y = (v.y > constant ? constant : v.y) - constant;
        v.z = (v.z > constant ? constant : v.z) - constant;
        v.w = (v.w > constant ? constant : v.w) - constant;
        *reinterpret_cast<float4*>(y + i) = v;
    } else {
        for (int j = i; j < total; ++j) y[j] = (y[j] > constant ? constant : y[j]) - constant;
    }
}
"""

FUSED = ("operation fusion", "warp-level reduction")
