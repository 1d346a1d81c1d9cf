"""Honest candidates of many kinds on a GPU: accepted, and credited with at least what is certain."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import cuda_suite  # noqa: E402
from cuda_problems import CHAIN  # noqa: E402

from cudal1_ray.evaluation import Evaluator  # noqa: E402
from cudal1_ray.problems import parse_problem  # noqa: E402

HONEST = cuda_suite.read_samples("honest")


@pytest.mark.parametrize("sample", HONEST, ids=lambda sample: sample.name)
def test_honest_sample_when_checked_statically_is_not_refused(sample):
    assert ast.get_docstring(ast.parse(sample.code))
    assert cuda_suite.gate(sample) is None


def test_honest_samples_when_counted_cover_kinds_and_problems():
    assert len(HONEST) >= 25
    assert len({sample.problem.name for sample in HONEST}) >= 8
    assert sum(sample.least > 1 for sample in HONEST) >= 8


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory):
    with Evaluator(cuda_suite.cuda_config("honest", str(tmp_path_factory.mktemp("extensions")))) as evaluator:
        yield evaluator


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sample", HONEST, ids=lambda sample: sample.name)
def test_honest_cuda_sample_when_evaluated_is_accepted_and_credited(evaluator, sample):
    row = cuda_suite.evaluate(sample, evaluator)
    assert not row.complaints, row
    assert row.low <= row.speedup <= row.high


SLOW_HOST = """

class ModelNew(Model):
    def forward(self, x):
        for number in range(100_000):
            pass
        return super().forward(x) + 0.0
"""


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_device_time_when_the_host_is_slow_leaves_it_out():
    config = cuda_suite.cuda_config("honest")
    config.timing.device_alone = True
    with Evaluator(config) as evaluator:
        verdict = evaluator.evaluate(parse_problem(CHAIN, "chain"), CHAIN + SLOW_HOST)
    assert verdict.accepted and verdict.credited_speedup == verdict.speedup, verdict
    assert 2 * verdict.speedup < verdict.device_speedup, verdict  # the candidate runs one small kernel more
    assert all(0 < pair.device_runtime_ms < pair.runtime_ms for pair in verdict.processes), verdict
