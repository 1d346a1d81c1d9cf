"""Convolutions as matrix products over channels and window positions: 54, 60, 66, 67, 76, 86, 87."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus.level1.axes import axes
from benchmarks.corpus.level1.member import Member, Problem, drafts_of
from benchmarks.corpus.record import Draft

# A step covers one position of the window and BK channels; its input rows are contiguous.
BY_POSITION = """
@triton.jit
def conv_kernel(x_ptr, f_ptr, out_ptr, C, O, $extents, $outs, $window,
                BO: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr):
    $rows
    ow = tl.program_id(1) * BP + tl.arange(0, BP)
    o = tl.program_id(2) * BO + tl.arange(0, BO)
    x_ptr += n.to(tl.int64) * C * $volume
    out_ptr += n.to(tl.int64) * O * $out_volume
    chunks = tl.cdiv(C, BK)
    total = tl.zeros([BO, BP], tl.float32)
    for step in range($taps * chunks):
        tap = step // chunks
        c = step % chunks * BK + tl.arange(0, BK)
        $decode
        $inputs
        inside = (c < C)[:, None] & $inside[None, :]
        x = tl.load(x_ptr + c[:, None] * $volume + $at[None, :], mask=inside, other=0.0)
        known = (o < O)[:, None] & (c < C)[None, :]
        f = tl.load(f_ptr + (tap * O + o[:, None]) * C + c[None, :], mask=known, other=0.0)
        total = tl.dot(f, x, total, input_precision="$precision")
    inside = (o < O)[:, None] & (ow < OW)[None, :]
    tl.store(out_ptr + o[:, None] * $out_volume + $out_at[None, :], total, mask=inside)
"""
# A step covers BK pairs of a channel and a position of the window, for few channels.
BY_PAIR = """
@triton.jit
def conv_kernel(x_ptr, f_ptr, out_ptr, C, O, $extents, $outs, $window,
                BO: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr):
    $rows
    ow = tl.program_id(1) * BP + tl.arange(0, BP)[None, :]
    o = tl.program_id(2) * BO + tl.arange(0, BO)[:, None]
    x_ptr += n.to(tl.int64) * C * $volume
    out_ptr += n.to(tl.int64) * O * $out_volume
    pairs = C * $taps
    total = tl.zeros([BO, BP], tl.float32)
    for start in range(0, pairs, BK):
        k = start + tl.arange(0, BK)
        f = tl.load(f_ptr + o * pairs + k[None, :], mask=(o < O) & (k < pairs)[None, :], other=0.0)
        c, tap = (k // $taps)[:, None], (k % $taps)[:, None]
        $decode
        $inputs
        inside = (c < C) & $inside
        x = tl.load(x_ptr + c * $volume + $at, mask=inside, other=0.0)
        total = tl.dot(f, x, total, input_precision="$precision")
    tl.store(out_ptr + o * $out_volume + $out_at, total, mask=(o < O) & (ow < OW))
"""
# How a model begins: its layer, and the extents of its output.
MODEL_HEAD = """
class ModelNew(nn.Module):
    def __init__(self, $arguments):
        super().__init__()
        self.$layer

    def forward(self, x):
        conv, x = self.$name, x.contiguous()
        N, C, *extents = x.shape
        window = (*conv.kernel_size, *conv.stride, *conv.padding, *conv.dilation)
        sides = zip($sides)
        outs = [$length in sides]
"""
MODEL = (
    MODEL_HEAD
    + """        O = conv.out_channels
        out = torch.empty(N, O, *outs, dtype=x.dtype, device=x.device)
        f = $filters
        grid = (out.numel() // (O * outs[-1]), triton.cdiv(outs[-1], $bp), triton.cdiv(O, $bo))
        conv_kernel[grid](
            x, f, out, C, O, *extents, *outs, *window, BO=$bo, BP=$bp, BK=$bk, num_warps=$warps, num_stages=3
        )
        return out
"""
)
SEPARABLE = """
@triton.jit
def separable_kernel(x_ptr, f_ptr, p_ptr, out_ptr, C, O, $extents, $outs, $window,
                     BO: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):
    $rows
    ow = tl.program_id(1) * BP + tl.arange(0, BP)
    c = tl.arange(0, BC)
    x_ptr += n.to(tl.int64) * C * $volume
    out_ptr += n.to(tl.int64) * O * $out_volume
    middle = tl.zeros([BC, BP], tl.float32)
    for tap in range$taps:
        $decode
        $inputs
        inside = (c < C)[:, None] & $inside[None, :]
        x = tl.load(x_ptr + c[:, None] * $volume + $at[None, :], mask=inside, other=0.0)
        f = tl.load(f_ptr + c * $taps + tap, mask=c < C, other=0.0)
        middle += f[:, None] * x
    for start in range(0, O, BO):
        o = start + tl.arange(0, BO)
        known = (o < O)[:, None] & (c < C)[None, :]
        p = tl.load(p_ptr + o[:, None] * C + c[None, :], mask=known, other=0.0)
        total = tl.dot(p, middle, input_precision="$precision")
        inside = (o < O)[:, None] & (ow < OW)[None, :]
        tl.store(out_ptr + o[:, None] * $out_volume + $out_at[None, :], total, mask=inside)
"""
SEPARABLE_MODEL = (
    MODEL_HEAD
    + """        O = self.pointwise.out_channels
        out = torch.empty(N, O, *outs, dtype=x.dtype, device=x.device)
        separable_kernel[(N * outs[0], triton.cdiv(outs[1], $bp))](
            x, conv.weight, self.pointwise.weight, out, C, O, *extents, *outs, *window,
            BO=$bo, BP=$bp, BC=triton.next_power_of_2(C), num_warps=$warps,
        )
        return out
"""
)
SEPARABLE_LAYER = """depthwise = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride, padding, dilation, groups=in_channels, bias=False
        )
        self.pointwise = nn.Conv2d(in_channels, out_channels, 1, bias=False)"""
TEXT = """1. The convolution is a product of the filters, as a matrix of output channels by channels and window
positions, with input values that are gathered on the way: tensor cores do the arithmetic, without an unfolded copy.

    2. A program owns $bo output channels of $bp neighbouring outputs of one row: for each position of the window it
    reads whole pieces of input rows, which coalesce and stay in L1 for the next position.

    3. $order

    4. $note Edges are masked, so any extent, padding, stride and dilation is handled."""
_POSITION = """The filters are transposed once to positions by output channels by channels, which makes their tiles
contiguous; a step is one position and $bk channels, and the next step's tiles are copied while this one multiplies."""
_PAIR = """With three input channels a product over channels alone would leave tensor cores idle, so its inner dimension
runs over all pairs of a channel and a position, $bk at a time, in the order in which the filters lie in memory."""
SEPARABLE_TEXT = """1. Both layers are one kernel: a program computes the depthwise sums of all channels for $bp outputs
of a row in registers and multiplies them by the pointwise filters at once.

    2. The array between the layers, as large as the input, is neither written nor read again.

    3. The depthwise sums are elementwise over rows that coalesce and come from L1 for eight of nine positions; the
    pointwise product runs on tensor cores, $bo output channels at a time.

    4. $note Edges and padding are masked."""
TECHNIQUES = ("shared-memory tiling", "async copy", "thread-block configuration")
# PyTorch lets a convolution of float32 use TF32; three products of TF32 are as exact as float32.
NOTES = {
    "tf32": "Operands are TF32 and sums fp32, as PyTorch's own convolutions do by default.",
    "tf32x3": "Each product is three of TF32, which together are as exact as fp32.",
}


def members(
    texts: tuple[str, str], filters: str, bk: int, *tiles: tuple[str, int, int, int, str], order: str = ""
) -> tuple[Member, ...]:
    """Return a member for each tile, given as its name, output channels, positions, warps and precision.

    Args:
        texts: the kernel and the design.
        filters: as the kernel reads them.
        bk: products that a step adds up.
    """
    kernel, design = texts
    return tuple(
        Member(
            name,
            kernel,
            MODEL,
            design,
            TECHNIQUES,
            constants={"bo": bo, "bp": bp, "bk": bk, "warps": warps, "precision": precision, "order": order}
            | {"filters": filters, "note": NOTES[precision]},
        )
        for name, bo, bp, warps, precision in tiles
    )


def _by_position(bk: int, least: int) -> tuple[Member, ...]:
    tiles = ("tile64", least, 64, 4, "tf32"), ("tile128", 128, 128, 8, "tf32"), ("exact", 64, 128, 4, "tf32x3")
    filters = "conv.weight.flatten(2).permute(2, 0, 1).contiguous()"
    return members((BY_POSITION, TEXT), filters, bk, *tiles, order=_POSITION)


def _separable(name: str, bp: int, warps: int, precision: str) -> Member:
    constants = {"bo": 64, "bp": bp, "warps": warps, "precision": precision, "note": NOTES[precision]}
    techniques = ("kernel fusion", "shared-memory tiling", "thread-block configuration")
    return Member(name, SEPARABLE, SEPARABLE_MODEL, SEPARABLE_TEXT, techniques, constants=constants)


_FEW = members(
    (BY_PAIR, TEXT),
    "conv.weight",
    32,
    ("pairs64", 64, 64, 4, "tf32"),
    ("pairs128", 64, 128, 8, "tf32"),
    ("exact", 64, 64, 4, "tf32x3"),
    order=_PAIR,
)
_MANY = _by_position(bk=32, least=64)
_VOLUME = axes("dhw") | {
    "name": "conv3d",
    "arguments": "in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1",
    "layer": "conv3d = nn.Conv3d(in_channels, out_channels, kernel_size, stride, padding, dilation, bias=False)",
}
_LINE = axes("w") | {
    "name": "conv1d",
    "arguments": "in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1",
    "layer": "conv1d = nn.Conv1d(in_channels, out_channels, kernel_size, stride, padding, dilation, bias=False)",
}
PROBLEMS = [
    Problem(
        54,
        """A 3D convolution of three channels to 64 with a 3x3x3 window: 81 products for an output, and an output 21
        times as large as the input. Writing it decides, if the arithmetic runs on tensor cores. Libraries lay such
        shapes out for many input channels and pad three of them to a multiple.""",
        _FEW,
        _VOLUME,
    ),
    Problem(
        60,
        """A 3D convolution with a 3x5x7 window of three channels to 64: 315 products for an output. Outputs are far
        larger than the input, which fits into L2, so reading is cheap and re-reading the window's rows as well. Three
        channels are too few for kernels that put channels innermost.""",
        _FEW,
        _VOLUME,
    ),
    Problem(
        66,
        """A 3D convolution with a 3x5x7 window of three channels to 64, on shallow volumes with rows of 128. 315
        products for each output and a thin input: the shape of a first layer, which leaves most of a library's tile
        along channels empty.""",
        _FEW,
        _VOLUME,
    ),
    Problem(
        67,
        """A 1D convolution of 64 channels to 128 with a window of three along very long rows: 192 products for an
        output, or 96 FLOPs for a byte that is written. Between memory and tensor cores neither is far from its limit;
        each input row is used three times and by all output channels.""",
        _MANY,
        _LINE,
    ),
    Problem(
        76,
        """A 1D convolution of 64 channels to 128 with stride 3 and dilation 4 along half a million positions: each
        output takes three inputs of every channel, four apart, and the next output's lie three further. Reads of a
        position are strided by three, but the three positions of the window together use every line.""",
        _MANY,
        _LINE
        | {"arguments": "in_channels, out_channels, kernel_size, stride=1, dilation=1"}
        | {"layer": "conv1d = nn.Conv1d(in_channels, out_channels, kernel_size, stride, 0, dilation, bias=False)"},
    ),
    Problem(
        87,
        """A 1x1 convolution of 64 channels to 128 is a product of a 128 x 64 matrix with the image of each sample:
        16,384 FLOPs and 768 bytes of traffic at each position. It is bound by reading the input and writing twice as
        much; a kernel has to read every value once and multiply on tensor cores meanwhile.""",
        _by_position(bk=64, least=128),
        axes("hw")
        | {
            "name": "conv1d",
            "arguments": "in_channels, out_channels",
            "layer": "conv1d = nn.Conv2d(in_channels, out_channels, 1, bias=False)",
        },
    ),
    Problem(
        86,
        """A depthwise 3x3 convolution of 64 channels and a pointwise one to 128. The reference writes the result of the
        first and reads it again for the second, 128 MiB each way in these sizes, though a pointwise layer needs at a
        position only that position's 64 values. The arithmetic is small; traffic decides.""",
        (
            _separable("fused64", 64, 4, "tf32"),
            _separable("fused128", 128, 8, "tf32"),
            _separable("exact", 64, 4, "tf32x3"),
        ),
        axes("hw")
        | {
            "name": "depthwise",
            "arguments": "in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1",
            "layer": SEPARABLE_LAYER,
        },
    ),
]


def drafts() -> Iterator[Draft]:
    """Yield the candidates of convolutions."""
    for problem in PROBLEMS:
        yield from drafts_of(problem)
