"""Convolutions followed by a BatchNorm in training mode."""

from __future__ import annotations

from benchmarks.corpus.level2.conv_batchnorm_kernels import (
    APPLY,
    APPLY_CALL,
    ATOMIC,
    ATOMIC_FORWARD,
    FUSED,
    MERGE,
    MISH,
    PLANE_AFFINE,
    PLANE_STATISTICS,
    SCALING,
    STATISTICS_CALL,
    SUBTRACT,
    TRANSPOSED,
)
from benchmarks.corpus.level2.members import Member, Problem, drafts

__all__ = ["PROBLEMS", "drafts"]

PROBLEMS = (
    Problem(
        problem=52,
        arguments="in_channels, out_channels, kernel_size, eps=1e-5, momentum=0.1",
        body=(
            "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
            "self.bn = nn.BatchNorm2d(out_channels, eps=eps, momentum=momentum)",
        ),
        analysis="""The activation is Mish written out: softplus, tanh, product, three kernels with seven transfers
of the map, between the pass for the convolution's bias (2) and BatchNorm in training mode (read, read, write).
Twelve transfers follow the convolution. The statistics are those of Mish's result over the whole batch, so one read
for statistics and one read and one write to finish is the minimum. Mish costs one exponential in its rational form,
so it is cheaper to compute it twice than to store it.""",
        members=(
            Member(
                "planes",
                PLANE_STATISTICS + MERGE + APPLY,
                STATISTICS_CALL + APPLY_CALL,
                """Three kernels. Each (image, channel) plane gets a program that adds the bias, applies Mish and
reduces the plane to its mean and sum of squared deviations; a program per channel merges the planes of all images
by Chan's formula, updates the running buffers and writes one slope and one intercept; a last pass recomputes Mish
and applies them in place, in tiles of 2048 with scalars per program. Nothing but a few floats per plane is stored
between, and the statistics are as accurate as a two-pass computation.""",
                (*FUSED, "warp-level reduction"),
                ("mish",),
                constants=MISH,
            ),
            Member(
                "atomic",
                ATOMIC,
                ATOMIC_FORWARD,
                """Two kernels on the same grid of (plane, tile of 4096). The first reduces a tile of Mish values
to a sum and a sum of squares, both of differences from one reference value of the channel so that float32 does not
cancel, and adds them to per-channel accumulators by atomics. The second derives mean and variance from the
accumulators in every program, which is a few scalar instructions, recomputes Mish and writes the normalised value;
one program per channel updates the running buffers. One launch less than a merge kernel, at the price of contended
atomics.""",
                (*FUSED, "thread-block configuration"),
                ("mish",),
                constants=MISH,
            ),
        ),
    ),
    Problem(
        problem=73,
        arguments="in_channels, out_channels, kernel_size, scaling_factor",
        body=(
            "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
            "self.bn = nn.BatchNorm2d(out_channels)",
            "self.scaling_factor = scaling_factor",
        ),
        analysis="""A light convolution (8 input channels) is followed by its bias, BatchNorm in training mode and a
constant factor: two, three and two transfers of a 64-channel map, seven in all. Batch statistics need one read
before the final read and write, so three is the floor. The convolution's bias cancels in the normalisation (it
shifts value and mean alike) and appears only in the running mean, and the factor merges with gamma and beta, so
neither needs to touch an element.""",
        members=(
            Member(
                "planes",
                PLANE_STATISTICS + MERGE + APPLY,
                STATISTICS_CALL + APPLY_CALL,
                """The convolution runs without its bias, which normalisation would remove anyway; only the
running mean gets it added. One program per plane computes mean and centred sum of squares, one program per channel
merges the images' planes with Chan's formula and folds gamma, beta and the scaling factor into a slope and an
intercept, and the last kernel applies y = a x + b in place with two scalars per program. Every pass over the map is
a pure stream of the bytes that cannot be avoided.""",
                (*FUSED, "mathematical short-circuit"),
                constants=SCALING,
            ),
            Member(
                "atomic",
                ATOMIC,
                ATOMIC_FORWARD,
                """Tiles of 4096 elements of a plane are reduced to a shifted sum and sum of squares and added to
two accumulators per channel by atomics; the finishing kernel, on the same grid, turns the accumulators into slope
and intercept in each program and streams the map once more. The bias of the convolution is left out, as it cancels,
and the factor is part of the slope. Many blocks add to few addresses: with 64 channels and a large batch the
atomics queue up, which a separate merge kernel avoids.""",
                (*FUSED, "thread-block configuration"),
                constants=SCALING,
            ),
        ),
    ),
    Problem(
        problem=15,
        arguments="in_channels, out_channels, kernel_size, stride, padding, bias=True",
        body=(
            "self.conv_transpose = nn.ConvTranspose3d(",
            "    in_channels, out_channels, kernel_size, stride=stride, padding=padding, bias=bias",
            ")",
            "self.batch_norm = nn.BatchNorm3d(out_channels)",
        ),
        analysis="""BatchNorm with batch statistics, then each volume's own spatial mean is subtracted. Eager code
adds the layer's bias (2 transfers), normalises (3), reduces for the mean (1) and subtracts (3), nine transfers of
the upsampled volume. But the normalisation is affine per channel, so subtracting the volume's mean removes beta,
the batch mean and the bias: y = (x - mean of this volume) * gamma / sigma of the channel. The per-volume means are
exactly what is needed to build the batch variance, so one read gives all statistics and one read and one write
finish.""",
        members=(
            Member(
                "centred",
                PLANE_STATISTICS + MERGE + SUBTRACT,
                STATISTICS_CALL
                + """centre_kernel[(batch * channels, triton.cdiv(plane_size, 2048))](
    y, statistics[0], affine[0], channels, plane_size, BLOCK=2048, num_warps=8
)
return y
""",
                """One program per (image, channel) volume computes mean and centred sum of squares in one read.
The merge kernel combines the images of a channel by Chan's formula, updates the running buffers (adding the layer's
bias to the mean, the only place where it matters) and writes gamma / sigma. The last kernel subtracts the volume's
own mean, already known from the first kernel, and multiplies: two scalars per program, in place. Beta and batch
mean never enter, because they cancel for every input.""",
                (*FUSED, "mathematical short-circuit"),
                constants=TRANSPOSED,
            ),
            Member(
                "centred_small",
                PLANE_STATISTICS + MERGE + SUBTRACT,
                STATISTICS_CALL
                + """centre_kernel[(batch * channels, triton.cdiv(plane_size, 512))](
    y, statistics[0], affine[0], channels, plane_size, BLOCK=512, num_warps=2
)
return y
""",
                """The same algebra (the volume's mean replaces batch mean, beta and bias), with other launch
shapes: statistics in steps of 1024 per program, which keeps fewer loads in flight, and a final pass in tiles of 512
with two warps. Volumes here have an odd number of elements, so loads are not vector-aligned and short tiles lose
little to masking, but each program reads its two scalars for a quarter of the work. Traffic is the same two reads
and one write; only latency hiding differs.""",
                (*FUSED, "thread-block configuration"),
                constants={**TRANSPOSED, "SIZE": 1024},
            ),
        ),
    ),
    Problem(
        problem=77,
        arguments="in_channels, out_channels, kernel_size, scale_factor, eps=1e-5, momentum=0.1",
        body=(
            "self.conv_transpose = nn.ConvTranspose3d(in_channels, out_channels, kernel_size)",
            "self.scale_factor = scale_factor",
            "self.batch_norm = nn.BatchNorm3d(out_channels, eps=eps, momentum=momentum)",
            "self.global_avg_pool = nn.AdaptiveAvgPool3d((1, 1, 1))",
        ),
        analysis="""A heavy transposed convolution (5x5x5, 64 to 128 channels), then bias, scale, BatchNorm with
batch statistics and a global average. Eight transfers of the volume end in one number per plane. Averaging commutes
with the affine normalisation: the output is the plane's mean, normalised. So the normalised volume is never needed,
only each plane's mean and sum of squared deviations, from which the batch variance follows. One read of the volume
and nothing written; the convolution's flops remain and bound the gain.""",
        members=(
            Member(
                "plane_means",
                PLANE_STATISTICS + MERGE + PLANE_AFFINE,
                STATISTICS_CALL
                + """means = y.new_empty((batch, channels, 1, 1, 1))
plane_affine_kernel[(triton.cdiv(batch * channels, 256),)](
    statistics[0], affine[0], affine[1], means, batch * channels, channels, BLOCK=256, num_warps=4
)
return means
""",
                """One pass over the volume: a program per plane accumulates shifted sums and writes mean and
centred sum of squares. A program per channel merges them over the batch, with the scale factor entering as s and
s^2 instead of touching elements, and updates the running buffers; the bias cancels except in the running mean. A
last kernel maps plane means to outputs. The big tensor is read once and never written, where the reference writes
it three times. Statistics are exact to rounding by Chan's formula.""",
                (*FUSED, "mathematical short-circuit"),
                constants={
                    **TRANSPOSED,
                    "CALL": "F.conv_transpose3d(x, self.conv_transpose.weight, None)",
                    "MERGE_PARAMETERS": "conv_bias_ptr, scale, ",
                    "MERGE_ARGUMENTS": "self.conv_transpose.bias, self.scale_factor, ",
                    "AFFINE": "    slope = tl.load(gamma_ptr + channel) * scale\n"
                    "    slope *= tl.rsqrt(variance * scale * scale + eps)\n"
                    "    intercept = tl.load(beta_ptr + channel) - mean * slope",
                    "TRUE_MEAN": "(mean + tl.load(conv_bias_ptr + channel)) * scale",
                    "TRUE_VARIANCE": "variance * scale * scale",
                },
            ),
        ),
    ),
)
