"""Honest candidates of many kinds are accepted and credited with what they measure."""

from __future__ import annotations

import pytest
from evaluator_settings import quick_config
from problems_for_tests import problem, renamed

from cudal1_ray.evaluation import EvaluationConfig, Evaluator
from cudal1_ray.evaluation.referee import opening
from cudal1_ray.problems import Problem

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
"""


def chain(body: str, before: str = "", after: str = "") -> tuple[str, str]:
    lines = "".join(f"        {line}\n" for line in body.strip().splitlines())
    return "chain", before + HEAD + lines + after


BARE_PARAMETERS = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(n, n))
        self.b1 = nn.Parameter(torch.empty(n))
        self.w2 = nn.Parameter(torch.empty(n, n))
        self.b2 = nn.Parameter(torch.empty(n))
        self.g = nn.Parameter(torch.empty(n))
        self.h = nn.Parameter(torch.empty(n))

    def forward(self, x):
        y = torch.tanh(F.linear(torch.relu(F.linear(x, self.w1, self.b1)), self.w2, self.b2))
        return F.layer_norm(y, y.shape[-1:], self.g, self.h)
"""
TRANSPOSED_ONCE = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.a.weight.t().contiguous(), self.b.weight.t().contiguous()
        a = torch.addmm(self.a.bias, x, self.packed[0]).relu_()
        return self.norm(torch.addmm(self.b.bias, a, self.packed[1]).tanh_())
"""
FOLDED_BATCHNORM = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv, self.bn = nn.Conv1d(n, n, 3), nn.BatchNorm1d(n)

    def forward(self, x):
        scale = self.bn.weight * torch.rsqrt(self.bn.running_var + self.bn.eps)
        bias = (self.conv.bias - self.bn.running_mean) * scale + self.bn.bias
        return F.conv1d(x, self.conv.weight * scale[:, None, None], bias).relu_()
"""
STREAM_LIKE_BUFFERS = """
out = torch.empty_like(x)
torch.addmm(self.a.bias, x, self.a.weight.t(), out=out)
return self.norm(torch.tanh(self.b(out.relu_())))
"""
SOFTMAX = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(1, keepdim=True))
        return e / e.sum(1, keepdim=True)
"""
TUPLE = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, index, scale):
        places = torch.argmax(x * scale, dim=1)
        values = x.gather(1, places[:, None])[:, 0] * scale
        return values, (places, x.index_select(0, index)), {"mean": x.sum(0) / x.shape[0]}
"""
SCRIPTED = """
import torch
import torch.nn as nn


@torch.jit.script
def tail(x, w, b):
    return torch.tanh(torch.addmm(b, torch.relu(x), w.t()))


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(tail(self.a(x), self.b.weight, self.b.bias))
"""
FUNCTION = """
import torch
import torch.nn as nn


class Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.tanh(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(Squash.apply(self.b(torch.relu(self.a(x)))))
"""
FOLDED_AT_ONCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv, self.bn = nn.Conv1d(n, n, 3), nn.BatchNorm1d(n).eval()
        fused = nn.utils.fusion.fuse_conv_bn_eval(self.conv.eval(), self.bn)
        del self.conv, self.bn
        self.fused = fused

    def forward(self, x):
        return self.fused(x).relu_()
"""
PACKED_AT_ONCE = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.first = self.a.weight.detach().t().contiguous()
        self.register_buffer("second", self.b.weight.detach().t().contiguous())

    def forward(self, x):
        h = torch.addmm(self.a.bias, x, self.first).relu_()
        return self.norm(torch.addmm(self.b.bias, h, self.second).tanh_())
"""
FROZEN_AT_ONCE = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        layers = nn.Sequential(self.a, nn.ReLU(), self.b, nn.Tanh(), self.norm).eval()
        self.fast = torch.jit.freeze(torch.jit.trace(layers, torch.randn(4, n)))

    def forward(self, x):
        return self.fast(x)
"""
ATTENTION = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(n, n), nn.Linear(n, n), nn.Linear(n, n)

    def forward(self, x):
"""
FORKED_AND_JOINED = """
        keys = torch.jit.fork(self.k, x)
        q, v = self.q(x), self.v(x)
        return F.scaled_dot_product_attention(q, torch.jit.wait(keys), v).transpose(1, 2)
"""
MAPPED = """
        def one(x):
            return (torch.softmax(self.q(x) @ self.k(x).t() / x.shape[-1] ** 0.5, -1) @ self.v(x)).t()

        return torch.vmap(one)(x)
"""
STEP_BY_STEP = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layer = nn.GRU(n, 64, batch_first=True)

    def forward(self, x):
        gru = self.layer
        given = torch.addmm(gru.bias_ih_l0, x.transpose(0, 1).reshape(-1, x.shape[-1]), gru.weight_ih_l0.t())
        h, weight = x.new_zeros(x.shape[0], 64), gru.weight_hh_l0.t().contiguous()
        for step in given.view(x.shape[1], x.shape[0], -1):
            kept = torch.addmm(gru.bias_hh_l0, h, weight)
            r, z = torch.sigmoid(step[:, :128] + kept[:, :128]).chunk(2, 1)
            n = torch.tanh(torch.addcmul(step[:, 128:], r, kept[:, 128:]))
            h = torch.lerp(n, h, z)
        return h
"""
GATES_TOGETHER = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.given, self.kept = nn.Linear(n, 192), nn.Linear(64, 192)

    def forward(self, x):
        given, h = self.given(x).transpose(0, 1), x.new_zeros(x.shape[0], 64)
        weight, bias = self.kept.weight.t().contiguous(), self.kept.bias
        for step in given:
            kept = torch.addmm(bias, h, weight)
            r, z = torch.sigmoid(step[:, :128] + kept[:, :128]).chunk(2, 1)
            h = torch.lerp(torch.tanh(torch.addcmul(step[:, 128:], r, kept[:, 128:])), h, z)
        return h
"""
CLOSED_FORM = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.keep, self.out = nn.Parameter(torch.randn(n)), nn.Linear(n, n)

    def forward(self, x):
        keep = torch.sigmoid(self.keep.double())
        left = torch.arange(x.shape[1] - 1, -1, -1, dtype=torch.float64)
        share = ((1 - keep) * keep ** left[:, None]).to(x.dtype)
        return self.out((x * share).sum(1))
"""
CHOLESKY = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.cholesky_solve(b, torch.linalg.cholesky(a))
"""
NUMPY = """
import numpy as np
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.numpy()
        return torch.from_numpy(np.tanh(np.logaddexp(x, np.float32(0))) * x)
"""
PLAIN = "return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))"
OPTIONAL_IMPORT = """
try:
    import a_package_that_is_not_there as fast
except ImportError:
    fast = None
"""
FUNCTIONAL = """
h = torch.tanh(self.b(F.relu(self.a(x))))
return F.layer_norm(h, x.shape[-1:], self.norm.weight, self.norm.bias, self.norm.eps)
"""
EINSUM = """
h = torch.einsum('ij,kj->ik', x, self.a.weight) + self.a.bias
return self.norm(torch.tanh(self.b(h.clamp_min(0))))
"""
ROW_BLOCKS = """
out = torch.empty_like(x)
for i in range(0, x.shape[0], 64):
    out[i : i + 64] = self.norm(torch.tanh(self.b(torch.relu(self.a(x[i : i + 64])))))
return out
"""
PACKED_IN_A_LIST = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(3):
            self.layers.append(nn.Linear(n, n))
        self.packed = [(layer.weight.detach().t().contiguous(), layer.bias.detach()) for layer in self.layers]

    def forward(self, x):
        for weight, bias in self.packed:
            x = torch.addmm(bias, x, weight).relu_()
        return x
"""
RATIOS = renamed("divergence").replace(
    'F.kl_div(p.log(), t, reduction="batchmean")', "torch.xlogy(t, t / p).sum(-1).mean()"
)
LESS_EXACT_RATIOS = renamed("exact_divergence").replace(
    'F.kl_div(p.double().log(), t.double(), reduction="batchmean").float()', "torch.xlogy(t, t / p).sum(-1).mean()"
)
BLOCKS = """h = a.shape[0] // 2
        out = torch.zeros_like(a)
        out[:h, :h] = a[:h, :h] @ b[:h, :h]
        out[h:, h:] = a[h:, h:] @ b[h:, h:]
        out[:h, h:] = a[:h] @ b[:, h:]
        return out"""
KINDS = {
    "in_place": chain("return self.norm(self.b(self.a(x).relu_()).tanh_())"),
    "functional": chain(FUNCTIONAL),
    "einsum": chain(EINSUM),
    "optional_import": chain(PLAIN, before=OPTIONAL_IMPORT),
    "environment_for_a_build": chain(PLAIN, before="import os\nos.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'\n"),
    "per_call_buffers": chain(STREAM_LIKE_BUFFERS),
    "alignment_by_pointer": chain("assert x.data_ptr() % 16 == 0\n" + PLAIN),
    "cudnn_search": chain(PLAIN, before="import torch\ntorch.backends.cudnn.benchmark = True\n"),
    "own_inputs_below": chain(PLAIN, after="\n\ndef get_inputs():\n    return [torch.randn(192, 320)]\n"),
    "row_blocks": chain(ROW_BLOCKS),
    "transposed_output": chain(PLAIN + ".t().contiguous().t()"),
    "bare_parameters": ("chain", BARE_PARAMETERS),
    "prepacked_on_first_call": ("chain", TRANSPOSED_ONCE),
    "scripted": ("chain", SCRIPTED),
    "autograd_function": ("chain", FUNCTION),
    "softmax_by_hand": ("softmax", SOFTMAX),
    "folded_batchnorm": ("batchnorm", FOLDED_BATCHNORM),
    "dropout_with_the_same_numbers": (
        "dropout",
        renamed("dropout").replace("torch.tanh(self.drop(x))", "self.drop(x).tanh_()"),
    ),
    "several_outputs": ("tuple", TUPLE),
    "folded_in_the_constructor": ("batchnorm", FOLDED_AT_ONCE),
    "packed_in_the_constructor": ("chain", PACKED_AT_ONCE),
    "frozen_in_the_constructor": ("chain", FROZEN_AT_ONCE),
    "forked_and_joined": ("attention", ATTENTION + FORKED_AND_JOINED),
    "mapped": ("attention", ATTENTION + MAPPED),
    "step_by_step": ("gru", STEP_BY_STEP),
    "gates_together": ("written_gru", GATES_TOGETHER),
    "closed_form": ("written_scan", CLOSED_FORM),
    "cholesky": ("solved", CHOLESKY),
    "numpy": ("pointwise", NUMPY),
    "drawn_by_the_same_seed": ("packed", PACKED_IN_A_LIST),
    "definite_matrices": ("definite", renamed("definite").replace("cholesky(x)", "cholesky_ex(x).L")),
    "truth_values": ("truths", renamed("truths").replace("(x.cos() < 0.5)", "(x.cos() <= 0.4999999)")),
    "a_number": ("number", renamed("number").replace("torch.tanh(x)", "x.tanh()")),
    "sizes_that_depend_on_values": (
        "selected",
        renamed("selected").replace("torch.tanh(x[x > 0.3])", "x[x > 0.3].tanh_()"),
    ),
    "double_precision": ("double", renamed("double").replace("torch.tanh(self.a(x))", "self.a(x).tanh_()")),
    "weight_norm": ("weight_norm", renamed("weight_norm").replace("torch.tanh(self.a(x))", "self.a(x).tanh_()")),
    "masked": ("masked", renamed("masked").replace("masked_fill(", "masked_fill_(")),
    "a_copy_turned": (
        "turned",
        renamed("turned").replace("contiguous()", "clone(memory_format=torch.contiguous_format)"),
    ),
    "a_column_repeated": ("repeated", renamed("repeated").replace("repeat(1, 64)", "expand(-1, 64).contiguous()")),
    "blocks_that_are_not_nought": ("triangular", renamed("triangular").replace("return torch.triu(a @ b)", BLOCKS)),
    "what_symmetry_saves": ("symmetric", renamed("symmetric").replace("torch.tanh(a.t() @ b)", "(a @ b).tanh_()")),
    "few_numbers_that_cancel": ("divergence", RATIOS),
    "few_numbers_that_cancel_where_the_reference_is_more_exact": ("exact_divergence", LESS_EXACT_RATIOS),
    "a_closure": ("closure", renamed("closure").replace("torch.tanh(self.f(x))", "self.f(x).tanh_()")),
    "inputs_laid_out_otherwise": ("laid_out", renamed("laid_out").replace("torch.tanh(x)", "x.tanh()")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_accepted_and_credited(evaluator, kind):
    name, code = KINDS[kind]
    verdict = evaluator.evaluate(problem(name), code)
    assert verdict.accepted, verdict
    assert verdict.speedup_low <= verdict.speedup == verdict.credited_speedup <= verdict.speedup_high
    assert verdict.runtime_ms > 0 and verdict.reference_ms > 0
    if verdict.same_operations:
        assert verdict.speedup == 1.0
        return
    assert verdict.timed_runs > 0
    pairs = [pair.speedup for pair in verdict.processes if pair.counted]
    assert pairs and min(pairs) * 0.999 <= verdict.speedup <= max(pairs) * 1.001


def test_a_real_gain_is_credited(evaluator):
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


def test_the_reference_itself_is_measured_where_that_is_allowed():
    config = quick_config()
    config.rules.same_operations = "measure"
    with Evaluator(config) as made:
        verdict = made.evaluate(problem("chain"), renamed("chain"))
    assert verdict.accepted and verdict.speedup_low <= verdict.speedup <= verdict.speedup_high, verdict


def test_channels_last_is_no_crime(evaluator):
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
def test_torch_compile(contestants):
    code = renamed("chain").replace("def forward(self, x):", "@torch.compile\n    def forward(self, x):")
    config = EvaluationConfig()
    # The compiler runs inside the first call: minutes, where every core has other work as well.
    config.limits.first_call_timeout_s = config.limits.load_timeout_s = 500.0
    config.limits.cpu_s = 1000
    config.timing.contestants = contestants
    with Evaluator(config) as made:
        verdict = made.evaluate(problem("chain"), code)
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


@pytest.mark.parametrize("name", ["plain", "triton"])  # who compiles in calls is measured in one process
def test_a_first_call_may_start_a_compiler_in_every_process(name):
    config = quick_config()
    config.check.static_gate = False
    config.timing.contestants, config.timing.half_width = 3, 0.5
    with Evaluator(config) as made:
        verdict = made.evaluate(problem("chain"), STARTS_A_PROCESS.format(name=name))
    assert verdict.accepted, verdict


def test_trials_of_rows_that_sum_to_one_leave_out_shifts_that_break_it(evaluator):
    session = evaluator._session(problem("divergence"), True)
    kinds = [trial.kind for trial in session.trials]
    assert kinds[:3] == ["own", "own", "larger"] and kinds[-1] == "batch" and "raised" not in kinds


def test_weights_behind_which_everything_is_nought_make_no_problem_degenerate(monkeypatch):
    """It is opened with others; a problem of which all that were tried are like that stays degenerate."""
    opened, noughts = [], 2

    def by_chance(self, trials):
        opened.append([float(trial.expected[0].truth.double().sum()) for trial in trials])
        return len(opened) <= noughts

    monkeypatch.setattr(opening._Opening, "_degenerate", by_chance)
    with Evaluator(quick_config()) as evaluator:
        assert not evaluator._session(problem("loss"), True).degenerate
        assert len({tuple(sums) for sums in opened}) == len(opened) == noughts + 1  # nothing was drawn twice
        noughts = 1000
        assert evaluator.evaluate(problem("chain"), chain(PLAIN)[1]).reasons == ("degenerate_input",)
    assert len(opened) == 3 + opening._OTHER_WEIGHTS


def test_two_sets_of_inputs_that_give_the_same_number_by_chance_make_no_problem_degenerate(monkeypatch):
    indistinguishable, asked = opening.indistinguishable, []

    def by_chance(trials, device):
        asked.append(len(trials))
        return len(asked) == 1 or indistinguishable(trials, device)

    monkeypatch.setattr(opening, "indistinguishable", by_chance)
    with Evaluator(quick_config()) as evaluator:
        assert not evaluator._session(problem("divergence"), True).degenerate
    assert len(asked) == 2 and asked[1] - asked[0] == opening._MORE_SETS
