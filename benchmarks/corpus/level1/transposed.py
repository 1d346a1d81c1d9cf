"""Transposed convolutions: 57, 58, 61, 65, 68 to 71, 78 with a stride of 1; 72, 73, 75, 77, 81 with longer ones."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus.level1.axes import axes
from benchmarks.corpus.level1.convolution import BY_POSITION, MODEL_HEAD, NOTES, TECHNIQUES, members
from benchmarks.corpus.level1.member import Member, Problem, drafts_of
from benchmarks.corpus.record import Draft

# A position of the window reaches the outputs of one phase only: those at which the division by the stride is exact.
_LOOPS = {
    "hw": """
    for kh in range(KH):
        top = oh + PH - kh * DH
        ih = top // SH
        if (top >= 0) & (top % SH == 0) & (ih < H):
            for kw in range(KW):
                left = phase + PW - kw * DW
                if left % SW == 0:
                    tap = kh * KW + kw
                    iw = left // SW + j
                    inside = (c < C)[:, None] & ((iw >= 0) & (iw < W))[None, :]
                    x = tl.load(x_ptr + c[:, None] * (H * W) + (ih * W + iw)[None, :], mask=inside, other=0.0)
                    at = (tap * groups * C + c[None, :]) * O + o[:, None]
                    f = tl.load(f_ptr + at, mask=known, other=0.0)
                    total = tl.dot(f, x, total, input_precision="$precision")""",
    "dhw": """
    for kd in range(KD):
        front = od + PD - kd * DD
        id = front // SD
        if (front >= 0) & (front % SD == 0) & (id < D):
            for kh in range(KH):
                top = oh + PH - kh * DH
                ih = top // SH
                if (top >= 0) & (top % SH == 0) & (ih < H):
                    row = x_ptr + (id * H + ih) * W
                    for kw in range(KW):
                        left = phase + PW - kw * DW
                        if left % SW == 0:
                            tap = (kd * KH + kh) * KW + kw
                            iw = left // SW + j
                            inside = (c < C)[:, None] & ((iw >= 0) & (iw < W))[None, :]
                            x = tl.load(row + c[:, None] * (D * H * W) + iw[None, :], mask=inside, other=0.0)
                            at = (tap * groups * C + c[None, :]) * O + o[:, None]
                            f = tl.load(f_ptr + at, mask=known, other=0.0)
                            total = tl.dot(f, x, total, input_precision="$precision")""",
}
STRIDED = """
@triton.jit
def conv_kernel(x_ptr, f_ptr, out_ptr, C, O, groups, $extents, $outs, $window,
                BO: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr):
    $rows
    phase = tl.program_id(1) % SW
    j = tl.program_id(1) // SW * BP + tl.arange(0, BP)
    ow = j * SW + phase
    o = tl.arange(0, BO)
    c = tl.arange(0, BK)
    group = tl.program_id(2)
    x_ptr += (n * groups + group).to(tl.int64) * C * $volume
    out_ptr += (n * groups + group).to(tl.int64) * O * $out_volume
    f_ptr += group * C * O
    known = (o < O)[:, None] & (c < C)[None, :]
    total = tl.zeros([BO, BP], tl.float32)$loops
    inside = (o < O)[:, None] & (ow < OW)[None, :]
    tl.store(out_ptr + o[:, None] * $out_volume + $out_at[None, :], total, mask=inside)
"""
STRIDED_MODEL = (
    MODEL_HEAD
    + """        O, groups, stride = conv.out_channels // conv.groups, conv.groups, conv.stride[-1]
        out = torch.empty(N, groups * O, *outs, dtype=x.dtype, device=x.device)
        f = conv.weight.flatten(2).permute(2, 0, 1).contiguous()
        columns = stride * triton.cdiv(triton.cdiv(outs[-1], stride), $bp)
        bo, bk = (max(16, triton.next_power_of_2(channels)) for channels in (O, C // groups))
        conv_kernel[(out.numel() // (groups * O * outs[-1]), columns, groups)](
            x, f, out, C // groups, O, groups, *extents, *outs, *window, BO=bo, BP=$bp, BK=bk, num_warps=$warps
        )
        return out
"""
)
TEXT = """1. Each output gathers the inputs that reach it, so nothing is scattered or added atomically: with a stride of
1 a transposed convolution is a convolution with the window mirrored.

    2. It is computed as a product of the filters, as a matrix of output channels by channels and window positions, with
    input values gathered on the way: tensor cores do the arithmetic, and no unfolded copy is written.

    3. A program owns $bo output channels of $bp neighbouring outputs of a row; a step is one position of the window and
    $bk channels, whose input rows coalesce. The next step's tiles are copied while this one multiplies.

    4. $note The filters are transposed once, which makes their tiles contiguous, and edges are masked."""
STRIDED_TEXT = """1. Each output gathers the inputs that reach it, without atomics. With a stride of $s a position of
the window reaches only outputs of one phase, so a program takes outputs of one phase of a row and skips the others'
positions: they would be products with zeros.

    2. Phases that no position reaches are stored as zeros at once.

    3. What is left is a product of the filters with rows of the input, $bp neighbouring ones a program, on tensor
    cores; all output channels of a group are computed together, so an input row is read once for each position.

    4. $note The filters are transposed once, which makes their tiles contiguous, and edges are masked."""


def _members(bk: int, *tiles: tuple[str, int, int, int, str]) -> tuple[Member, ...]:
    return members((BY_POSITION, TEXT), "conv.weight.flatten(2).permute(2, 1, 0).contiguous()", bk, *tiles)


def _strided(*tiles: tuple[str, int, int, str]) -> tuple[Member, ...]:
    return tuple(
        Member(
            name,
            STRIDED,
            STRIDED_MODEL,
            STRIDED_TEXT,
            ("work skipping", *TECHNIQUES[::2]),
            constants={"bp": bp, "warps": warps, "precision": precision, "note": NOTES[precision]},
        )
        for name, bp, warps, precision in tiles
    )


_WIDE = (("tile64", 64, 64, 4, "tf32"), ("tile128", 64, 128, 4, "tf32"), ("exact", 64, 64, 4, "tf32x3"))
_NARROW = (("tile32", 32, 128, 4, "tf32"), ("tile16", 16, 128, 4, "tf32"), ("exact", 32, 128, 4, "tf32x3"))
_PHASES = _strided(("phases64", 64, 4, "tf32"), ("phases32", 32, 4, "tf32"), ("exact", 64, 4, "tf32x3"))


def _axes(names: str, model_arguments: str, layer_arguments: str, **constants: object) -> dict[str, object]:
    """Return the constants of a problem.

    Args:
        layer_arguments: beyond channels and window.
        constants: none with a stride of 1.
    """
    name = f"conv_transpose{len(names)}d"
    layer = (
        f"{name} = nn.ConvTranspose{len(names)}d(in_channels, out_channels, kernel_size, {layer_arguments}bias=False)"
    )
    texts = axes(names, transposed=True) | {"name": name, "arguments": model_arguments, "layer": layer}
    return texts | {"loops": _LOOPS[names], **constants} if constants else texts


_ALL = "in_channels, out_channels, kernel_size, stride=1, padding=0"
_PLAIN_PLANE, _PLAIN_VOLUME = (_axes(names, _ALL, "stride, padding, ") for names in ("hw", "dhw"))
PROBLEMS = [
    Problem(
        57,
        """A transposed 2D convolution of 64 channels to 64 with a 3x3 window and a stride of 1: 576 products for an
        output, 144 FLOPs for each byte of traffic. It is a plain convolution with mirrored filters; the library runs it
        as the gradient of one, in a layout with channels innermost, into which it converts the arrays.""",
        _members(32, *_WIDE),
        _PLAIN_PLANE,
    ),
    Problem(
        58,
        """A transposed 3D convolution of 32 channels to 16 with a 3x5x7 window: 3360 products for an output. Arithmetic
        decides by far, and 16 output channels are few for a library's tiles; the positions have to fill them. Inputs
        are re-read from L1 and L2.""",
        _members(32, *_NARROW),
        _PLAIN_VOLUME,
    ),
    Problem(
        61,
        """A transposed 3D convolution of 48 channels to 48 with a 3x3x3 window and a stride of 1: 1296 products for an
        output, so arithmetic decides. 48 is no power of two: a tile of 64 output channels leaves a quarter idle.""",
        _members(16, *_WIDE, ("tile16", 16, 128, 4, "tf32")),
        _PLAIN_VOLUME,
    ),
    Problem(
        65,
        """A transposed 2D convolution of 64 channels to 64 with a 3x7 window and a stride of 1: 1344 products for an
        output. Seven neighbouring positions read nearly the same piece of a row, which L1 holds. The library runs it as
        the gradient of a convolution.""",
        _members(32, *_WIDE),
        _PLAIN_PLANE,
    ),
    Problem(
        68,
        """A transposed 3D convolution of 32 channels to 64 with a 3x5x5 window and a stride of 1: 2400 products for an
        output on cubes of 64. Arithmetic decides; the inputs of a few rows fit into L2 and are read by many
        programs.""",
        _members(32, *_WIDE),
        _PLAIN_VOLUME,
    ),
    Problem(
        69,
        """A transposed 2D convolution of 64 channels to 128 with a 3x5 window and a stride of 1: 960 products for an
        output, and twice as many output values as input values. Arithmetic decides if stores coalesce. The library runs
        it as the gradient of a convolution.""",
        _members(32, ("tile64", 64, 64, 4, "tf32"), ("tile128", 128, 128, 8, "tf32"), ("exact", 64, 64, 4, "tf32x3")),
        _PLAIN_PLANE,
    ),
    Problem(
        70,
        """A transposed 3D convolution of 48 channels to 24 with a 3x3x3 window and a stride of 1: 1296 products for an
        output. 24 output channels fill a tile of 32 to three quarters. Inputs are re-read by 27 positions and come from
        L1 and L2.""",
        _members(16, *_NARROW),
        _PLAIN_VOLUME,
    ),
    Problem(
        71,
        """A transposed 2D convolution of 32 channels to 32 with a 3x3 window on wide images: 288 products for an
        output, 72 FLOPs for each byte of traffic. Reading and writing each value once takes as long as the arithmetic
        of tensor cores, so conversions between layouts would dominate.""",
        _members(32, *_NARROW),
        _PLAIN_PLANE,
    ),
    Problem(
        78,
        """A transposed 2D convolution of 32 channels to 32 with a 3x7 window and padding that keeps the extents: 672
        products for an output on wide images. Seven neighbouring positions read nearly the same piece of a row. The
        library runs it as the gradient of a convolution.""",
        _members(32, *_NARROW),
        _PLAIN_PLANE,
    ),
    Problem(
        72,
        """A grouped transposed 3D convolution with a 3x5x7 window and a stride of 2: of 105 positions of the window
        only an eighth reaches any one output. Four groups of 8 channels are tiny products. A library that inserts zeros
        or scatters does eight times the work, or adds with atomics.""",
        _PHASES,
        _axes("dhw", f"{_ALL}, output_padding=0, groups=1", "stride, padding, output_padding, groups=groups, ", s=2),
    ),
    Problem(
        73,
        """A transposed 3D convolution of 32 channels to 32 with a 3x3x3 window and a stride of 2: an output is reached
        by one to eight of 27 positions, about an eighth on average. Outputs are eight times as many as inputs. A
        library that inserts zeros, or computes all 27 positions for each input and adds them up, moves and multiplies
        far more.""",
        _PHASES,
        _axes("dhw", f"{_ALL}, output_padding=0, groups=1", "stride, padding, groups=groups, ", s=2),
    ),
    Problem(
        75,
        """A grouped transposed 2D convolution with strides of 2 and 3 and a dilation of 2 along the height. Window rows
        lie two apart, as outputs of one phase do, so every other output row is reached by no input at all. What is left
        is small beside writing the output.""",
        _PHASES,
        _axes(
            "hw", f"{_ALL}, dilation=1, groups=1", "stride, padding, groups=groups, dilation=dilation, ", s="2 and 3"
        ),
    ),
    Problem(
        77,
        """A transposed 3D convolution with a stride of 2 and a dilation of 2: all positions of the window fall on the
        same phase, so seven of eight outputs are reached by no input and are zero. A library that treats it as a dense
        product does eight times the work.""",
        _PHASES,
        _axes("dhw", f"{_ALL}, dilation=1", "stride, padding, dilation=dilation, ", s=2),
    ),
    Problem(
        81,
        """A transposed 2D convolution with a stride of 5, a 3x3 window and a dilation of 2: nine of 25 phases are
        reached, each by one position of the window, and 64 % of the outputs are zero. Outputs are 25 times as many as
        inputs; writing them is all there is.""",
        _PHASES,
        _axes("hw", f"{_ALL}, dilation=1", "stride, padding, dilation=dilation, ", s=5),
    ),
]


def drafts() -> Iterator[Draft]:
    """Yield the candidates of transposed convolutions."""
    for problem in PROBLEMS:
        yield from drafts_of(problem)
