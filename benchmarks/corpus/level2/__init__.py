"""Candidates for KernelBench's level 2: the library's convolution or GEMM, and own kernels for what follows it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from benchmarks.corpus.record import Draft

# Pairs of a module with `drafts(problem)` and a module with PROBLEMS.
FAMILIES = (
    ("pointwise", "pointwise_problems"),
    ("pointwise", "pointwise_volumes"),
    ("channels", "channels"),
    ("pooling", "pooling"),
    ("plane_means", "plane_means"),
    ("volumes", "volumes"),
    ("folded", "folded"),
    ("algebra", "algebra"),
    ("rows", "rows"),
    ("gemm_norm", "gemm_norm"),
    ("groupnorm", "groupnorm_problems"),
    ("batchnorm", "batchnorm"),
    ("conv_batchnorm", "conv_batchnorm"),
    ("normed", "normed"),
)


# Constants for checks without a GPU: small, and no multiples of block sizes. Pairs of problems and their constants.
_SMALL: tuple[tuple[tuple[int, ...], dict[str, int]], ...] = (
    (
        (1, 2, 4, 5, 10, 16, 25, 31, 32, 35, 42, 46, 52, 54, 57, 65, 67, 69, 71, 73, 82, 87, 93),
        {"batch_size": 3, "height": 15, "in_channels": 3, "out_channels": 16, "width": 15},
    ),
    ((3,), {"batch_size": 2, "depth": 2, "height": 2, "in_channels": 3, "out_channels": 16, "width": 8}),
    ((6,), {"batch_size": 2, "depth": 7, "height": 10, "in_channels": 3, "out_channels": 16, "width": 8}),
    (
        (7, 8, 13, 15, 20, 48, 50, 58, 74, 77, 89, 90, 96, 100),
        {"batch_size": 3, "depth": 7, "height": 8, "in_channels": 3, "out_channels": 16, "width": 8},
    ),
    ((18, 33, 39, 41, 51, 64, 97, 98), {"batch_size": 3, "in_features": 40, "out_features": 96}),
    (
        (19,),
        {
            "batch_size": 3,
            "groups": 4,
            "height": 15,
            "in_channels": 3,
            "num_groups": 4,
            "out_channels": 16,
            "width": 15,
        },
    ),
    ((21,), {"batch_size": 3, "height": 15, "in_channels": 3, "num_groups": 4, "out_channels": 16, "width": 15}),
    ((22,), {"batch_size": 3, "hidden_size": 96, "input_size": 40}),
    ((24, 26, 47), {"D": 7, "H": 8, "W": 8, "batch_size": 3, "in_channels": 3, "out_channels": 16}),
    ((30, 37, 88, 94), {"batch_size": 3, "in_features": 40, "num_groups": 6, "out_features": 96}),
    ((34,), {"D": 2, "H": 2, "W": 8, "batch_size": 2, "in_channels": 3, "out_channels": 16}),
    ((43,), {"batch_size": 2, "depth": 7, "height": 8, "in_channels": 3, "out_channels": 16, "width": 8}),
    ((45,), {"batch_size": 3, "hidden_size": 96, "input_size": 40, "output_size": 96}),
    ((55, 68), {"batch_size": 3, "in_features": 16, "out_features": 96}),
    ((60,), {"batch_size": 3, "depth": 7, "groups": 4, "height": 8, "in_channels": 3, "out_channels": 16, "width": 8}),
    ((61,), {"D": 7, "H": 8, "W": 8, "batch_size": 3, "groups": 4, "in_channels": 3, "out_channels": 16}),
    ((62,), {"batch_size": 3, "hidden_size": 96, "input_size": 40, "num_groups": 6}),
    ((78,), {"batch_size": 3, "depth": 8, "height": 8, "in_channels": 3, "out_channels": 16, "width": 8}),
    ((38,), {"depth": 4, "out_channels": 16, "batch_size": 2, "in_channels": 3, "width": 6, "height": 6}),
    ((72,), {"depth": 5, "out_channels": 16, "batch_size": 2, "in_channels": 3, "width": 6, "height": 5}),
    ((79,), {"depth": 7, "out_channels": 16, "batch_size": 3, "in_channels": 3, "width": 8, "height": 8}),
    ((84,), {"in_features": 40, "out_features": 96, "batch_size": 3}),
    ((85,), {"out_channels": 16, "batch_size": 3, "in_channels": 3, "width": 15, "height": 15, "num_groups": 4}),
    ((92,), {"out_channels": 16, "batch_size": 3, "in_channels": 3, "groups": 4, "width": 15, "height": 15}),
)
SMALL = {number: values for numbers, values in _SMALL for number in numbers}


def drafts() -> Iterator[Draft]:
    """Yield every candidate of the level."""
    for family, problems in FAMILIES:
        make = importlib.import_module(f"{__name__}.{family}").drafts
        for problem in importlib.import_module(f"{__name__}.{problems}").PROBLEMS:
            yield from make(problem)
