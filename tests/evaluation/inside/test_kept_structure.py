"""Varied inputs keep what all of a problem's inputs have in common.

A candidate may rely on that, and is refused if it relies on more.
"""

from __future__ import annotations

import pytest
import torch
from evaluator_settings import quick_config
from kept_structure_cases import CASES, form

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.inside.constructing import call_arguments
from cudal1_ray.evaluation.inside.input_structure import structure_of_inputs
from cudal1_ray.problems import Problem

# Cases with a wrong candidate come first: with the same number in both lists, pytest runs a case's two tests in
# succession, and the evaluator opens their problem once.
WITH_WRONG = [kind for kind, sources in CASES.items() if len(sources) == 3]
IN_ORDER = WITH_WRONG + [kind for kind in CASES if kind not in WITH_WRONG]


@pytest.mark.parametrize("kind", IN_ORDER, scope="module")
def test_candidate_when_it_relies_on_what_all_inputs_share_is_accepted(evaluator, kind):
    source, honest, *_ = CASES[kind]
    verdict = evaluator.evaluate(Problem("kept", source, "kept"), honest)
    assert verdict.accepted, verdict


@pytest.mark.parametrize("kind", WITH_WRONG, scope="module")
def test_candidate_when_it_relies_on_more_than_inputs_share_is_refused(evaluator, kind):
    source, _, wrong = CASES[kind]
    verdict = evaluator.evaluate(Problem("kept", source, "kept"), wrong)
    assert not verdict.accepted and verdict.credited_speedup == 0.0, verdict


@pytest.mark.usefixtures("warm_server")
@pytest.mark.parametrize("seed", [0, 5])  # with both, a draw has as many rows as numbers that mark where rows end
def test_batch_when_every_draw_has_another_is_not_cut(seed):
    source, honest, _ = (text.replace("randint(1, 4", "randint(1, 3") for text in CASES["any number of rows"])
    with Evaluator(quick_config(seed=seed)) as evaluator:
        verdict = evaluator.evaluate(Problem("kept", source, "kept"), honest)
    assert verdict.accepted, verdict


def test_candidate_when_it_lacks_the_problems_types_gets_the_problems(evaluator):
    source, honest, *_ = CASES["arguments of own types"]
    start, end = honest.index("class Kind"), honest.index("class ModelNew")
    bare = (honest[:start] + honest[end:]).replace("self.kind == Kind.SMOOTH", "self.kind.name == 'SMOOTH'")
    verdict = evaluator.evaluate(Problem("kept", source, "kept"), bare)
    assert verdict.accepted, verdict


@pytest.mark.parametrize(
    "inputs, init, named",
    [
        ("return 3.0", "", "get_inputs() gives float"),
        ("import numpy\nreturn [numpy.ones(3)]", "", "get_inputs() gives numbers inside objects (ndarray)"),
        ("return {'y': torch.ones(3)}", "", "gives a dictionary of ['y'], forward takes (self, x, *more)"),
        ("return [torch.ones(3), torch.Generator()]", "", "get_inputs() gives numbers inside objects (Generator)"),
        ("return [torch.ones(3), lambda x: x]", "", "get_inputs() gives what cannot be copied into another process"),
        ("return [torch.ones(3), [iter(()), (i for i in ())]]", "", "(cannot pickle 'generator' object); give"),
        ("return [torch.ones(3)]", "] or 48 or [", "get_init_inputs() gives int"),
    ],
)
def test_inputs_when_of_another_form_are_named(evaluator, inputs, init, named):
    source = form("x, *more", inputs, "return x * 2", given=init)
    verdict = evaluator.evaluate(Problem("kept", source, "kept"), source.replace("class Model(", "class ModelNew("))
    assert verdict.reasons == ("reference_error",) and named in verdict.detail, verdict


def test_structure_when_inputs_are_random_is_none():
    def draw(number=0):
        torch.manual_seed(number)
        return [torch.randn(16, 8), torch.rand(16, 8), torch.randint(0, 5, (16,)), torch.rand(16) > 0.5]

    assert structure_of_inputs(draw(1), draw(2), draw) is None


def test_arguments_when_given_by_name_must_be_forwards():
    def forward(self, a, b=1, scale=None):
        return a

    ones = torch.ones(2)
    assert call_arguments({"scale": 3, "a": ones}, forward) == [ones, 1, 3]
    assert call_arguments({"a": ones}, forward) == [ones] and call_arguments(iter([ones]), forward) == [ones]
    with pytest.raises(TypeError, match="forward takes"):
        call_arguments({"d": ones}, forward)
