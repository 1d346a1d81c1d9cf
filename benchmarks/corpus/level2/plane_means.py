"""Convolutions whose tail ends in a mean over each channel's plane."""

from __future__ import annotations

from benchmarks.corpus.level2.members import Member, Problem, drafts
from benchmarks.corpus.level2.plane_means_kernels import (
    CLAMP,
    CLAMP_PLANE,
    GELU,
    GELU_CUDA,
    HARDTANH,
    PLANE,
    PLANE_FORWARD,
    REDUCED,
    SPLIT,
    SPLIT_FORWARD,
    SUM,
    SUM_SPLIT,
)

__all__ = ["PROBLEMS", "drafts"]

PROBLEMS = (
    Problem(
        problem=67,
        arguments="in_channels, out_channels, kernel_size",
        body=("self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",),
        analysis="""Eight input channels and 64 output channels on large images: the convolution mainly writes. Its
bias is then added in a pass of its own (read, write), GELU makes another full map (read, write), and the global
average reads that once more to produce one number per plane. Five transfers of the map, of which only a single read
is needed after the convolution, as nothing of the map's size is part of the result. GELU is nonlinear, so it has to
see every element before the mean.""",
        members=(
            Member(
                "plane",
                PLANE,
                PLANE_FORWARD,
                """One program of 8 warps per (image, channel) plane streams it once in blocks of 4096, adds the
convolution's bias (a scalar here), applies GELU in registers and sums lane by lane; a single block reduction at the
end gives the mean. The map is read exactly once and never written again. With thousands of planes there are enough
programs to fill the device, so no plane needs to be split, there are no atomics, and the order of summation is
fixed.""",
                REDUCED,
                ("gelu",),
                constants={**GELU, "SIZE": 4096, "WARPS": 8},
            ),
            Member(
                "split",
                SPLIT,
                SPLIT_FORWARD,
                """A tree in two kernels: each program reduces 4096 elements of one plane to a single partial sum
after bias and GELU, and a tiny second kernel adds a plane's partial sums and divides. Every program is short and
equal, so the device is evenly loaded whatever the number of planes is, and batches of a few images work as well as
large ones. The cost is a second launch and 1/4096 of the map in partial sums. Summation order is fixed.""",
                (*REDUCED, "thread-block configuration"),
                ("gelu",),
                constants={**GELU, "SIZE": 4096, "WARPS": 8},
            ),
            Member(
                "cuda",
                GELU_CUDA,
                """
x = F.conv2d(x, self.conv.weight, None).contiguous()
batch, channels = x.shape[:2]
y = x.new_empty((batch, channels))
gelu_mean()(
    grid=(batch * channels, 1, 1), block=(256, 1, 1),
    args=[x, self.conv.bias, y, channels, x[0, 0].numel()],
)
return y
""",
                """CUDA, one block of 256 threads for a plane. Threads read float4, add the channel's bias and
evaluate GELU with erff on four elements before they touch their accumulator, so the special-function work of
several loads overlaps. The block's sum comes from warp shuffles and eight floats in shared memory, and thread 0
writes the mean. Planes that are no multiple of four elements long take scalar loads. The map is read once, the
output is one float per plane.""",
                (*REDUCED, "register/shared-memory use"),
                ("gelu",),
                ("gelu_mean",),
            ),
        ),
    ),
    Problem(
        problem=10,
        arguments=(
            "in_channels, out_channels, kernel_size, stride, padding, maxpool_kernel_size, maxpool_stride, "
            "hardtanh_min, hardtanh_max"
        ),
        body=(
            "self.conv_transpose = nn.ConvTranspose2d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding",
            ")",
            "self.maxpool = nn.MaxPool2d(kernel_size=maxpool_kernel_size, stride=maxpool_stride)",
            "self.hardtanh = nn.Hardtanh(min_val=hardtanh_min, max_val=hardtanh_max)",
        ),
        analysis="""A stride-1 transposed convolution keeps the image size; after it the bias is added (2 transfers
of the map), 2x2 max pooling reads it and writes a quarter plus an int64 index map of half the map's bytes, hardtanh
passes over the quarter, the mean reads it, and tanh acts on one value per plane. Only a read of the map is
necessary. Pooling, clamping and averaging are all local to a plane, and the plane's single output can be finished
by the program that reduces it.""",
        members=(
            Member(
                "plane",
                PLANE,
                PLANE_FORWARD,
                """One program per plane walks over its pooled positions in blocks of 1024: each lane loads the
four values of its window, adds the bias, takes the maximum, clamps it and adds it to its sum. Neighbouring lanes
use neighbouring pairs of columns, so every byte of a fetched line is used, half of it by the second load out of L1.
At the end one block reduction, the division and tanh give the plane's output. Nothing of the map's size is written,
and there is one launch.""",
                REDUCED,
                ("clamp", "tanh"),
                constants={**HARDTANH, "SIZE": 1024, "WARPS": 4},
            ),
            Member(
                "split",
                SPLIT,
                SPLIT_FORWARD,
                """The plane is cut into pieces of 2048 pooled values, one program each, which pool, clamp and
reduce to a partial sum; a second kernel with one warp per plane adds the few partial sums, divides by the number of
pooled values and applies tanh. More and shorter programs than one per plane, so that the last wave is small and
small batches fill the device. Index arithmetic (two divisions per window) is the main cost besides the loads, and
runs while they are in flight.""",
                (*REDUCED, "thread-block configuration"),
                ("clamp", "tanh"),
                constants={**HARDTANH, "SIZE": 2048, "WARPS": 8},
            ),
        ),
    ),
    Problem(
        problem=8,
        arguments="in_channels, out_channels, kernel_size, divisor, pool_size, bias_shape, sum_dim",
        body=(
            "self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)",
            "self.divisor = divisor",
            "self.max_pool = nn.MaxPool3d(pool_size)",
            "self.global_avg_pool = nn.AdaptiveAvgPool3d((1, 1, 1))",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
            "self.sum_dim = sum_dim",
        ),
        analysis="""Bias, division, 2x2x2 max pooling, global average, a second bias and the sum over the 16
channels turn each image's volume into one number. The reference reads and writes the full volume for the bias and
again for the division, reads it for pooling, writes an eighth (and indices), reads that for the mean, and ends in
three launches on a few bytes. One read of the volume suffices: pooling is local, mean and sum are additions, and
the second bias is added once per channel.""",
        members=(
            Member(
                "plane_atomic",
                PLANE,
                PLANE_FORWARD,
                """One program for each (image, channel) volume: lanes own pooled positions, load the eight
values of a window in an unrolled loop, add the bias, divide and keep the maximum, then sum over the volume. The
program's mean plus the channel's second bias goes into the image's result by one atomic addition; sixteen channels
meet on an address, which is no contention. A single kernel behind the convolution and a fill of one float per
image. The order of sixteen additions may vary, in the last bit.""",
                REDUCED,
                constants={**SUM, "SIZE": 1024, "WARPS": 4},
            ),
            Member(
                "split",
                SPLIT,
                SPLIT_FORWARD,
                """Pieces of 512 pooled values make short programs that divide, pool and reduce to one partial
sum; a second kernel takes a channel per program, adds its partial sums, divides by the number of windows, adds the
second bias and accumulates into the image's result. That is many times more programs than one per channel, useful
as a volume has thousands of windows of eight scattered loads each and latency, not bandwidth, limits a single
program.""",
                (*REDUCED, "thread-block configuration"),
                constants={**SUM_SPLIT, "SIZE": 512, "WARPS": 4},
            ),
        ),
    ),
    Problem(
        problem=96,
        arguments="in_channels, out_channels, kernel_size, stride, padding, scale, maxpool_kernel_size",
        body=(
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding",
            ")",
            "self.scale = scale",
            "self.maxpool = nn.MaxPool3d(kernel_size=maxpool_kernel_size)",
            "self.global_avg_pool = nn.AdaptiveAvgPool3d((1, 1, 1))",
            "self.clamp_min = 0",
            "self.clamp_max = 1",
        ),
        analysis="""Three channels are upsampled to sixteen by a stride-2 transposed convolution, whose output
dwarfs its input. Bias and scale each read and write that volume, max pooling reads it and writes an eighth with
indices, the global average reads the eighth, and the clamp is a launch on one number per channel. Five transfers of
the volume where a single read is enough. The extents are odd (2D - 1), so pooling ignores the last slab, row and
column, which a fused kernel must skip as well.""",
        members=(
            Member(
                "plane",
                PLANE,
                PLANE_FORWARD,
                """A program of 8 warps per (image, channel) volume. Blocks of 2048 pooled positions are decoded
into slab, row and column of the pooled grid, which leaves out the odd border by construction; eight unrolled loads
per lane, bias and scale, maximum, sum. The scale multiplies before the maximum, so that a negative factor would be
right too. One reduction at the end, the clamp on the scalar, one store. Two thousand programs fill the device for
the published batch.""",
                REDUCED,
                ("clamp",),
                constants={**CLAMP_PLANE, "SIZE": 2048, "WARPS": 8},
            ),
            Member(
                "split",
                SPLIT,
                SPLIT_FORWARD,
                """Two kernels: the first cuts every volume into pieces of 1024 windows, each reduced to one
partial sum by a program of 4 warps; the second adds a channel's pieces with one warp, divides and clamps. The eight
loads of a window have a stride of two floats between lanes, so half of each request is useful at first and the
other half is found in L1 by the next load; many resident programs hide that latency better than few long ones.
Partial sums are a few kilobytes.""",
                (*REDUCED, "thread-block configuration"),
                ("clamp",),
                constants={**CLAMP, "SIZE": 1024, "WARPS": 4},
            ),
        ),
    ),
)
