"""Inputs of unusual forms: an honest candidate gets them as the reference does, and is accepted."""

from __future__ import annotations

import pytest
from kept_structure_cases import pair

from cudal1_ray.problems import Problem

EMPTY = {
    "caches without entries": pair(
        "x, keys, values",
        "return [torch.randn(2, 8, 16), torch.randn(2, 0, 16), torch.randn(2, 0, 16)]",
        "return torch.cat([keys, x], 1), torch.cat([values, x * 2], 1)",
        "return torch.cat([keys, x * 1], 1), torch.cat([values, x + x], 1)",
    ),
    "no rows beside a bias": pair(
        "x, bias, more",
        "return [torch.randn(32, 16), torch.randn(16), torch.randn(0, 16)]",
        "return torch.cat([x * bias, more])",
        "return torch.cat([bias * x * 1, more])",
    ),
    "an empty tensor before others": pair(
        "more, x",
        "return [torch.randn(0, 16), torch.randn(32, 16)]",
        "return torch.cat([x * 2, more])",
        "return torch.cat([x + x, more])",
    ),
}

TYPED = {
    "a dictionary with attributes": pair(
        "batch",
        "return [Batch(a=torch.randn(64, 48), b=torch.randn(64, 48))]",
        "return batch.a * 2 + batch['b']",
        "return batch.a + batch.a + batch['b']",
        before="class Batch(dict):\n    __getattr__ = dict.__getitem__\n",
    ),
    "an ordered dictionary": pair(
        "batch",
        "return [OrderedDict(b=torch.randn(64, 48), a=torch.randn(48))]",
        "batch.move_to_end('b')\nreturn torch.stack([row * 2 for row in reversed(batch.values())][:1])",
        "return torch.stack([batch['b'] + batch['b']])",
        before="from collections import OrderedDict\n",
    ),
    "a dictionary with defaults": pair(
        "batch",
        "return [defaultdict(int, a=torch.randn(64, 48))]",
        "return batch['a'] * 2 + batch['b']",
        "return batch['a'] + batch['a'] + batch['b']",
        before="from collections import defaultdict\n",
    ),
}

STORED = {
    "conjugates": pair(
        "x", "return [torch.randn(64, 48, dtype=torch.complex64).conj()]", "return x * 2", "return x + x"
    ),
    "negatives": pair("x", "return [torch._neg_view(torch.randn(64, 48))]", "return x * 2", "return x + x"),
    "one list twice": pair(
        "a, b",
        "both = [torch.randn(64, 48)]\nreturn [both, both]",
        "return a[0] * 2 + b[0]",
        "return a[0] + a[0] + b[0]",
    ),
}


@pytest.mark.parametrize("kind", EMPTY)
def test_inputs_when_some_are_empty_are_opened_and_candidates_accepted(evaluator, kind):
    source, honest = EMPTY[kind]
    verdict = evaluator.evaluate(Problem("empty", source, "empty"), honest)
    assert verdict.accepted, verdict


@pytest.mark.parametrize("kind", TYPED)
def test_inputs_when_a_dictionary_has_a_type_of_its_own_keep_it(evaluator, kind):
    source, honest = TYPED[kind]
    verdict = evaluator.evaluate(Problem("typed", source, "typed"), honest)
    assert verdict.accepted, verdict


@pytest.mark.parametrize("kind", STORED)
def test_inputs_when_lazy_or_shared_are_those_of_the_reference(evaluator, kind):
    source, honest = STORED[kind]
    verdict = evaluator.evaluate(Problem("stored", source, "stored"), honest)
    assert verdict.accepted, verdict
