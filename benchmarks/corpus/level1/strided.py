"""Reductions over a middle dimension: 47, 48, 49, 51, 52, 53, and the norm over channels, 36."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus.level1.member import Member, Problem, drafts_of
from benchmarks.corpus.record import Draft

COLUMN = """
@triton.jit
def reduce_kernel(x_ptr, out_ptr, length, inner, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    batch = tl.program_id(1).to(tl.int64)
    lanes = tl.arange(0, ROWS)
    best = tl.full([ROWS, COLUMNS], $identity, tl.float32)
    for start in range(0, length, ROWS):
        rows = start + lanes
        at = (batch * length + rows[:, None]) * inner + columns[None, :]
        inside = (rows[:, None] < length) & (columns[None, :] < inner)
        x = tl.load(x_ptr + at, mask=inside, other=$identity)
        best = $merge
    result = $reduce
    tl.store(out_ptr + batch * inner + columns, result$scale, mask=columns < inner)
"""
COLUMN_LAUNCH = """out = torch.empty(outer * inner, dtype=x.dtype, device=x.device)
        reduce_kernel[(triton.cdiv(inner, $columns), outer)](
            x, out, length, inner, ROWS=$rows, COLUMNS=$columns, num_warps=$warps
        )"""
SPLIT = """
@triton.jit
def partial_kernel(x_ptr, part_ptr, length, inner, CHUNK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    chunk, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    lanes = tl.arange(0, ROWS)
    best = tl.full([ROWS, COLUMNS], $identity, tl.float32)
    for start in range(0, CHUNK, ROWS):
        rows = chunk * CHUNK + start + lanes
        at = (batch * length + rows[:, None]) * inner + columns[None, :]
        inside = (rows[:, None] < length) & (columns[None, :] < inner)
        x = tl.load(x_ptr + at, mask=inside, other=$identity)
        best = $merge
    result = $reduce
    tl.store(part_ptr + (batch * tl.num_programs(1) + chunk) * inner + columns, result, mask=columns < inner)


@triton.jit
def finish_kernel(part_ptr, out_ptr, chunks, inner, length, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    batch = tl.program_id(1).to(tl.int64)
    result = tl.full([COLUMNS], $identity, tl.float32)
    for chunk in range(0, chunks):
        x = tl.load(part_ptr + (batch * chunks + chunk) * inner + columns, mask=columns < inner, other=$identity)
        result = $mergelast
    tl.store(out_ptr + batch * inner + columns, result$scale, mask=columns < inner)
"""
SPLIT_LAUNCH = """chunks = triton.cdiv(length, $chunk)
        part = torch.empty(outer * chunks * inner, dtype=x.dtype, device=x.device)
        out = torch.empty(outer * inner, dtype=x.dtype, device=x.device)
        partial_kernel[(triton.cdiv(inner, $columns), chunks, outer)](
            x, part, length, inner, CHUNK=$chunk, ROWS=$rows, COLUMNS=$columns, num_warps=$warps
        )
        finish_kernel[(triton.cdiv(inner, 256), outer)](part, out, chunks, inner, length, COLUMNS=256)"""
MODEL = """
class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        dim = self.dim % x.dim()
        outer, length = x.shape[:dim].numel(), x.shape[dim]
        inner = x.shape[dim + 1 :].numel()
        $launch
        shape = list(x.shape)
        $shape
        return out.view(shape)
"""
ARG = """
@triton.jit
def better(a, i, b, j):
    first = (a $order b) | ((a == b) & (i < j)) | ((a != a) & ((b == b) | (i < j)))
    first = first & ((b == b) | (a != a))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def arg_kernel(x_ptr, out_ptr, length, inner, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    batch = tl.program_id(1).to(tl.int64)
    lanes = tl.arange(0, ROWS)
    best = tl.full([ROWS, COLUMNS], $identity, tl.float32)
    index = tl.zeros([ROWS, COLUMNS], tl.int32) + length
    for start in range(0, length, ROWS):
        rows = start + lanes
        at = (batch * length + rows[:, None]) * inner + columns[None, :]
        inside = (rows[:, None] < length) & (columns[None, :] < inner)
        x = tl.load(x_ptr + at, mask=inside, other=$identity)
        open_ = (index == length) | (best == best)
        take = inside & open_ & ((x $order best) | (index == length) | (x != x))
        best = tl.where(take, x, best)
        index = tl.where(take, rows[:, None], index)
    value, found = tl.reduce((best, index), 0, better)
    tl.store(out_ptr + batch * inner + columns, found.to(tl.int64), mask=columns < inner)
"""
ARG_LAUNCH = """out = torch.empty(outer * inner, dtype=torch.int64, device=x.device)
        arg_kernel[(triton.cdiv(inner, $columns), outer)](
            x, out, length, inner, ROWS=$rows, COLUMNS=$columns, num_warps=$warps
        )"""
STRIDED = ("memory coalescing", "register/shared-memory use", "thread-block configuration")
TILE = """1. Reduce along a dimension that is not the innermost one: neighbouring columns are neighbours in memory, so a
    program takes $columns adjacent columns and $rows rows at a time, and every row of its tile is a coalesced read.

    2. Keep a $rows x $columns tile of running $noun in registers; a new tile is merged element by element, so the loop
    has no communication between threads.

    3. Collapse the tile's rows once, after the loop, $finish.

    4. $columns columns with $warps warps give $remark"""
SPLIT_TEXT = """1. Besides columns and batch, split the reduced dimension into chunks of $chunk rows, so that several
    programs share one column block and the grid has enough programs for all SMs.

    2. In a chunk, tiles of $rows x $columns are merged in registers; each row of a tile is read coalesced, and the rows
    are collapsed at the end of the chunk.

    3. A second, tiny kernel merges the chunks' partial results column by column, $finish.

    4. The partial results are a few percent of the input's size and stay in L2; there are no atomics, so the result is
    the same in every run."""


def _tiles(kernel: str, launch: str, prefix: str = "tile") -> tuple[Member, ...]:
    """Return three shapes of a column tile."""
    shapes = (
        (32, 32, 4, "128-byte rows and many programs, the balance between both."),
        (8, 128, 4, "512-byte rows, long bursts from DRAM, and fewer programs."),
        (4, 256, 4, "one-kibibyte rows: the longest bursts, and the fewest programs to spread over the device."),
    )
    return tuple(
        Member(
            f"{prefix}{columns}",
            kernel,
            MODEL,
            TILE,
            STRIDED,
            constants={"rows": rows, "columns": columns, "warps": warps, "remark": remark, "launch": launch},
        )
        for rows, columns, warps, remark in shapes
    )


def _split(chunk: int, rows: int, columns: int) -> Member:
    constants = {"chunk": chunk, "rows": rows, "columns": columns, "warps": 4, "launch": SPLIT_LAUNCH}
    return Member(f"split{chunk}", SPLIT, MODEL, SPLIT_TEXT, (*STRIDED, "split reduction"), constants=constants)


REDUCTIONS = (*_tiles(COLUMN, COLUMN_LAUNCH), _split(512, 8, 128), _split(128, 4, 256))
_SUM = {
    "identity": "0.0",
    "merge": "best + x",
    "mergelast": "result + x",
    "reduce": "tl.sum(best, 0)",
    "scale": "",
    "noun": "sums",
    "finish": "and store it",
    "shape": "shape[dim] = 1",
}
_MAX = {
    **_SUM,
    "identity": 'float("-inf")',
    "merge": "tl.maximum(best, x, propagate_nan=tl.PropagateNan.ALL)",
    "mergelast": "tl.maximum(result, x, propagate_nan=tl.PropagateNan.ALL)",
    "reduce": "tl.reduce(best, 0, larger)",
    "noun": "maxima",
    "shape": "del shape[dim]",
}
_LARGER = """
@triton.jit
def larger(a, b):
    return tl.$which(a, b, propagate_nan=tl.PropagateNan.ALL)


"""


def _extreme(members: tuple[Member, ...]) -> tuple[Member, ...]:
    return tuple(
        Member(m.name, _LARGER.lstrip() + m.kernels.lstrip(), m.model, m.design, m.techniques, constants=m.constants)
        for m in members
    )


PROBLEMS = [
    Problem(
        47,
        """The sum runs over the middle dimension of a (batch, 4096, 4095) tensor, so consecutive summands lie 4095
        floats
        apart. It is one read of the whole tensor with hardly any output, a pure DRAM stream of 4 bytes per addition.
        Efficiency depends on mapping threads to the contiguous last dimension, and on having enough programs: with a
        few batches, columns alone give a small grid. Rows of 4095 floats are also not 16-byte aligned, which rules out
        wide vector loads and makes coalesced scalar loads the thing to aim at.""",
        REDUCTIONS,
        _SUM,
    ),
    Problem(
        48,
        """The mean over the middle dimension is a sum followed by a division. It reads (batch, 4096, 4095) floats
        once and
        writes one value per column, so it is bound by how fast DRAM can be streamed. The reduced dimension has a
        stride of 4095 elements; reading along it with one thread per output is coalesced only if neighbouring threads
        own neighbouring columns. With only a few batches, the number of columns limits the parallelism.""",
        REDUCTIONS,
        {
            **_SUM,
            "scale": " / length",
            "finish": "divide it by the length, and store it",
            "shape": "del shape[dim]",
        },
    ),
    Problem(
        49,
        """A maximum over the middle dimension compares 4096 values per output that lie 4095 floats apart. eager
        PyTorch calls
        torch.max with a dimension, which also tracks and writes the index of every maximum, although the model only
        returns the values: the comparison carries a 64-bit index along. The traffic that matters is one read of the
        input; a kernel that keeps values only has half the registers and no second output.""",
        _extreme(REDUCTIONS),
        {**_MAX, "which": "maximum"},
    ),
    Problem(
        53,
        """torch.min over a dimension returns values and indices, and the model throws the indices away. The reference
        nevertheless pays for pairs: wider state per thread, slower comparisons, and a second output. What has to be
        done is a single stream over the (batch, 4096, 4095) input with one comparison per element, bound by DRAM.
        Columns are contiguous, so threads should own columns and walk down the rows.""",
        _extreme(REDUCTIONS),
        {
            **_MAX,
            "identity": 'float("inf")',
            "merge": "tl.minimum(best, x, propagate_nan=tl.PropagateNan.ALL)",
            "mergelast": "tl.minimum(result, x, propagate_nan=tl.PropagateNan.ALL)",
            "noun": "minima",
            "which": "minimum",
        },
    ),
    Problem(
        51,
        """Argmax over the middle dimension of (batch, 4096, 4095): each output is the row index of a column's
        largest value.
        PyTorch reduces (value, index) pairs with 64-bit indices, through a generic reduction template that is tuned for
        sums. The input is read once; with 4 bytes and one comparison per element the bound ought to be DRAM, but pairs
        with wide indices cost registers and instructions. A 32-bit row index is enough until the very end.""",
        _tiles(ARG, ARG_LAUNCH),
        {
            "order": ">",
            "identity": 'float("-inf")',
            "noun": "maxima and their row numbers",
            "finish": "preferring the smaller row among equals, as PyTorch does, and widen the index to 64 bit",
            "shape": "del shape[dim]",
        },
    ),
    Problem(
        52,
        """Argmin over the middle dimension looks for the row with the smallest value in every column. The tensor is
        read
        once and the output is tiny, so DRAM bandwidth is the floor; the reference's generic reduction carries (value,
        64-bit index) pairs and merges them with several instructions per element. Columns are contiguous in memory,
        which
        makes a tile of adjacent columns the natural unit: coalesced loads, and no exchange between threads until the
        end.""",
        _tiles(ARG, ARG_LAUNCH),
        {
            "order": "<",
            "identity": 'float("inf")',
            "noun": "minima and their row numbers",
            "finish": "preferring the smaller row among equals, as PyTorch does, and widen the index to 64 bit",
            "shape": "del shape[dim]",
        },
    ),
]


def drafts() -> Iterator[Draft]:
    """Yield the candidates of reductions over a middle dimension."""
    for problem in PROBLEMS:
        yield from drafts_of(problem)
