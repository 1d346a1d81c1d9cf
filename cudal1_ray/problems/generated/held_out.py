"""What KernelBench's held-out problems compute, so that none of them is generated."""

from __future__ import annotations

from collections.abc import Sequence

# Operations that differ in a word or a constant alone.
_SAME = {
    "Multiply": "Scale", "BiasAdd": "Add", "Hardtanh": "Clamp", "AddInput": "Add", "MultiplyInput": "Scale",
    "SubtractInput": "Subtract", "Gemm": "Matmul", "Double": "Scale", "SumNorm": "L1Norm", "Normalize": "L2Norm",
    "Norm": "L2Norm",
}  # fmt: skip
# Levels 1 and 2 of `problems/splits/kernelbench.json`, as far as the grammar has what they compute.
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
)  # fmt: skip


def is_held_out(layer: str, words: Sequence[str]) -> bool:
    """Return whether a held-out problem computes the same operations in the same order.

    Args:
        layer: the layer's word; empty for none.
        words: of the operations after it.
    """
    return " ".join(_SAME.get(word, word) for word in [layer, *words]) in _HELD_OUT
