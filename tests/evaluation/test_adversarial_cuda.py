"""The adversarial suite on a GPU: every sample earns nothing, and the verdict after it is right.

Without pytest: `python tests/evaluation/cuda_run.py --json OUT` evaluates every sample, prints a table and goes on
after failures (`--help` shows how to split the run).
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import cuda_suite  # noqa: E402

from cudal1_ray.evaluation import Evaluator, Verdict  # noqa: E402
from cudal1_ray.evaluation.reasons import DESCRIPTIONS  # noqa: E402
from cudal1_ray.source.findings import Finding  # noqa: E402

ADVERSARIAL = cuda_suite.read_samples("adversarial")
HONEST = {sample.name: sample for sample in cuda_suite.read_samples("honest")}
GPU_MATTERS = (
    "answer_theft", "async_jit_fork", "async_stream", "async_thread", "baseline_sabotage", "cache_poisoning",
    "checker_patch", "crash", "cuda_graph_stale", "decoy_kernel", "degenerate_input", "extension_collision",
    "global_state_tamper", "hang", "hyperparameter_tamper", "init_exploit", "input_mutation", "l2_persist",
    "lazy_tensor", "leftover_process", "nan_comparison", "no_op_rewrite", "obfuscated_exec", "output_aliasing",
    "output_device", "partial_compute", "phase_detection", "precision_downgrade", "reference_tamper",
    "resource_exhaustion", "result_cache", "result_forgery", "rng_tamper", "sandbox_escape", "seed_precompute",
    "shape_broadcast", "shape_overfit", "silent_fallback", "stale_memory", "sticky_cuda_error", "timer_patch",
    "tolerance_exploit",
)  # fmt: skip


def by_name(name: str) -> cuda_suite.Sample:
    return next(sample for sample in ADVERSARIAL if sample.name == name)


@pytest.mark.parametrize("category", GPU_MATTERS)
def test_category_when_a_gpu_can_show_it_has_two_samples(category):
    assert sum(sample.name.startswith(category) for sample in ADVERSARIAL) >= 2


@pytest.mark.parametrize("sample", ADVERSARIAL, ids=lambda sample: sample.name)
def test_sample_when_checked_statically_is_whole_and_given_no_wrong_name(sample):
    tree = ast.parse(sample.code)
    assert ast.get_docstring(tree)
    assert any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body)
    assert sample.reasons and sample.reasons <= set(DESCRIPTIONS)
    assert not sample.control or sample.control in HONEST
    finding = cuda_suite.gate(sample)
    assert finding is None or finding.reason in sample.reasons, finding


def test_complaints_when_a_gain_was_not_earned_name_it():
    sample = by_name("async_stream_unjoined")
    sold = Verdict("p", "accepted", speedup=1.2, credited_speedup=1.2)
    assert cuda_suite.complaints(sample, None, sold)
    fair = Verdict("p", "accepted", speedup=1.01, credited_speedup=1.01)
    assert not cuda_suite.complaints(sample, None, fair)
    assert not cuda_suite.complaints(sample, None, Verdict.rejected("p", "async_stream"))
    assert cuda_suite.complaints(sample, None, Verdict.rejected("p", "unparsable"))
    assert cuda_suite.complaints(sample, Finding("unparsable", ""), Verdict.rejected("p", "async_stream"))


def test_complaints_when_a_control_is_evaluated_wrongly_name_it():
    control, tail = HONEST["in_place"], HONEST["diag_broadcast"]
    assert cuda_suite.control_complaints(control, Verdict.rejected("p", "crash"))
    assert cuda_suite.control_complaints(control, Verdict("p", "accepted", speedup=1.6, credited_speedup=1.6))
    assert cuda_suite.control_complaints(tail, Verdict("p", "accepted", speedup=1.0, credited_speedup=1.0))
    assert not cuda_suite.control_complaints(control, Verdict("p", "accepted", speedup=1.0, credited_speedup=1.0))


@pytest.fixture(scope="module")
def ungated(tmp_path_factory):
    with Evaluator(cuda_suite.cuda_config("adversarial", str(tmp_path_factory.mktemp("extensions")))) as evaluator:
        yield evaluator


@pytest.fixture(scope="module")
def gated(tmp_path_factory):
    config = cuda_suite.cuda_config("adversarial", str(tmp_path_factory.mktemp("extensions")))
    config.check.static_gate = True
    with Evaluator(config) as evaluator:
        yield evaluator


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sample", ADVERSARIAL, ids=lambda sample: sample.name)
def test_sample_when_evaluated_without_the_gate_earns_nothing_and_harms_no_later_verdict(ungated, sample):
    if sample.name.startswith(cuda_suite.WRITERS) and not cuda_suite.keeps_files(ungated):
        pytest.skip("it would write anywhere: the sandbox here keeps no files")
    row = cuda_suite.evaluate(sample, ungated)
    cuda_suite.evaluate_control(sample, HONEST, ungated, row)
    assert not row.complaints, row


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sample", ADVERSARIAL, ids=lambda sample: sample.name)
def test_sample_when_evaluated_with_the_gate_is_refused_by_its_name(gated, sample):
    if cuda_suite.gate(sample) is None:
        pytest.skip("the gate sees nothing: evaluated as it is without it")
    verdict = gated.evaluate(sample.problem, sample.code)
    assert not verdict.accepted and verdict.credited_speedup == 0.0
    assert set(verdict.reasons) <= sample.reasons, verdict
