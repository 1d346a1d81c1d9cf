"""Level 3: whole networks, of which the parts that are bound by memory traffic get kernels of their own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from benchmarks.corpus.level3 import attention, mlp
from benchmarks.corpus.record import Draft

FAMILIES = (mlp, attention)

# Constants for checks without a GPU.
_TINY = {"batch_size": 2, "max_seqlen": 40, "seq_len": 37, "n_embd": 24, "n_head": 3}
_LAYERS = {"batch_size": 3, "input_size": 20, "layer_sizes": [33, 47], "hidden_layer_sizes": [33, 47], "output_size": 7}
SMALL = {number: _LAYERS for number in (1, 2, 3)} | {43: _TINY, 44: _TINY, 50: {**_TINY, "max_seqlen": 37}}


def drafts() -> Iterator[Draft]:
    """Yield the candidates of all families."""
    return chain.from_iterable(family.drafts() for family in FAMILIES)
