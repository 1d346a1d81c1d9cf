"""Max and average pooling in one, two and three dimensions: 41 to 46."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus.level1.member import Member, Problem, drafts_of
from benchmarks.corpus.record import Draft

KERNEL = """
@triton.jit
def pool_kernel(x_ptr, out_ptr, depth, height, width, out_depth, out_height, out_width, size, stride, padding, dilation,
                KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, BLOCK: tl.constexpr):
    plane = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    w = (at % out_width) * stride - padding
    h = (at // out_width) % out_height * stride - padding
    d = at // (out_width * out_height) * stride - padding
    h = h if KH > 1 else at // out_width % out_height
    d = d if KD > 1 else at // (out_width * out_height)
    base = x_ptr + plane * depth * height * width
    best = tl.full([BLOCK], $identity, tl.float32)
    for kd in $range(KD):
        z = d + kd * dilation
        for kh in $range(KH):
            y = h + kh * dilation
            fits = inside & (z >= 0) & (z < depth) & (y >= 0) & (y < height)
            for kw in $range(KW):
                x = w + kw * dilation
                keep = fits & (x >= 0) & (x < width)
                value = tl.load(base + (z * height + y) * width + x, mask=keep, other=$identity)
                best = $merge
    tl.store(out_ptr + plane * size + at, best$scale, mask=inside)
"""
MODEL = """
class ModelNew(nn.Module):
    def __init__(self, $arguments):
        super().__init__()
        $layer

    def forward(self, x):
        x, pool = x.contiguous(), $pool
        dims = $dims
        kernel, stride, padding, dilation = (
            value[0] if isinstance(value, tuple) else value
            for value in (pool.kernel_size, pool.stride, pool.padding, $dilation)
        )
        extents = [1] * (3 - dims) + list(x.shape[-dims:])
        outs = [
            extent if axis < 3 - dims else (extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for axis, extent in enumerate(extents)
        ]
        kernels = [1] * (3 - dims) + [kernel] * dims
        size = outs[0] * outs[1] * outs[2]
        planes = x.shape[:-dims].numel()
        out = torch.empty(*x.shape[:-dims], *outs[3 - dims :], dtype=x.dtype, device=x.device)
        pool_kernel[(triton.cdiv(size, $block), planes)](
            x, out, *extents, *outs, size, stride, padding, dilation, *kernels, BLOCK=$block, num_warps=$warps
        )
        return out
"""
TEXT = """1. One lane per output, $block outputs of one channel plane per program; consecutive lanes own consecutive
outputs
    along the innermost axis, so each step of the window is a (nearly) coalesced read.

    2. Walk the window in $loop loops over its offsets, $note

    3. Neighbouring windows overlap or share cache lines, so repeated reads are served by L1 and L2; DRAM sees each
    input about once, and each output is stored once.

    4. $unrolled With $warps warps a lane holds $each outputs."""
TECHNIQUES = ("memory coalescing", "register/shared-memory use", "thread-block configuration")


def _members() -> tuple[Member, ...]:
    shapes = (
        ("unrolled256", "tl.static_range", 256, 4),
        ("unrolled1024", "tl.static_range", 1024, 4),
        ("unrolled512", "tl.static_range", 512, 4),
        ("loop256", "range", 256, 4),
        ("loop1024", "range", 1024, 8),
    )
    return tuple(
        Member(
            name,
            KERNEL,
            MODEL,
            TEXT,
            TECHNIQUES,
            constants={
                "range": loop,
                "block": block,
                "warps": warps,
                "each": block // (32 * warps),
                "loop": "unrolled" if "static" in loop else "run-time",
                "unrolled": "Unrolling at compile time lets all loads of a window be issued before the first is used."
                if "static" in loop
                else "Leaving the loops rolled keeps code and registers small at the cost of fewer loads in flight.",
            },
        )
        for name, loop, block, warps in shapes
    )


_MAX = {
    "identity": 'float("-inf")',
    "merge": "tl.where((value > best) | (value != value), value, best)",
    "scale": "",
    "pool": "self.maxpool",
    "dilation": "pool.dilation",
    "note": "replacing the running maximum by a larger value or NaN. Positions in the padding count as minus infinity.",
}
_MEAN = {
    "identity": "0.0",
    "merge": "best + value",
    "scale": " / (KD * KH * KW)",
    "dilation": "1",
    "pool": "self.avg_pool",
    "note": "adding in fp32 and dividing by the full window once; the padding contributes zeros, as PyTorch counts it.",
}
PROBLEMS = [
    Problem(
        41,
        """Max pooling over a window of 8 with stride 1 and dilation 3 reads eight values that lie three apart for every
        output. Input and output have nearly the same size, so DRAM needs 8 bytes per output, and the eightfold
        re-use has
        to come from caches. The library treats 1D pooling as 2D pooling and computes indices as well, which the model
        discards: an output of 64-bit indices that is written for nothing triples the stores.""",
        _members(),
        {
            **_MAX,
            "dims": 1,
            "arguments": "kernel_size, stride=None, padding=0, dilation=1, return_indices=False",
            "layer": "self.maxpool = nn.MaxPool1d(kernel_size, stride, padding, dilation, return_indices)",
        },
    ),
    Problem(
        42,
        """A 4x4 window with stride 1 makes neighbouring outputs share twelve of their sixteen inputs. The floor is
        one read
        and one write of the feature map; everything else should hit in L1. PyTorch's max pooling kernel writes the
        index of each maximum next to its value although only the values are used, and its generic loops over the window
        keep index arithmetic on the critical path. A kernel with the window's extent known at compile time does
        less.""",
        _members(),
        {
            **_MAX,
            "dims": 2,
            "arguments": "kernel_size, stride, padding, dilation",
            "layer": "self.maxpool = nn.MaxPool2d(kernel_size, stride, padding, dilation)",
        },
    ),
    Problem(
        43,
        """3D max pooling with a 3x3x3 window, stride 2 and dilation 3 reads 27 scattered values per output while
        producing
        one output for eight inputs. The library's kernel also computes and stores a 64-bit index per output that the
        model never returns, and recomputes three-dimensional addresses for every tap. Input traffic from DRAM is the
        floor; dilation 3 means that taps of one window fall into different cache lines, so L1 and L2 hits decide.""",
        _members(),
        {
            **_MAX,
            "dims": 3,
            "arguments": "kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False",
            "layer": "self.maxpool = nn.MaxPool3d(\n"
            "            kernel_size, stride, padding, dilation, return_indices, ceil_mode\n        )",
        },
    ),
    Problem(
        44,
        """Averaging 8 neighbours with stride 1 is a moving mean: input and output have the same length, and each
        input is
        used by eight outputs. With perfect re-use the kernel moves 8 bytes per output through DRAM. The library's 1D
        average pooling goes through a generic 2D kernel that recomputes window bounds and the divisor per output.
        With a
        fixed window the sum is eight coalesced loads, seven of which are already in L1.""",
        _members(),
        {
            **_MEAN,
            "dims": 1,
            "arguments": "kernel_size, stride=1, padding=0",
            "layer": "self.avg_pool = nn.AvgPool1d(kernel_size, stride, padding)",
        },
    ),
    Problem(
        45,
        """Average pooling with an 11x11 window and equal stride uses each input exactly once: 121 additions per
        output, an
        output that is a hundredth of the input, and no overlap between windows. It is a stream over the input, bound
        by DRAM. The difficulty is coalescing: a lane that owns an output reads with a stride of 11 floats from its
        neighbours, so a warp's step touches eleven cache lines, each of which is used by the ten following steps.""",
        _members(),
        {
            **_MEAN,
            "dims": 2,
            "arguments": "kernel_size, stride=None, padding=0",
            "layer": "self.avg_pool = nn.AvgPool2d(kernel_size, stride, padding)",
        },
    ),
    Problem(
        46,
        """3D average pooling with a 3x3x3 window, stride 2 and padding 1: one output per eight inputs, 27 additions
        each,
        with windows that overlap by one plane in every direction. The library's 3D pooling assigns threads to outputs
        and works out window bounds and divisor in run-time loops. DRAM has to deliver the input once; the 3.4-fold
        re-use belongs into caches. A fixed window lets the 27 loads be issued together instead of one by one.""",
        _members(),
        {
            **_MEAN,
            "dims": 3,
            "arguments": "kernel_size, stride=None, padding=0",
            "layer": "self.avg_pool = nn.AvgPool3d(kernel_size, stride, padding)",
        },
    ),
]


def drafts() -> Iterator[Draft]:
    """Yield the candidates of pooling."""
    for problem in PROBLEMS:
        members = problem.members[:3] if problem.problem in (45,) else problem.members
        yield from drafts_of(Problem(problem.problem, problem.analysis, members, problem.constants))
