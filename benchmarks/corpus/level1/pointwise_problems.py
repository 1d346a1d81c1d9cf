"""The pointwise problems of level 1 that are trained on."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus.level1.pointwise import Pointwise, drafts_of
from benchmarks.corpus.record import Draft

PROBLEMS = [
    Pointwise(
        problem=5,
        name="scale",
        triton="y = x * s",
        cuda="const float y = x * s;",
        scalar=("s", "s"),
        arguments="x, s",
        analysis="""Multiplying a matrix by a Python scalar is one kernel in eager PyTorch already: every element is
        read
        once, multiplied, and written once. One flop per 8 bytes moved is far below what the device could compute, so
        the call is bound by DRAM bandwidth alone, and the only things left to decide are how many bytes each thread
        keeps in flight, how wide its accesses are, and how many blocks have to be scheduled. A kernel that streams
        well can match the library here; it cannot beat the memory.""",
        note="Pass the factor as a kernel argument, so that one compiled kernel serves every value of it.",
        members=("flat", "wide", "float4", "persistent"),
    ),
    Pointwise(
        problem=19,
        name="relu",
        triton="y = tl.where(x < 0.0, 0.0, x)",
        cuda="const float y = x < 0.0f ? 0.0f : x;",
        analysis="""ReLU is a comparison per element between a read and a write of the whole tensor. The reference is a
        single vectorised elementwise kernel, so there is no fusion to win: eight bytes are moved per element, and at
        a few TB/s of DRAM bandwidth the arithmetic is invisible. What can still cost time are narrow accesses, too few
        loads in flight per thread, or a grid with so many tiny blocks that scheduling shows.""",
        note="Select instead of taking a maximum, which keeps NaN as the reference does: x where it is not below zero.",
        members=("flat", "narrow", "float4", "scalar", "wide"),
    ),
    Pointwise(
        problem=20,
        name="leaky_relu",
        triton="y = tl.where(x > 0.0, x, x * slope)",
        cuda="const float y = x > 0.0f ? x : x * slope;",
        scalar=("slope", "self.negative_slope"),
        init="""
        def __init__(self, negative_slope: float = 0.01):
            super().__init__()
            self.negative_slope = negative_slope
        """,
        analysis="""Leaky ReLU multiplies negative elements by a constant and copies the others: one select and one
        multiply for 8 bytes of traffic. The reference already does this in one pass, so the bound is DRAM bandwidth
        for one read and one write of the tensor. Divergence is no concern, since both sides of the select are
        computed without branches. The room that is left lies in access width and in the shape of the grid.""",
        note="Compute x*slope unconditionally and select, so that a warp with mixed signs never diverges.",
        members=("flat", "float4", "persistent", "narrow"),
    ),
    Pointwise(
        problem=21,
        name="sigmoid",
        triton="y = 1.0 / (1.0 + tl.exp(-x))",
        cuda="const float y = 1.0f / (1.0f + expf(-x));",
        analysis="""Sigmoid costs an exponential and a division per element. Both run on pipelines that are slower than
        plain FMAs, yet a thread still waits far longer for its 4-byte load than for them: with 8 bytes moved per
        element the kernel needs about a dozen instructions per element to stay under the memory time, and has them.
        The reference is one such pass, so matching its bandwidth with wide, coalesced accesses is the aim.""",
        note="Evaluate 1/(1+exp(-x)) in fp32: for very negative x the exponential becomes infinite and the quotient 0, "
        "which is the right limit without any branch.",
        members=("flat", "wide", "scalar", "float4_once"),
    ),
    Pointwise(
        problem=22,
        name="tanh_act",
        triton="""
        e = tl.exp(-2.0 * tl.abs(x))
        magnitude = (1.0 - e) / (1.0 + e)
        y = tl.where(x < 0.0, -magnitude, magnitude)
        """,
        cuda="const float y = tanhf(x);",
        analysis="""The hyperbolic tangent is the most expensive of the simple activations: a library tanhf has a
        polynomial branch near zero and an exponential elsewhere, some twenty instructions per element. Against 8 bytes
        of DRAM traffic per element this is still hidden, as long as enough warps are resident to overlap the two. The
        reference is a single elementwise pass, hence bandwidth-bound; only its access pattern can be matched.""",
        note="Compute tanh without a branch that diverges: the magnitude comes from exp(-2|x|), which lies in (0, 1] "
        "and "
        "cannot overflow, and the sign is put back by a select (CUDA's tanhf does the equivalent internally).",
        members=("flat", "wide", "float4", "persistent", "scalar"),
    ),
    Pointwise(
        problem=25,
        name="swish",
        triton="y = x / (1.0 + tl.exp(-x))",
        cuda="const float y = x / (1.0f + expf(-x));",
        analysis="""Written as x * sigmoid(x), Swish is two kernels in eager PyTorch. The first reads x and writes the
        sigmoid to a temporary of the tensor's size; the second reads x again together with the temporary and writes
        the product. That is three reads and two writes, 20 bytes per element, where one read and one write, 8 bytes,
        would do. Both kernels are bound by DRAM, so the ratio of traffic, 2.5, is what a fused kernel can win; the
        allocation of the temporary goes away as well.""",
        note="Fuse the two steps algebraically: x*sigmoid(x) is x/(1+exp(-x)), one exponential and one division in "
        "registers, so the sigmoid is never stored.",
        members=("flat", "wide", "narrow", "float4", "scalar", "persistent"),
    ),
    Pointwise(
        problem=26,
        name="gelu",
        triton="y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))",
        cuda="const float y = 0.5f * x * (1.0f + erff(x * 0.70710678f));",
        analysis="""Exact GELU needs the error function, two polynomials selected by the magnitude of x, around thirty
        instructions per element. The reference evaluates it in one fused elementwise kernel, moving 8 bytes per
        element. That is still memory-bound on a device with many FLOPs per byte, but with less slack than ReLU has:
        low occupancy would expose the arithmetic. The aim is to keep full bandwidth while the polynomial runs.""",
        note="Keep the exact form 0.5*x*(1+erf(x/sqrt(2))), not the tanh approximation, which would change the "
        "function.",
        members=("flat", "wide", "float4", "persistent"),
    ),
    Pointwise(
        problem=27,
        name="selu",
        triton="""
        negative = 1.6732632423543772 * (tl.exp(tl.minimum(x, 0.0)) - 1.0)
        y = 1.0507009873554805 * tl.where(x > 0.0, x, negative)
        y = tl.where(x != x, x, y)
        """,
        cuda="""
        const float negative = 1.6732632423543772f * expm1f(x);
        const float y = 1.0507009873554805f * (x > 0.0f ? x : negative);
        """,
        analysis="""SELU scales positive elements and passes negative ones through an exponential: one exp, a few
        multiplies and a select between a read and a write. The reference is a single kernel, so 8 bytes per element
        have to move whatever is done, and DRAM bandwidth is the bound. What matters is that the exponential of large
        positive elements must not turn into an infinity that leaks through arithmetic, and that loads are wide.""",
        note="Select between scale*x and scale*alpha*(exp(x)-1); the exponential is only ever used for x at or below "
        "zero, so an overflow on the positive side cannot reach the result.",
        members=("flat", "narrow", "float4", "wide"),
    ),
    Pointwise(
        problem=28,
        name="hardsigmoid",
        triton="""
        y = x * (1.0 / 6.0) + 0.5
        y = tl.where(y < 0.0, 0.0, tl.where(y > 1.0, 1.0, y))
        """,
        cuda="""
        float y = x * (1.0f / 6.0f) + 0.5f;
        y = y < 0.0f ? 0.0f : y > 1.0f ? 1.0f : y;
        """,
        analysis="""Hard sigmoid is one fused multiply-add and two selects per element. The reference runs it as a
        single
        elementwise kernel, so nothing can be fused away: 4 bytes in and 4 bytes out per element, with arithmetic that
        would fit into the shadow of the loads dozens of times over. It is a pure copy at DRAM speed as far as the
        hardware is concerned, and a good kernel reaches the speed of a copy.""",
        note="Compute x/6 + 1/2 as one FMA and clamp it by two selects, which compile to predicated moves, not "
        "branches.",
        members=("flat", "float4", "wide", "scalar"),
    ),
    Pointwise(
        problem=29,
        name="softplus",
        triton="y = tl.where(x > 20.0, x, tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x))))\n"
        "y = tl.where(x != x, x, y)",
        cuda="const float y = x > 20.0f ? x : log1pf(expf(x));",
        analysis="""Softplus takes an exponential and a logarithm per element and switches to the identity above its
        threshold of 20. In the reference this is one elementwise kernel; 8 bytes move per element, and the two
        transcendental functions, though several instructions each, overlap with memory when enough warps are
        resident. The bound is DRAM bandwidth, with less slack than a plain activation, so instruction count per
        element matters more here than usual.""",
        note="Use log(1 + exp(x)) in a form that cannot overflow below the threshold, and the identity above it, as "
        "the reference does.",
        members=("flat", "wide", "float4", "scalar"),
    ),
    Pointwise(
        problem=30,
        name="softsign",
        triton="y = x / (1.0 + tl.abs(x))",
        cuda="const float y = x / (1.0f + fabsf(x));",
        analysis="""x / (1 + |x|) is written as three tensor operations, and eager PyTorch runs three kernels: |x| is
        read
        and written, 1 is added in a second read and write, and the division reads two tensors and writes a third.
        Seven transfers of 4 bytes per element, 28 bytes, for three flops, plus two temporaries of the tensor's size.
        All of it is DRAM traffic. A single pass needs 8 bytes, so up to 3.5 times is there to be won by fusion
        alone.""",
        note="Fuse all three steps: absolute value, addition and division happen on a register between one load and "
        "one "
        "store.",
        members=("flat", "wide", "narrow", "float4", "scalar", "persistent"),
    ),
    Pointwise(
        problem=31,
        name="elu",
        triton="y = tl.where(x > 0.0, x, alpha * (tl.exp(tl.minimum(x, 0.0)) - 1.0))\ny = tl.where(x != x, x, y)",
        cuda="const float y = x > 0.0f ? x : alpha * expm1f(x);",
        scalar=("alpha", "self.alpha"),
        init="""
        def __init__(self, alpha: float = 1.0):
            super().__init__()
            self.alpha = alpha
        """,
        analysis="""ELU copies positive elements and maps the others to alpha*(exp(x)-1). One exponential per element is
        cheap beside the 8 bytes that one read and one write cost, and the reference is already one pass over the
        tensor. It is therefore bound by DRAM bandwidth. A warp usually holds both signs, so a branch around the
        exponential would save nothing: computing it for all lanes and selecting is as fast and simpler.""",
        note="Compute alpha*(exp(x)-1) for every lane and select by the sign; alpha is a run-time argument.",
        members=("flat", "float4", "persistent", "wide"),
    ),
    Pointwise(
        problem=32,
        name="hardtanh",
        triton="y = tl.where(x < -1.0, -1.0, tl.where(x > 1.0, 1.0, x))",
        cuda="const float y = x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x;",
        analysis="""Hard tanh clamps each element to [-1, 1]: two comparisons for 8 bytes of traffic. The reference
        is one
        clamp kernel, so its time is the time of copying the tensor through DRAM, and a replacement has to be as good a
        copy: coalesced, wide accesses, enough bytes in flight per SM, and a grid whose scheduling cost vanishes.""",
        note="Clamp by two selects, which hand NaN through unchanged as the reference does.",
        members=("flat", "float4_once", "narrow", "persistent"),
    ),
    Pointwise(
        problem=88,
        name="new_gelu",
        triton="""
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        y = x / (1.0 + tl.exp(-2.0 * inner))
        """,
        cuda="""
        const float inner = 0.7978845608f * (x + 0.044715f * x * x * x);
        const float y = x / (1.0f + expf(-2.0f * inner));
        """,
        analysis="""The tanh form of GELU is spelled out in tensor operations: a cube by pow, two multiplications by
        constants, two additions, a tanh, a product with x/2. Eager PyTorch launches eight kernels, each of which reads
        one or two full tensors and writes a temporary, well over 60 bytes of DRAM traffic per element for a function
        of a single element; pow with exponent 3 is a slow path besides. Everything but one read and one write can go,
        which leaves 8 bytes per element: the head-room is about eightfold.""",
        note="Fold the formula: x*x*x replaces pow, and 0.5*(1+tanh(u)) equals 1/(1+exp(-2u)), so a single exponential "
        "and one division finish the element in registers.",
        members=("flat", "wide", "narrow", "persistent", "float4", "scalar"),
    ),
]


def drafts() -> Iterator[Draft]:
    """Yield the candidates of all pointwise problems."""
    for problem in PROBLEMS:
        yield from drafts_of(problem)
