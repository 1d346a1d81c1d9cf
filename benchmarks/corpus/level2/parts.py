"""Pieces that the level 2 candidates share: activations in Triton and CUDA, and the frame of a candidate's file.
Activations let NaN through where PyTorch does (a comparison with NaN is false, so `where` keeps it), and need one
exponential each."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from cudal1_ray.problems.generated.triton_functions import TRITON_FUNCTIONS

# name -> source of a CUDA device function of the same name with the suffix `_f`.
CUDA_FUNCTIONS = {
    "relu": "__device__ __forceinline__ float relu_f(float x) { return x < 0.0f ? 0.0f : x; }",
    "clamp": """__device__ __forceinline__ float clamp_f(float x, float low, float high) {
    x = x < low ? low : x;
    return x > high ? high : x;
}""",
    "leaky_relu": """__device__ __forceinline__ float leaky_relu_f(float x, float slope) {
    return x > 0.0f ? x : x * slope;
}""",
    "tanh": """__device__ __forceinline__ float tanh_f(float x) {
    return 1.0f - 2.0f / (expf(2.0f * x) + 1.0f);
}""",
    "sigmoid": """__device__ __forceinline__ float sigmoid_f(float x) { return 1.0f / (1.0f + expf(-x)); }""",
    "gelu": """__device__ __forceinline__ float gelu_f(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}""",
    "silu": "__device__ __forceinline__ float silu_f(float x) { return x / (1.0f + expf(-x)); }",
    "hardswish": """__device__ __forceinline__ float hardswish_f(float x) {
    float gate = x + 3.0f;
    gate = gate < 0.0f ? 0.0f : gate;
    gate = gate > 6.0f ? 6.0f : gate;
    return x * gate * 0.16666667f;
}""",
    "mish": """__device__ __forceinline__ float mish_f(float x) {
    const float e = expf(x > 20.0f ? 20.0f : x);
    const float t = e * (e + 2.0f);
    return x * (t / (t + 2.0f));
}""",
}

_TRITON_IMPORTS = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
"""

_TORCH_IMPORTS = """
import torch
import torch.nn as nn
import torch.nn.functional as F
"""


def block(text: str, spaces: int) -> str:
    """Return `text` without its common indentation, indented by `spaces`."""
    return textwrap.indent(textwrap.dedent(text).strip("\n"), " " * spaces)


def model(arguments: str, body: Iterable[str], inputs: str, forward: str) -> str:
    """Return the source of `ModelNew`: `body` are the constructor's lines, `forward` is the method's text."""
    lines = "\n".join(f"        {line}" for line in body)
    return (
        "class ModelNew(nn.Module):\n"
        f"    def __init__(self, {arguments}):\n"
        "        super().__init__()\n"
        f"{lines}\n\n"
        f"    def forward(self, {inputs}):\n"
        f"{block(forward, 8)}\n"
    )


def triton_file(functions: Iterable[str], kernels: str, model_source: str) -> str:
    """Return a candidate's file with Triton kernels; `functions` name the activations it needs."""
    parts = [_TRITON_IMPORTS.strip()]
    parts += [TRITON_FUNCTIONS[name].strip() for name in functions]
    parts += [textwrap.dedent(kernels).strip(), model_source.strip()]
    return "\n\n\n".join(parts) + "\n"


def cuda_file(functions: Iterable[str], cuda: str, kernels: Iterable[str], model_source: str) -> str:
    """Return a candidate's file with CUDA kernels that are compiled at run time, without torch's headers. `kernels`
    are the names of `extern "C"` kernels in `cuda`; each becomes a function of the file that returns the compiled
    kernel, compiled at its first call."""
    device = "\n\n".join([*(CUDA_FUNCTIONS[name] for name in functions), textwrap.dedent(cuda).strip()])
    parts = [_TORCH_IMPORTS.strip() + "\n\nfrom functools import cache"]
    parts.append(f'CUDA_SOURCE = r"""\n{device}\n"""')
    parts += [
        f'@cache\ndef {name}():\n    return torch.cuda._compile_kernel(CUDA_SOURCE, "{name}")' for name in kernels
    ]
    parts.append(model_source.strip())
    return "\n\n\n".join(parts) + "\n"
