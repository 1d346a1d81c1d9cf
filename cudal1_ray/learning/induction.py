"""The weights that a policy made from scratch starts with: two attention heads that copy what followed the same token.

A candidate repeats names, numbers and whole expressions of its reference, and a policy that has not learned to copy
fills in those it knows by heart. Copying takes two heads, one after the other (Olsson et al., "In-context learning and
induction heads", arXiv 2209.11895): the first writes to each place which token stands before it, the second finds the
places whose token before is the current one, and proposes the token there. Gradient descent finds them late: of random
tokens repeated once, 350,000 tokens had brought the loss from 6.9 to 5.8 nats. A policy that starts with them has a
loss of 1.1 nats and 92% of such tokens right, 40 places back, before its first step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

# Base of the rotary positions. Half of a head's frequencies are then so low that the second head finds a token as well
# 200 places back as near by; with 10,000, 20% of its attention was at the right place there, with this 68%.
ROTARY_BASE = 1_000_000.0
# Radians per place: frequencies above distinguish neighbouring places, those below distinguish tokens at any distance.
FAST, SLOW = 0.02, 0.01
# Length of keys and queries in the first head, in each fast frequency: 95% of its attention is on the token before.
NEIGHBOUR = 6.0
# Of keys and queries in the second head: sharper, it takes other tokens for the current one more often than not.
MATCH = 2.5
# Standard deviation of the embeddings, which are the output matrix too: with 0.02, the customary one, what is proposed
# has a loss of 6.2 nats instead of 1.1, and the optimiser's first 20 steps write over it.
EMBEDDING = 0.12
# What each head writes, relative to an embedding; the second has to be louder than the current token itself.
WRITTEN, PROPOSED = 1.0, 8.0


@torch.no_grad()
def start_with_induction(model: LlamaForCausalLM) -> None:
    """Give the first head of the first two layers weights that copy; a model of one layer stays as it is.

    Args:
        model: with biases in its attention and as many heads for keys as for queries.
    """
    if len(model.model.layers) < 2:
        return
    shape = model.config
    hidden, size = shape.hidden_size, shape.hidden_size // shape.num_attention_heads
    half = size // 2
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    frequencies = ROTARY_BASE ** (-torch.arange(half) / half)
    embeddings = model.model.embed_tokens.weight
    embeddings.mul_(EMBEDDING / embeddings.std())
    loudness = EMBEDDING * math.sqrt(hidden / size)
    read, written, copied = (_projection(size, hidden) for _ in range(3))

    # A constant key, and a constant query that is the same turned one place back: the two meet at the token before.
    key = torch.zeros(size)
    key[:half][frequencies > FAST] = NEIGHBOUR
    query = torch.cat([key[:half] * frequencies.cos(), -key[:half] * frequencies.sin()])
    for linear, bias in ((first.q_proj, query), (first.k_proj, key)):
        linear.weight[:size] = 0.0
        linear.bias[:size] = bias
    first.v_proj.weight[:size] = read
    first.o_proj.weight[:, :size] = WRITTEN * loudness * written.T

    # The query is the current token, the key what the first head has written, both in the slow frequencies alone.
    slow = torch.nonzero(frequencies < SLOW).flatten()
    rows = torch.cat([slow, slow + half])
    mixed = MATCH * _projection(len(rows), size)
    for linear, subspace in ((second.q_proj, read), (second.k_proj, written)):
        linear.weight[:size] = 0.0
        linear.weight[rows] = mixed @ subspace
    second.v_proj.weight[:size] = copied
    second.o_proj.weight[:, :size] = PROPOSED * loudness * copied.T


def _projection(rows: int, columns: int) -> Tensor:
    """Return a random matrix [rows, columns] with orthonormal rows; at most as many rows as columns."""
    return torch.linalg.qr(torch.randn(columns, rows))[0].T
