"""Kernels and calls for sums of weights and pooled weights: words of `Member.constants` are replaced."""

from __future__ import annotations

COLUMN_ATOMIC = """
@triton.jit
def column_sum_kernel(weight_ptr, sum_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = column < columns
    first = tl.program_id(1) * ROWS
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(first, tl.minimum(first + ROWS, rows)):
        total += tl.load(weight_ptr + row * columns + column, mask=mask, other=0.0)
    tl.atomic_add(sum_ptr + column, total, mask=mask)
"""

COLUMN_PARTIAL = """
@triton.jit
def partial_sum_kernel(weight_ptr, partial_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    weight = tl.load(weight_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    tl.store(partial_ptr + tl.program_id(1) * columns + column, tl.sum(weight, axis=0), mask=column < columns)


@triton.jit
def merge_kernel(partial_ptr, sum_ptr, chunks, columns, CHUNKS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chunk = tl.arange(0, CHUNKS)
    mask = (chunk < chunks)[:, None] & (column < columns)[None, :]
    partial = tl.load(partial_ptr + chunk[:, None] * columns + column[None, :], mask=mask, other=0.0)
    tl.store(sum_ptr + column, tl.sum(partial, axis=0), mask=column < columns)
"""

DOT = """


@triton.jit
def row_dot_kernel(x_ptr, sum_ptr, bias_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = x_ptr + row.to(tl.int64) * columns
    dot = tl.zeros((BLOCK,), tl.float32)
    bias = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        dot += tl.load(base + column, mask=mask, other=0.0) * tl.load(sum_ptr + column, mask=mask, other=0.0)
    for start in range(0, rows, BLOCK):
        output = start + tl.arange(0, BLOCK)
        bias += tl.load(bias_ptr + output, mask=output < rows, other=0.0)
    tl.store(y_ptr + row, tl.sum(dot, axis=0) + tl.sum(bias, axis=0))
"""

GELU_ADD = """


@triton.jit
def gelu_add_kernel(x_ptr, sum_ptr, bias_ptr, subtract_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dot = tl.zeros((BLOCK,), tl.float32)
    shift = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
        dot += x * tl.load(sum_ptr + column, mask=mask, other=0.0)
    for start in range(0, rows, BLOCK):
        output = start + tl.arange(0, BLOCK)
        mask = output < rows
        SHIFT
    value = gelu((tl.sum(dot, axis=0) + tl.sum(shift, axis=0)) / rows)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
        tl.store(y_ptr + row * columns + column, x + value, mask=mask)
"""

ATOMIC_CALL = """
x = x.contiguous()
weight = self.LAYER.weight.contiguous()
rows, columns = weight.shape
weight_sum = x.new_zeros(columns)
column_sum_kernel[(triton.cdiv(columns, 512), triton.cdiv(rows, 128))](
    weight, weight_sum, rows, columns, ROWS=128, BLOCK=512, num_warps=4
)
"""

PARTIAL_CALL = """
x = x.contiguous()
weight = self.LAYER.weight.contiguous()
rows, columns = weight.shape
chunks = triton.cdiv(rows, 64)
partial = x.new_empty((chunks, columns))
weight_sum = x.new_empty(columns)
partial_sum_kernel[(triton.cdiv(columns, 128), chunks)](
    weight, partial, rows, columns, ROWS=64, BLOCK=128, num_warps=8
)
merge_kernel[(triton.cdiv(columns, 32),)](
    partial, weight_sum, chunks, columns, CHUNKS=triton.next_power_of_2(chunks), BLOCK=32, num_warps=4
)
"""

DOT_CALL = """y = x.new_empty((x.shape[0], 1))
row_dot_kernel[(x.shape[0],)](
    x, weight_sum, self.LAYER.bias, y, rows, columns, BLOCK=2048, num_warps=8
)
return y
"""

GELU_CALL = """y = torch.empty_like(x)
gelu_add_kernel[(x.shape[0],)](
    x, weight_sum, self.gemm.bias, self.subtract, y, rows, columns, BLOCK=2048, num_warps=8
)
return y
"""

CUDA_SUM = """
// A thread sums one column group of four over a chunk of rows.
extern "C" __global__ void column_sum(const float* __restrict__ weight, float* __restrict__ sum, int rows, int columns,
                                      int chunk) {
    const int column = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (column >= columns) return;
    const int first = blockIdx.y * chunk, last = min(first + chunk, rows);
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (columns % 4 == 0) {
        #pragma unroll 8
        for (int row = first; row < last; ++row) {
            const float4 v = *reinterpret_cast<const float4*>(weight + (long long)row * columns + column);
            total.x += v.x;
            total.y += v.y;
            total.z += v.z;
            total.w += v.w;
        }
    } else {
        for (int row = first; row < last; ++row) {
            const float* v = weight + (long long)row * columns + column;
            total.x += v[0];
            if (column + 1 < columns) total.y += v[1];
            if (column + 2 < columns) total.z += v[2];
            if (column + 3 < columns) total.w += v[3];
        }
    }
    atomicAdd(sum + column, total.x);
    if (column + 1 < columns) atomicAdd(sum + column + 1, total.y);
    if (column + 2 < columns) atomicAdd(sum + column + 2, total.z);
    if (column + 3 < columns) atomicAdd(sum + column + 3, total.w);
}

__device__ __forceinline__ float block_sum(float value) {
    __shared__ float partial[32];
    for (int step = 16; step > 0; step >>= 1) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int w = 0; w < blockDim.x / 32; ++w) sum += partial[w];
    return sum;
}

extern "C" __global__ void row_dot(const float* __restrict__ x, const float* __restrict__ sum,
                                   const float* __restrict__ bias, float* __restrict__ y, int rows, int columns) {
    const float* row = x + (long long)blockIdx.x * columns;
    float total = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) total += row[i] * sum[i];
    for (int i = threadIdx.x; i < rows; i += blockDim.x) total += bias[i];
    total = block_sum(total);
    if (threadIdx.x == 0) y[blockIdx.x] = total;
}
"""

CUDA_SUM_CALL = """
x = x.contiguous()
weight = self.linear.weight.contiguous()
rows, columns = weight.shape
weight_sum = x.new_zeros(columns)
y = x.new_empty((x.shape[0], 1))
column_sum()(
    grid=(-(-columns // 1024), -(-rows // 64), 1), block=(256, 1, 1),
    args=[weight, weight_sum, rows, columns, 64],
)
row_dot()(
    grid=(x.shape[0], 1, 1), block=(256, 1, 1),
    args=[x, weight_sum, self.linear.bias, y, rows, columns],
)
return y
"""

POOL_WEIGHTS = """
@triton.jit
def pool_weights_kernel(
    weight_ptr, bias_ptr, pooled_ptr, pooled_bias_ptr, columns, K: tl.constexpr, BLOCK: tl.constexpr
):
    output = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < columns
    total = tl.zeros((BLOCK,), tl.float32)
    bias = 0.0
    for k in tl.static_range(K):
        total += tl.load(weight_ptr + (output * K + k) * columns + column, mask=mask, other=0.0)
        bias += tl.load(bias_ptr + output * K + k)
    tl.store(pooled_ptr + output * columns + column, total / K, mask=mask)
    if tl.program_id(1) == 0:
        tl.store(pooled_bias_ptr + output, bias / K)


@triton.jit
def gelu_max_kernel(x_ptr, y_ptr, scale, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row.to(tl.int64) * columns + column, mask=mask, other=0.0)
        best = tl.maximum(best, tl.where(mask, gelu(x) * scale, float("-inf")))
    tl.store(y_ptr + row, tl.max(best, axis=0))
"""

POOL_WEIGHTS_CALL = """
weight = self.matmul.weight.contiguous()
k = self.avg_pool.kernel_size
k = k if isinstance(k, int) else k[0]
outputs, columns = weight.shape[0] // k, weight.shape[1]
pooled, pooled_bias = weight.new_empty((outputs, columns)), weight.new_empty(outputs)
pool_weights_kernel[(outputs, triton.cdiv(columns, WIDTH))](
    weight, self.matmul.bias, pooled, pooled_bias, columns, K=k, BLOCK=WIDTH, num_warps=WARPS
)
x = F.linear(x, pooled, pooled_bias)
y = x.new_empty(x.shape[0])
gelu_max_kernel[(x.shape[0],)](x, y, self.scale_factor, outputs, BLOCK=512, num_warps=4)
return y
"""

POOL_TAIL = """
@triton.jit
def pool_gelu_max_kernel(
    x_ptr, y_ptr, scale, columns, pooled, K: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    lane = tl.arange(0, LANES)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, pooled, BLOCK):
        window = start + tl.arange(0, BLOCK)
        mask = (window < pooled)[:, None] & (lane < K)[None, :]
        x = tl.load(x_ptr + row.to(tl.int64) * columns + window[:, None] * K + lane[None, :], mask=mask, other=0.0)
        value = gelu(tl.sum(x, axis=1) / K) * scale
        best = tl.maximum(best, tl.where(window < pooled, value, float("-inf")))
    tl.store(y_ptr + row, tl.max(best, axis=0))
"""

POOL_TAIL_CALL = """
x = F.linear(x, self.matmul.weight, self.matmul.bias).contiguous()
k = self.avg_pool.kernel_size
k = k if isinstance(k, int) else k[0]
rows, columns = x.shape
y = x.new_empty(rows)
pool_gelu_max_kernel[(rows,)](
    x, y, self.scale_factor, columns, columns // k, K=k, LANES=triton.next_power_of_2(k), BLOCK=128, num_warps=4
)
return y
"""

SHORT = ("mathematical short-circuit", "algorithmic change", "operation fusion")
