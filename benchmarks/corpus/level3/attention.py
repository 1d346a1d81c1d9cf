"""Masked attention, 43 and 50, and the block around it, 44: what lies between the library's matrix products is
fused."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus.level1.member import Member, Problem, drafts_of
from benchmarks.corpus.record import Draft

SOFTMAX = """
@triton.jit
def masked_softmax_kernel(att_ptr, mask_ptr, rows, T, mask_row, scale, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < T)
    at = row[:, None].to(tl.int64) * T + column[None, :]
    x = tl.load(att_ptr + at, mask=inside, other=0.0) * scale
    allowed = tl.load(mask_ptr + (row % T)[:, None] * mask_row + column[None, :], mask=inside, other=0.0)
    x = tl.where(inside & (allowed != 0.0), x, float("-inf"))
    x = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(att_ptr + at, x / tl.sum(x, 1)[:, None], mask=inside)
"""
RELU = """
@triton.jit
def masked_relu_kernel(att_ptr, mask_ptr, rows, T, mask_row, scale, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    for start in range(0, T, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (row[:, None] < rows) & (column[None, :] < T)
        at = row[:, None].to(tl.int64) * T + column[None, :]
        allowed = tl.load(mask_ptr + (row % T)[:, None] * mask_row + column[None, :], mask=inside, other=0.0)
        x = tl.load(att_ptr + at, mask=inside & (allowed != 0.0), other=0.0) * scale
        tl.store(att_ptr + at, tl.where(x < 0.0, 0.0, x), mask=inside)
"""
GELU = """


@triton.jit
def new_gelu_kernel(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(x_ptr + at, x / (1.0 + tl.exp(-2.0 * inner)), mask=at < n)
"""
ATTENTION = """
class $class(nn.Module):
    def __init__(self, $arguments):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        $dropouts
        mask = torch.tril(torch.ones(max_seqlen, max_seqlen)).view(1, 1, max_seqlen, max_seqlen)
        self.register_buffer("bias", mask)
        self.n_head = n_head
        self.n_embd = n_embd

    def forward(self, x):
        B, T, C = x.shape
        size = C // self.n_head
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (part.view(B, T, self.n_head, size).transpose(1, 2) for part in (q, k, v))
        att = torch.matmul(q, k.transpose(-2, -1))
        rows = B * self.n_head * T
        $kernel[(triton.cdiv(rows, $rows),)](
            att, self.bias, rows, T, self.bias.stride(2), size ** -0.5, ROWS=$rows, BLOCK=$block, num_warps=$warps
        )
        y = torch.matmul($att, v).transpose(1, 2).reshape(B, T, C)
        return $project
"""
BLOCK_MODEL = (
    ATTENTION
    + """

class ModelNew(nn.Module):
    def __init__(self, n_embd, n_head, attn_pdrop, resid_pdrop, max_seqlen):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention(n_embd, n_head, attn_pdrop, resid_pdrop, max_seqlen)
        self.ln_2 = nn.LayerNorm(n_embd)
        self.mlp = nn.ModuleDict(
            {
                "c_fc": nn.Linear(n_embd, 4 * n_embd),
                "c_proj": nn.Linear(4 * n_embd, n_embd),
                "dropout": nn.Dropout(resid_pdrop),
            }
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        hidden = self.mlp.c_fc(self.ln_2(x))
        n = hidden.numel()
        new_gelu_kernel[(triton.cdiv(n, 2048),)](hidden, n, BLOCK=2048, num_warps=8)
        return x + self.mlp.dropout(self.mlp.c_proj(hidden))
"""
)
SOFTMAX_TEXT = """1. Leave the two batched products and the projections to cuBLAS, which runs them near the device's
limits.

    2. Between them, one kernel takes $rows complete score rows per program into registers, scales them, applies the
    mask
    buffer, subtracts the maximum, exponentiates and divides by the sum, and writes the probabilities over the scores.

    3. A row fits into the registers of $warps warps, so maximum and sum are tree reductions without any memory traffic;
    the scores are read once and written once, in place of four separate passes.

    4. $note The mask is read from the module's buffer rather than assumed; it stays in L2."""
RELU_TEXT = """1. Keep cuBLAS for both batched products and the input projection.

    2. One kernel between them walks over $rows score rows per program in pieces of $block columns, multiplies by the
    scale, tests the mask buffer, clamps at zero, and overwrites the scores in place.

    3. Where the mask is zero the result is zero whatever the score is, so masked scores are not even loaded: half of
    the
    reads of a causal mask fall away.

    4. Three passes over the score matrix become one; the mask is a few mebibytes, shared by all heads and images, and
    comes from L2."""
FUSED = ("operation fusion", "register/shared-memory use", "memory coalescing")
_DROPOUTS = "self.attn_dropout = nn.Dropout(attn_pdrop)\n        self.resid_dropout = nn.Dropout(resid_pdrop)"
_GPT = {
    "class": "ModelNew",
    "arguments": "n_embd, n_head, attn_pdrop, resid_pdrop, max_seqlen",
    "dropouts": _DROPOUTS,
    "kernel": "masked_softmax_kernel",
    "block": "triton.next_power_of_2(T)",
    "att": "self.attn_dropout(att)",
    "project": "self.resid_dropout(self.c_proj(y))",
    "note": "",
}


def _members(kernel: str, model: str, design: str, shapes: tuple[dict, ...]) -> tuple[Member, ...]:
    return tuple(
        Member(f"rows{shape['rows']}_warps{shape['warps']}", kernel, model, design, FUSED, constants=shape)
        for shape in shapes
    )


_ROWS = ({"rows": 1, "warps": 2}, {"rows": 1, "warps": 8}, {"rows": 4, "warps": 4}, {"rows": 2, "warps": 4})
PROBLEMS = [
    Problem(
        43,
        """Causal attention over 512 positions with 8 heads and a batch of 128 materialises a gibibyte of scores.
        Between the
        two products the reference multiplies them by the scale, compares the mask, fills with minus infinity and takes
        a softmax: four kernels, each of which reads and writes the whole matrix, some 8 GiB of DRAM traffic that takes
        as long as the fp32 products around it. The products themselves are cuBLAS calls and cannot be improved by
        hand.""",
        _members(SOFTMAX, ATTENTION, SOFTMAX_TEXT, _ROWS),
        _GPT,
    ),
    Problem(
        44,
        """A transformer block: two projections and two batched products in attention, two more products in the MLP,
        all in
        fp32 by cuBLAS. Around them run memory-bound chains: scale, mask and softmax on a gibibyte of scores in four
        passes, and a tanh GELU written out in eight tensor operations on a hidden tensor of 768 MiB. Those chains move
        over 15 GiB, and fusing each into one pass is where time can be saved.""",
        _members(SOFTMAX + GELU, BLOCK_MODEL, SOFTMAX_TEXT, _ROWS),
        {
            **_GPT,
            "class": "CausalSelfAttention",
            "note": "The MLP's GELU is a second kernel: one in-place pass, with 0.5*(1+tanh(u)) folded into "
            "1/(1+exp(-2u)).",
        },
    ),
    Problem(
        50,
        """Attention with ReLU in place of softmax: 16 images, 12 heads and 1024 positions make a score matrix of 768
        MiB.
        The reference scales it, compares and fills by the mask, and applies ReLU, three to four full passes between two
        batched fp32 products. The chain is elementwise, so its cost is purely that traffic, around 5 GiB; half of the
        entries lie above the diagonal and end as zeros regardless of their scores.""",
        _members(
            RELU,
            ATTENTION,
            RELU_TEXT,
            (
                {"rows": 1, "block": 1024, "warps": 4},
                {"rows": 4, "block": 512, "warps": 4},
                {"rows": 8, "block": 128, "warps": 8},
            ),
        ),
        {
            **_GPT,
            "arguments": "n_embd, n_head, max_seqlen",
            "dropouts": "",
            "kernel": "masked_relu_kernel",
            "att": "att",
            "project": "y",
        },
    ),
]


def drafts() -> Iterator[Draft]:
    """Yield the candidates of masked attention."""
    for problem in PROBLEMS:
        yield from drafts_of(problem)
