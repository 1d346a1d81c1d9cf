"""Level 1: single operators. Most are bound by memory traffic, launches or the order of a reduction."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from benchmarks.corpus.level1 import (
    convolution,
    losses,
    matmul,
    norms,
    planes,
    pointwise_problems,
    pooling,
    rows,
    scans,
    strided,
    transposed,
)
from benchmarks.corpus.record import Draft

FAMILIES = (pointwise_problems, scans, rows, planes, strided, losses, norms, pooling, matmul, convolution, transposed)

# Constants for checks without a GPU: small, and no multiples of block sizes.
_ROWS = {"batch_size": 3, "dim": 1501}
SMALL = {5: {"M": 3, "N": 1501}, 88: _ROWS} | {number: _ROWS for number in range(19, 33)}
SMALL |= {number: {"batch_size": 2, "dim1": 301, "dim2": 149} for number in (47, 48, 49, 51, 52, 53)}
SMALL |= {number: {"batch_size": 7, "input_shape": (1301,)} for number in (94, 96)}
SMALL |= {100: {"batch_size": 61, "input_shape": (61,)}}
_CUBE = {"batch_size": 2, "channels": 3, "dim1": 13, "dim2": 11, "dim3": 15, "depth": 13, "height": 11, "width": 15}
SMALL |= {
    41: {"batch_size": 2, "features": 3, "sequence_length": 211},
    42: {"batch_size": 2, "channels": 3, "height": 29, "width": 31},
    43: _CUBE,
    44: {"batch_size": 2, "in_channels": 3, "input_length": 211},
    45: {"batch_size": 2, "channels": 3, "height": 70, "width": 81},
    46: _CUBE,
}
_PRODUCT = {"M": 70, "N": 90, "K": 50, "batch_size": 2, "m": 70, "n": 90, "k": 50}
SMALL |= {number: _PRODUCT for number in (1, 2, 3, 6, 7, 8, 9, 13, 14, 15, 16, 17, 18)}
SMALL |= {10: {"N": 2, "M": 35, "K": 50, "L": 90}, 11: {"b": 2, "i": 5, "j": 7, "l": 50, "k": 90}}
SMALL |= {23: {"batch_size": 2, "dim": 20001}, 24: {"batch_size": 2, "dim": 20001}}
SMALL |= {number: {"batch_size": 2, "features": 8, "num_groups": 2, "dim1": 53, "dim2": 61} for number in range(33, 37)}
SMALL |= {number: {"batch_size": 3, "input_shape": (9001,)} for number in range(89, 94)}
_IMAGE = {"batch_size": 2, "in_channels": 20, "out_channels": 24, "height": 5, "width": 19}
_IMAGE |= {"height_in": 5, "width_in": 19, "length": 83}
SMALL |= {number: _IMAGE for number in (57, 65, 67, 69, 71, 76, 78, 81, 86, 87)}
SMALL |= {75: _IMAGE | {"out_channels": 12}}
_VOLUME = {"batch_size": 1, "out_channels": 20, "depth": 2, "height": 3, "width": 4}
_VOLUME |= {"depth_in": 2, "height_in": 3, "width_in": 4}
SMALL |= {number: _VOLUME | {"in_channels": 20} for number in (58, 61, 68, 70, 72, 73, 77)}
SMALL |= {number: _VOLUME | {"depth": 7, "height": 8, "width": 9} for number in (54, 60, 66)}


def drafts() -> Iterator[Draft]:
    """Yield the candidates of all families."""
    return chain.from_iterable(family.drafts() for family in FAMILIES)
