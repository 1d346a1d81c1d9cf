"""Convolutions whose tail pools and reduces over the channels, or normalises along the rows of a volume."""

from __future__ import annotations

from benchmarks.corpus.level2.members import Member, Problem, drafts
from benchmarks.corpus.level2.volumes_kernels import (
    FUSED,
    LSE43,
    LSE_THEN_POOL,
    LSE_THEN_POOL_FORWARD,
    MIN_SOFTMAX,
    MIN_SOFTMAX_FORWARD,
    NORM_POOL,
    NORM_POOL_FORWARD,
    POOL_SUM,
    POOL_SUM_FORWARD,
    ROW_NORM,
    ROW_NORM_CUDA,
    ROW_NORM_FORWARD,
    SIX,
    SWISH89,
    TRANSPOSED,
    WINDOWS,
    WINDOWS_FORWARD,
)

__all__ = ["PROBLEMS", "drafts"]

PROBLEMS = (
    Problem(
        problem=6,
        arguments="in_channels, out_channels, kernel_size, pool_kernel_size",
        body=(
            "self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)",
            "self.pool1 = nn.MaxPool3d(pool_kernel_size)",
            "self.pool2 = nn.MaxPool3d(pool_kernel_size)",
        ),
        analysis="""A light convolution (3 channels in, 16 out), softmax over the channels at every position, and
two max poolings that keep one value in 64. The reference adds the bias (2 transfers), makes the softmax (2 or 3),
and pools twice, each time writing int64 indices. Two pools of 2 are one pool of 4, floor divisions included. What
has to happen is one read of the volume with a softmax of 16 values per position; the output is 1/64 of it. Channels
are far apart in memory, so tiles must span neighbouring positions to stay coalesced.""",
        members=(
            Member(
                "tile",
                WINDOWS,
                WINDOWS_FORWARD,
                """One program holds all 16 channels of 32 pooled positions and walks through the 64 elements of
their windows: load a tile (channels x positions), add the bias, softmax along the channel axis in registers,
maximum with the pooled tile. The volume is read once, no softmax is stored, and both poolings are one. Within a
window row the four loads use the same lines, so L1 supplies three of them. The exponentials, one per element, run
beside the loads.""",
                FUSED,
                constants={**SIX, "POSITIONS": 32, "WARPS": 4},
            ),
            Member(
                "lse_then_pool",
                LSE_THEN_POOL,
                LSE_THEN_POOL_FORWARD,
                """Two kernels around the identity softmax = exp(x - lse). The first computes logsumexp over the
channels for each position, online and with perfectly contiguous loads, and writes one value per position, a
sixteenth of the volume. The second pools x - lse over 4x4x4 windows and takes one exponential per pooled value,
because exp increases and commutes with the maximum. It reads the volume a second time, but computes 64 times fewer
exponentials in the pooling part.""",
                ("operation fusion", "mathematical short-circuit", "memory coalescing"),
            ),
        ),
    ),
    Problem(
        problem=43,
        arguments="in_channels, out_channels, kernel_size, stride, padding",
        body=(
            "self.conv = nn.Conv3d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)",
            "self.max_pool = nn.MaxPool3d(kernel_size=2, stride=2)",
        ),
        analysis="""A 3D convolution from 32 to 64 channels dominates; its tail is max pooling by two, logsumexp
over the channels and ReLU. Eager code passes over the full volume for the bias (read, write) and the pooling
(read), writes an eighth with int64 indices, and logsumexp makes several passes over that. The bias is constant
within a channel, so it can be added after the maximum, to an eighth of the values. One read of the volume remains,
and the output is 1/512 of it.""",
        members=(
            Member(
                "tile",
                WINDOWS,
                WINDOWS_FORWARD,
                """A program takes all 64 channels by 32 pooled positions: eight strided tile loads with running
maximum, bias added once to the pooled tile, then the stable logsumexp along the channel axis (maximum, sum of
exponentials) and ReLU, all in registers. 2048 pooled values on 8 warps are 8 registers a thread, so eight loads per
thread can be in flight and several programs share a multiprocessor. Only one value per pooled position is stored;
neither pooled volume nor indices are written.""",
                (*FUSED, "warp-level reduction"),
                ("relu",),
                constants={**LSE43, "POSITIONS": 32, "WARPS": 8},
            ),
            Member(
                "tile_wide",
                WINDOWS,
                WINDOWS_FORWARD,
                """The same fusion with 128 pooled positions in a program of 8 warps: 8192 pooled values, 32
registers a thread for the tile alone. Each row of the tile covers two full output rows of 64, so the strided loads
of a window row touch long contiguous runs of the input, and index arithmetic is shared by more channels. The number
of programs falls to a quarter, which for a batch of four images is still several waves. Pooling, bias, logsumexp
and ReLU need no memory between them.""",
                (*FUSED, "thread-block configuration"),
                ("relu",),
                constants={**LSE43, "POSITIONS": 128, "WARPS": 8},
            ),
        ),
    ),
    Problem(
        problem=89,
        arguments=(
            "in_channels, out_channels, kernel_size, stride, padding, output_padding, pool_kernel_size, pool_stride, "
            "pool_padding"
        ),
        body=(
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding",
            ")",
            "self.max_pool = nn.MaxPool3d(kernel_size=pool_kernel_size, stride=pool_stride, padding=pool_padding)",
            "self.subtract = nn.Parameter(torch.randn(out_channels))",
        ),
        analysis="""Upsampling from 3 to 16 channels, pooling back down by two, then softmax over channels, a
subtraction, Swish and the maximum over channels: one value per pooled position out of 128 in the upsampled volume.
The reference reads and writes the full volume for the bias, reads it for pooling, and makes six passes over the
pooled volume. The bias commutes with pooling; softmax, subtraction, Swish and the final maximum all work on the 16
channels of one position, which fit in registers. One read of the volume is all that is needed.""",
        members=(
            Member(
                "tile",
                WINDOWS,
                WINDOWS_FORWARD,
                """All 16 channels by 64 pooled positions per program. Eight tile loads with a running maximum do
the pooling, the bias is added to the pooled tile, softmax runs along the channel axis with its maximum and sum in
registers, then the per-channel subtrahend, Swish, and the maximum over the true channels. One float per position is
stored. Nothing of the pooled volume is ever written, where eager code writes it six times. Four warps hold 1024
values, so that many programs are resident.""",
                (*FUSED, "warp-level reduction"),
                ("silu",),
                constants={**SWISH89, "POSITIONS": 64, "WARPS": 4},
            ),
            Member(
                "tile_wide",
                WINDOWS,
                WINDOWS_FORWARD,
                """256 pooled positions by 16 channels in a program of 8 warps. Consecutive positions run along
the rows of the pooled grid, so each load instruction of a warp covers a long stretch of one input row with stride
two, and its partner (the window's second column) hits the same lines in L1. Softmax, subtraction, Swish and the
channel maximum follow in registers: 16 values per thread. The wider block amortises the decoding of positions,
three divisions each, over the same channels.""",
                (*FUSED, "thread-block configuration"),
                ("silu",),
                constants={**SWISH89, "POSITIONS": 256, "WARPS": 8},
            ),
        ),
    ),
    Problem(
        problem=24,
        arguments="in_channels, out_channels, kernel_size, dim",
        body=("self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)", "self.dim = dim"),
        analysis="""The convolution has 3 input channels, so its 24-channel volume costs about as much to write as
to compute. The minimum over depth then discards all but one of 22 slabs (and writes int64 indices that nothing
uses), and softmax over 24 channels runs on what is left. Besides the convolution's write, the volume is moved by
the bias (read, write) and the minimum (read). The bias is constant along depth, so it can be added after the
minimum; the volume then needs to be read once, and a single slab written.""",
        members=(
            Member(
                "tile",
                MIN_SOFTMAX,
                MIN_SOFTMAX_FORWARD,
                """A program owns all 24 channels (padded to 32) of 64 positions and walks down the depth with a
running minimum per register, each load a run of 256 contiguous bytes for every channel. After the last slab the
bias is added once, and softmax over the channels is a maximum, an exponential and a sum along the tile's first
axis. 2048 values on 4 warps are 16 registers a thread. The volume is read once, and the softmax is written without
any intermediate.""",
                (*FUSED, "warp-level reduction"),
                constants={"POSITIONS": 64, "WARPS": 4},
            ),
            Member(
                "tile_narrow",
                MIN_SOFTMAX,
                MIN_SOFTMAX_FORWARD,
                """With 32 positions and one warp's worth of columns per channel row, programs are small (1024
values, 2 warps) and numerous, about twice as many as with 64 positions, which helps since a plane of 30 x 30
positions is cut into few tiles and the last tile is mostly masked when tiles are wide. Loads are 128-byte lines.
Minimum over depth, bias, and softmax over channels stay in registers as before; the loop over slabs carries no
dependency except the minimum.""",
                (*FUSED, "thread-block configuration"),
                constants={"POSITIONS": 32, "WARPS": 2},
            ),
        ),
    ),
    Problem(
        problem=78,
        arguments="in_channels, out_channels, kernel_size, stride, padding",
        body=(
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding",
            ")",
            "self.max_pool1 = nn.MaxPool3d(kernel_size=2)",
            "self.max_pool2 = nn.MaxPool3d(kernel_size=3)",
        ),
        analysis="""Max pooling by 2 and then by 3 without padding is pooling by 6, and the sum over 64 channels
leaves one value for 216 positions times 64 channels. The reference reads and writes the upsampled volume for the
bias, reads it for the first pool, writes an eighth and its int64 indices, pools again and sums. The bias commutes
with the maximum. A single read of the volume is enough; the difficulty is that windows of 6 do not match powers of
two, and that the output is tiny, so parallelism has to come from channels and rows.""",
        members=(
            Member(
                "row",
                POOL_SUM,
                POOL_SUM_FORWARD,
                """A program makes one row of outputs: a tile of 64 channels x windows x 8 lanes, of which 6 are
used, reads each of the 36 input rows of those windows as nearly contiguous runs and keeps an elementwise running
maximum, so that the reduction within a window happens once, after the loop. Bias per channel, sum over channels,
one store. No pooled volume and no indices. The tile is large (8192 values), which keeps the loads of the loop wide
and independent.""",
                (*FUSED, "warp-level reduction"),
                constants={
                    "STORE": "tl.store(where, total, mask=column < out_width)",
                    "NEW": "new_empty",
                    "PARTS": 1,
                    "CHANNELS": "triton.next_power_of_2(channels)",
                },
            ),
            Member(
                "channel_parts",
                POOL_SUM,
                POOL_SUM_FORWARD,
                """The channels of a row of outputs are shared among programs of 16 channels each, which pool
their part of the volume and add their partial sum to the row by atomics. With four times as many programs and a
tile of 2048 values the device is filled evenly, and each thread keeps fewer registers, so more loads of other
programs overlap. Four additions meet at an address, and the output has to be zeroed first. The order of the four
additions is not fixed, a difference in the last bit.""",
                (*FUSED, "thread-block configuration"),
                constants={
                    "STORE": "tl.atomic_add(where, total, mask=column < out_width)",
                    "NEW": "new_zeros",
                    "PARTS": "triton.cdiv(channels, 16)",
                    "CHANNELS": 16,
                },
            ),
        ),
    ),
    Problem(
        problem=34,
        arguments=("in_channels, out_channels, kernel_size, stride, padding, bias=True, eps=1e-5, scaling_factor=1.0"),
        body=(
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding, bias=bias",
            ")",
            "self.layer_norm = nn.LayerNorm(out_channels, eps=eps)",
            "self.scaling_factor = scaling_factor",
        ),
        analysis="""LayerNorm here runs over the last axis, which is the width of the upsampled volume (64, as many
as there are channels), so every row of 256 bytes is normalised on its own. Then GELU and a constant factor. Eager
code moves the volume eight times: bias 2, norm 2, GELU 2, factor 2. The layer's bias is constant along a row and
drops out of the normalisation for every input. What remains is row-local: one read, one write, with a kernel that
packs several short rows into a block.""",
        members=(
            Member(
                "tile",
                ROW_NORM,
                ROW_NORM_FORWARD,
                """A program takes 64 rows of 64 values as one tile, which is contiguous in memory, normalises
each along the second axis (exact two-step variance in registers), applies gamma, beta, GELU and the factor, and
writes the rows back in place. The convolution's bias is never added, as it cancels. 4096 values on 8 warps are 16
per thread, and each row's reduction stays inside a few lanes of one warp, so that no barrier is needed. Two
transfers instead of eight.""",
                (*FUSED, "mathematical short-circuit"),
                ("gelu",),
                constants={"LINES": 64, "WARPS": 8},
            ),
            Member(
                "tile_small",
                ROW_NORM,
                ROW_NORM_FORWARD,
                """Eight rows per program with a single warp: 512 values, 16 per thread, and not one barrier, as
everything is inside the warp. The grid is eight times as long as with 64 rows, hundreds of thousands of tiny
programs, so the cost of scheduling programs and of loading gamma and beta for each begins to show against 4 KiB of
traffic per program. Bias dropped, normalisation, GELU and factor fused, in place, as in the larger tile.""",
                (*FUSED, "thread-block configuration"),
                ("gelu",),
                constants={"LINES": 8, "WARPS": 1},
            ),
            Member(
                "cuda_warp",
                ROW_NORM_CUDA,
                """
x = F.conv_transpose3d(
    x, self.conv_transpose.weight, None, self.conv_transpose.stride, self.conv_transpose.padding
).contiguous()
norm = self.layer_norm
width = x.shape[-1]
if width > 256:
    raise ValueError(f"rows of {width} values; the kernel keeps at most 256 in registers")
rows = x.numel() // width
row_norm_gelu()(
    grid=(-(-rows // 8), 1, 1), block=(256, 1, 1),
    args=[x, norm.weight, norm.bias, norm.eps, float(self.scaling_factor), rows, width],
)
return x
""",
                """CUDA, one warp per row: up to eight values per lane live in registers from the load to the
store, so the mean and the centred variance cost five shuffles each and no second read. Lanes take every 32nd value,
which makes each access of the warp one 128-byte line. GELU by erff and the factor finish the value, and the row
goes back in place. For rows of 64 values only two of the eight register slots are used, the rest is predicated off;
a block of eight warps handles eight rows.""",
                ("operation fusion", "warp-level reduction", "register/shared-memory use"),
                ("gelu",),
                ("row_norm_gelu",),
            ),
        ),
    ),
    Problem(
        problem=3,
        arguments=(
            "in_channels, out_channels, kernel_size, stride, padding, output_padding, sum_weight, norm_shape, "
            "pool_kernel_size"
        ),
        body=(
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding",
            ")",
            "self.sum_weight = nn.Parameter(torch.tensor(sum_weight))",
            "self.norm = nn.LayerNorm(norm_shape)",
            "self.avg_pool = nn.AvgPool3d(kernel_size=pool_kernel_size)",
            "self.gelu = nn.GELU()",
        ),
        analysis="""Bias and a scalar are added to the upsampled volume, LayerNorm normalises its rows along the
width (64 values), average pooling by two reduces it to an eighth, GELU follows. Seven transfers of the volume in
eager mode. Both the bias and the scalar are constant along a row, so they cancel in the normalisation whatever
their values. A pooled row needs four normalised rows of 64; they can be normalised, averaged and passed through
GELU in registers, so that the volume is read once and an eighth is written.""",
        members=(
            Member(
                "tile",
                NORM_POOL,
                NORM_POOL_FORWARD,
                """Each program makes 16 rows of the output. For each of the four input rows behind an output row
it loads a tile (rows x output columns x 2), contiguous along the last two axes, computes mean and centred variance
per row, normalises with gamma and beta, and adds neighbouring pairs, all in registers; after the fourth the mean of
eight goes through GELU. Bias and the added scalar are skipped because the normalisation removes them. The volume is
read once, and only the pooled result is written.""",
                (*FUSED, "mathematical short-circuit"),
                ("gelu",),
                constants={"CALL": TRANSPOSED, "LINES": 16, "WARPS": 4},
            ),
            Member(
                "tile_small",
                NORM_POOL,
                NORM_POOL_FORWARD,
                """The same fusion with four output rows and one warp per program: the reductions along a row
never leave the warp, so there is no barrier and no shared memory, and a program touches only four kilobytes of
input. That suits a tail of many short rows, but the grid has four times as many programs, each of which loads gamma
and beta and decodes its row numbers again. Reads and writes are unchanged: every row of the volume once, an eighth
of it out.""",
                (*FUSED, "thread-block configuration"),
                ("gelu",),
                constants={"CALL": TRANSPOSED, "LINES": 4, "WARPS": 1},
            ),
        ),
    ),
)
