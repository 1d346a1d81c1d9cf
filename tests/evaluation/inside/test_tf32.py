"""Convolutions may be as inexact as TF32 where PyTorch allows it; what only looks like TF32 is refused."""

from __future__ import annotations

import pytest
import torch
from evaluator_settings import quick_config

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.inside.tf32 import CoarseArithmetic, errors, rounded
from cudal1_ray.evaluation.opening import maker_requests
from cudal1_ray.problems import Problem

pytestmark = pytest.mark.usefixtures("warm_server")

FORM = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
{before}

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x):
        weight = self.conv.weight
        {change}
        return F.relu(F.conv2d(x, weight, self.conv.bias, padding=1))


def get_inputs():
    return [torch.randn(4, 16, 24, 24)]


def get_init_inputs():
    return []
"""
PRODUCT = """
import torch
import torch.nn as nn


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(256, 64)

    def forward(self, x):
        weight = self.layer.weight
        {change}
        return torch.relu(nn.functional.linear(x, weight, self.layer.bias))


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
"""
# On a GPU the maker measures this.
DEVICE = "cudal1_ray.evaluation.inside.cpu_device"
ALLOWED = f"sys.modules[{DEVICE!r}].CpuDevice.coarse_convolutions = lambda self: True"
TF32 = "x, weight = ((t.view(torch.int32) + 4096 & -8192).view(torch.float32) for t in (x, weight))"
HALF = "x, weight = x.half().float(), weight.half().float()"
BFLOAT16 = "x, weight = x.bfloat16().float(), weight.bfloat16().float()"
PATCHES = "weight = weight.flatten(1).view_as(weight)"


def convolution(name: str, *, coarse: bool) -> Problem:
    return Problem(name, FORM.format(before=ALLOWED if coarse else "", name="Model", change=""), name)


@pytest.mark.parametrize(
    ("change", "coarse", "reasons"),
    [
        (PATCHES, False, ()),
        (TF32, False, ("precision_downgrade",)),
        (HALF, False, ("precision_downgrade",)),
        (PATCHES, True, ()),
        (TF32, True, ()),
        (HALF, True, ("precision_downgrade",)),
        (BFLOAT16, True, ("precision_downgrade",)),
    ],
    ids=["same-single", "tf32-single", "half-single", "same-tf32", "tf32-tf32", "half-tf32", "bfloat16-tf32"],
)
def test_convolution_when_the_device_has_tf32_may_be_as_exact_as_that(ungated, change, coarse, reasons):
    code = FORM.format(before="", name="ModelNew", change=change)
    verdict = ungated.evaluate(convolution(f"convolution_{coarse}", coarse=coarse), code)
    assert verdict.reasons == reasons, verdict.detail
    if change == HALF and coarse:
        assert "range" in verdict.detail


def test_convolution_when_its_output_is_not_first_by_name_may_be_as_exact_as_tf32(ungated):
    named = ("return F.relu(F.conv2d(x, weight, self.conv.bias, padding=1))", "return {{'b': layer, 'a': x.sign()}}")
    form = FORM.replace(named[0], named[0].replace("return", "layer =") + "\n        " + named[1])
    problem = Problem("named", form.format(before=ALLOWED, name="Model", change=""), "named")
    verdict = ungated.evaluate(problem, form.format(before="", name="ModelNew", change=TF32))
    assert verdict.accepted, verdict.detail


def test_half_precision_when_its_range_is_not_tried_is_accepted(ungated, monkeypatch):
    monkeypatch.setattr(ungated.config.check, "range_trial", False)
    problem = convolution("any_range", coarse=True)
    verdict = ungated.evaluate(problem, FORM.format(before="", name="ModelNew", change=HALF))
    assert verdict.accepted, verdict.detail


def test_numbers_when_rounded_keep_ten_bits_behind_the_point():
    step = 2.0**-10
    inputs = torch.tensor([1.0, 1 + 0.4 * step, -(1 + 0.6 * step), 3e38, 0.0, -torch.inf])
    assert rounded(inputs).tolist() == [1.0, 1.0, -(1 + step), rounded(inputs)[3], 0.0, -torch.inf]
    values = torch.randn(10_000)
    assert float(((rounded(values) - values) / values).abs().max()) <= 2.0**-11
    assert not (rounded(values).view(torch.int32) & 8191).any()
    assert rounded(values.double()) is not None and torch.equal(rounded(values.double()), values.double())


@pytest.mark.parametrize("layer", [torch.nn.Conv1d(8, 8, 3), torch.nn.ConvTranspose1d(8, 8, 3, groups=2)])
def test_coarse_arithmetic_when_a_layer_is_a_convolution_has_tf32s_errors(layer):
    values = torch.randn(4, 8, 100)
    with torch.no_grad(), CoarseArithmetic() as mode:
        torch.tanh(values)
        assert not mode.any
        coarse = layer(values)
        assert mode.any
    exact = layer.double()(values.double()).detach()
    ((rms, worst),) = errors([coarse], [exact])
    assert 5e-5 < rms / float(exact.std()) < 1e-3 and rms / float(exact.std()) < worst < 5e-3


@pytest.mark.parametrize(
    "product",
    [
        lambda a, b: a @ b, torch.matmul, lambda a, b: a.mm(b), lambda a, b: torch.einsum("ij,jk->ik", a, b),
        lambda a, b: torch.nn.functional.linear(a, b.t()), lambda a, b: torch.bmm(a[None], b[None])[0],
        lambda a, b: torch.addmm(torch.zeros_like(b), a, b), lambda a, b: a.matmul(b), lambda a, b: torch.mm(a, mat2=b),
        lambda a, b: torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False)).to(a.dtype)(a) * 0 + a @ b,
    ],
)  # fmt: skip
def test_products_when_a_baseline_rounds_them_are_coarse(product):
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    with torch.no_grad():
        exact = product(a.double(), b.double())
        with CoarseArithmetic() as mode:
            product(a, b)
            assert not mode.any
        with CoarseArithmetic(convolutions=False, products=True) as mode:
            coarse = product(a, b)
            assert mode.any
    ((rms, worst),) = errors([coarse], [exact])
    assert 5e-5 < rms / float(exact.std()) < 1e-3 and worst < 5e-3


def test_candidate_when_its_baseline_has_tf32_may_be_as_coarse(monkeypatch):
    """A baseline in TF32 answers the timed calls as well: an exact candidate must not be refused for its difference."""
    problem = Problem("product", PRODUCT.format(name="Model", change="pass"), "product")
    coarse = "x, weight = ((t.view(torch.int32) + 4096 & -8192).view(torch.float32) for t in (x, weight))"
    half = "x, weight = x.bfloat16().float(), weight.bfloat16().float()"
    for tuned, reasons in ((False, ("precision_downgrade",)), (True, ())):
        monkeypatch.setattr(maker_requests, "coarse_products", lambda *_, tuned=tuned: tuned)
        config = quick_config()
        with Evaluator(config) as evaluator:
            outcomes = [
                evaluator.evaluate(problem, PRODUCT.format(name="ModelNew", change=change)).reasons
                for change in ("weight = weight + 0", coarse, half)
            ]
        assert outcomes == [(), reasons, ("precision_downgrade",)]


def test_errors_when_outputs_cannot_be_compared_are_none():
    ones, nothing = torch.ones(3), (0.0, 0.0)
    assert errors([ones], []) == [nothing]
    assert errors([ones, ones], [torch.ones(4).double(), torch.ones(3, dtype=torch.int64)]) == [nothing, nothing]
    assert errors([ones], [torch.tensor([1.0, torch.inf, 2.0]).double()]) == [nothing]
