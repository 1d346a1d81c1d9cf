"""Activations as Triton device functions. They let NaN through where PyTorch does (a comparison with NaN is false, so
`where` keeps it), and need one exponential each."""

from __future__ import annotations

# name -> source of a Triton device function of the same name.
TRITON_FUNCTIONS = {
    "relu": """
@triton.jit
def relu(x):
    return tl.where(x < 0.0, 0.0, x)
""",
    "clamp": """
@triton.jit
def clamp(x, low, high):
    x = tl.where(x < low, low, x)
    return tl.where(x > high, high, x)
""",
    "leaky_relu": """
@triton.jit
def leaky_relu(x, slope):
    return tl.where(x > 0.0, x, x * slope)
""",
    "tanh": """
@triton.jit
def tanh(x):
    # exp(2x) overflows to inf for large x, and 2 / inf = 0 gives the limit 1
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)
""",
    "gelu": """
@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
""",
    "silu": """
@triton.jit
def silu(x):
    return x * tl.sigmoid(x)
""",
    "hardswish": """
@triton.jit
def hardswish(x):
    gate = x + 3.0
    gate = tl.where(gate < 0.0, 0.0, gate)
    gate = tl.where(gate > 6.0, 6.0, gate)
    return x * gate * 0.16666666666666666
""",
    "mish": """
@triton.jit
def mish(x):
    # tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2) with e = exp(x); it is 1 in float32 from x = 20 on
    e = tl.exp(tl.where(x > 20.0, 20.0, x))
    t = e * (e + 2.0)
    return x * (t / (t + 2.0))
""",
    "elu": """
@triton.jit
def elu(x, alpha):
    return tl.where(x > 0.0, x, alpha * (tl.exp(x) - 1.0))
""",
    "selu": """
@triton.jit
def selu(x):
    negative = 1.6732632423543772 * (tl.exp(x) - 1.0)
    return 1.0507009873554805 * tl.where(x > 0.0, x, negative)
""",
    "softplus": """
@triton.jit
def softplus(x):
    # log(1 + exp(x)) is x in float32 from x = 20 on
    return tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.where(x > 20.0, 20.0, x))))
""",
    "hardsigmoid": """
@triton.jit
def hardsigmoid(x):
    gate = x / 6.0 + 0.5
    gate = tl.where(gate < 0.0, 0.0, gate)
    return tl.where(gate > 1.0, 1.0, gate)
""",
}
