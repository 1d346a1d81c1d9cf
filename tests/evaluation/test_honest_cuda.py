"""Honest candidates of many kinds on a GPU: accepted, and credited with at least what is certain."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import cuda_suite  # noqa: E402
from cuda_problems import SOURCES  # noqa: E402

from cudal1_ray.evaluation import Evaluator  # noqa: E402

HONEST = cuda_suite.read_samples("honest")


@pytest.mark.parametrize("sample", HONEST, ids=lambda sample: sample.name)
def test_the_gate_lets_it_pass(sample):
    assert ast.get_docstring(ast.parse(sample.code))
    assert sample.problem_name in SOURCES
    assert cuda_suite.gate(sample) is None


def test_enough_kinds_over_enough_problems():
    assert len(HONEST) >= 25
    assert len({sample.problem_name for sample in HONEST}) >= 8
    assert sum(sample.least > 1 for sample in HONEST) >= 8


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory):
    with Evaluator(cuda_suite.cuda_config("honest", str(tmp_path_factory.mktemp("extensions")))) as made:
        yield made


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sample", HONEST, ids=lambda sample: sample.name)
def test_accepted_and_credited(evaluator, sample):
    row = cuda_suite.judge(sample, evaluator)
    assert not row.complaints, row
    assert row.low <= row.speedup <= row.high
