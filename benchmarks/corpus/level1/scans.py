"""Cumulative sums and products along rows: 89 to 93."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus.level1.member import Member, Problem, drafts_of
from benchmarks.corpus.record import Draft

BLOCKS = """
@triton.jit
def combine(a, b):
    return a $op b


@triton.jit
def scan_kernel(x_ptr, $maskarg out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    carry = $identity
    for start in range(0, columns, BLOCK):
        at = $at
        inside = $inside
        x = tl.load(x_ptr + row + at, mask=inside, other=$identity)
        $masked
        scanned = carry $op tl.associative_scan(x, 0, combine)
        tl.store(out_ptr + row + $target, $value, mask=$targetmask)
        carry = carry $op $total
"""
MODEL = """
class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x$formask):
        x = x.transpose(self.dim, -1).contiguous()
        $premask
        out = torch.empty_like(x)
        columns = x.shape[-1]
        rows = x.numel() // columns
        scan_kernel[(rows,)](x, $passmask out, columns, BLOCK=$block, num_warps=$warps)
        return out.transpose(self.dim, -1)
"""
CUDA = """
__device__ __forceinline__ float combine(float a, float b) { return a $op b; }

__global__ void scan_kernel(const float* __restrict__ x, $cmaskarg float* __restrict__ out, long columns) {
    __shared__ float totals[32];
    const long row = blockIdx.x * columns;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    float carry = $identity;
    for (long start = 0; start < columns; start += 4 * blockDim.x) {
        float value[4];
        const long first = start + 4 * threadIdx.x;
        for (int i = 0; i < 4; ++i) {
            const long at = $cat;
            value[i] = first + i < columns ? $cload : $identity;
            if (i > 0) value[i] = combine(value[i - 1], value[i]);
        }
        float own = value[3], inclusive = own;
        for (int distance = 1; distance < 32; distance *= 2) {
            const float other = __shfl_up_sync(0xffffffff, inclusive, distance);
            if (lane >= distance) inclusive = combine(other, inclusive);
        }
        if (lane == 31) totals[warp] = inclusive;
        float before = __shfl_up_sync(0xffffffff, inclusive, 1);
        if (lane == 0) before = $identity;
        __syncthreads();
        float all = $identity;
        for (int w = 0; w < warps; ++w) {
            if (w == warp) before = combine(combine(carry, all), before);
            all = combine(all, totals[w]);
        }
        for (int i = 0; i < 4; ++i) {
            const long at = $cat;
            if (first + i < columns) out[row + at] = $cvalue;
        }
        carry = combine(carry, all);
        __syncthreads();
    }
}

void scan(size_t x, $cmaskparam size_t out, long rows, long columns, size_t stream) {
    scan_kernel<<<rows, $threads, 0, (cudaStream_t)stream>>>((const float*)x, $cmaskcast (float*)out, columns);
}
"""
CUDA_MODEL = """
class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x$formask):
        x = x.transpose(self.dim, -1).contiguous()
        $premask
        out = torch.empty_like(x)
        columns = x.shape[-1]
        stream = torch.cuda.current_stream().cuda_stream
        kernels.scan(x.data_ptr(), $ptrmask out.data_ptr(), x.numel() // columns, columns, stream)
        return out.transpose(self.dim, -1)
"""
ONE_READ = """1. Give each row to one program, which walks along it in blocks of $block elements and keeps the running
    $noun of everything before the block in a register.

    2. Load a block with coalesced accesses, scan it with an associative scan (shuffles inside a warp, shared
    memory between the $warps warps), combine it with the carry, and store it.

    3. $note

    4. Every element is read once and written once; the serial part is one addition or product per block, and
    thousands of independent rows hide its latency."""
WARP = """1. One block of $threads threads per row; a thread owns four neighbouring elements, which it scans in
registers.

    2. Scan the threads' totals inside each warp by shuffles (log2(32) steps, no shared memory), write one total per
    warp to shared memory, and let every thread add up the totals of the warps before its own.

    3. $note

    4. Carry the block's total to the next stretch of the row in a register. Two barriers per $stretch elements
    are all the synchronisation there is, and each element crosses DRAM once each way."""
SHUFFLE = ("warp-level reduction", "register/shared-memory use", "memory coalescing", "operation fusion")
SCAN = ("operation fusion", "memory coalescing", "algorithmic change")

_PLAIN = {
    "op": "+",
    "identity": "0.0",
    "noun": "sum",
    "at": "start + tl.arange(0, BLOCK)",
    "inside": "at < columns",
    "maskarg": "",
    "masked": "",
    "target": "at",
    "value": "scanned",
    "targetmask": "inside",
    "total": "tl.sum(x, 0)",
    "formask": "",
    "premask": "",
    "passmask": "",
    "cat": "first + i",
    "cload": "x[row + at]",
    "cvalue": "combine(before, value[i])",
    "cmaskarg": "",
    "cmaskparam": "",
    "cmaskcast": "",
    "ptrmask": "",
}
_SIZES = {"block1024": (1024, 4), "block4096": (4096, 8), "block8192": (8192, 16)}


def _problem(number: int, analysis: str, note: str, sizes: tuple[str, ...], threads: int, **changes: str) -> Problem:
    members = [
        Member(size, BLOCKS, MODEL, ONE_READ, SCAN, constants={"block": _SIZES[size][0], "warps": _SIZES[size][1]})
        for size in sizes
    ]
    mask = "size_t mask, " if changes.get("cmaskparam") else ""
    launcher = f"void scan(size_t x, {mask}size_t out, long rows, long columns, size_t stream)"
    constants = {"threads": threads, "stretch": 4 * threads}
    members.append(Member("warp_shuffle", CUDA, CUDA_MODEL, WARP, SHUFFLE, launcher, constants))
    return Problem(number, analysis, tuple(members), {**_PLAIN, **changes, "note": note})


PROBLEMS = [
    _problem(
        89,
        """A cumulative sum along rows of 32768 elements reads and writes each element once, so its bound is DRAM
        traffic
        of 8 bytes per element. What makes scans slow is their dependence: element i needs all before it. PyTorch's
        kernel scans the innermost dimension in short stretches per block with a tree of additions in shared memory and
        a barrier per level, which spends more time on synchronisation than on memory. With thousands of rows there is
        more than enough parallelism across rows, so a row can be walked serially in large blocks.""",
        "Sums are kept in fp32 and the carry is added last, so the order of additions is that of a blocked scan.",
        ("block1024", "block4096", "block8192"),
        256,
    ),
    _problem(
        90,
        """A cumulative product has the same shape as a cumulative sum: one read and one write per element, with a
        dependence along the row. PyTorch scans it with barriers between the levels of a tree in shared memory, in
        stretches that are short compared with rows of 32768, so latency and not DRAM bandwidth bounds it. Rows are
        independent and there are thousands of them: blocks can walk along their rows with a carry and keep the memory
        busy between them.""",
        "The identity of the product, 1, fills positions past the row's end; the carry is the product of whole blocks.",
        ("block1024", "block4096"),
        512,
        op="*",
        identity="1.0",
        noun="product",
        total="tl.reduce(x, 0, combine)",
    ),
    _problem(
        91,
        """A suffix sum is written as flip, cumsum, flip. Each flip is a full copy of the tensor with reversed
        addresses,
        and the scan in between is a third pass: six transfers of 4 bytes per element, and two temporaries of the
        tensor's size, for one addition per element. Nothing in the mathematics needs the copies: the scan can run from
        the right end directly. Then one read and one write remain, a third of the traffic, before even considering
        that the library's scan itself is bound by barriers.""",
        "Walk the row from its last element towards its first: positions are mirrored when computing addresses, which "
        "stay contiguous within a warp, so reading backwards costs no coalescing and both flips disappear.",
        ("block1024", "block4096", "block8192"),
        256,
        at="columns - 1 - start - tl.arange(0, BLOCK)",
        inside="at >= 0",
        cat="columns - 1 - first - i",
    ),
    _problem(
        92,
        """The exclusive sum is assembled from parts: a narrow view is scanned into a temporary, a column of zeros is
        made, and a concatenation copies both into the result. The narrowed rows have an odd length, which keeps
        vectorised paths off, and the copy alone costs as much traffic as an ideal scan. In all, 16 bytes per element
        and four launches instead of 8 bytes and one. Shifting the store by one position yields the same values
        directly from an inclusive scan.""",
        "Subtracting would lose accuracy, so the value is moved instead: the inclusive prefix of element i is stored "
        "at i+1, and position 0 of each row receives 0. Zero and shift cost nothing extra.",
        ("block1024", "block4096"),
        256,
        target="at + 1",
        targetmask="at + 1 < columns",
        cvalue="i > 0 ? combine(before, value[i - 1]) : before",
        masked="tl.store(out_ptr + row + at, tl.zeros_like(x), mask=at == 0)",
    ),
    _problem(
        93,
        """x * mask first materialises a masked copy: a read of 4+1 bytes and a write of 4 per element with a conversion
        of the boolean, and the scan then reads and writes 8 bytes more. The temporary is as large as the input and
        is used once. Fused, the kernel reads value and mask (5 bytes) and writes the sum (4 bytes): 9 bytes instead of
        17. The scan's dependence along the row is carried in a register, and independent rows fill the device.""",
        "Read the mask as bytes and zero unselected elements in registers before they enter the scan, so the masked "
        "product never exists in memory.",
        ("block1024", "block4096", "block8192"),
        256,
        maskarg="mask_ptr,",
        masked="keep = tl.load(mask_ptr + row + at, mask=inside, other=0)\n        x = x * keep.to(tl.float32)",
        formask=", mask",
        premask="mask = mask.expand(x.shape).transpose(self.dim, -1).contiguous()",
        passmask="mask.view(torch.uint8),",
        cload="x[row + at] * (mask[row + at] ? 1.0f : 0.0f)",
        cmaskarg="const unsigned char* __restrict__ mask,",
        cmaskparam="size_t mask,",
        cmaskcast="(const unsigned char*)mask,",
        ptrmask="mask.data_ptr(),",
    ),
]


def drafts() -> Iterator[Draft]:
    """Yield the candidates of all scans."""
    for problem in PROBLEMS:
        yield from drafts_of(problem)
