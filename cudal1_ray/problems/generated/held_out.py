"""What KernelBench's held-out problems compute, so that none of them is generated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

# Operations that differ in a word, a constant or a sign alone. A clamp at 0 is a ReLU.
_ALIKE = {
    "Gemm": "Matmul", "BiasAdd": "Add", "AddInput": "Add", "Subtract": "Add", "SubtractInput": "Add",
    "Multiply": "Scale", "MultiplyInput": "Scale", "Divide": "Scale", "Double": "Scale", "Hardtanh": "Clamp",
    "ReLU": "Clamp", "SumNorm": "L1Norm", "Normalize": "L2Norm", "Norm": "L2Norm", "LayerNorm": "InstanceNorm",
}  # fmt: skip
# Operations of the held-out problems of levels 1 and 2 in `problems/splits/kernelbench.json`, or the beginnings of them
# that the grammar can draw.
_HELD_OUT = (
    " L1Norm", " L2Norm", " LayerNorm",
    "Matmul Subtract Scale ReLU", "ConvTranspose2d BatchNorm Tanh", "Matmul Scale LeakyReLU", "Matmul Divide Sum Scale",
    "Conv2d InstanceNorm Divide", "Conv3d GroupNorm", "Conv3d GroupNorm Mean", "Conv3d HardSwish GroupNorm",
    "Conv3d HardSwish GroupNorm Mean", "Matmul InstanceNorm Add Scale", "Matmul Mish Mish", "Matmul Mish",
    "ConvTranspose2d Min Sum GELU Add", "ConvTranspose2d Min", "Matmul Scale ResidualAdd", "ConvTranspose2d Scale Mean",
    "ConvTranspose2d Scale Mean Mean", "ConvTranspose3d Softmax Sigmoid", "Matmul Scale Clamp GELU",
    "Matmul Sigmoid Sum", "Matmul Swish Scale", "Matmul ReLU Divide", "Matmul Softmax",
    "Matmul Sigmoid Scale ResidualAdd", "Matmul GroupNorm Min Add", "Matmul GroupNorm Min", "Matmul Add ReLU",
    "Matmul Swish Divide Clamp Tanh Clamp", "Matmul Divide GELU", "ConvTranspose2d Softmax Add Scale Sigmoid",
    "Matmul Add Swish Tanh GELU Clamp", "Matmul GELU Softmax", "ConvTranspose2d BatchNorm Tanh MaxPool",
    " CrossEntropyLoss", " KLDivLoss", " TripletMarginLoss",
)  # fmt: skip


def is_held_out(layer: str, words: Sequence[str]) -> bool:
    """Return whether a held-out problem computes the same operations in the same order.

    Args:
        layer: the layer's word; empty where there is none.
        words: the words of the operations after it.
    """
    return _operations([layer, *words]) in _computed()


@cache
def _computed() -> frozenset[tuple[str, ...]]:
    return frozenset(_operations(problem.split(" ")) for problem in _HELD_OUT)


def _operations(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(_ALIKE.get(word, word) for word in words)
