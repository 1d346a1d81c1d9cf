"""Constructor arguments of a model come in several forms, and the candidate gets the same ones."""

from __future__ import annotations

import pytest

from cudal1_ray.evaluation.inside.constructing import constructor_arguments
from cudal1_ray.problems import Problem

SOURCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size, scale, bound=None):
        super().__init__()
        self.weight, self.scale, self.bound = nn.Parameter(torch.ones(size)), scale, bound

    def forward(self, x):
        return torch.tanh(x * self.weight * self.scale).clamp(max=self.bound)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return {given}
"""
FORMS = {
    "in_order": "[256, torch.full((256,), 1.5), 0.5]",
    "a_tuple": "(256, torch.full((256,), 1.5), 0.5)",
    "keywords": '{"size": 256, "scale": torch.full((256,), 1.5), "bound": 0.5}',
    "both": '[[256, torch.full((256,), 1.5)], {"bound": 0.5}]',
    "keywords_behind_nothing": '[[], {"size": 256, "scale": torch.full((256,), 1.5), "bound": 0.5}]',
}


@pytest.mark.parametrize("form", FORMS)
def test_constructor_when_it_takes_init_inputs_gets_them_as_the_reference_does(evaluator, form):
    problem = Problem(form, SOURCE.replace("{given}", FORMS[form]), form)
    code = problem.source.replace("class Model(", "class ModelNew(").replace(
        "torch.tanh(x *", "torch.tanh(self.scale *"
    )
    code = code.replace("* self.scale)", "* x)")
    verdict = evaluator.evaluate(problem, code)
    assert verdict.accepted, verdict.detail


@pytest.mark.parametrize(
    ("init_inputs", "arguments"),
    [
        ([], ([], {})),
        ([3, [4, 5]], ([3, [4, 5]], {})),
        ([[3, 4], [5]], ([[3, 4], [5]], {})),
        ([{"a": 1}], ([{"a": 1}], {})),
        ([[1], {"a": 1}, 2], ([[1], {"a": 1}, 2], {})),
        ([[1], {2: 3}], ([[1], {2: 3}], {})),
        ([3, {"a": 1}], ([3, {"a": 1}], {})),
        ({"a": 1}, ([], {"a": 1})),
        ([(1, 2), {"a": 3}], ([1, 2], {"a": 3})),
    ],
)
def test_init_inputs_when_they_can_only_be_keywords_are_keywords(init_inputs, arguments):
    assert constructor_arguments(init_inputs) == arguments
