"""Problems in KernelBench's form and right candidates for them, drawn from a grammar: a matrix product, a convolution
or neither, then pointwise operations and perhaps a statistic; or one operation alone, which the candidate computes.

A pretrained policy learns from them how such a candidate is written. Both are made from one description, so the
candidate computes what the reference does (`tests/problems/generated/` runs both). No problem is one of KernelBench's
held-out ones: what those compute, in order, is never drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from cudal1_ray.problems.corpus import CorpusEntry
from cudal1_ray.problems.generated.alone import alone_pair
from cudal1_ray.problems.generated.candidates import Tail, in_segments, over_channels, over_everything, pointwise
from cudal1_ray.problems.generated.convolutions import convolution_pair
from cudal1_ray.problems.generated.dependence import depends_on_input
from cudal1_ray.problems.generated.held_out import is_held_out
from cudal1_ray.problems.generated.layers import Layer, draw_convolution, draw_gemm, draw_input
from cudal1_ray.problems.generated.losses import SUMMED, draw_loss
from cudal1_ray.problems.generated.pooling import draw_pooling
from cudal1_ray.problems.generated.products import draw_product
from cudal1_ray.problems.generated.reductions import draw_reduction
from cudal1_ray.problems.generated.scans import draw_scan
from cudal1_ray.problems.generated.statistics import (
    CHANNELS,
    EVERYTHING,
    GROUPS,
    NORMALISATIONS,
    PLANES,
    REDUCTIONS,
    ROWS,
    Statistic,
    standardisation,
)
from cudal1_ray.problems.generated.steps import Step, draw_steps, further_input, one_of
from cudal1_ray.problems.generated.writing import Description, analysis, candidate, design, reference
from cudal1_ray.problems.problem import Problem

if TYPE_CHECKING:
    import numpy as np

# Share of problems of a convolution alone.
_CONVOLUTIONS = 0.1
# Shares of the other operations alone, and what draws them. KernelBench's level 1 has 5 to 7 each of losses, poolings,
# scans and reductions among its 100 problems.
ALONE = ((0.05, draw_loss), (0.05, draw_pooling), (0.05, draw_scan), (0.05, draw_reduction), (0.05, draw_product))


def generate(rng: np.random.Generator, identity: str) -> tuple[Problem, CorpusEntry]:
    """Return a problem and a right candidate for it, which no evaluator has measured.

    Args:
        identity: the problem's id, from which the candidate's follows.
    """
    share = rng.random()
    if share < _CONVOLUTIONS:
        return convolution_pair(rng, identity)
    share -= _CONVOLUTIONS
    for of_kind, draw in ALONE:
        if share < of_kind:
            return alone_pair(draw, rng, identity)
        share -= of_kind
    while True:
        layer, tail, kept = _draw(rng)
        pooled = layer.kind == "conv" and tail.statistic is None and rng.random() < 0.15
        last = _pooling(layer, rng) if pooled else None
        words = _words((*kept, *tail.before), tail.statistic, (*tail.after, *([last] if last else [])))
        if not is_held_out(layer.word, words) and depends_on_input(layer, tail, kept, [last] if last else []):
            break
    kernel = "_".join(_words(tail.before, tail.statistic, tail.after)).lower()[:48].rstrip("_") + "_kernel"
    folded = ""
    if tail.statistic is None:
        folds = layer.without_bias and not kept and rng.random() < 0.5
        folded = layer.names.take("conv_bias") if folds else ""
        written = pointwise(kernel, layer, tail, folded)
    elif tail.over == EVERYTHING:
        written = over_everything(kernel, tail)
    else:
        written = (over_channels if tail.over == CHANNELS else in_segments)(kernel, layer, tail)
    name = "_".join([*filter(None, [layer.word]), *words])
    description = Description(name, layer, tail, kept, last, folded)
    problem = Problem(identity, reference(description, rng), name)
    entry = CorpusEntry(
        problem_id=identity,
        entry_id=f"{identity}/generated",
        code=candidate(description, written),
        technique="operation fusion",
        analysis=analysis(description, written, rng),
        design=design(description, written),
        expected="accepted",
    )
    return problem, entry


def _words(before: Sequence[Step], statistic: Statistic | None, after: Sequence[Step]) -> list[str]:
    """Return the words of operations in a problem's name."""
    words = [*(step.word for step in before), statistic.word if statistic else "", *(step.word for step in after)]
    return [word for word in words if word]


def _draw(rng: np.random.Generator) -> tuple[Layer, Tail, tuple[Step, ...]]:
    """Return a layer, its tail, and layers between the two that a candidate leaves to the library."""
    kind = rng.choice(
        ["gemm", "conv", "input", "gemm rows", "conv planes", "groups", "channels", "input rows", "everything"],
        p=[0.24, 0.2, 0.07, 0.16, 0.08, 0.08, 0.08, 0.05, 0.04],
    )
    if kind == "gemm":
        return _with_steps(draw_gemm(rng), rng, most=6)
    if kind == "conv":
        return _with_steps(draw_convolution(rng), rng, most=5)
    if kind == "input":
        return _with_steps(draw_input(rng, one_of((2, 2, 3, 4), rng)), rng, most=4)
    if kind == "gemm rows":
        return _over_rows(draw_gemm(rng), rng)
    if kind == "input rows":
        return _over_rows(draw_input(rng, one_of((2, 2, 3), rng)), rng)
    if kind == "conv planes":
        return _over_planes(draw_convolution(rng), rng)
    if kind == "everything":
        return _over_everything(draw_input(rng, one_of((2, 2, 3), rng)), rng)
    if kind == "groups":
        return _over_groups(draw_convolution(rng) if rng.random() < 0.6 else draw_gemm(rng), rng)
    layer = draw_convolution(rng) if rng.random() < 0.6 else draw_input(rng, one_of((3, 4), rng))
    statistic, form = _statistic((*REDUCTIONS, *NORMALISATIONS), CHANNELS, rng)
    return layer, _around(layer, rng, Tail((), statistic, CHANNELS, form)), ()


def _with_steps(layer: Layer, rng: np.random.Generator, most: int) -> tuple[Layer, Tail, tuple[Step, ...]]:
    """Return a tail of pointwise steps alone, perhaps behind a batch norm and before a pooling of the library's."""
    kept: tuple[Step, ...] = ()
    if layer.kind and rng.random() < 0.12:
        dimension = layer.dims - 2 or 1
        attribute = layer.names.take(one_of(("bn", "batch_norm", "norm"), rng))
        line = f"self.{attribute} = nn.BatchNorm{dimension}d({layer.channels})"
        kept = (Step("BatchNorm", f"x = self.{attribute}(x)", "", state=(line,), kept=(line,)),)
    steps = draw_steps(int(rng.integers(1, most + 1)), layer.names, rng, layer.channels, layer.dims)
    if rng.random() < 0.12 and (layer.kind == "gemm" or not layer.kind):
        other = layer.names.take(one_of(("y", "other", "residual_input"), rng))
        of_other = f"batch_size, {layer.channels}" if layer.kind else layer.inputs[0]
        layer = replace(layer, inputs=(*layer.inputs, of_other))
        steps.insert(int(rng.integers(len(steps) + 1)), further_input(other, rng))
    return layer, Tail(tuple(steps)), kept


def _over_rows(layer: Layer, rng: np.random.Generator) -> tuple[Layer, Tail, tuple[Step, ...]]:
    """Return a tail with a statistic over the last axis."""
    count = int(dict((*layer.arguments, *layer.sizes))[layer.channels or layer.sizes[-1][0]])
    if layer.kind and rng.random() < 0.15:
        attribute = layer.names.take(one_of(("layer_norm", "ln", "norm"), rng))
        line = f"self.{attribute} = nn.LayerNorm({layer.channels})"
        statistic, form = standardisation("LayerNorm", "eps", True), f"x = self.{attribute}(x)"
        kept = (Step("", "", "", state=(line,), kept=(line,)),)
        return layer, _around(layer, rng, Tail((), statistic, ROWS, form, affine=attribute, count=count)), kept
    statistic, form = _statistic((*REDUCTIONS, *NORMALISATIONS), ROWS, rng)
    if layer.dims == 3:  # over the last axis, not the second
        form = form.replace("dim=1", "dim=-1")
    return layer, _around(layer, rng, Tail((), statistic, ROWS, form, count=count)), ()


def _over_planes(layer: Layer, rng: np.random.Generator) -> tuple[Layer, Tail, tuple[Step, ...]]:
    """Return a tail with a statistic over the axes after the channels."""
    if rng.random() < 0.4:
        attribute = layer.names.take("instance_norm")
        line = f"self.{attribute} = nn.InstanceNorm{layer.dims - 2}d(out_channels)"
        statistic, form = standardisation("InstanceNorm", "1e-5", False), f"x = self.{attribute}(x)"
        # The norm has no parameters, so a candidate needs no such module.
        return layer, _around(layer, rng, Tail((), statistic, PLANES, form)), (Step("", "", "", state=(line,)),)
    statistic, form = _statistic(REDUCTIONS, PLANES, rng)
    form = form.replace("AXES", "[2, 3]" if layer.dims == 4 else "[2, 3, 4]")
    return layer, _around(layer, rng, Tail((), statistic, PLANES, form)), ()


def _over_groups(layer: Layer, rng: np.random.Generator) -> tuple[Layer, Tail, tuple[Step, ...]]:
    """Return a tail with a group norm."""
    attribute = layer.names.take(one_of(("group_norm", "gn", "norm"), rng))
    groups = layer.names.take("num_groups")
    line = f"self.{attribute} = nn.GroupNorm({groups}, {layer.channels})"
    number = one_of((4, 8) if layer.kind == "conv" else (8, 16, 32), rng)
    statistic, form = standardisation("GroupNorm", "eps", True), f"x = self.{attribute}(x)"
    kept = (Step("", "", "", arguments=((groups, str(number)),), state=(line,), kept=(line,)),)
    count = int(dict(layer.arguments)[layer.channels]) // number if layer.kind == "gemm" else 0
    return layer, _around(layer, rng, Tail((), statistic, GROUPS, form, affine=attribute, count=count)), kept


def _over_everything(layer: Layer, rng: np.random.Generator) -> tuple[Layer, Tail, tuple[Step, ...]]:
    """Return a tail with a sum or mean of all elements, at most `SUMMED` of each input, mostly after arithmetic with
    another one, as in a loss.
    """
    (_, batch), *axes = layer.sizes
    batch = str(min(int(batch), SUMMED // prod(int(length) for _, length in axes)))
    layer = replace(layer, sizes=(("batch_size", batch), *axes))
    steps = draw_steps(int(rng.integers(1, 4)), layer.names, rng)
    if rng.random() < 0.75:
        other = layer.names.take(one_of(("targets", "target", "y"), rng))
        layer = replace(layer, inputs=layer.inputs * 2)
        steps.insert(0, further_input(other, rng))
    statistic, form = _statistic(REDUCTIONS, EVERYTHING, rng)
    return layer, Tail(tuple(steps), statistic, EVERYTHING, form), ()


def _pooling(layer: Layer, rng: np.random.Generator) -> Step:
    """Return a pooling, which a candidate leaves to the library."""
    word = one_of(("MaxPool", "AvgPool"), rng)
    attribute = layer.names.take(one_of(("pool", word.lower()[:3] + "_pool"), rng))
    line = f"self.{attribute} = nn.{word}{layer.dims - 2}d(2)"
    return Step(word, f"x = self.{attribute}(x)", "", state=(line,), kept=(line,))


def _around(layer: Layer, rng: np.random.Generator, tail: Tail) -> Tail:
    """Return a tail of a statistic alone with some steps before and after it."""
    before = draw_steps(int(rng.choice([0, 1, 2], p=[0.45, 0.35, 0.2])), layer.names, rng, layer.channels, layer.dims)
    # The one value of a reduction has no channel.
    channels = "" if tail.statistic and tail.statistic.reduces else layer.channels
    after = draw_steps(int(rng.choice([0, 1, 2], p=[0.35, 0.4, 0.25])), layer.names, rng, channels, layer.dims)
    return replace(tail, before=tuple(before), after=tuple(after))


def _statistic(statistics: Sequence[Statistic], over: str, rng: np.random.Generator) -> tuple[Statistic, str]:
    """Draw one of the statistics that may be over this, and the reference's line of it."""
    statistic = one_of([each for each in statistics if over in each.forms], rng)
    return statistic, one_of(statistic.forms[over], rng)
