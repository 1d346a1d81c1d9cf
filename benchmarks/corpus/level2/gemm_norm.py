"""Linear layers followed by a GroupNorm over slices of each row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.corpus.level2.parts import cuda_file, model, triton_file
from benchmarks.corpus.record import Draft


@dataclass(frozen=True)
class RowNorm:
    """A tail `y = after(norm(before(x)))` on rows of a matrix, normalised in groups of neighbouring columns.

    `column`: per-column parameters, name -> attribute. `scalars`: name -> attribute.
    """

    problem: int
    name: str
    arguments: str
    body: tuple[str, ...]
    layer: str
    norm: str
    before: str
    after: str
    before_cuda: str
    after_cuda: str
    analysis: str
    note: str
    tile: int
    functions: tuple[str, ...] = ()
    functions_cuda: tuple[str, ...] = ()
    column: dict[str, str] = field(default_factory=dict)
    scalars: dict[str, str] = field(default_factory=dict)


def drafts(spec: RowNorm) -> Iterator[Draft]:
    """Yield the problem's candidates."""
    yield tile(spec)
    yield row(spec)
    yield warp(spec)


def _filled(text: str, spec: RowNorm) -> str:
    words = {
        "NAME": spec.name,
        "PARAMETERS": "".join([f"{n}_ptr, " for n in spec.column] + [f"{n}, " for n in spec.scalars]),
        "ARGUMENTS": "".join(f"{v}, " for v in [*spec.column.values(), *spec.scalars.values()]),
        "CARGUMENTS": "".join(
            [f"{v}, " for v in spec.column.values()] + [f"float({v}), " for v in spec.scalars.values()]
        ),
        "LOADS\n": "".join(f"    {n} = tl.load({n}_ptr + column, mask=mask, other=0.0)\n" for n in spec.column),
        "BEFORE": spec.before,
        "AFTER": spec.after,
        "LAYER": f"self.{spec.layer}",
        "NORM": f"self.{spec.norm}",
        "TILE": str(spec.tile),
        "CSIGNATURE": "".join(
            [f"const float* __restrict__ {n}_of, " for n in spec.column] + [f"double {n}_in, " for n in spec.scalars]
        ),
        "CSCALARS": "".join(f"    const float {n} = (float){n}_in;\n" for n in spec.scalars),
        "CCOLUMN": "".join(f"        const float {n} = {n}_of[column];\n" for n in spec.column),
        "CBEFORE": spec.before_cuda,
        "CAFTER": spec.after_cuda,
    }
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, words[word])
    return text


_TILE = """@triton.jit
def NAME_tile_kernel(
    y_ptr, PARAMETERSgamma_ptr, beta_ptr, eps, total_groups, groups, group_size,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):
    group = tl.program_id(0) * ROWS + tl.arange(0, ROWS)  # row x group
    lane = tl.arange(0, COLUMNS)
    mask = (group[:, None] < total_groups) & (lane[None, :] < group_size)
    column = (group % groups)[:, None] * group_size + lane[None, :]
    ptrs = y_ptr + group.to(tl.int64)[:, None] * group_size + lane[None, :]
LOADS
    x = tl.load(ptrs, mask=mask, other=0.0)
    BEFORE
    mean = tl.sum(tl.where(mask, v, 0.0), axis=1) / group_size
    centred = tl.where(mask, v - mean[:, None], 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=1) / group_size + eps)
    gamma = tl.load(gamma_ptr + column, mask=mask, other=0.0)
    n = centred * rstd[:, None] * gamma + tl.load(beta_ptr + column, mask=mask, other=0.0)
    AFTER
    tl.store(ptrs, y, mask=mask)
"""


def tile(spec: RowNorm) -> Draft:
    """Return the member whose programs take several whole groups each."""
    forward = _filled(
        """y = F.linear(x, LAYER.weight, LAYER.bias).contiguous()
norm = NORM
group_size = y.shape[1] // norm.num_groups
total_groups = y.shape[0] * norm.num_groups
columns = triton.next_power_of_2(group_size)
rows = max(1, TILE // columns)
NAME_tile_kernel[(triton.cdiv(total_groups, rows),)](
    y, ARGUMENTSnorm.weight, norm.bias, norm.eps, total_groups, norm.num_groups, group_size,
    ROWS=rows, COLUMNS=columns, num_warps=4,
)
return y""",
        spec,
    )
    design = f"""The GEMM with its bias stays with cuBLAS. A Triton program then takes several neighbouring groups
as one tile (groups x columns, {spec.tile} elements), which is a contiguous piece of a row, so loads are coalesced
however small a group is. Mean and centred variance are reductions along the tile's second axis, entirely in
registers and shuffles; the exact two-step variance costs no second read. {spec.note} Result: one read and one write
of the matrix, in place on the GEMM's output, in a grid of thousands of equal programs."""
    return _draft(spec, "tile", _TILE, forward, design, ("operation fusion", "warp-level reduction"))


_ROW = """@triton.jit
def NAME_row_kernel(
    y_ptr, PARAMETERSgamma_ptr, beta_ptr, eps, groups, group_size, GROUPS: tl.constexpr, COLUMNS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, GROUPS)[:, None]
    lane = tl.arange(0, COLUMNS)[None, :]
    mask = (group < groups) & (lane < group_size)
    column = group * group_size + lane
    ptrs = y_ptr + row * groups * group_size + column
LOADS
    x = tl.load(ptrs, mask=mask, other=0.0)
    BEFORE
    mean = tl.sum(tl.where(mask, v, 0.0), axis=1) / group_size
    centred = tl.where(mask, v - mean[:, None], 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=1) / group_size + eps)
    gamma = tl.load(gamma_ptr + column, mask=mask, other=0.0)
    n = centred * rstd[:, None] * gamma + tl.load(beta_ptr + column, mask=mask, other=0.0)
    AFTER
    tl.store(ptrs, y, mask=mask)
"""


def row(spec: RowNorm) -> Draft:
    """Return the member with one program for a whole row."""
    forward = _filled(
        """y = F.linear(x, LAYER.weight, LAYER.bias).contiguous()
norm = NORM
group_size = y.shape[1] // norm.num_groups
NAME_row_kernel[(y.shape[0],)](
    y, ARGUMENTSnorm.weight, norm.bias, norm.eps, norm.num_groups, group_size,
    GROUPS=triton.next_power_of_2(norm.num_groups), COLUMNS=triton.next_power_of_2(group_size), num_warps=16,
)
return y""",
        spec,
    )
    design = f"""One program of 16 warps for each row of the GEMM's output, the row laid out as a tile of groups x
columns that stays in registers from the load to the store. All groups of the row are normalised at once by
reductions along the second axis. Since every program reads the same gamma, beta and per-column parameters from
column 0 to the end, these come from L2 with perfectly linear addresses and no modulo. {spec.note} The register
footprint of a whole row allows only a few programs per multiprocessor, so latency is hidden less well than with
small tiles."""
    return _draft(spec, "row", _ROW, forward, design, ("operation fusion", "register/shared-memory use"))


_WARP = """__device__ __forceinline__ float warp_sum(float value) {
    for (int step = 16; step > 0; step >>= 1) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

// One warp for each group of each row; a lane takes every 32nd column.
extern "C" __global__ void NAME(float* __restrict__ y, CSIGNATUREconst float* __restrict__ gamma,
                                const float* __restrict__ beta, double eps, int total_groups, int groups,
                                int group_size) {
    const int item = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (item >= total_groups) return;
    const int lane = threadIdx.x % 32;
    const int first = (item % groups) * group_size;
    float* slice = y + (long long)item * group_size;
CSCALARS    float sum = 0.0f;
    for (int i = lane; i < group_size; i += 32) {
        const int column = first + i;
CCOLUMN        const float x = slice[i];
        CBEFORE
        slice[i] = v;
        sum += v;
    }
    const float mean = warp_sum(sum) / group_size;
    float squares = 0.0f;
    for (int i = lane; i < group_size; i += 32) {
        const float d = slice[i] - mean;
        squares += d * d;
    }
    const float rstd = rsqrtf(warp_sum(squares) / group_size + (float)eps);
    for (int i = lane; i < group_size; i += 32) {
        const int column = first + i;
CCOLUMN        const float n = (slice[i] - mean) * rstd * gamma[column] + beta[column];
        CAFTER
        slice[i] = y_value;
    }
}
"""


def warp(spec: RowNorm) -> Draft:
    """Return the member in CUDA with a warp for each group."""
    forward = _filled(
        """y = F.linear(x, LAYER.weight, LAYER.bias).contiguous()
norm = NORM
total_groups = y.shape[0] * norm.num_groups
NAME()(
    grid=(-(-total_groups // 8), 1, 1),
    block=(256, 1, 1),
    args=[y, CARGUMENTSnorm.weight, norm.bias, norm.eps,
          total_groups, norm.num_groups, y.shape[1] // norm.num_groups],
)
return y""",
        spec,
    )
    design = f"""CUDA, a warp per group: lanes stride over the group's columns, sums are five butterfly shuffles,
and no shared memory or block synchronisation is needed, because a warp never talks to another. The intermediate
value is parked in the matrix itself between the three short loops; each lane re-reads only what it wrote, and a
group is small enough to stay in L1. {spec.note} Eight warps to a block keep occupancy high. Groups narrower than 32
columns leave lanes idle, and accesses are 4 bytes per lane, so wide tiles should beat it on bandwidth."""
    source = _filled(_WARP, spec)
    used = {name for name in spec.column if f"{name}" in spec.after_cuda}
    for name in spec.column:  # a parameter that only one of the loops needs is loaded there alone
        line = f"        const float {name} = {name}_of[column];\n"
        head, tail = source.split("    float squares", 1)
        if name not in spec.before_cuda:
            head = head.replace(line, "")
        if name not in used:
            tail = tail.replace(line, "")
        source = head + "    float squares" + tail
    if not any(name in spec.before_cuda for name in spec.column):
        head, tail = source.split("    float squares", 1)
        source = head.replace("        const int column = first + i;\n", "") + "    float squares" + tail
    return Draft(
        spec.problem,
        "warp",
        cuda_file(
            spec.functions_cuda or spec.functions,
            source,
            [spec.name],
            model(spec.arguments, spec.body, "x", forward),
        ),
        " ".join(spec.analysis.split()),
        " ".join(design.split()),
        ("operation fusion", "warp-level reduction"),
        "cuda",
    )


def _draft(spec: RowNorm, member: str, kernels: str, forward: str, design: str, techniques: tuple[str, ...]) -> Draft:
    source = triton_file(spec.functions, _filled(kernels, spec), model(spec.arguments, spec.body, "x", forward))
    return Draft(
        spec.problem, member, source, " ".join(spec.analysis.split()), " ".join(design.split()), techniques, "triton"
    )


PROBLEMS = (
    RowNorm(
        problem=30,
        name="group_norm_hardtanh",
        arguments="in_features, out_features, num_groups, hardtanh_min, hardtanh_max",
        body=(
            "self.gemm = nn.Linear(in_features, out_features)",
            "self.group_norm = nn.GroupNorm(num_groups, out_features)",
            "self.hardtanh = nn.Hardtanh(min_val=hardtanh_min, max_val=hardtanh_max)",
        ),
        layer="gemm",
        norm="group_norm",
        scalars={"low": "self.hardtanh.min_val", "high": "self.hardtanh.max_val"},
        functions=("clamp",),
        before="v = x",
        after="y = clamp(n, low, high)",
        before_cuda="const float v = x;",
        after_cuda="const float y_value = clamp_f(n, low, high);",
        tile=2048,
        note="Hardtanh is two comparisons on the normalised value before it is stored.",
        analysis="""The GEMM of the published sizes runs at the device's float32 rate for milliseconds and cannot be
improved in the reference's precision. Behind it GroupNorm over slices of 512 columns launches a statistics kernel
and an affine kernel (read, read, write) and hardtanh reads and writes again: five transfers of the matrix where two
are enough, since a slice of 2 KiB fits in registers. The gain is therefore a few percent of the total; a
bandwidth-bound tail behind a compute-bound GEMM is worth fusing, but not worth more than that.""",
    ),
    RowNorm(
        problem=37,
        name="swish_bias_norm",
        arguments="in_features, out_features, num_groups, bias_shape",
        body=(
            "self.matmul = nn.Linear(in_features, out_features)",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
            "self.group_norm = nn.GroupNorm(num_groups, out_features)",
        ),
        layer="matmul",
        norm="group_norm",
        column={"shift": "self.bias"},
        functions=("silu",),
        before="v = silu(x) + shift",
        after="y = n",
        before_cuda="const float v = silu_f(x) + shift;",
        after_cuda="const float y_value = n;",
        tile=2048,
        note="Swish and the second bias are applied in registers before the statistics.",
        analysis="""Here the inner dimension is only 1024 and the batch is large, so the output matrix is big
compared with the GEMM's work and the tail counts. Swish is written as sigmoid (2 transfers) and product (3), a bias
is added (2), and GroupNorm over 64 columns reads twice and writes once: ten transfers of the whole output. A group
is 256 bytes; everything about it can be computed after one load, and stored once. Fusing therefore removes four
fifths of the traffic behind the GEMM, a visible part of the model's time.""",
    ),
    RowNorm(
        problem=62,
        name="norm_leaky_double",
        arguments="input_size, hidden_size, num_groups, eps=1e-5, negative_slope=0.01",
        body=(
            "self.fc = nn.Linear(input_size, hidden_size)",
            "self.gn = nn.GroupNorm(num_groups=num_groups, num_channels=hidden_size, eps=eps)",
            "self.leaky_relu = nn.LeakyReLU(negative_slope=negative_slope)",
        ),
        layer="fc",
        norm="gn",
        scalars={"slope": "self.leaky_relu.negative_slope"},
        functions=("leaky_relu",),
        before="v = x",
        after="y = leaky_relu(n, slope) * 2.0",
        before_cuda="const float v = x;",
        after_cuda="const float y_value = leaky_relu_f(n, slope) * 2.0f;",
        tile=2048,
        note="x + x is a multiplication by two, exact in floating point.",
        analysis="""Groups of 16 columns: GroupNorm's statistics kernel is launched with a block for every 64-byte
slice, far too little work for a block, which makes it slow for the bytes it reads. LeakyReLU and the addition of
the tensor to itself are passes of their own. Seven transfers and four launches follow the GEMM; two transfers and
one launch suffice. The float32 GEMM still takes most of the time, so the fused tail shows as a small but certain
gain, largest where the library's statistics kernel is inefficient.""",
    ),
    RowNorm(
        problem=88,
        name="norm_swish_multiply_swish",
        arguments="in_features, out_features, num_groups, multiply_weight_shape",
        body=(
            "self.gemm = nn.Linear(in_features, out_features)",
            "self.group_norm = nn.GroupNorm(num_groups, out_features)",
            "self.multiply_weight = nn.Parameter(torch.randn(multiply_weight_shape))",
        ),
        layer="gemm",
        norm="group_norm",
        column={"factor": "self.multiply_weight"},
        functions=("silu",),
        before="v = x",
        after="y = silu(silu(n) * factor)",
        before_cuda="const float v = x;",
        after_cuda="const float y_value = silu_f(silu_f(n) * factor);",
        tile=4096,
        note="Both Swish gates and the column's factor are applied to the normalised value in its register.",
        analysis="""After the GEMM come GroupNorm over 32 columns and a chain written in elementary steps: sigmoid,
product, product with a weight per column, sigmoid, product. Counting operands, that is three transfers for the norm
and fourteen for the chain. All of it is local to a group of 128 bytes, so one read and one write of the matrix do.
The GEMM of 8192 x 8192 dominates in float32; what can be gained is the time of about fifteen matrix-sized transfers
and six launches.""",
    ),
    RowNorm(
        problem=94,
        name="hardtanh_mish_norm",
        arguments="in_features, out_features, bias_shape, num_groups",
        body=(
            "self.gemm = nn.Linear(in_features, out_features)",
            "self.bias = nn.Parameter(torch.randn(bias_shape))",
            "self.hardtanh = nn.Hardtanh()",
            "self.mish = nn.Mish()",
            "self.groupnorm = nn.GroupNorm(num_groups=num_groups, num_channels=out_features)",
        ),
        layer="gemm",
        norm="groupnorm",
        column={"shift": "self.bias"},
        functions=("clamp", "mish"),
        before="v = mish(clamp(x + shift, -1.0, 1.0))",
        after="y = n",
        before_cuda="const float v = mish_f(clamp_f(x + shift, -1.0f, 1.0f));",
        after_cuda="const float y_value = n;",
        tile=2048,
        note="Bias, hardtanh and Mish come before the statistics and are computed once, in registers.",
        analysis="""A second bias, hardtanh, Mish and GroupNorm over 32 columns follow the linear layer: three
pointwise passes (six transfers) and the norm's three. The chain before the norm cannot be folded into the GEMM's
epilogue by PyTorch, and the norm's statistics depend on its result, but a group is only 128 bytes and can be
finished by whichever warp loads it. That gives one read and one write. Beside a float32 GEMM of these sizes it is a
gain of some percent.""",
    ),
)
