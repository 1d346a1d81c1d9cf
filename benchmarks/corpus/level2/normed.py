"""Norms whose result is pooled, reduced over channels, or passed through a softmax."""

from __future__ import annotations

from benchmarks.corpus.level2 import batchnorm, conv_batchnorm_kernels, normed_kernels, pooled_norm_kernels
from benchmarks.corpus.level2.members import Member, Problem, drafts

__all__ = ["PROBLEMS", "drafts"]

_PLANES = conv_batchnorm_kernels.PLANE_STATISTICS
_RAW = {**conv_batchnorm_kernels.TRANSPOSED, "MORE_PARAMETERS": "conv_bias_ptr, ", "MORE_ARGUMENTS": "", "SCALE": ""}
_SCALED_GROUPS = {
    **_RAW,
    "MORE_PARAMETERS": "conv_bias_ptr, scale_ptr, ",
    "MORE_ARGUMENTS": "self.scale, ",
    "    SCALE": "    scale = tl.load(scale_ptr + channel)\n    slope, intercept = slope * scale, intercept * scale",
}
_PLAIN_GROUPS = {**_RAW, "    SCALE\n": ""}
_SOFTMAX_NORM = {
    **batchnorm.PLAIN,
    "NAME": "batch_norm",
    "LAYER": "gemm",
    "NORM": "bn",
    "PARAMETERS": "scale_ptr, ",
    "ARGUMENTS": "self.scale, ",
    "AFFINE": (
        "    scale = tl.load(scale_ptr)\n"
        "    slope = tl.load(gamma_ptr + column, mask=inside, other=0.0) * tl.rsqrt(variance + eps) * scale\n"
        "    intercept = tl.load(beta_ptr + column, mask=inside, other=0.0) * scale - mean * slope"
    ),
}
_COLUMN_STATISTICS = batchnorm.SPLIT.split("\n\n\n@triton.jit\ndef NAME_apply")[0] + "\n"
_COLUMN_CALL = batchnorm.SPLIT_FORWARD.split("NAME_apply_kernel")[0].replace("TALL", "128")

_FUSED = ("operation fusion", "memory coalescing")

PROBLEMS = (
    Problem(
        problem=85,
        arguments=(
            "in_channels, out_channels, kernel_size, num_groups, scale_shape, maxpool_kernel_size, clamp_min, clamp_max"
        ),
        body=(
            "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
            "self.group_norm = nn.GroupNorm(num_groups, out_channels)",
            "self.scale = nn.Parameter(torch.ones(scale_shape))",
            "self.maxpool = nn.MaxPool2d(kernel_size=maxpool_kernel_size)",
            "self.clamp_min = clamp_min",
            "self.clamp_max = clamp_max",
        ),
        analysis="""GroupNorm, a scale per channel, 4x4 max pooling and a clamp follow a light convolution (8 to 64
channels). The reference moves the map eight times: bias 2, norm 3, scale 2, pooling 1 plus indices. Norm and scale
are one affine map per plane, which is monotone, so pooling can take the extremum of raw values and apply the affine
map to one value in sixteen. That leaves one read for the statistics and one read for pooling, and nothing of the
map's size is ever written after the convolution.""",
        members=(
            Member(
                "extremes",
                _PLANES + normed_kernels.GROUP_AFFINE + normed_kernels.EXTREME_POOL,
                normed_kernels.GROUP_CALL + normed_kernels.EXTREME_CALL,
                """Statistics per plane (one program each, shifted sums), then a tiny kernel that merges the
planes of a group, adds the convolution's biases to their means and writes slope and intercept per plane with the
scale folded in. The last kernel gives each lane one pooled value: the maximum of the sixteen raw values, or their
minimum when the slope is negative, by flipping the sign; then slope, intercept and clamp once. The map is read
twice and only a sixteenth is written.""",
                (*_FUSED, "mathematical short-circuit"),
                ("clamp",),
                constants={
                    **_SCALED_GROUPS,
                    "GRID": "triton.cdiv(out_height * out_width, 256)",
                    "SIZE": 256,
                    "WARPS": 4,
                },
            ),
            Member(
                "extreme_rows",
                _PLANES + normed_kernels.GROUP_AFFINE + normed_kernels.EXTREME_ROWS,
                normed_kernels.GROUP_CALL + normed_kernels.EXTREME_CALL,
                """The same reduction to slope and intercept per plane, with another pooling kernel: a program
makes one row of pooled values from a tile (output column x window column) that is a contiguous run of each of four
input rows, so loads are coalesced, and the maximum over the window's columns is taken once after the rows. The sign
of the slope turns maximum into minimum where needed. There is no division in the index arithmetic, but with 31
outputs in a row a program is short.""",
                (*_FUSED, "thread-block configuration"),
                ("clamp",),
                constants={
                    **_SCALED_GROUPS,
                    "GRID": "out_height",
                    "SIZE": "triton.next_power_of_2(out_width)",
                    "WARPS": 1,
                },
            ),
        ),
    ),
    Problem(
        problem=92,
        arguments="in_channels, out_channels, kernel_size, groups, eps=1e-5",
        body=(
            "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
            "self.group_norm = nn.GroupNorm(groups, out_channels, eps=eps)",
            "self.tanh = nn.Tanh()",
            "self.hard_swish = nn.Hardswish()",
        ),
        analysis="""A convolution's result is normalised in groups, goes through tanh and hardswish, is added to
itself, and logsumexp over 64 channels leaves one value per position. Eager code makes about fourteen transfers of
the map: bias 2, norm 3, tanh 2, hardswish 2, add 3, logsumexp 2 and more. Two reads are enough, one for the group
statistics and one for the rest, and a single channel is written. tanh bounds hardswish's argument by 1, where
hardswish is t (t + 3) / 6 and its two clamps never act.""",
        members=(
            Member(
                "online",
                _PLANES + normed_kernels.GROUP_AFFINE + normed_kernels.RESIDUAL_LOOP,
                normed_kernels.GROUP_CALL + normed_kernels.RESIDUAL_CALL,
                """After per-plane statistics and a merge into slope and intercept per plane, one kernel walks
down the channels: each lane owns a position, loads one value per channel (coalesced across lanes), applies the
affine map, tanh and the reduced hardswish, adds the residual with its bias, and updates a running maximum and a
rescaled sum. The channel's scalars come from L1. No value crosses a lane, and only logsumexp is stored. Four
special functions per element make this kernel compute-heavy, but it reads the map once.""",
                (*_FUSED, "algorithmic change"),
                ("tanh",),
                constants={**_PLAIN_GROUPS, "SIZE": 256, "WARPS": 4, "EXTRA": ""},
            ),
            Member(
                "tile",
                _PLANES + normed_kernels.GROUP_AFFINE + normed_kernels.RESIDUAL_TILE,
                normed_kernels.GROUP_CALL + normed_kernels.RESIDUAL_CALL,
                """The final kernel holds all 64 channels of 64 positions as a tile in registers: slope and
intercept are vectors along its first axis, tanh, the clamp-free hardswish and the residual are elementwise, and
logsumexp is the exact two-step form, a maximum and a sum along the channels, with one exponential per value instead
of the two of an online update. The cross-warp reduction goes through shared memory twice. Statistics and their
merge are two small kernels before it.""",
                (*_FUSED, "warp-level reduction"),
                ("tanh",),
                constants={
                    **_PLAIN_GROUPS,
                    "SIZE": 64,
                    "WARPS": 8,
                    "EXTRA": "BLOCK_C=triton.next_power_of_2(channels), ",
                },
            ),
        ),
    ),
    Problem(
        problem=79,
        arguments="in_channels, out_channels, kernel_size, multiplier_shape, clamp_min, clamp_max",
        body=(
            "self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)",
            "self.multiplier = nn.Parameter(torch.randn(multiplier_shape))",
            "self.instance_norm = nn.InstanceNorm3d(out_channels)",
            "self.clamp_min = clamp_min",
            "self.clamp_max = clamp_max",
        ),
        analysis="""Bias, a multiplier per channel, instance normalisation, clamp, the multiplier again, and the
maximum over 16 channels: twelve transfers of the volume in eager mode for a result of one channel. Instance
statistics of m (x + b) are m times those of x, up to epsilon, so the bias cancels and the multiplier enters as a
scalar per plane: mean m mu, variance m^2 v. Two reads of the volume are needed, one for mu and v and one for
everything else, and one channel is written.""",
        members=(
            Member(
                "loop",
                _PLANES + normed_kernels.INSTANCE_LOOP,
                normed_kernels.INSTANCE_CALL,
                """One program per plane computes mean and sum of squared deviations from raw convolution output,
without bias or multiplier. The second kernel owns 512 positions of an image and walks down the 16 channels: per
channel it derives the slope from the plane's statistics and the multiplier (a few scalar instructions), normalises,
clamps, multiplies and keeps the running maximum in registers. Loads are contiguous across lanes, nothing is
exchanged between threads, and the volume is never written back.""",
                (*_FUSED, "mathematical short-circuit"),
                ("clamp",),
                constants={**_RAW, "SIZE": 512, "WARPS": 4, "EXTRA": ""},
            ),
            Member(
                "tile",
                _PLANES + normed_kernels.INSTANCE_TILE,
                normed_kernels.INSTANCE_CALL,
                """Statistics per plane as usual; then a tile of all 16 channels by 128 positions is loaded in
one go, so that sixteen independent rows of 512 bytes are in flight per program, normalised with vectors of slopes
and means along the channel axis, clamped, multiplied, and reduced by tl.max along that axis. Scalars per plane are
computed once per program instead of once per channel iteration. Padding channels are excluded by -inf before the
maximum.""",
                (*_FUSED, "warp-level reduction"),
                ("clamp",),
                constants={**_RAW, "SIZE": 128, "WARPS": 4, "EXTRA": "BLOCK_C=triton.next_power_of_2(channels), "},
            ),
        ),
    ),
    Problem(
        problem=72,
        arguments="in_channels, out_channels, kernel_size, stride, padding, bias_shape",
        body=(
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding",
            ")",
            "self.batch_norm = nn.BatchNorm3d(out_channels)",
            "self.avg_pool1 = nn.AvgPool3d(kernel_size=2)",
            "self.avg_pool2 = nn.AvgPool3d(kernel_size=2)",
        ),
        analysis="""Three channels are upsampled to sixteen, normalised with batch statistics, and averaged over
4x4x4 windows in two steps. Eager code adds the bias (2 transfers of the large volume), normalises (3), pools (1 and
an eighth). BatchNorm is affine per channel and averaging commutes with affine maps, so the raw volume can be pooled
and the norm applied to 1/64 of the values. The statistics still need every element, also those of the odd border
that pooling leaves out. One or two reads of the volume, instead of six transfers.""",
        members=(
            Member(
                "one_read",
                pooled_norm_kernels.POOL_STATISTICS + conv_batchnorm_kernels.MERGE + pooled_norm_kernels.PLANE_APPLY,
                pooled_norm_kernels.POOL_STATISTICS_CALL,
                """A single pass over the volume yields both things: a program per plane walks over it in tiles
of 4 x 4 rows, whose columns are cut into windows of 4, accumulates shifted sums and squares for the statistics, and
stores the mean of every complete window. The border counts for statistics only. A program per channel merges the
batch and updates the running buffers, and a small kernel applies slope and intercept to the pooled values, 1/64 of
the volume. The layer's bias cancels except in the running mean.""",
                (*_FUSED, "mathematical short-circuit"),
                constants=_RAW,
            ),
            Member(
                "two_reads",
                _PLANES + conv_batchnorm_kernels.MERGE + pooled_norm_kernels.POOL_AFFINE,
                conv_batchnorm_kernels.STATISTICS_CALL + pooled_norm_kernels.POOL_AFFINE_CALL,
                """Statistics by one contiguous read with a program per plane, the merge per channel, and then a
pooling kernel in which each lane sums the 64 elements of its window and applies slope and intercept to the mean.
The volume is read twice, but both kernels are simple: the first has perfect addresses, the second is split into
many programs, 256 windows each. The two average pools are one pool of 4, floor divisions included, and the
normalised volume is never formed.""",
                (*_FUSED, "mathematical short-circuit"),
                constants=_RAW,
            ),
        ),
    ),
    Problem(
        problem=38,
        arguments=(
            "in_channels, out_channels, kernel_size, stride, padding, output_padding, pool_kernel_size, clamp_min, "
            "clamp_max"
        ),
        body=(
            "self.avg_pool = nn.AvgPool3d(pool_kernel_size)",
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding",
            ")",
            "self.clamp_min = clamp_min",
            "self.clamp_max = clamp_max",
            "self.scale = nn.Parameter(torch.ones(1, out_channels, 1, 1, 1))",
        ),
        analysis="""After pooling and a transposed convolution the volume is clamped, and softmax runs over all
positions of a channel (over a hundred thousand values), followed by a scale per channel. Eager code: bias 2
transfers, clamp 2, softmax 3 (its rows are too long to stay on chip), scale 2, nine in all. The clamp bounds the
values, so its upper limit can replace the row's maximum in the stable softmax: exp(v - high) neither overflows nor,
for limits 0 and 1, gets small. That removes the pass for the maximum: two reads and a write remain.""",
        members=(
            Member(
                "row",
                pooled_norm_kernels.CLAMP_SOFTMAX,
                pooled_norm_kernels.CLAMP_SOFTMAX_CALL
                + """clamp_softmax_kernel[(batch * channels,)](
    x, layer.bias, self.scale, self.clamp_min, self.clamp_max, channels, plane_size, BLOCK=4096, num_warps=16
)
return x
""",
                """One program of 16 warps per (image, channel) row: the first sweep adds the bias, clamps and
accumulates exp(v - high) lane by lane, with no running maximum and hence no rescaling; a single block reduction
gives the sum, and the channel's scale is divided by it once. The second sweep recomputes clamp and exponential and
writes the product in place. Half a megabyte per row mostly stays in L2 between the sweeps. With a small batch there
are few programs per multiprocessor.""",
                (*_FUSED, "mathematical short-circuit"),
                ("clamp",),
            ),
            Member(
                "split",
                pooled_norm_kernels.CLAMP_SOFTMAX_SPLIT,
                pooled_norm_kernels.CLAMP_SOFTMAX_CALL
                + """parts = triton.cdiv(plane_size, 8192)
partial = x.new_empty((batch * channels, parts))
exp_sum_kernel[(batch * channels, parts)](
    x, layer.bias, partial, self.clamp_min, self.clamp_max, channels, plane_size, BLOCK=8192, num_warps=8
)
normalise_kernel[(batch * channels, parts)](
    x, layer.bias, self.scale, partial, self.clamp_min, self.clamp_max, channels, plane_size,
    PARTS=triton.next_power_of_2(parts), BLOCK=8192, num_warps=8,
)
return x
""",
                """The row is cut into pieces of 8192: the first kernel writes one partial sum of exponentials
per piece, the second adds the sixteen or so partial sums of its row, which is a single small load, and writes exp(v
- high) * scale / sum in place. Because the clamp's upper limit stands for the maximum, partial sums simply add,
with no maxima to reconcile. The grid is many times larger than one program per row, so all multiprocessors work at
full bandwidth, at the price that the second read comes from DRAM.""",
                (*_FUSED, "thread-block configuration"),
                ("clamp",),
            ),
        ),
    ),
    Problem(
        problem=84,
        arguments="in_features, out_features, bn_eps=1e-5, bn_momentum=0.1, scale_shape=(1,)",
        body=(
            "self.gemm = nn.Linear(in_features, out_features)",
            "self.bn = nn.BatchNorm1d(out_features, eps=bn_eps, momentum=bn_momentum)",
            "self.scale = nn.Parameter(torch.ones(scale_shape))",
            "self.softmax = nn.Softmax(dim=1)",
        ),
        analysis="""BatchNorm reduces down the columns of the GEMM's output, softmax along its rows, so no single
program can do both; but between them only an affine map per column is left. Eager code: norm 3 transfers, scale 2,
softmax 2 or 3. Minimum: one read for the column statistics, one read and one write for the rows, with norm, learnt
scale and softmax in registers. Behind a float32 GEMM of 8192 x 8192 this is a gain of a few percent; it also saves
launches and a full-size temporary.""",
        members=(
            Member(
                "whole_row",
                _COLUMN_STATISTICS + pooled_norm_kernels.ROW_SOFTMAX,
                _COLUMN_CALL
                + """affine_softmax_kernel[(rows,)](
    y, affine[0], affine[1], columns, BLOCK=triton.next_power_of_2(columns), num_warps=16
)
return y
""",
                """Tiles of 128 rows by 64 columns give exact partial means and centred sums; a merge kernel
turns them into one slope and one intercept per column, with the learnt scale folded into both, and updates the
running buffers. Then a program of 16 warps takes a row of 8192 values into registers, applies slope and intercept
(shared by all rows, hence in L2), and does the two-step softmax without touching memory again until the final
store, in place.""",
                (*_FUSED, "register/shared-memory use"),
                constants=_SOFTMAX_NORM,
            ),
            Member(
                "online",
                _COLUMN_STATISTICS + pooled_norm_kernels.ROW_SOFTMAX_LOOP,
                _COLUMN_CALL
                + """affine_softmax_kernel[(rows,)](
    y, affine[0], affine[1], columns, BLOCK=1024, num_warps=4
)
return y
""",
                """Column statistics and merge as partial tiles and Chan's formula; the row kernel streams a row
in blocks of 1024 with a running maximum and rescaled sum per lane, merges the lanes once, and streams the row again
to write exp(t - lse), recomputing the affine map. The second read of 32 KiB per row hits L1 or L2. It uses a
quarter of the threads of a whole-row version and little register space, so more rows are in flight per
multiprocessor, for twice the exponentials.""",
                (*_FUSED, "algorithmic change"),
                constants=_SOFTMAX_NORM,
            ),
        ),
    ),
)
