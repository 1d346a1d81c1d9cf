"""The adversarial suite: every file of evil/, with the static gate and without it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from problems_for_tests import problem, renamed

from cudal1_ray.evaluation.reasons import DESCRIPTIONS
from cudal1_ray.evaluation.static import check_static

FILES = sorted((Path(__file__).parent / "evil").glob("evil_*.py"))
HONEST = renamed("chain").replace("torch.relu(self.a(x))", "self.a(x).relu_()")
# What the tree alone gives away, by file; the rest must be found by running it.
SEEN_IN_THE_TREE = (
    "async_jit_fork_later", "async_jit_fork_unwaited", "async_thread_native", "async_thread_pool",
    "async_thread_process", "async_thread_start", "async_thread_tail", "answer_theft_frames",
    "answer_theft_gc", "baseline_sabotage_gc",
    "checker_patch_allclose", "checker_patch_moves", "decoy_kernel_unused", "global_state_tamper_dtype",
    "global_state_tamper_precision", "global_state_tamper_threads", "lazy_tensor_subclass",
    "missing_model_name",
    "no_op_rewrite_renamed", "obfuscated_exec_base64", "obfuscated_exec_names", "rng_tamper_constant",
    "sandbox_escape_kill", "sandbox_escape_network", "seed_precompute_state", "silent_fallback_bare",
    "silent_fallback_try", "unparsable_text",
)  # fmt: skip

# They would gain less than what others may by chance; a process's own time says that it is nothing.
CHARGED = ("async_thread_tail",)

# Gains too little to be noticed by that: refused all the same.
REFUSED = ("output_aliasing_ring",)


def _load(path: Path):
    code = path.read_text()
    return path.stem.removeprefix("evil_"), problem(re.search(r"# problem: (\w+)", code).group(1)), code


@pytest.mark.parametrize("name", SEEN_IN_THE_TREE)
def test_the_static_gate_names_it(name):
    path = next(path for path in FILES if path.stem == f"evil_{name}")
    _, asked, code = _load(path)
    finding = check_static(code, asked.source)
    assert finding is not None
    assert name.startswith(finding.reason), finding


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem.removeprefix("evil_"))
def test_nothing_is_earned_without_the_gate_and_the_next_verdict_is_right(ungated, path):
    name, asked, code = _load(path)
    if name == "decoy_kernel_unused":
        pytest.skip("a C++ build of half a minute, and honest once the gate is off")
    verdict = ungated.evaluate(asked, code)
    assert verdict.credited_speedup < (1.08 if name in CHARGED else 1.45), verdict
    assert not (verdict.accepted and name in REFUSED), verdict
    assert set(verdict.reasons) <= set(DESCRIPTIONS)
    assert verdict.accepted == (not verdict.reasons)
    if not verdict.accepted:
        assert verdict.credited_speedup == 0.0 and verdict.detail
    after = ungated.evaluate(problem("chain"), HONEST)
    assert after.accepted, (name, after)
    assert 0.5 < after.speedup < 2.0


def test_every_category_that_a_cpu_can_show_has_a_sample():
    cuda_only = {"async_stream", "cuda_graph_stale", "l2_persist", "sticky_cuda_error"}
    of_the_evaluator = {"reference_error", "evaluator_error", "unstable_timing"}
    by_symptom = {
        "wrong_output",
        "wrong_structure",
        "runtime_error",
        "timeout",
        "memory_limit",
        "compile_error",
    }
    for reason in set(DESCRIPTIONS) - cuda_only - of_the_evaluator - by_symptom:
        assert any(path.stem.startswith(f"evil_{reason}") for path in FILES), reason
