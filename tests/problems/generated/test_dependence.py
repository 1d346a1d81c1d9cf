"""Outputs of generated problems depend on their inputs, as the evaluator demands."""

from __future__ import annotations

import math
import re

import numpy as np
import torch

from benchmarks.corpus.check import small_source
from benchmarks.corpus.generated import draws, small_sizes
from cudal1_ray.evaluation.correctness.comparison import independent_of_input
from cudal1_ray.evaluation.inside.state import randomise_weights
from cudal1_ray.problems.generated.alone import alone_pair
from cudal1_ray.problems.generated.losses import draw_loss

# Draws whose steps alone left a constant: clamped, behind a ReLU for some weights, behind a ReLU for all.
SATURATED = (301, 341, 354)
# Draws of weights for each problem, with the noise that an evaluator's reference gets.
WEIGHTS, NOISE = 12, 0.2


def constant_weights(problem, namespace_of):
    """Return for how many draws of weights other inputs give the same output."""
    names = namespace_of(small_source(problem.source, small_sizes(problem) | {"batch_size": 32}))
    count = 0
    for seed in range(WEIGHTS):
        generator = torch.manual_seed(seed)
        model = names["Model"](*names["get_init_inputs"]())
        randomise_weights(model, NOISE, generator)
        with torch.no_grad():
            count += independent_of_input([[model(*names["get_inputs"]())] for _ in range(2)])
    return count


def test_output_when_problems_are_drawn_depends_on_the_input(namespace_of):
    drawn = [*(next(draws(seed, 1)) for seed in SATURATED), *draws(0, 40)]
    constant = {problem.name: constant_weights(problem, namespace_of) for problem, _ in drawn}
    assert not any(constant.values()), {name: count for name, count in constant.items() if count}


def test_inputs_when_reduced_to_one_value_stay_small():
    drawn = [*draws(0, 400), *(alone_pair(draw_loss, np.random.default_rng(seed), "loss") for seed in range(100))]
    reduced = [
        problem.source
        for problem, _ in drawn
        if "Loss" in problem.name or re.search(r"(torch|x)\.(sum|mean)\(x?\)", problem.source)
    ]
    assert len(reduced) > 110
    for source in reduced:
        sizes = dict(re.findall(r"^(\w+) = (\d+)$", source, re.MULTILINE))
        shapes = re.findall(r"torch\.rand\((.+?)\)", source)
        elements = max(math.prod(int(sizes[axis]) for axis in shape.split(", ")) for shape in shapes)
        # Of up to 64 MiB of inputs, an evaluator on a GPU tries other distributions as well; a loss has up to three.
        assert 3 * 4 * elements < 64 << 20, source
