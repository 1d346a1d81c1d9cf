"""Rules are settings: why a candidate is refused, what is flagged, and the credit for the reference's own work."""

from __future__ import annotations

import pytest
from evaluator_settings import quick_config
from problems_for_tests import problem, renamed

from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import Evaluator
from cudal1_ray.problems import Problem

pytestmark = pytest.mark.usefixtures("warm_server")

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F

"""
BODY = """
class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
"""


def chain(*lines: str) -> str:
    return HEAD + BODY + "".join(f"        {line}\n" for line in lines)


SAME_OPERATIONS = {
    "renamed": renamed("chain"),
    "subclass": problem("chain").source + "\n\nclass ModelNew(Model):\n    pass\n",
    "alias": problem("chain").source + "\n\nModelNew = Model\n",
    "reworded": chain(
        "relu = torch.relu",
        "y = F.linear(x, self.a.weight, self.a.bias)",
        "y = torch.addmm(self.b.bias, relu(y), self.b.weight.transpose(0, 1))",
        "return F.layer_norm(y.tanh(), (y.shape[-1],), self.norm.weight, self.norm.bias)",
    ),
    "inference_mode": chain(
        "with torch.inference_mode():", "    return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))"
    ),
    "moved": chain("return self.norm(torch.tanh(self.b(torch.relu(self.a(x.cpu().contiguous()))))).to(x.dtype)"),
}
OTHER = {
    "in_place": chain("return self.norm(torch.tanh_(self.b(torch.relu_(self.a(x)))))"),
    "one_more": chain("return self.norm(torch.tanh(self.b(torch.relu(self.a(x + 0)))))"),
    "copy": chain("return self.norm(torch.tanh(self.b(torch.relu(self.a(x.clone())))))"),
    "scripted": chain("return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))")
    + "\nPlain = ModelNew\n\n\ndef ModelNew(n):\n    return torch.jit.script(Plain(n))\n",
}


@pytest.mark.parametrize("code", SAME_OPERATIONS.values(), ids=SAME_OPERATIONS)
def test_candidate_when_it_has_the_references_operations_is_credited_with_one(evaluator, code):
    verdict = evaluator.evaluate(problem("chain"), code)
    assert verdict.accepted and verdict.same_operations and "same_operations" in verdict.flags, verdict
    figures = (verdict.speedup, verdict.speedup_low, verdict.speedup_high, verdict.credited_speedup)
    assert figures == (1.0, 1.0, 1.0, 1.0)
    assert verdict.runtime_ms == verdict.reference_ms > 0 and not verdict.own_kernel


@pytest.mark.parametrize("name", ["in_place", "one_more", "copy"])
def test_candidate_when_it_has_other_operations_is_measured(evaluator, name):
    verdict = evaluator.evaluate(problem("chain"), OTHER[name])
    assert verdict.accepted and not verdict.same_operations and verdict.timed_runs, verdict


def test_default_device_when_a_candidate_sets_it_is_named(evaluator):
    verdict = evaluator.evaluate(problem("chain"), OTHER["in_place"] + "\n\ntorch.set_default_device('cpu')\n")
    assert verdict.reasons == ("global_state_tamper",) and "state: default_device; leave" in verdict.detail, verdict


HELPER = Problem(
    "helper",
    HEAD
    + """
class Tail(nn.Module):
    def forward(self, x):
        return sum(x * k for k in range(1, 9))


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.tail = nn.Linear(n, n), Tail()

    def forward(self, x):
        return self.tail(self.a(x))


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return [64]
""",
    "helper",
)


def test_helper_class_when_optimised_is_an_improvement(evaluator):
    code = HELPER.source.replace("class Model(", "class ModelNew(")
    code = code.replace("sum(x * k for k in range(1, 9))", "x * 36")
    verdict = evaluator.evaluate(HELPER, code)
    assert verdict.accepted and not verdict.flags and verdict.timed_runs, verdict


def test_whole_graph_compiler_when_the_rule_says_so_is_flagged_or_refused():
    config = quick_config()
    code = chain("return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))")
    code += "\n    def __init__(self, n):\n        nn.Module.__init__(self)\n"
    code = code.replace("class ModelNew", "class Plain") + (
        "        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)\n"
        "\n\nclass ModelNew(Plain):\n"
        "    def __init__(self, n):\n        super().__init__(n)\n        self.run = torch.jit.script(Plain(n))\n"
        "        self.a, self.b, self.norm = self.run.a, self.run.b, self.run.norm\n"
        "    def forward(self, x):\n        return self.run(x)\n"
    )
    with Evaluator(config) as evaluator:
        allowed = evaluator.evaluate(problem("chain"), code)
    config.rules.compilers = "refuse"
    with Evaluator(config) as evaluator:
        refused = evaluator.evaluate(problem("chain"), code)
    assert allowed.accepted and "whole_graph_compiler" in allowed.flags, allowed
    assert refused.reasons == ("whole_graph_compiler",) and refused.kind == "policy" and not refused.credited_speedup


def test_refusal_when_a_rule_wants_other_operations_or_a_kernel_is_policy():
    config = quick_config()
    config.rules.same_operations = "reject"
    with Evaluator(config) as evaluator:
        verdict = evaluator.evaluate(problem("chain"), renamed("chain"))
    assert verdict.reasons == ("same_operations",) and verdict.kind == "policy" and verdict.same_operations
    config.rules.own_kernel = "required"
    with Evaluator(config) as evaluator:
        verdict = evaluator.evaluate(problem("chain"), OTHER["in_place"])
    assert verdict.reasons == ("no_own_kernel",) and verdict.kind == "policy"


FELL_BACK = chain(
    "try:", "    y = missing(x)", "except Exception:", "    y = torch.relu(self.a(x))",
    "return self.norm(torch.tanh(self.b(y)))",
)  # fmt: skip
WORKS = chain(
    "try:", "    y = torch.relu_(self.a(x))", "except Exception:", "    y = torch.relu(self.a(x))",
    "return self.norm(torch.tanh_(self.b(y)))",
)  # fmt: skip


def test_own_code_behind_a_handler_is_measured_when_it_works_and_named_when_it_fails(evaluator):
    works, fails = evaluator.evaluate(problem("chain"), WORKS), evaluator.evaluate(problem("chain"), FELL_BACK)
    assert works.accepted and works.flags == ("silent_fallback",), works
    assert fails.reasons == ("runtime_error",) and fails.kind == "failure" and "silent_fallback" in fails.flags
    assert "NameError" in fails.detail and "candidate.py: y = missing(x)" in fails.detail


@pytest.fixture(scope="module")
def permissive():
    """Yield an evaluator whose rules allow what the default refuses or flags in these tests."""
    config = quick_config()
    config.rules.fallbacks = config.rules.outputs = "allow"
    config.rules.precision, config.rules.shapes = "half", "fixed"
    with Evaluator(config) as evaluator:
        yield evaluator


def test_fallback_when_allowed_is_measured(permissive):
    verdict = permissive.evaluate(problem("chain"), FELL_BACK)
    assert verdict.accepted and "silent_fallback" in verdict.flags


def test_buffer_when_shared_by_all_calls_is_refused_or_copied_by_the_rule(evaluator, permissive):
    code = chain(
        "if not hasattr(self, 'out') or self.out.shape != x.shape:", "    self.out = torch.empty_like(x)",
        "y = torch.tanh_(self.b(torch.relu_(self.a(x))))", "return self.out.copy_(self.norm(y))",
    )  # fmt: skip
    refused = evaluator.evaluate(problem("chain"), code)
    assert refused.reasons == ("output_aliasing",) and refused.kind == "policy"
    config = quick_config()
    config.rules.outputs = "clone"
    with Evaluator(config) as copying:
        assert copying.evaluate(problem("chain"), code).accepted
    assert permissive.evaluate(problem("chain"), code).accepted


def test_batch_norm_when_in_eval_mode_uses_its_running_statistics(evaluator):
    source = (
        HEAD + "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.norm = nn.BatchNorm1d(32)\n    def forward(self, x):\n        return self.norm(x) * 2\n\n"
        "def get_inputs():\n    return [torch.randn(64, 32)]\n\ndef get_init_inputs():\n    return []\n"
    )
    folded = source.replace("Model(", "ModelNew(").replace(
        "return self.norm(x) * 2",
        "n = self.norm\n        k = 2 * n.weight / torch.sqrt(n.running_var + n.eps)\n"
        "        return torch.addcmul(2 * n.bias - n.running_mean * k, x, k)",
    )
    batch_norm = Problem("batch_norm", source, "batch_norm")
    assert not evaluator.evaluate(batch_norm, folded).accepted
    config = quick_config()
    config.rules.mode = "eval"
    with Evaluator(config) as evaluating:
        assert evaluating.evaluate(batch_norm, folded).accepted


def test_precision_and_shapes_when_a_rule_allows_them_are_accepted(evaluator, permissive):
    half = chain("y = self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))", "return y.bfloat16().float()")
    one_size = chain(
        "y = self.norm(torch.tanh_(self.b(torch.relu_(self.a(x)))))", "return y if len(x) == 192 else y + 1"
    )
    strict, loose = (
        [side.evaluate(problem("chain"), code) for code in (half, one_size)] for side in (evaluator, permissive)
    )
    assert [verdict.reasons[0] for verdict in strict] == ["precision_downgrade", "shape_overfit"], strict
    assert all(verdict.kind == "policy" for verdict in strict) and all(verdict.accepted for verdict in loose), loose


def test_rules_when_composed_are_checked():
    for name in ("default", "kernelbench", "strict", "off"):
        assert load_config([f"evaluation/rules={name}"]).evaluation.rules.fallbacks in ("neutralise", "reject", "allow")
    assert load_config(["evaluation=cuda_certain"]).evaluation.rules == load_config([]).evaluation.rules
    with pytest.raises(UserError, match="rejct.*neutralise, reject, allow"):
        load_config(["evaluation.rules.fallbacks=rejct"])
    config = quick_config()
    config.rules.precision = "lose"
    with pytest.raises(UserError, match="evaluation.rules.precision=lose: must be one of strict, tf32, half"):
        Evaluator(config)
