"""Matrix products in full single precision: an own kernel seldom beats cuBLAS, and these are honest attempts."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus.level1.member import Member, Problem, drafts_of
from benchmarks.corpus.record import Draft

KERNEL = """
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, a_batch, a_row, a_column, b_batch, b_row, b_column, c_batch, chunk,
                  BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    tile = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = tile // (GROUP * tiles_n) * GROUP
    height = min(tiles_m - first, GROUP)
    m = (first + tile % (GROUP * tiles_n) % height) * BM + tl.arange(0, BM)
    n = (tile % (GROUP * tiles_n) // height) * BN + tl.arange(0, BN)
    batch = tl.program_id(1).to(tl.int64)
    start, last = tl.program_id(2) * chunk, min((tl.program_id(2) + 1) * chunk, K)
    a_ptr += batch * a_batch
    b_ptr += batch * b_batch
    total = tl.zeros([BM, BN], tl.float32)
    $guard
    for k0 in range(start, last, BK):
        k = k0 + tl.arange(0, BK)
        a_at = m[:, None].to(tl.int64) * a_row + k[None, :].to(tl.int64) * a_column
        b_at = k[:, None].to(tl.int64) * b_row + n[None, :].to(tl.int64) * b_column
        a = tl.load(a_ptr + a_at, mask=(m[:, None] < M) & (k[None, :] < last), other=0.0)
        b = tl.load(b_ptr + b_at, mask=(k[:, None] < last) & (n[None, :] < N), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    $finish
    c_ptr += (batch * tl.num_programs(2) + tl.program_id(2)) * c_batch
    tl.store(c_ptr + m[:, None].to(tl.int64) * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))
"""
SUM = """


@triton.jit
def sum_kernel(part_ptr, c_ptr, size, parts, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for part in range(0, parts):
        total += tl.load(part_ptr + at, mask=at < size, other=0.0)
        part_ptr += size
    tl.store(c_ptr + at, total, mask=at < size)
"""
MODEL = """
class ModelNew(nn.Module):
    def forward(self, A, B):
        a, b = $a, $b
        batches, M, K = a.shape
        N = b.shape[2]
        out = torch.empty($shape, dtype=A.dtype, device=A.device)
        grid = (triton.cdiv(M, $bm) * triton.cdiv(N, $bn), batches, 1)
        matmul_kernel[grid](
            a, b, out, M, N, K, *a.stride(), *b.stride(), M * N, K,
            BM=$bm, BN=$bn, BK=$bk, GROUP=8, num_warps=$warps, num_stages=3,
        )
        return out
"""
SPLIT_MODEL = """
class ModelNew(nn.Module):
    def forward(self, A, B):
        a, b = $a, $b
        batches, M, K = a.shape
        N = b.shape[2]
        out = torch.empty($shape, dtype=A.dtype, device=A.device)
        chunk = max(triton.cdiv(K, $parts), $bk)
        parts = triton.cdiv(K, chunk)
        part = torch.empty(parts, M, N, dtype=A.dtype, device=A.device)
        grid = (triton.cdiv(M, $bm) * triton.cdiv(N, $bn), 1, parts)
        matmul_kernel[grid](
            a, b, part, M, N, K, *a.stride(), *b.stride(), M * N, chunk,
            BM=$bm, BN=$bn, BK=$bk, GROUP=8, num_warps=$warps, num_stages=3,
        )
        sum_kernel[(triton.cdiv(M * N, 256),)](part, out, M * N, parts, BLOCK=256)
        return out
"""
TEXT = """1. Each program computes a $bm x $bn tile of the product in registers and walks over the inner dimension in
steps of
    $bk; the two operand tiles are staged through shared memory by a pipeline of three asynchronous copies.

    2. Products stay in full fp32 (IEEE, no TF32), accumulated in fp32, as the reference computes them.

    3. Tiles are numbered in groups of eight row blocks, so that programs running together share operand tiles in L2.

    4. $note Strides come from the tensors and all edges are masked, so any shape and layout is handled. Matching cuBLAS
    is the hope here, rather than beating it."""
SPLIT_TEXT = """1. The output has only a few tiles of $bm x $bn while the inner dimension is huge, so the inner
dimension is cut
    into up to $parts chunks, each a program of its own: hundreds of programs instead of a handful.

    2. Each program accumulates its chunk in fp32 registers, with $bk-wide operand tiles staged through shared memory by
    asynchronous copies, and stores a partial tile.

    3. A second kernel adds the partial products in a fixed order; they are small beside the inputs and stay in L2.

    4. Without atomics the result is the same in every run, and summing chunks separately also shortens the chains of
    rounding errors."""
TILED = ("shared-memory tiling", "async copy", "thread-block configuration")
_PLAIN = {"a": "A.unsqueeze(0)", "b": "B.unsqueeze(0)", "shape": "M, N", "guard": "", "finish": "", "note": ""}
_SHAPES = (("tile64", 64, 64, 32, 4), ("tile128", 128, 128, 16, 8), ("tile128x64", 128, 64, 32, 4))


def _members(*names: str) -> tuple[Member, ...]:
    return tuple(
        Member(name, KERNEL, MODEL, TEXT, TILED, constants={"bm": bm, "bn": bn, "bk": bk, "warps": warps})
        for name, bm, bn, bk, warps in _SHAPES
        if name in names
    )


def _split(parts: int, size: int) -> Member:
    constants = {"bm": size, "bn": size, "bk": 32, "warps": 4, "parts": parts}
    techniques = (*TILED, "split reduction")
    return Member(f"split{parts}", KERNEL + SUM, SPLIT_MODEL, SPLIT_TEXT, techniques, constants=constants)


_STRIDES = "The transposed factor is read through its strides, without a copy."
_BOTH = _members("tile64", "tile128")
_TRIANGLE = """A product of two triangular matrices of which only one triangle is kept. The reference multiplies the
full matrices and
then clears half of the result in a second kernel: half of the arithmetic produces numbers that are thrown away, and
the clearing moves 128 MiB more. cuBLAS runs the product close to the fp32 peak, so the way to win is to do less: tiles
that lie wholly in the cleared half need no arithmetic at all, whatever the inputs hold."""
PROBLEMS = [
    Problem(
        1,
        """A square product of 4096 x 4096 matrices: 137 GFLOP for 192 MiB of traffic, so arithmetic decides, not
        memory. Every
        element is used 4096 times, and cuBLAS's fp32 kernels come near the peak of the FMA units. A tiled kernel has to
        keep those units fed from registers and shared memory; there is no fusion or short-cut that the problem
        offers.""",
        _BOTH,
        _PLAIN,
    ),
    Problem(
        2,
        """2048 x 8192 times 8192 x 4096, 137 GFLOP in fp32 on three matrices of 32 to 128 MiB. The arithmetic
        intensity is
        hundreds of FLOPs per byte: compute-bound, and already at a high share of the FMA peak in cuBLAS. What a custom
        kernel controls is tile size, which sets the traffic from shared memory per FMA, and the order of tiles in
        L2.""",
        _members("tile128", "tile128x64"),
        _PLAIN,
    ),
    Problem(
        3,
        """A batch of 512 x 1024 by 1024 x 2048 products: 2 GFLOP each, independent of one another, with the batch as
        one more
        grid dimension. Compute-bound in fp32; a batch yields plenty of tiles to fill the device, so neither a split of
        the inner dimension nor launch overhead matters, only how well the FMA units are fed.""",
        _BOTH,
        {**_PLAIN, "a": "A", "b": "B", "shape": "batches, M, N"},
    ),
    Problem(
        6,
        """The output is 256 x 256 but the inner dimension is six figures long: 128x128 tiles would give four
        programs on a
        device with over a hundred SMs. Reading both inputs once from DRAM takes a similar time as the arithmetic if the
        whole device takes part, so the parallelism has to come from the inner dimension. cuBLAS splits it too, by a
        heuristic that is not tuned for such an extreme shape.""",
        (_split(64, 64), _split(32, 128), *_members("tile64")),
        _PLAIN,
    ),
    Problem(
        7,
        """With an inner dimension of 64 every output costs 128 FLOPs and 4 bytes of stores: 256 MiB of results dwarf
        the
        inputs, which fit into L2. Writing them at DRAM speed and the fp32 arithmetic take about equally long, so a
        kernel
        must overlap the two: many tiles in flight, short loops, and stores that leave in full lines.""",
        _members("tile64", "tile128", "tile128x64"),
        _PLAIN,
    ),
    Problem(
        8,
        """8205 x 2949 by 2949 x 5921: none of the extents is a multiple of anything useful, and rows of odd length
        are not
        16-byte aligned, which bars vector loads and fast paths of libraries. 287 GFLOP in fp32 remain compute-bound.
        Edge
        tiles are only a percent of all; what costs is the lack of alignment in every row.""",
        _BOTH,
        _PLAIN,
    ),
    Problem(
        9,
        """A tall matrix of 32 columns times a wide one of 32 rows: 64 FLOPs per output, and an output far larger
        than both
        inputs together. The call is bound by writing the result, 4 bytes per output, at DRAM speed; the inputs live
        in L2.
        An inner loop of a single step leaves no pipeline to fill, so the tile shape and the store pattern decide.""",
        _members("tile64", "tile128", "tile128x64"),
        _PLAIN,
    ),
    Problem(
        10,
        """A 3D tensor times a matrix is one large product: batch and rows can be merged into 16384 rows of length
        2048, times
        2048 x 768. 51 GFLOP in fp32 against 180 MiB of traffic, hence compute-bound. The reference's matmul folds it
        the
        same way before calling cuBLAS, so nothing is gained from the shape itself.""",
        _BOTH,
        {**_PLAIN, "a": "A.reshape(1, -1, A.shape[-1])", "shape": "*A.shape[:-1], N"},
    ),
    Problem(
        11,
        """The einsum over the last dimension of a 4D tensor is a plain matrix product once the leading dimensions
        are merged.
        einsum works this out on the host, permutes and reshapes, and calls a batched product; the host work is small
        beside the arithmetic. The inner dimension is short, so outputs dominate traffic and the loop is brief.""",
        _BOTH,
        {**_PLAIN, "a": "A.reshape(1, -1, A.shape[-1])", "shape": "*A.shape[:-1], N"},
    ),
    Problem(
        13,
        """Both factors are symmetric, but their product is not, and symmetry of the inputs saves no multiplication in a
        general algorithm: only half of each input would have to be read. With 137 GFLOP over 192 MiB the call is
        bound by
        fp32 arithmetic, so saved reads do not show. The product has to be computed in full, as fast as tiles allow.""",
        _BOTH,
        _PLAIN,
    ),
    Problem(
        14,
        _TRIANGLE,
        _members("tile64", "tile128", "tile128x64"),
        {
            **_PLAIN,
            "guard": "last = tl.where(tl.min(m, 0) > tl.max(n, 0), start, last)",
            "finish": "total = tl.where(m[:, None] <= n[None, :], total, 0.0)",
            "note": "A tile wholly below the diagonal skips its loop and stores zeros; the others are masked once.",
        },
    ),
    Problem(
        15,
        _TRIANGLE,
        _members("tile64", "tile128", "tile128x64"),
        {
            **_PLAIN,
            "guard": "last = tl.where(tl.max(m, 0) < tl.min(n, 0), start, last)",
            "finish": "total = tl.where(m[:, None] >= n[None, :], total, 0.0)",
            "note": "A tile wholly above the diagonal skips its loop and stores zeros; the others are masked once.",
        },
    ),
    Problem(
        16,
        """The first factor comes transposed: its columns are contiguous along the output's rows. cuBLAS takes the
        transposition as a flag, so no copy is made, and the 137 GFLOP run near the fp32 peak. For a kernel of one's
        own the
        layout only changes which axis of the operand tile is contiguous: loads coalesce along M instead of K.""",
        _members("tile128", "tile128x64"),
        {**_PLAIN, "a": "A.T.unsqueeze(0)", "note": _STRIDES},
    ),
    Problem(
        17,
        """The second factor is stored as N x K, so both operands are contiguous along the inner dimension. That
        suits loading
        but means the tile of B must be turned while it is staged. cuBLAS handles it by a flag. 137 GFLOP in fp32 keep
        the call compute-bound; layout is a second-order effect through bank conflicts in shared memory.""",
        _members("tile128", "tile128x64"),
        {**_PLAIN, "b": "B.T.unsqueeze(0)", "note": _STRIDES},
    ),
    Problem(
        18,
        """Both factors come transposed: A.T @ B.T. Neither needs a copy, since strides describe the transposition to
        cuBLAS
        and to any kernel. One operand is contiguous along M, the other along K. With 137 GFLOP the FMA units are the
        bound,
        and the kernel's task is to keep loads of both layouts coalesced while feeding them.""",
        _members("tile128", "tile64"),
        {**_PLAIN, "a": "A.T.unsqueeze(0)", "b": "B.T.unsqueeze(0)", "note": "Both factors are read through strides."},
    ),
]


def drafts() -> Iterator[Draft]:
    """Yield the candidates of matrix products."""
    for problem in PROBLEMS:
        yield from drafts_of(problem)
