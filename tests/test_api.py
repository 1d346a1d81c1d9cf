"""The Python API: what a user imports, with the defaults of the command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import cudal1_ray
from cudal1_ray.config import load_config
from tests.measured_once import MEASURED_ONCE

pytestmark = pytest.mark.usefixtures("warm_server")
PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cdist(x, x)


def get_inputs():
    return [torch.randn(64, 32)]


def get_init_inputs():
    return []
"""
WRONG = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cdist(x, x) * 1.01
"""
FASTER = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        square = (x * x).sum(1, keepdim=True)
        return torch.addmm(square + square.T, x, x.T, alpha=-2).clamp_(min=0).sqrt_().fill_diagonal_(0)
"""
QUICK = ["evaluation.timing.budget_s=0.5", "evaluation.timing.contestants=1", *MEASURED_ONCE]


def test_evaluate_when_given_texts_or_paths_takes_them(tmp_path):
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "candidate.py").write_text(FASTER)
    verdict = cudal1_ray.evaluate(tmp_path / "candidate.py", str(tmp_path / "problem.py"), settings=QUICK)
    assert verdict.accepted, verdict
    assert verdict.speedup_low <= verdict.speedup <= verdict.speedup_high and verdict.problem_id == "problem"
    rejected = cudal1_ray.evaluate(WRONG, PROBLEM, settings=QUICK)
    assert rejected.reasons == ("wrong_output",) and rejected.credited_speedup == 0.0


def test_evaluator_when_given_many_candidates_of_a_problem_evaluates_them():
    problem = cudal1_ray.parse_problem(PROBLEM, "cdist")
    with cudal1_ray.Evaluator(cudal1_ray.evaluation_config(settings=QUICK)) as evaluator:
        verdicts = [evaluator.evaluate(problem, code) for code in (WRONG, "class ModelNew")]
    assert [verdict.reasons[0] for verdict in verdicts] == ["wrong_output", "unparsable"]


def test_evaluator_defaults_when_compared_are_those_of_the_command():
    assert cudal1_ray.EvaluationConfig() == load_config(["evaluation=cpu"]).evaluation
    assert cudal1_ray.evaluation_config() == cudal1_ray.EvaluationConfig()
    assert cudal1_ray.evaluation_config("cuda") == load_config(["evaluation=cuda_certain"]).evaluation


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("missing.py", PROBLEM), "missing.py"),
        ((FASTER, "no_such_problem"), "no_such_problem"),
        ((FASTER, "x = 1\n"), "class `Model`"),
        (
            ("", PROBLEM),
            "^candidate='': no such file; give .* a Python file that defines ModelNew, or its text",
        ),
        (
            (FASTER, ""),
            "^problem='': no such file or bundled problem .* its text .* a bundled problem's id, or a Problem",
        ),
        (("class ModelNew: pass  " * 400, PROBLEM), "taken as a text where it has a line break"),
        ((None, PROBLEM), r"^candidate=None \(NoneType\)"),
        ((FASTER, 7), r"^problem=7 \(int\)"),
    ],
)
def test_evaluate_when_something_is_missing_names_it(arguments, named):
    with pytest.raises(cudal1_ray.UserError, match=named):
        cudal1_ray.evaluate(*arguments, settings=QUICK)


def test_evaluate_when_a_device_does_not_exist_is_refused():
    with pytest.raises(cudal1_ray.UserError, match="device='tpu'"):
        cudal1_ray.evaluate(FASTER, PROBLEM, device="tpu")
    with pytest.raises(cudal1_ray.UserError, match=r"give a list of overrides, \['seed=1'\]"):
        cudal1_ray.evaluation_config(settings="seed=1")


@pytest.mark.parametrize("setting", ["problems.limit=3", "cluster.evaluator.count=2", "seed=1", 3])
def test_setting_when_an_evaluation_does_not_read_it_is_refused(setting):
    with pytest.raises(cudal1_ray.UserError, match=f"{setting}.* is "):
        cudal1_ray.evaluation_config(settings=["evaluation.threads=1", setting])


def test_evaluator_when_a_gpu_is_missing_names_what_to_take_instead():
    instead = f"a device below cuda:{count}" if (count := torch.cuda.device_count()) else "--device cpu"
    with pytest.raises(cudal1_ray.UserError, match=instead):
        cudal1_ray.Evaluator(cudal1_ray.EvaluationConfig(device=f"cuda:{count}"))


def test_evaluator_when_given_a_text_names_what_it_takes():
    with pytest.raises(cudal1_ray.UserError, match=r"^config='cpu': .*evaluation_config"):
        cudal1_ray.Evaluator("cpu")
    with cudal1_ray.Evaluator() as evaluator, pytest.raises(cudal1_ray.UserError, match=r"^problem='.*parse_problem"):
        evaluator.evaluate(PROBLEM, FASTER)


def test_bundled_problems_when_there_is_no_configuration_are_loaded():
    assert len(cudal1_ray.load_problems()) >= 24


def test_exported_names_when_looked_up_exist_and_are_documented():
    for name in cudal1_ray.__all__:
        assert name == "__version__" or getattr(cudal1_ray, name).__doc__, name
    assert set(cudal1_ray.__all__) <= set(dir(cudal1_ray))


def test_api_page_when_read_has_every_exported_name():
    page = re.findall(r"^::: ([\w.]+)$", (Path(__file__).parents[1] / "docs" / "api.md").read_text(), re.MULTILINE)
    for name in set(cudal1_ray.__all__) - {"__version__"}:
        module = getattr(cudal1_ray, name).__module__
        assert {module, f"{module}.{name}"} & set(page), name


def test_package_when_imported_loads_no_heavy_package():
    code = (
        "import sys, cudal1_ray; cudal1_ray.Problem, cudal1_ray.Verdict, cudal1_ray.EvaluationConfig;"
        "print([name for name in ('torch', 'ray', 'hydra', 'numpy', 'pyarrow', 'rich') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
