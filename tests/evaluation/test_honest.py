"""Honest candidates of many kinds are accepted and credited with what they measure."""

from __future__ import annotations

import pytest
from evaluator_settings import quick_config
from problems_for_tests import problem, renamed

from cudal1_ray.adversarial import load_samples
from cudal1_ray.evaluation import EvaluationConfig, Evaluator
from cudal1_ray.evaluation.opening import maker_requests
from cudal1_ray.problems import Problem

pytestmark = pytest.mark.usefixtures("warm_server")


@pytest.fixture(scope="module")
def evaluator(warm_server):
    """Yield an evaluator whose batches are as long as those of users: it may take none of these for a cheat."""
    config = quick_config()
    config.timing.half_width = 0.5
    with Evaluator(config) as evaluator:
        yield evaluator


SAMPLES = sorted(load_samples("cpu", "honest"), key=lambda sample: sample.problem.problem_id)  # each is opened once


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_honest_sample_when_evaluated_is_accepted_and_credited(evaluator, sample):
    verdict = evaluator.evaluate(sample.problem, sample.code)
    assert verdict.accepted, verdict
    assert verdict.speedup_low <= verdict.speedup == verdict.credited_speedup <= verdict.speedup_high
    assert verdict.runtime_ms > 0 and verdict.reference_ms > 0
    if verdict.same_operations:
        assert verdict.speedup == 1.0
        return
    assert verdict.timed_runs > 0
    pairs = [pair.speedup for pair in verdict.processes if pair.counted]
    assert pairs and min(pairs) * 0.999 <= verdict.speedup <= max(pairs) * 1.001


def test_candidate_when_it_is_faster_is_credited(evaluator):
    source = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(torch.diag(a), b)


def get_inputs():
    return [torch.randn(512), torch.randn(512, 256)]


def get_init_inputs():
    return []
"""
    code = source.replace("class Model(", "class ModelNew(").replace("torch.matmul(torch.diag(a), b)", "a[:, None] * b")
    verdict = evaluator.evaluate(Problem("test/diag", source, "diag"), code)
    assert verdict.accepted and verdict.credited_speedup > 1.0, verdict


def test_reference_when_a_rule_allows_it_is_measured_against_itself():
    config = quick_config()
    config.rules.same_operations = "measure"
    with Evaluator(config) as evaluator:
        verdict = evaluator.evaluate(problem("chain"), renamed("chain"))
    assert verdict.accepted and verdict.speedup_low <= verdict.speedup <= verdict.speedup_high, verdict


def test_channels_last_when_a_candidate_uses_it_is_accepted(evaluator):
    source = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3)

    def forward(self, x):
        return torch.relu(self.conv(x))


def get_inputs():
    return [torch.randn(4, 16, 48, 48)]


def get_init_inputs():
    return []
"""
    code = source.replace("class Model(", "class ModelNew(").replace(
        "self.conv(x)", "self.conv(x.to(memory_format=torch.channels_last))"
    )
    assert evaluator.evaluate(Problem("test/conv", source, "conv"), code).accepted


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("contestants", [1, 3])
def test_torch_compile_when_a_candidate_uses_it_is_accepted(contestants):
    code = renamed("chain").replace("def forward(self, x):", "@torch.compile\n    def forward(self, x):")
    config = EvaluationConfig()
    # The compiler runs inside the first call, which takes minutes where every core has other work as well.
    config.limits.first_call_timeout_s = config.limits.load_timeout_s = 500.0
    config.limits.cpu_s = 1000
    config.timing.contestants = contestants
    with Evaluator(config) as evaluator:
        verdict = evaluator.evaluate(problem("chain"), code)
    assert verdict.accepted, verdict


STARTS_A_PROCESS = """
import shutil
import subprocess
import torch

{name} = None


class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = torch.nn.Linear(n, n), torch.nn.Linear(n, n), torch.nn.LayerNorm(n)
        self.ready = False

    def forward(self, x):
        if not self.ready:
            subprocess.run([shutil.which("true")], check=True)
            self.ready = True
        return self.norm(self.b(self.a(x).relu_()).tanh_())
"""


@pytest.mark.parametrize("name", ["plain", "triton"])  # code that compiles in calls is measured in one process
def test_first_call_when_a_compiler_starts_in_every_process_has_the_time(name):
    config = quick_config()
    config.check.static_gate = False
    config.timing.contestants, config.timing.half_width = 3, 0.5
    with Evaluator(config) as evaluator:
        verdict = evaluator.evaluate(problem("chain"), STARTS_A_PROCESS.format(name=name))
    assert verdict.accepted, verdict


def test_trials_when_rows_sum_to_one_leave_out_shifts_that_break_it(evaluator):
    session = evaluator._problems.session(problem("divergence"), has_room=True)
    kinds = [trial.kind for trial in session.trials]
    assert kinds[:3] == ["own", "own", "larger"] and kinds[-1] == "batch" and "raised" not in kinds


def test_problem_is_not_degenerate_when_weights_make_its_output_zero(monkeypatch):
    """It is opened with other weights; a problem whose output is constant with all that were tried stays degenerate."""
    opened, constant_draws = [], 2

    def by_chance(self, trials):
        opened.append([float(trial.expected[0].truth.double().sum()) for trial in trials])
        return len(opened) <= constant_draws

    monkeypatch.setattr(maker_requests._Opening, "_degenerate", by_chance)
    with Evaluator(quick_config()) as evaluator:
        assert not evaluator._problems.session(problem("loss"), has_room=True).degenerate
        assert len({tuple(sums) for sums in opened}) == len(opened) == constant_draws + 1  # no weights were drawn twice
        constant_draws = 1000
        assert evaluator.evaluate(
            problem("chain"), next(sample.code for sample in SAMPLES if sample.name == "optional_import")
        ).reasons == ("degenerate_input",)
    assert len(opened) == 3 + maker_requests._OTHER_WEIGHTS


def test_problem_when_two_input_sets_agree_by_chance_is_not_degenerate(monkeypatch):
    indistinguishable, counts = maker_requests.indistinguishable, []

    def by_chance(trials, device):
        counts.append(len(trials))
        return len(counts) == 1 or indistinguishable(trials, device)

    monkeypatch.setattr(maker_requests, "indistinguishable", by_chance)
    with Evaluator(quick_config()) as evaluator:
        assert not evaluator._problems.session(problem("divergence"), has_room=True).degenerate
    assert len(counts) == 2 and counts[1] - counts[0] == maker_requests._MORE_SETS
