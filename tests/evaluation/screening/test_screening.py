"""Screening: a candidate that does not import or construct opens no problem; one that cannot be decided passes."""

from __future__ import annotations

import dataclasses

import pytest
from evaluator_settings import quick_config
from problems_for_tests import problem

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.compiling.compiler import Extensions
from cudal1_ray.evaluation.config import LimitConfig
from cudal1_ray.evaluation.host.handles import ForkServer, Misbehaviour
from cudal1_ray.evaluation.screening.construction import Screening
from cudal1_ray.evaluation.screening.hints import longest_alone_s
from cudal1_ray.problems import parse_problem

pytestmark = pytest.mark.usefixtures("warm_server")

CANDIDATE = """
import torch
{imports}


class ModelNew(torch.nn.Module):
    def __init__(self{arguments}):
        super().__init__()
        {body}

    def forward(self, x):
        return x
"""


def candidate(*, imports: str = "", arguments: str = ", *given", body: str = "pass") -> str:
    return CANDIDATE.format(imports=imports, arguments=arguments, body=body)


@pytest.fixture(scope="module")
def opens_nothing():
    config = quick_config()
    with Evaluator(config) as evaluator:
        yield evaluator
        assert not evaluator._problems._sessions and not evaluator._problems._faults


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (candidate(imports="import a_module_that_is_missing"), "runtime_error", "ModuleNotFoundError"),
        (candidate(body="self.kernel = self.kernl"), "runtime_error", "kernl"),
        (candidate(arguments="", body="pass") + "\nModelNew(1)\n", "runtime_error", "TypeError"),
        (candidate(imports="from torch.utils.cpp_extension import load_inlined"), "runtime_error", "load_inlined"),
    ],
)
def test_candidate_when_it_cannot_be_constructed_is_rejected_before_a_problem_is_opened(
    opens_nothing, code, reason, words
):
    verdict = opens_nothing.evaluate(problem("chain"), code)
    assert verdict.reasons == (reason,)
    assert words in verdict.detail and "import and construction" in verdict.detail


def test_constructor_when_its_arguments_differ_is_rejected_before_a_problem_is_opened(opens_nothing):
    verdict = opens_nothing.evaluate(problem("chain"), candidate(arguments=", *, missing"))
    assert verdict.reasons == ("runtime_error",) and "__init__" in verdict.detail


@pytest.fixture(scope="module")
def server():
    server = ForkServer(quick_config())
    yield server
    server.close()


@pytest.fixture
def on_a_gpu(server):
    """Return a screening stage as it is where contestants have a GPU."""
    return Screening(dataclasses.replace(quick_config(), device="cuda"), server)


@pytest.mark.parametrize(
    "code",
    [
        candidate(imports="TABLE = torch.zeros(4, device='cuda')"),
        candidate(body="self.table = torch.ones(4).cuda()"),
        candidate(imports="try:\n    torch.cuda.init()\nexcept BaseException:\n    raise ValueError('no GPU')"),
    ],
)
def test_screening_when_a_candidate_wants_a_gpu_decides_nothing(on_a_gpu, code):
    on_a_gpu.construct(problem("chain"), code, Extensions())


def test_screening_when_a_candidate_needs_no_gpu_decides_beside_one(on_a_gpu):
    with pytest.raises(Misbehaviour) as refused:
        on_a_gpu.construct(problem("chain"), candidate(body="raise ValueError('wrong')"), Extensions())
    assert refused.value.reason == "runtime_error" and "wrong" in refused.value.detail


def test_screening_when_a_constructor_reads_large_initial_values_has_them(server):
    body = "w = torch.nn.Linear(2048, 2048).weight; assert 0.0 < w.abs().max() < 1.0 and w.std() > 0.001"
    Screening(quick_config(), server).construct(problem("chain"), candidate(body=body), Extensions())


@pytest.mark.parametrize(
    "more", ["raise RuntimeError('the problem fails')", "import torch\ntorch.set_default_dtype(torch.float64)"]
)
def test_screening_when_a_problem_fails_or_changes_global_state_decides_nothing(server, more):
    broken = parse_problem(problem("chain").source + f"\n{more}\n", "broken", origin="test")
    Screening(quick_config(), server).construct(broken, candidate(body="raise ValueError('wrong')"), Extensions())


def test_screening_when_arguments_are_of_the_problems_types_decides_nothing(server):
    source = problem("chain").source + "\nclass Own:\n    pass\n\ndef get_init_inputs():\n    return [Own()]\n"
    own = parse_problem(source, "own", origin="test")
    Screening(quick_config(), server).construct(own, candidate(body="raise ValueError('wrong')"), Extensions())


@pytest.mark.parametrize(
    ("code", "limit_s"), [("import torch", 15.0), ("load_inline('name', '')", 15.0), ("import triton", 20.0)]
)
def test_load_limit_when_calls_may_compile_is_that_of_a_first_call(code, limit_s):
    limits = LimitConfig(load_timeout_s=120.0, plain_load_timeout_s=15.0, first_call_timeout_s=20.0)
    assert longest_alone_s(code, limits, 0.1) == limit_s
    assert longest_alone_s(code, limits, 3.0) == 30.0
    assert longest_alone_s(code, limits, 100.0) == 120.0
