"""The worked examples of the prompts: the evaluator accepts them, and nothing in them trips its static gate."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from worked_examples import worked

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.rules import RulesConfig
from cudal1_ray.evaluation.screening.static_check import StaticCheck, check_static
from cudal1_ray.prompting.builder import EXAMPLES, example_names

NAMES = ("cuda", "triton")


def test_worked_examples_when_listed_have_a_problem_each():
    assert tuple(example_names()) == NAMES == tuple(sorted(worked(8, 8)))


@pytest.mark.parametrize("name", NAMES)
def test_worked_example_when_checked_statically_has_no_flag(name):
    _, candidate = worked(8, 8)[name]
    assert check_static(candidate, RulesConfig(findings="refuse", compilers="refuse")) == StaticCheck()


INTERPRETED = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("example", sys.argv[1])
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
for shape in ((3, 5, 1000), (7, 1024), (4, 2500), (1, 1)):
    x, model = torch.randn(shape), example.ModelNew(shape[-1])
    torch.nn.init.normal_(model.weight)
    torch.testing.assert_close(model(x), x * model.weight / (1 + x.abs().amax(-1, keepdim=True)))
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) >= "2.4.0",
    reason="Triton 3.6 interprets loop bounds as arrays of one element, which NumPy 2.4 takes for no integer",
)
def test_triton_example_when_interpreted_on_the_cpu_is_right():
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", INTERPRETED, str(EXAMPLES / "triton.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", NAMES)
def test_worked_example_when_on_a_gpu_is_accepted_with_a_kernel_of_its_own(name):
    from cudal1_ray.config import load_config

    problem, candidate = worked(4096, 2048)[name]
    config = load_config(["evaluation=cuda", "evaluation.rules.own_kernel=required"]).evaluation
    with Evaluator(config) as evaluator:
        verdict = evaluator.evaluate(problem, candidate)
    assert verdict.accepted, f"{verdict.reasons} {verdict.detail}"
    assert verdict.own_kernel and verdict.speedup > 1.0
