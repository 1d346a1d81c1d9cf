"""What is measured of a candidate's text, so that strategies can compare candidates without reading them.

All of it is a function of the normalised code: comments and formatting change nothing. The figures are stored beside
the code, so a change to this file needs other column names in `storage.SCHEMA`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

SKETCH_BITS = 64
# Bytes of a shingle: the width of a machine word, so that all shingles of a text are one view of it.
_SHINGLE = 8
_COUNTERS = 1024
_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # SplitMix64

# Families of means that a candidate can use; the text shows a family when it holds any of its marks.
OPERATIONS: dict[str, tuple[str, ...]] = {
    "CUDA source": ("__global__",),
    "Triton": ("triton.jit",),
    "compiled graph": ("torch.compile", "torch.jit", "CUDAGraph", "cuda.graph("),
    "reduced precision": ("float16", ".half(", "autocast", "tf32"),
    "fused call": ("addmm", "addbmm", "baddbmm", "addcmul", "addcdiv", "lerp", "scaled_dot_product_attention"),
    "matrix product": (" @ ", "matmul", "mm(", "einsum", "linear(", "Linear("),
    "convolution": ("onv1d", "onv2d", "onv3d", "conv_transpose"),
    "reduction": ("sum(", "mean(", "amax(", "softmax", "norm("),
    "memory layout": ("channels_last", ".contiguous(", "as_strided", "permute(", "transpose("),
    "memory reuse": ("out=", "torch.empty", "add_(", "mul_(", "copy_("),
    "loop": ("for ", "while "),
}


@dataclass(frozen=True)
class CodeFeatures:
    """length: characters of the normalised code. operations: bit i is set when it shows the i-th of OPERATIONS.
    sketch: 64 bits, see `sketch`.
    """

    length: int = 0
    operations: int = 0
    sketch: int = 0


def code_features(normalised: str) -> CodeFeatures:
    """Return the features of a code that `normalise_code` returned."""
    return CodeFeatures(len(normalised), _operations(normalised), sketch(normalised))


def _operations(text: str) -> int:
    return sum(any(mark in text for mark in marks) << i for i, marks in enumerate(OPERATIONS.values()))


def sketch(text: str) -> int:
    """Return a sketch of a text: 64 bits, of which similar texts differ in few.

    The counts of the text's 8-byte shingles, added with hashed signs into 1024 counters (the hashing trick,
    Weinberger et al., ICML 2009), are compared with 64 fixed random hyperplanes; bit i is the side of the i-th
    they lie (Charikar, STOC 2002; "SimHash"). Two texts whose count vectors enclose the angle theta differ in
    64 theta / pi bits in the mean, so their cosine similarity follows from the bits: see `similarity`.
    """
    import numpy as np

    data = text.encode("utf-8", "replace").ljust(_SHINGLE)
    words = np.ndarray((len(data) - _SHINGLE + 1,), dtype="<u8", buffer=data, strides=(1,))
    slots = (words * np.uint64(_GOLDEN)) >> np.uint64(64 - 1 - (_COUNTERS - 1).bit_length())  # counter and sign
    counts = np.bincount(slots.view(np.int64), minlength=2 * _COUNTERS)
    sides = _hyperplanes() @ (counts[0::2] - counts[1::2]).astype(np.float32) > 0.0
    return int.from_bytes(np.packbits(sides).tobytes(), "big")


def similarity(sketches: np.ndarray, to: int) -> np.ndarray:
    """Return float64[n]: the estimated cosine similarity of each of `sketches` (uint64[n]) to one.

    It is cos(pi d / 64), d being the number of bits in which they differ; its standard error is about 0.06 where the
    similarity is 0.9.
    """
    import numpy as np

    cosines = np.cos(np.pi / SKETCH_BITS * np.arange(SKETCH_BITS + 1))
    return cosines[np.bitwise_count(sketches ^ np.uint64(to))]


@cache
def _hyperplanes() -> np.ndarray:
    # float32[64, 1024] of -1 and 1, from SplitMix64 and not from numpy's generators: stored sketches must stay
    # comparable whatever numpy's version.
    import numpy as np

    x = np.arange(1, _COUNTERS + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX_2)
    x ^= x >> np.uint64(31)
    bits = (x >> np.arange(SKETCH_BITS, dtype=np.uint64)[:, None]) & np.uint64(1)
    return bits.astype(np.float32) * 2.0 - 1.0
