"""Stacks of linear layers, 1 to 3: bias and ReLU fused into one pass over each product."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus.level1.member import Member, Problem, drafts_of
from benchmarks.corpus.record import Draft

KERNEL = """
@triton.jit
def bias_relu_kernel(x_ptr, bias_ptr, n, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = x + tl.load(bias_ptr + at % columns, mask=at < n)
    tl.store(x_ptr + at, tl.where(y < 0.0, 0.0, y), mask=at < n)
"""
ROW_KERNEL = """
@triton.jit
def bias_relu_kernel(x_ptr, bias_ptr, n, columns, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bias = tl.load(bias_ptr + column, mask=column < columns)
    rows = n // columns
    at = x_ptr + tl.program_id(1).to(tl.int64) * columns + column
    for row in range(tl.program_id(1), rows, tl.num_programs(1)):
        y = tl.load(at, mask=column < columns) + bias
        tl.store(at, tl.where(y < 0.0, 0.0, y), mask=column < columns)
        at += tl.num_programs(1).to(tl.int64) * columns
"""
MODEL = """
class ModelNew(nn.Module):
    def __init__(self, input_size, $sizes, output_size):
        super().__init__()
        layers, width = [], input_size
        for size in $sizes:
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        self.network = nn.Sequential(*layers, nn.Linear(width, output_size))

    def forward(self, x):
        linears = [layer for layer in self.network if isinstance(layer, nn.Linear)]
        for layer in linears[:-1]:
            x = torch.matmul(x, layer.weight.t())
            n, columns = x.numel(), x.shape[-1]
            bias_relu_kernel[$grid](x, layer.bias, n, columns, BLOCK=$block, num_warps=$warps)
        return nn.functional.linear(x, linears[-1].weight, linears[-1].bias)
"""
TEXT = """1. Leave each layer's product to cuBLAS, without its bias, and finish it with a kernel of one's own that
adds the bias
    and applies ReLU in place: the activations are read and written once where bias and ReLU took two passes.

    2. $how

    3. NaN passes through the select as it does through ReLU. The last layer has no activation and stays a plain linear
    layer.

    4. The gain is bounded by the share of these passes, a few percent beside products that read every weight."""
_FLAT = {
    "how": "The kernel runs over a flat index in blocks of $block elements; the bias is gathered by the index's "
    "remainder and comes from L1.",
    "grid": "(triton.cdiv(n, $block),)",
}
_ROWS = {
    "how": "A program keeps the bias of its $block columns in registers and walks down the rows, so no remainder is "
    "computed and each bias is loaded once per program.",
    "grid": "(triton.cdiv(columns, $block), min(n // columns, 16))",
}
FUSED = ("operation fusion", "memory coalescing")
MEMBERS = (
    Member("flat1024", KERNEL, MODEL, TEXT, FUSED, constants={**_FLAT, "block": 1024, "warps": 4}),
    Member("columns512", ROW_KERNEL, MODEL, TEXT, FUSED, constants={**_ROWS, "block": 512, "warps": 4}),
)
PROBLEMS = [
    Problem(
        1,
        """Three linear layers of 16384 units on a batch of 128. Every weight is used for only 128 rows, so reading 1
        GiB of
        weights per hidden layer is what an ideal call waits for, with fp32 arithmetic of about the same length. Bias
        and
        ReLU touch activations of 8 MiB, which stay in L2: they cost launches more than traffic. cuBLAS cannot be beaten
        on the products; what remains is to merge the small passes between them.""",
        MEMBERS,
        {"sizes": "layer_sizes"},
    ),
    Problem(
        2,
        """A shallow and very wide network: two hidden layers of 32768 units, batch 128. The products read gibibytes of
        weights and dominate completely; activations of 16 MiB pass through bias and ReLU, each a launch and a pass over
        L2. The head-room lies between a few saved launches and nothing, and a kernel for the epilogue is the only piece
        that can be replaced without touching the fp32 products.""",
        MEMBERS,
        {"sizes": "hidden_layer_sizes"},
    ),
    Problem(
        3,
        """A deep and narrow network: sixteen hidden layers of 1024 units with a batch of 1024. Each product takes 2
        GFLOP,
        tens of microseconds, and is followed by bias and ReLU on 4 MiB. At this size launches and small passes are a
        visible share: every layer is a product, its bias epilogue, and a ReLU kernel that waits for it. Merging bias
        and
        ReLU cannot shorten the products, but takes the separate activation pass away from every layer.""",
        MEMBERS,
        {"sizes": "hidden_layer_sizes"},
    ),
]


def drafts() -> Iterator[Draft]:
    """Yield the candidates of stacked linear layers."""
    for problem in PROBLEMS:
        yield from drafts_of(problem)
