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


@pytest.mark.parametrize("kind", EMPTY)
def test_inputs_when_some_are_empty_are_opened_and_candidates_accepted(evaluator, kind):
    source, honest = EMPTY[kind]
    verdict = evaluator.evaluate(Problem("empty", source, "empty"), honest)
    assert verdict.accepted, verdict
