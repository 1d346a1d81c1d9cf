"""Problems in KernelBench's form and right candidates for them, drawn from a grammar: matrix products, convolutions or
none, then pointwise operations and perhaps a statistic.

A pretrained policy learns from them how such a candidate is written. Both are made from one description, so the
candidate computes what the reference does (`tests/problems/generated/` runs both). No problem is one of KernelBench's
held-out ones: what those compute, in order, is never drawn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudal1_ray.problems.corpus import CorpusEntry
from cudal1_ray.problems.generated.candidates import (
    CHANNELS,
    EVERYTHING,
    GROUPS,
    PLANES,
    ROWS,
    Tail,
    Written,
    in_segments,
    over_channels,
    over_everything,
    pointwise,
)
from cudal1_ray.problems.generated.held_out import is_held_out
from cudal1_ray.problems.generated.layers import Layer, draw_convolution, draw_gemm, draw_input
from cudal1_ray.problems.generated.statistics import NORMALISATIONS, REDUCTIONS, Statistic, standardisation
from cudal1_ray.problems.generated.steps import Step, draw_steps, further_input, one_of
from cudal1_ray.problems.generated.writing import Description, analysis, candidate, reference
from cudal1_ray.problems.problem import Problem

if TYPE_CHECKING:
    import numpy as np


def generate(rng: np.random.Generator, identity: str) -> tuple[Problem, CorpusEntry]:
    """Return a problem and a candidate for it, which no evaluator has measured.

    Args:
        identity: the problem's id.
    """
    while True:
        layer, tail, kept = _draw(rng)
        last = _pooling(layer, rng) if layer.kind == "conv" and tail.statistic is None and rng.random() < 0.15 else ()
        words = [*_words(kept, tail), *(step.word for step in last)]
        if not is_held_out(layer.word, words):
            break
    kernel = "_".join(word.lower() for word in _words((), tail))[:48].rstrip("_") + "_kernel"
    folded = ""
    if tail.statistic is None:
        has_bias = layer.without_bias and not kept and rng.random() < 0.5
        folded = layer.names.take("conv_bias") if has_bias else ""
        written = pointwise(kernel, layer, tail, folded)
    elif tail.over == EVERYTHING:
        written = over_everything(kernel, tail)
    else:
        written = (over_channels if tail.over == CHANNELS else in_segments)(kernel, layer, tail)
    name = "_".join([*filter(None, [layer.word]), *words])
    description = Description(name, layer, tail, kept, last, folded)
    problem = Problem(identity, reference(description, rng), name)
    entry = CorpusEntry(
        identity,
        f"{identity}/generated",
        candidate(description, written),
        "operation fusion",
        analysis(description, rng),
        _numbered(layer, written, folded, (*kept, *last)),
        "accepted",
    )
    return problem, entry


def _numbered(layer: Layer, written: Written, folded: str, kept: tuple[Step, ...]) -> str:
    library = [step.word for step in kept if step.word]
    sentences = list(written.design)
    if layer.kind:
        own = "`x @ self.weight.T`" if layer.attribute == "weight" else f"`self.{layer.attribute}`"
        first = f"{own} computes the {'matrix product' if layer.kind == 'gemm' else 'convolution'}"
        first += " without its bias, which the kernel adds" if folded else " with the library"
        sentences.insert(0, f"{first}{', as does ' + ' and '.join(library) if library else ''}.")
    return "\n".join(f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1))


def _words(kept: tuple[Step, ...], tail: Tail) -> list[str]:
    statistic = [tail.statistic.word] if tail.statistic else []
    words = [step.word for step in tail.before] + statistic + [step.word for step in tail.after]
    return [word for word in [*(step.word for step in kept), *words] if word]


def _draw(rng: np.random.Generator) -> tuple[Layer, Tail, tuple[Step, ...]]:
    """Return a layer, its tail, and layers between the two that a candidate leaves to the library."""
    kind = rng.choice(
        ["gemm", "conv", "input", "gemm rows", "conv planes", "groups", "channels", "input rows", "everything"],
        p=[0.24, 0.2, 0.07, 0.16, 0.08, 0.08, 0.08, 0.05, 0.04],
    )
    if kind == "gemm":
        layer = draw_gemm(rng)
        return _with_steps(layer, rng, most=6)
    if kind == "conv":
        return _with_steps(draw_convolution(rng), rng, most=5)
    if kind == "input":
        return _with_steps(draw_input(rng, int(one_of((2, 2, 3, 4), rng))), rng, most=4)
    if kind == "gemm rows":
        return _over_rows(draw_gemm(rng), rng)
    if kind == "input rows":
        return _over_rows(draw_input(rng, int(one_of((2, 2, 3), rng))), rng)
    if kind == "conv planes":
        return _over_planes(draw_convolution(rng), rng)
    if kind == "everything":
        return _over_everything(draw_input(rng, int(one_of((2, 2, 3), rng))), rng)
    if kind == "groups":
        return _over_groups(draw_convolution(rng) if rng.random() < 0.6 else draw_gemm(rng), rng)
    layer = draw_convolution(rng) if rng.random() < 0.6 else draw_input(rng, int(one_of((3, 4), rng)))
    statistics = [of for of in (*REDUCTIONS, *NORMALISATIONS) if of.of_channels]
    statistic = _with_form(one_of(statistics, rng), rng, CHANNELS)
    return layer, _around(layer, statistic, CHANNELS, rng), ()


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
    count = int(dict((*layer.arguments, *layer.sizes))[layer.channels or layer.sizes[-1][0]])
    if layer.kind and rng.random() < 0.15:
        attribute = layer.names.take(one_of(("layer_norm", "ln", "norm"), rng))
        line = f"self.{attribute} = nn.LayerNorm({layer.channels})"
        statistic = standardisation("LayerNorm", "eps", f"x = self.{attribute}(x)", True)
        kept = (Step("", "", "", state=(line,), kept=(line,)),)
        return layer, _around(layer, statistic, ROWS, rng, attribute, count), kept
    statistics = [of for of in (*REDUCTIONS, *NORMALISATIONS) if of.of_rows]
    statistic = _with_form(one_of(statistics, rng), rng, ROWS)
    if layer.dims == 3:  # over the last axis, not the second
        forms = tuple(form.replace("dim=1", "dim=-1") for form in statistic.of_rows)
        statistic = replace(statistic, of_rows=forms)
    return layer, _around(layer, statistic, ROWS, rng, "", count), ()


def _over_planes(layer: Layer, rng: np.random.Generator) -> tuple[Layer, Tail, tuple[Step, ...]]:
    axes = "[2, 3]" if layer.dims == 4 else "[2, 3, 4]"
    if rng.random() < 0.4:
        attribute = layer.names.take("instance_norm")
        line = f"self.{attribute} = nn.InstanceNorm{layer.dims - 2}d(out_channels)"
        statistic = standardisation("InstanceNorm", "1e-5", f"x = self.{attribute}(x)", False)
        # It holds no parameters, so a candidate needs no such module.
        return layer, _around(layer, statistic, PLANES, rng), (Step("", "", "", state=(line,)),)
    statistic = _with_form(one_of([of for of in REDUCTIONS if of.of_planes], rng), rng, PLANES)
    statistic = replace(statistic, of_planes=tuple(form.replace("AXES", axes) for form in statistic.of_planes))
    return layer, _around(layer, statistic, PLANES, rng), ()


def _over_groups(layer: Layer, rng: np.random.Generator) -> tuple[Layer, Tail, tuple[Step, ...]]:
    attribute = layer.names.take(one_of(("group_norm", "gn", "norm"), rng))
    groups = layer.names.take("num_groups")
    line = f"self.{attribute} = nn.GroupNorm({groups}, {layer.channels})"
    number = str(one_of((4, 8) if layer.kind == "conv" else (8, 16, 32), rng))
    statistic = standardisation("GroupNorm", "eps", f"x = self.{attribute}(x)", True)
    kept = (Step("", "", "", arguments=((groups, number),), state=(line,), kept=(line,)),)
    count = int(dict(layer.arguments)[layer.channels]) // int(number) if layer.kind == "gemm" else 0
    return layer, _around(layer, statistic, GROUPS, rng, attribute, count), kept


def _over_everything(layer: Layer, rng: np.random.Generator) -> tuple[Layer, Tail, tuple[Step, ...]]:
    """Return sum or mean of all elements, most of them of what two inputs differ by, as losses are."""
    steps = draw_steps(int(rng.integers(1, 4)), layer.names, rng)
    if rng.random() < 0.75:
        other = layer.names.take(one_of(("targets", "target", "y"), rng))
        layer = replace(layer, inputs=layer.inputs * 2)
        steps.insert(0, further_input(other, rng))
    statistic = _with_form(one_of([of for of in REDUCTIONS if of.of_everything], rng), rng, EVERYTHING)
    return layer, Tail(tuple(steps), statistic, EVERYTHING), ()


def _pooling(layer: Layer, rng: np.random.Generator) -> tuple[Step, ...]:
    """Return a pooling, which a candidate leaves to the library."""
    word = one_of(("MaxPool", "AvgPool"), rng)
    attribute = layer.names.take(one_of(("pool", word.lower()[:3] + "_pool"), rng))
    line = f"self.{attribute} = nn.{word}{layer.dims - 2}d(2)"
    return (Step(word, f"x = self.{attribute}(x)", "", state=(line,), kept=(line,)),)


def _around(
    layer: Layer, statistic: Statistic, over: str, rng: np.random.Generator, affine: str = "", count: int = 0
) -> Tail:
    """Return a tail with a few steps before and after a statistic."""
    before = draw_steps(int(rng.choice([0, 1, 2], p=[0.45, 0.35, 0.2])), layer.names, rng, layer.channels, layer.dims)
    channels = "" if statistic.reduces else layer.channels
    after = draw_steps(int(rng.choice([0, 1, 2], p=[0.35, 0.4, 0.25])), layer.names, rng, channels, layer.dims)
    return Tail(tuple(before), statistic, over, tuple(after), affine, count)


def _with_form(statistic: Statistic, rng: np.random.Generator, over: str) -> Statistic:
    """Return the statistic with one form of those that a reference may have."""
    fields = {ROWS: "of_rows", CHANNELS: "of_channels", PLANES: "of_planes", EVERYTHING: "of_everything"}
    forms = getattr(statistic, fields[over])
    return replace(statistic, **{fields[over]: (one_of(forms, rng),)})
