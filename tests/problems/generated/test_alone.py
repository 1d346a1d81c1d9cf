"""Generated problems of one operation alone: which kinds there are, that each has a kernel, and what is held out."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from benchmarks.corpus.check import small_source
from benchmarks.corpus.generated import draws, small_sizes
from cudal1_ray.problems.generated import drawing, losses
from cudal1_ray.problems.generated.alone import alone_pair
from cudal1_ray.problems.generated.losses import Loss, draw_loss
from cudal1_ray.problems.generated.products import draw_product

KINDS = [draw for _, draw in drawing.ALONE]


def pairs_of(draw, count):
    return [alone_pair(draw, np.random.default_rng(seed), f"drawn-{seed}") for seed in range(count)]


def loaded(problem, namespace_of):
    return namespace_of(small_source(problem.source, small_sizes(problem)))


@pytest.mark.parametrize("draw", KINDS)
def test_kind_when_problems_are_generated_is_among_them(draw):
    words = {pair[0].name.split("_")[0] for pair in pairs_of(draw, 200)}
    drawn = sum(problem.name.split("_")[0] in words for problem, _ in draws(0, 400))
    assert 0.02 * 400 < drawn < 0.2 * 400


@pytest.mark.parametrize("draw", KINDS)
def test_candidate_when_an_operation_is_alone_leaves_nothing_but_a_last_sum_to_the_library(draw):
    for problem, entry in pairs_of(draw, 60):
        model = entry.code.partition("class ModelNew(nn.Module)")[2]
        assert "@triton.jit" in entry.code
        assert not re.search(r"F\.|nn\.|torch\.(?!empty|int64)| @ ", model), problem.name


@pytest.mark.parametrize("draw", KINDS)
def test_pair_when_an_operation_is_alone_is_as_short_as_other_pairs(draw):
    # Some three characters are a token; an answer has at most 900 tokens, and a pair 2,400 with 1,100 of instructions.
    for problem, entry in pairs_of(draw, 200):
        answer = len(entry.code + entry.analysis + entry.design)
        assert answer < 3200 and answer + len(problem.source) < 4000, problem.name


@pytest.mark.parametrize("draw", KINDS)
def test_reference_when_an_operation_is_alone_returns_a_finite_tensor(draw, namespace_of):
    for problem, _ in pairs_of(draw, 25):
        torch.manual_seed(0)
        names = loaded(problem, namespace_of)
        output = names["Model"](*names["get_init_inputs"]())(*names["get_inputs"]())
        assert output.dtype == (torch.int64 if problem.name.startswith("Arg") else torch.float32)
        assert output.isfinite().all()


def test_loss_when_run_equals_no_held_out_loss(namespace_of):
    torch.manual_seed(0)
    for problem, _ in pairs_of(draw_loss, 80):
        names = loaded(problem, namespace_of)
        model, inputs = names["Model"](*names["get_init_inputs"]()), names["get_inputs"]()
        predictions = torch.rand_like(inputs[0]) + 0.1
        targets = torch.rand_like(inputs[1]) + 0.1 if inputs[1].is_floating_point() else inputs[1]
        loss = model(predictions, targets, *inputs[2:])
        held_out = []
        if not targets.is_floating_point() or targets.shape == predictions.shape:
            held_out.append(F.cross_entropy(predictions, targets, reduction="sum"))
        if targets.shape == predictions.shape:
            held_out.append(F.kl_div(predictions.log(), targets, reduction="sum"))
        for total in held_out:
            for count in (1, len(predictions), predictions.numel()):
                assert not torch.isclose(loss, total / count, rtol=1e-3, atol=0), problem.name


def test_loss_when_the_table_has_a_held_out_one_is_another(monkeypatch):
    divergence = Loss("KLDivLoss", "targets * (targets.log() - predictions)", "", ("loss = t * (tl.log(t) - p)",))
    other = losses.LOSSES[0]
    monkeypatch.setattr(losses, "LOSSES", (divergence, other))
    drawn = {draw_loss(np.random.default_rng(seed)).words[0] for seed in range(50)}
    assert divergence.word in drawn, "the table is not drawn from, so the test shows nothing"
    generated = {pair[0].name.split("_")[0] for pair in pairs_of(draw_loss, 200)}
    assert other.word in generated and divergence.word not in generated


def test_product_when_drawn_has_two_full_matrices():
    for problem, _ in pairs_of(draw_product, 200):
        sizes = dict(re.findall(r"^(\w+) = (\d+)$", problem.source, re.MULTILINE))
        shapes = re.findall(r"torch\.rand\(([^)]+)\)", problem.source)
        assert len(shapes) == 2 and "diag" not in problem.source
        for shape in shapes:
            lengths = [int(sizes[axis]) for axis in shape.split(", ")]
            assert len(lengths) > 1 and min(lengths) > 1, problem.source
