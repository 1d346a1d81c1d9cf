"""Inputs that every process draws from a seed are the same everywhere, and checked like inputs that are sent."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
import torch
from evaluator_settings import quick_config

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.inside.cpu_device import CpuDevice
from cudal1_ray.evaluation.inside.cuda_device import CudaDevice
from cudal1_ray.evaluation.inside.drawing import Drawing, NotDrawable, record
from cudal1_ray.evaluation.inside.equality import same
from cudal1_ray.evaluation.inside.places import tensors_in
from cudal1_ray.evaluation.opening import maker_requests, references
from cudal1_ray.problems import Problem, parse_problem

pytestmark = pytest.mark.usefixtures("warm_server")

SOURCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, row):
        return torch.tanh(x) * 2.0 + row


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
import torch.nn as nn

seen = {{}}


class ModelNew(nn.Module):
    def forward(self, x, row):
        {body}
"""
HONEST = CANDIDATE.format(body="return torch.tanh(x).mul_(2.0).add_(row)")
INPUTS = "torch.randn(96, 1024), torch.sort(torch.rand(1024))[0]"


def drawn_problem(inputs: str = INPUTS) -> Problem:
    return parse_problem(SOURCE.format(inputs=inputs), "drawn", origin="test")


@pytest.fixture(scope="module")
def drawing_evaluator():
    """Yield an evaluator that draws the inputs of small problems, as on a GPU those of large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maker_requests, "may_draw", lambda device, nbytes: True)
        config = quick_config()
        config.check = dataclasses.replace(config.check, large_mib=1, windows=4)
        with Evaluator(config) as evaluator:
            yield evaluator


@pytest.mark.parametrize(
    "get_inputs",
    [
        lambda: [torch.rand(3, 4) * 2 - 1, torch.sort(torch.randn(50))[0]],
        lambda: [torch.nn.functional.one_hot(torch.randint(0, 4, (30,)), 4), torch.randperm(7), 3],
        lambda: [torch.rand(3, 4).T, torch.tensor([1.0, 2.0]) * torch.rand(2), torch.rand(4) > 0.5],
        lambda: [torch.cumsum(torch.rand(3, 3), 1), torch.empty(5).uniform_(0, 1), torch.tril(torch.ones(4, 4)).bool()],
        lambda: [{"a": torch.randn(3)}, [torch.rand(2), None]],
    ],
)
def test_plan_when_seeded_draws_what_get_inputs_draws(get_inputs):
    drawing = Drawing(record(get_inputs))
    for seed in (5, 6):
        torch.manual_seed(seed)
        expected = tensors_in(get_inputs())
        torch.manual_seed(seed)
        inputs = tensors_in(drawing.inputs())
        assert same(inputs, expected)
        assert [tensor.stride() for tensor in inputs] == [tensor.stride() for tensor in expected]


def test_plan_when_the_default_type_is_another_draws_the_same_types():
    drawing = Drawing(record(lambda: [torch.rand(3), torch.arange(4) * torch.ones(4), torch.zeros(2).cumsum(0)]))
    torch.set_default_dtype(torch.float64)
    try:
        inputs = drawing.inputs()
    finally:
        torch.set_default_dtype(torch.float32)
    assert [tensor.dtype for tensor in inputs] == [torch.float32] * 3


def test_inputs_that_are_drawn_for_later_are_the_same_when_their_turn_comes():
    """A GPU hides inputs that are drawn early; this test needs no GPU."""
    drawing = Drawing(record(lambda: [torch.rand(3, 4), torch.rand(3, 4).T, torch.randint(0, 9, (5,)), 3]))
    device = CpuDevice(1)
    later = CudaDevice.drawn_later(device, drawing, 7)
    torch.manual_seed(8)
    inputs, expected = later(), device.drawn(drawing, 7)()
    assert same(tensors_in(inputs), tensors_in(expected)) and inputs[3] == 3


@pytest.mark.parametrize(
    "get_inputs",
    [
        lambda: [torch.from_numpy(__import__("numpy").random.rand(1000, 10))],
        lambda: [3, None],
        lambda: [torch.stack([torch.rand(2) for _ in range(300)])],
        lambda: 1 / 0,
    ],
)
def test_inputs_when_they_are_no_short_sequence_of_operators_have_no_plan(get_inputs):
    with pytest.raises(NotDrawable):
        record(get_inputs)


def test_problem_when_its_inputs_are_drawn_keeps_no_set_in_the_pool(drawing_evaluator):
    verdict = drawing_evaluator.evaluate(drawn_problem(), HONEST)
    assert verdict.accepted, verdict
    (session,) = [entry for entry in drawing_evaluator._problems._sessions.values() if entry.problem_id == "drawn"]
    assert session.variation == "drawn" and not session.homes
    assert all(len(trial.values) == 2 for trial in session.own)


@pytest.mark.parametrize(
    ("body", "reasons"),
    [
        ("return torch.tanh(x) * 1.9 + row", {"wrong_output"}),
        ("out = torch.tanh(x) * 2.0 + row; x.zero_(); return out", {"input_mutation"}),
        # Chance decides which trial comes second: one of the same size with a NaN, or one of another size.
        ("return seen.setdefault('out', torch.tanh(x) * 2.0 + row)", {"nan_comparison", "shape_overfit"}),
    ],
)
def test_candidate_when_wrong_is_refused_where_inputs_are_drawn(drawing_evaluator, body, reasons):
    verdict = drawing_evaluator.evaluate(drawn_problem(), CANDIDATE.format(body=body))
    assert len(verdict.reasons) == 1 and set(verdict.reasons) <= reasons, verdict


def test_candidate_when_it_replaces_the_drawing_functions_gets_the_true_inputs(drawing_evaluator):
    code = HONEST + "\ntorch.randn = torch.rand = torch.zeros\n"
    config = dataclasses.replace(drawing_evaluator.config)
    config.check = dataclasses.replace(config.check, static_gate=False)
    with Evaluator(config) as ungated:
        verdict = ungated.evaluate(drawn_problem(), code)
    assert verdict.accepted, verdict


@pytest.mark.parametrize(
    "inputs",
    [
        "torch.from_numpy(__import__('numpy').random.rand(96, 1024)).float(), torch.rand(1024)",
        "torch.ones(96, 1024), torch.ones(1024)",
    ],
)
def test_inputs_when_they_have_no_plan_are_handed_over(drawing_evaluator, inputs):
    drawing_evaluator.evaluate(drawn_problem(inputs), HONEST)
    assert list(drawing_evaluator._problems._sessions.values())[-1].variation != "drawn"


def test_inputs_when_another_process_draws_differently_are_handed_over(drawing_evaluator, monkeypatch):
    honest = references.ask_trial

    def ask_trial(contestant, trial, variant, *arguments, **named):
        if variant.drawn is not None:
            variant = msgspec.structs.replace(variant, drawn=variant.drawn + 1)
        return honest(contestant, trial, variant, *arguments, **named)

    monkeypatch.setattr(references, "ask_trial", ask_trial)
    problem = drawn_problem("torch.randn(97, 1024), torch.rand(1024)")
    verdict = drawing_evaluator.evaluate(problem, HONEST)
    assert verdict.accepted, verdict
    assert list(drawing_evaluator._problems._sessions.values())[-1].variation == "mixed"
