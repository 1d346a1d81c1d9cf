"""Outputs of another form than the reference's, and problems whose tensors have no comparable form."""

from __future__ import annotations

import pytest
import torch

from cudal1_ray.evaluation.correctness.trials import structure_difference
from cudal1_ray.evaluation.exchange.tensors import MOST_TENSORS
from cudal1_ray.evaluation.inside.harness import structure_of
from cudal1_ray.problems import Problem, parse_problem

pytestmark = pytest.mark.usefixtures("warm_server")

MODEL = "import torch\n\n\nclass {name}(torch.nn.Module):\n    def forward(self, x):\n        return {result}\n"
INPUTS = "\n\ndef get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
DENSE = "torch.randn(16, 64)"
SPARSE, NESTED = "torch.relu(x).to_sparse()", "torch.nested.nested_tensor(list(x))"
QUANTISED = "torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)"
# Attention to all inputs so far, which equal ones do not change.
ATTENDS = (
    "vars(self).update(seen=(seen := torch.cat([vars(self).get('seen', x[:0]), x])))"
    " or (x @ seen.T / 64).softmax(-1) @ seen"
)
LISTS = "[torch.randn(8) for _ in range(int(torch.randint(2, 99, (1,))))]"


def returning(result: str, inputs: str = DENSE) -> Problem:
    return parse_problem(MODEL.format(name="Model", result=result) + INPUTS.format(inputs=inputs), "forms")


def candidate(result: str) -> str:
    return MODEL.format(name="ModelNew", result=result)


@pytest.mark.parametrize(
    ("result", "reason", "form"),
    [
        (SPARSE, "lazy_tensor", "output 0 is a tensor of layout torch.sparse_coo"),
        (NESTED, "lazy_tensor", "output 0 is a nested tensor"),
        (QUANTISED, "output_dtype", "output 0 is a tensor of torch.qint8"),
    ],
)
def test_output_when_its_form_cannot_be_compared_is_named_beside_the_expected_one(evaluator, result, reason, form):
    verdict = evaluator.evaluate(returning("torch.relu(x) * 2.0"), candidate(result))
    assert verdict.reasons == (reason,)
    assert verdict.detail.endswith(f"{form}; expected: torch.float32 [16, 64]"), verdict.detail


def test_output_when_one_of_a_list_has_another_length_is_named(evaluator):
    listed = "[row[: 3 + number] * 2.0 for number, row in enumerate(x[:4])]"
    for result, words in (
        (listed.replace("3 + number", "3"), "output 1: shape [3] instead of [4]"),
        (listed.replace(":4", ":3"), "the output has 3 parts instead of 4"),
    ):
        assert words in evaluator.evaluate(returning(listed), candidate(result)).detail


def test_output_when_its_length_follows_the_input_is_right(evaluator):
    ones = "[torch.ones(3)] * int((x[0] > 0).sum())"
    assert evaluator.evaluate(returning(ones), candidate(ones.replace("ones(3)", "ones(3) * 1.0"))).accepted


def test_output_when_it_has_more_than_the_most_tensors_names_their_number():
    tensors: list[torch.Tensor] = []
    assert structure_of([torch.ones(1)] * MOST_TENSORS, tensors) == ["T"] * len(tensors)
    with pytest.raises(ValueError, match="more than 2048 tensors"):
        structure_of([torch.ones(1)] * (MOST_TENSORS + 1), [])


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (returning(SPARSE), "forward gives a tensor of layout torch.sparse_coo"),
        (returning(QUANTISED), "forward gives a tensor of torch.qint8"),
        (returning("x.to_dense()", f"{DENSE}.to_sparse()"), "get_inputs() gives a tensor of layout torch.sparse_coo"),
        (returning("[row * 2.0 for row in x]", LISTS), "in another call; let it give as many"),
        (returning("x.numpy()"), "forward gives ndarray; let it give tensors"),
        (returning(ATTENDS), "keeps state between calls; let forward depend on its inputs alone"),
    ],
)
def test_problem_when_its_tensors_cannot_be_compared_is_at_fault(evaluator, problem, words):
    verdict = evaluator.evaluate(problem, candidate("x"))
    assert verdict.reasons == ("reference_error",) and words in verdict.detail, verdict.detail
    assert "(line" not in verdict.detail  # of the evaluator's own


@pytest.mark.parametrize(
    ("got", "expected", "difference"),
    [
        (["T", "T"], ["T", "T"], ""),
        ({"a": ["T"], "b": {"=": "1.0"}}, {"a": ["T"], "b": {"=": "1.000001"}}, ""),
        ({"=": "nan"}, {"=": "nan"}, ""),
        ({"=": "(69.65399169921875+1j)"}, {"=": "(69.65399932861328+1j)"}, ""),
        ({"=": "(69.6+1j)"}, {"=": "(69.6-1j)"}, "the output is (69.6+1j) instead of (69.6-1j)"),
        ({"=": "inf"}, {"=": "inf"}, ""),
        ({"=": "inf"}, {"=": "1.0"}, "the output is inf instead of 1.0"),
        ({"=": "1.0"}, {"=": "nan"}, "the output is 1.0 instead of nan"),
        ("T", ["T"], "the output is a tensor instead of a list of 1"),
        (["T", {"=": "7"}], ["T", {"=": "33"}], "the output[1] is 7 instead of 33"),
        ({"a": ["T", "T"]}, {"a": ["T"]}, "the output['a'] has 2 parts instead of 1"),
        ({"a": "T"}, {"b": "T"}, "the output is a dictionary of a instead of a dictionary of b"),
        ({"?": "ndarray"}, "T", "the output is of type ndarray instead of a tensor"),
        (["T", None], ["T", "T"], "the output[1] is unknown instead of a tensor"),
    ],
)
def test_structure_difference_when_nesting_differs_names_the_first_place(got, expected, difference):
    assert structure_difference(got, expected) == difference
