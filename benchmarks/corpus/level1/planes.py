"""Norms over contiguous planes and groups of them: 34, 35."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus.level1.member import Member, Problem, drafts_of
from benchmarks.corpus.record import Draft

STATS = """
@triton.jit
def merge(count_a, mean_a, square_a, count_b, mean_b, square_b):
    count = count_a + count_b
    weight = tl.where(count > 0, count_b / tl.maximum(count, 1.0), 0.0)
    delta = mean_b - mean_a
    return count, mean_a + delta * weight, square_a + square_b + delta * delta * count_a * weight


@triton.jit
def moments(x_ptr, first, last, BLOCK: tl.constexpr):
    count = tl.zeros([BLOCK], tl.float32)
    mean = tl.zeros([BLOCK], tl.float32)
    square = tl.zeros([BLOCK], tl.float32)
    for start in range(first, last, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < last
        x = tl.load(x_ptr + at, mask=inside, other=0.0)
        count += tl.where(inside, 1.0, 0.0)
        delta = tl.where(inside, x - mean, 0.0)
        mean += delta / tl.maximum(count, 1.0)
        square += delta * tl.where(inside, x - mean, 0.0)
    return tl.reduce((count, mean, square), 0, merge)
"""
NORM_ROW = (
    STATS
    + """

@triton.jit
def norm_kernel(x_ptr, out_ptr, $params length, spatial, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = row.to(tl.int64) * length
    count, mean, square = moments(x_ptr + base, 0, length, BLOCK)
    scale = 1.0 / tl.sqrt(square / length + eps)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < length)
        y = (x - mean) * scale
        $affine
        tl.store(out_ptr + base + at, y, mask=at < length)
"""
)
NORM_SPLIT = (
    STATS
    + """

@triton.jit
def partial_kernel(x_ptr, part_ptr, length, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    row, chunk, chunks = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first = chunk * CHUNK
    count, mean, square = moments(x_ptr + row.to(tl.int64) * length, first, min(first + CHUNK, length), BLOCK)
    to = part_ptr + (row * chunks + chunk) * 3
    tl.store(to, count)
    tl.store(to + 1, mean)
    tl.store(to + 2, square)


@triton.jit
def finish_kernel(x_ptr, out_ptr, part_ptr, $params length, spatial, eps, chunks, CHUNK: tl.constexpr,
                  BLOCK: tl.constexpr, CHUNKS: tl.constexpr):
    row, chunk = tl.program_id(0), tl.program_id(1)
    base = row.to(tl.int64) * length
    part = tl.arange(0, CHUNKS)
    come = part_ptr + (row * chunks + part) * 3
    counts = tl.load(come, mask=part < chunks, other=0.0)
    means = tl.load(come + 1, mask=part < chunks, other=0.0)
    squares = tl.load(come + 2, mask=part < chunks, other=0.0)
    count, mean, square = tl.reduce((counts, means, squares), 0, merge)
    scale = 1.0 / tl.sqrt(square / length + eps)
    for start in range(0, CHUNK, BLOCK):
        at = chunk * CHUNK + start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < length)
        y = (x - mean) * scale
        $affine
        tl.store(out_ptr + base + at, y, mask=at < length)
"""
)
NORM_MODEL = """
class ModelNew(nn.Module):
    def __init__(self, $arguments):
        super().__init__()
        $layer

    def forward(self, x):
        x = x.contiguous()
        batch, channels = x.shape[:2]
        spatial = x[0, 0].numel()
        rows = batch * $groups
        length = x.numel() // rows
        out = torch.empty_like(x)
        $launch
        return out
"""
ROW_LAUNCH = """norm_kernel[(rows,)](x, out, $given length, spatial, $eps, BLOCK=4096, num_warps=16)"""
SPLIT_LAUNCH = """chunks = triton.cdiv(length, $chunk)
        part = torch.empty(rows, chunks, 3, device=x.device)
        partial_kernel[(rows, chunks)](x, part, length, CHUNK=$chunk, BLOCK=$block, num_warps=$warps)
        finish_kernel[(rows, chunks)](
            x, out, part, $given length, spatial, $eps, chunks, CHUNK=$chunk, BLOCK=$block,
            CHUNKS=triton.next_power_of_2(chunks), num_warps=$warps,
        )"""
NORM = ("operation fusion", "memory coalescing", "register/shared-memory use")


def _norm_members(**texts: str) -> tuple[Member, ...]:
    row = Member(
        "row_program",
        NORM_ROW,
        NORM_MODEL,
        """1. One program per $unit walks over its contiguous elements in blocks of 4096 with 16 warps and updates
        count,
        mean and sum of squared deviations per lane by Welford's recurrence.

        2. The lanes' triples are merged by Chan's formula at the end; nothing is ever computed as E[x^2] - E[x]^2,
        so a large mean costs no digits.

        3. A second loop over the same elements normalises$tail and stores.

        4. Simple, without any partial results in memory; the grid has only as many programs as there are $units,
        which is what limits it.""",
        NORM,
        constants={"launch": ROW_LAUNCH, **texts},
    )
    split = [
        Member(
            name,
            NORM_SPLIT,
            NORM_MODEL,
            """1. Split every $unit into chunks of $chunk elements, one program each: the grid grows from a handful of
            $units to thousands of programs and fills all SMs.

            2. Each program reduces its chunk to (count, mean, squared deviations) by Welford's recurrence per lane,
            merged across lanes at the end, and stores three floats.

            3. A second kernel merges the chunks' triples of its $unit, which lie in L2, and normalises its own
            chunk$tail.

            4. The input is read twice and the output written once. No atomics are used, so the result does not depend
            on the order in which programs run.""",
            (*NORM, "split reduction", "thread-block configuration"),
            constants={"launch": SPLIT_LAUNCH, "chunk": chunk, "block": block, "warps": warps, **texts},
        )
        for name, chunk, block, warps in (("split16k", 16384, 2048, 8), ("split64k", 65536, 4096, 8))
    ]
    return (row, *split)


PROBLEMS = [
    Problem(
        34,
        """Instance normalisation computes mean and variance over the 512x512 positions of every image's every
        channel. In
        eager PyTorch it runs as a batch norm over a reshaped view: one kernel gathers statistics per channel, a second
        one normalises, and the running statistics' plumbing adds small launches. Each (image, channel) plane is one
        contiguous mebibyte, so coalescing is free; the time goes into reading the tensor for the statistics with one
        block per plane, then reading and writing it again. Traffic of 12 bytes per element is the floor.""",
        _norm_members(unit="plane", units="planes", tail=""),
        {
            "params": "",
            "affine": "",
            "arguments": "num_features",
            "layer": "self.inorm = nn.InstanceNorm2d(num_features)",
            "groups": "channels",
            "given": "",
            "eps": "self.inorm.eps",
        },
    ),
    Problem(
        35,
        """Group normalisation with 8 groups over few images leaves only a few dozen independent reductions, each
        over two
        million elements (8 channels of 512x512). PyTorch assigns one block to each group for the moments: most SMs
        idle while a few dozen blocks read the whole tensor, and that pass dominates. Afterwards scale and shift per
        channel are prepared by a tiny kernel and applied in an elementwise pass. The tensor's traffic, 12 bytes per
        element, is not the problem; the lack of parallelism in the first pass is.""",
        _norm_members(unit="group", units="groups", tail=", applies weight and bias of the element's channel"),
        {
            "params": "weight_ptr, bias_ptr, groups, channels,",
            "affine": "channel = (row % groups) * (channels // groups) + at // spatial\n"
            "        weight = tl.load(weight_ptr + channel, mask=at < length)\n"
            "        y = y * weight + tl.load(bias_ptr + channel, mask=at < length)",
            "arguments": "num_features, num_groups",
            "layer": "self.gn = nn.GroupNorm(num_groups, num_features)",
            "groups": "self.gn.num_groups",
            "given": "self.gn.weight, self.gn.bias, self.gn.num_groups, channels,",
            "eps": "self.gn.eps",
        },
    ),
]


def drafts() -> Iterator[Draft]:
    """Yield the candidates of norms over contiguous elements."""
    for problem in PROBLEMS:
        yield from drafts_of(problem)
