"""The adversarial suite of the CPU: every sample, with the static gate and without it."""

from __future__ import annotations

import time

import pytest
from cuda_suite import GROUPS, RISKY, WRITERS, keeps_files
from evaluator_settings import least_config, ungated_config
from problems_for_tests import problem, renamed

from cudal1_ray.adversarial import Sample, load_samples
from cudal1_ray.evaluation import Evaluator, Verdict
from cudal1_ray.evaluation.host.timed_contestant import TimedContestant
from cudal1_ray.evaluation.reasons import DESCRIPTIONS
from cudal1_ray.evaluation.screening.static_check import check_static

pytestmark = pytest.mark.slow

SAMPLES = load_samples("cpu", "adversarial")
BY_PROBLEM = sorted(SAMPLES, key=lambda sample: sample.problem.problem_id)  # an evaluator holds two open at a time
HONEST = renamed("chain").replace("torch.relu(self.a(x))", "self.a(x).relu_()")
# Samples that take names or libraries from others name themselves like these; plain C is built in half a second.
HONEST_BUILT = (
    HONEST.replace("self.a(x).relu_()", "own_relu(self.a(x))")
    + '''
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <Python.h>

static PyObject* relu_(PyObject* self, PyObject* given) {
    unsigned long long place;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(given, "Kn", &place, &n)) return nullptr;
    float* x = (float*)place;
    for (Py_ssize_t i = 0; i < n; i++) x[i] = x[i] < 0 ? 0 : x[i];
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"relu_", relu_, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "chain_tail", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_chain_tail() { return PyModule_Create(&module); }
"""
native = load_inline(name="chain_tail", cpp_sources=SOURCE, no_implicit_headers=True, extra_cflags=["-O3"])


def own_relu(y):
    native.relu_(y.data_ptr(), y.numel())
    return y
'''
)
HONEST_OPERATOR = (
    HONEST.replace("self.a(x).relu_()", "torch.ops.chain_tail.tail(self.a(x))")
    + """
library = torch.library.Library("chain_tail", "DEF")
library.define("tail(Tensor x) -> Tensor")
library.impl("tail", torch.relu, "CPU")
"""
)
# Samples that are refused for their text alone, by file; every other one must be found by running it.
SEEN_IN_THE_TREE = (
    "async_thread_native", "checker_patch_allclose", "checker_patch_moves", "missing_model_name",
    "rng_tamper_constant", "rng_tamper_entropy", "unparsable_depth", "unparsable_text",
)  # fmt: skip

# The honest candidate does what its problem does: its interval meets this range unless a sample has harmed a clock,
# which is wrong by a factor of ten then. A busy machine has shown 1.31.
CONTROL_RANGE = (0.5, 2.0)
CONTROL_TIMING = least_config().timing
# Categories that change what outlives a candidate: an honest one is evaluated after each of these.
DAMAGING = RISKY + (
    "checker_patch", "global_state_tamper", "reference_tamper", "rng_tamper", "sandbox_escape", "timer_patch",
)  # fmt: skip
# The order of trials is drawn, with another batch size first or last, and so is how wrong an answer is:
# a candidate whose answers are wrong may be refused with any of these names.
WRONG = GROUPS["wrong"] | {"shape_overfit", "shape_broadcast"}


def _named(name: str) -> Sample:
    return next(sample for sample in SAMPLES if sample.name == name)


def _reasons(sample: Sample) -> set[str]:
    """Return the reasons for which a sample may be refused."""
    return sample.reasons | WRONG if sample.reasons & WRONG else set(sample.reasons)


def _hold(sample: Sample, verdict: Verdict) -> None:
    """Assert that the verdict without the static gate is as the sample states."""
    assert verdict.credited_speedup <= sample.most, verdict
    assert not (verdict.accepted and sample.expectation == "refused"), verdict
    assert set(verdict.reasons) <= _reasons(sample), verdict
    assert verdict.accepted == (not verdict.reasons)
    if not verdict.accepted:
        assert verdict.credited_speedup == 0.0 and verdict.detail


def _control(name: str) -> str:
    """Return the honest candidate to evaluate after a sample, if needed one that the sample would have harmed."""
    if name == "extension_collision_operator":
        return HONEST_OPERATOR
    if name.startswith("extension_collision"):
        return f"{HONEST_BUILT}\n# after {name}\n"  # a changed text is built anew, under the taken name
    return HONEST_BUILT if name.startswith("cache_poisoning") else HONEST


@pytest.fixture(scope="module")
def building():
    """Yield an evaluator as `ungated`, with time for a compiler."""
    with Evaluator(ungated_config()) as evaluator:
        yield evaluator


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_sample_when_read_has_the_names_it_may_be_refused_with(sample):
    reasons = _reasons(sample)
    assert reasons and reasons <= set(DESCRIPTIONS)
    assert all(reason in reasons for reason in DESCRIPTIONS if sample.name.startswith(f"{reason}_"))


@pytest.mark.parametrize("name", SEEN_IN_THE_TREE)
def test_sample_when_running_cannot_show_its_trick_is_refused_by_the_static_gate(name):
    finding = check_static(_named(name).code).refusal
    assert finding is not None
    assert name.startswith(finding.reason), finding


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_sample_when_the_static_gate_refuses_it_has_a_verdict_of_a_fitting_name(evaluator, sample):
    """The gate only reads the text: without a finding, a sample's evaluation is the same as without the gate."""
    finding = check_static(sample.code).refusal
    if finding is not None:
        verdict = evaluator.evaluate(sample.problem, sample.code)
        assert verdict.reasons == (finding.reason,)
        assert finding.reason in _reasons(sample), finding


@pytest.mark.parametrize("sample", BY_PROBLEM, ids=lambda sample: sample.name)
def test_sample_when_evaluated_without_the_gate_earns_nothing_and_harms_no_later_verdict(
    ungated, building, sample, request
):
    name, sample_problem, code = sample.name, sample.problem, sample.code
    if name.startswith("leftover_process"):
        request.getfixturevalue("brief_ending")
    evaluator = building if "cpp_extension" in code + _control(name) else ungated
    if name.startswith(WRITERS) and not keeps_files(evaluator):
        pytest.skip("it would write to this machine's own files: nothing keeps them here")
    with pytest.MonkeyPatch.context() as patch:
        if name.startswith("hang"):  # these limits are a candidate's alone: its problem is opened without them
            for limit in ("plain_load_timeout_s", "plain_first_call_timeout_s", "slowdown_limit"):
                patch.setattr(evaluator.config.limits, limit, 2.0)
        verdict = evaluator.evaluate(sample_problem, code)
    if verdict.credited_speedup > sample.most:  # a few short batches on a busy machine: what users run decides
        with Evaluator(ungated_config(quick=False)) as thorough:
            verdict = thorough.evaluate(sample_problem, code)
    _hold(sample, verdict)
    if name.startswith(WRITERS):  # its second evaluation starts from unchanged files
        again = evaluator.evaluate(sample_problem, code)
        assert again.accepted == verdict.accepted, (verdict, again)
    # A control follows every fifth of the other samples as well, since damage to the evaluator stays.
    if name.startswith(DAMAGING) or SAMPLES.index(sample) % 5 == 0:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(evaluator.config, "timing", CONTROL_TIMING)
            after = evaluator.evaluate(problem("chain"), _control(name))
        assert after.accepted, (name, after)
        assert after.speedup_low < CONTROL_RANGE[1] and after.speedup_high > CONTROL_RANGE[0], (name, after)


@pytest.mark.parametrize(
    "name", ["async_thread_pool", "async_thread_process", "async_thread_start", "async_thread_tail"]
)
def test_work_that_is_not_waited_for_when_done_before_it_is_read_earns_nothing(ungated, monkeypatch, name):
    """A machine that stops the referee gives threads and processes the time that forward did not wait for."""

    def late(look):
        def look_late(contestant, *arguments):
            if contestant.role == "candidate":
                time.sleep(0.01)
            return look(contestant, *arguments)

        return look_late

    for look in ("fetch", "where"):
        monkeypatch.setattr(TimedContestant, look, late(getattr(TimedContestant, look)))
    sample = _named(name)
    _hold(sample, ungated.evaluate(sample.problem, sample.code))


@pytest.mark.parametrize("name", ["silent_fallback_bare", "silent_fallback_try"])
def test_fallback_when_it_hides_an_error_is_refused_for_that_error(evaluator, name):
    sample = _named(name)
    verdict = evaluator.evaluate(sample.problem, sample.code)
    assert verdict.reasons == ("runtime_error",) and "silent_fallback" in verdict.flags, verdict
    assert "candidate.py" in verdict.detail


def test_categories_when_a_cpu_can_show_them_have_two_samples():
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
    of_rules = {"same_operations", "whole_graph_compiler", "no_own_kernel"}  # test_rules.py
    without_a_name = {"cache_poisoning", "extension_collision", "hang"}
    for category in (set(DESCRIPTIONS) - cuda_only - of_the_evaluator - by_symptom - of_rules) | without_a_name:
        assert sum(sample.name.startswith(f"{category}_") for sample in SAMPLES) >= 2, category
