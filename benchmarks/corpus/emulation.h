// CUDA on CPU threads, enough of it to run the corpus's kernels at small sizes: one thread per CUDA thread, blocks one
// after the other. `check.py` includes this file before a kernel's source and rewrites `kernel<<<...>>>(...)`.
#pragma once
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>
#define __global__ static
#define __device__ static
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __shared__ static
#define __expf expf
#define __logf logf
typedef void* cudaStream_t;
struct dim3 {
    long x, y, z;
    dim3(long x = 1, long y = 1, long z = 1) : x(x), y(y), z(z) {}
};
struct uint3_ {
    int x, y, z;
};
static thread_local uint3_ threadIdx, blockIdx;
static thread_local int lane_, warp_;
static dim3 blockDim, gridDim;
struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct uchar4 {
    unsigned char x, y, z, w;
};
static inline float2 make_float2(float a, float b) { return {a, b}; }
static inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
static std::unique_ptr<std::barrier<>> block_barrier;
static std::vector<std::unique_ptr<std::barrier<>>> warp_barriers;
static std::vector<std::vector<uint64_t>> slots;
static inline void __syncthreads() { block_barrier->arrive_and_wait(); }
static inline void __syncwarp(unsigned = 0xffffffffu) { warp_barriers[warp_]->arrive_and_wait(); }
template <class T> static inline T shuffle_(T value, int source) {
    auto& slot = slots[warp_];
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    slot[lane_] = bits;
    warp_barriers[warp_]->arrive_and_wait();
    T result = value;
    if (source >= 0 && source < 32) memcpy(&result, &slot[source], sizeof(T));
    warp_barriers[warp_]->arrive_and_wait();
    return result;
}
template <class T> static inline T __shfl_sync(unsigned, T v, int s, int = 32) { return shuffle_(v, s); }
template <class T> static inline T __shfl_xor_sync(unsigned, T v, int m, int = 32) { return shuffle_(v, lane_ ^ m); }
template <class T> static inline T __shfl_up_sync(unsigned, T v, int d, int = 32) {
    return shuffle_(v, lane_ - d >= 0 ? lane_ - d : lane_);
}
template <class T> static inline T __shfl_down_sync(unsigned, T v, int d, int = 32) {
    return shuffle_(v, lane_ + d < 32 ? lane_ + d : lane_);
}
static inline float atomicAdd(float* p, float v) { return std::atomic_ref<float>(*p).fetch_add(v); }
static inline int atomicAdd(int* p, int v) { return std::atomic_ref<int>(*p).fetch_add(v); }
static inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
template <class T> static inline T __ldg(const T* p) { return *p; }
template <class T> static inline T __ldcs(const T* p) { return *p; }
template <class T> static inline void __stcs(T* p, T v) { *p = v; }
using std::max;
using std::min;
template <class Kernel> static void launch_(dim3 grid, dim3 block, Kernel kernel) {
    gridDim = grid, blockDim = block;
    const int threads = block.x * block.y * block.z, warps = (threads + 31) / 32;
    block_barrier = std::make_unique<std::barrier<>>(threads);
    warp_barriers.clear();
    slots.assign(warps, std::vector<uint64_t>(32));
    for (int w = 0; w < warps; w++)
        warp_barriers.push_back(std::make_unique<std::barrier<>>(std::min(32, threads - 32 * w)));
    std::vector<std::thread> running;
    for (int t = 0; t < threads; t++)
        running.emplace_back([=] {
            const int bx = block.x, by = block.y;
            threadIdx = {t % bx, t / bx % by, t / (bx * by)};
            lane_ = t % 32, warp_ = t / 32;
            for (int z = 0; z < grid.z; z++)
                for (int y = 0; y < grid.y; y++)
                    for (int x = 0; x < grid.x; x++) {
                        blockIdx = {x, y, z};
                        kernel();
                        block_barrier->arrive_and_wait();
                    }
        });
    for (auto& thread : running) thread.join();
}
