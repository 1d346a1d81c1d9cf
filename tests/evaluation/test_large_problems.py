"""Problems too large to be compared whole: a smaller batch, windows, and no other candidate on the machine."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from evaluator_settings import quick_config

from cudal1_ray.evaluation import Evaluator, Verdict
from cudal1_ray.evaluation import evaluator as evaluator_module
from cudal1_ray.evaluation.correctness import comparison
from cudal1_ray.evaluation.exchange.messages import Prepare
from cudal1_ray.evaluation.host import timed_contestant
from cudal1_ray.evaluation.opening import maker_requests
from cudal1_ray.evaluation.sharing.shortage import others_may_have_it
from cudal1_ray.evaluation.sharing.turns import Turns
from cudal1_ray.problems import Problem, parse_problem

pytestmark = pytest.mark.usefixtures("warm_server")

# 3 MiB in, 3 MiB out: with one MiB as the limit it is large, and four windows are a third of its output.
SOURCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * {factor} + x


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
FASTER = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        {body}
"""
HONEST = FASTER.format(body="return torch.tanh(x).mul_(2.0).add_(x)")
HALF = FASTER.format(body="return torch.cat([torch.tanh(x[:384]) * 2.0 + x[:384], torch.zeros_like(x[384:])])")
ONE_BATCH = FASTER.format(body="return (torch.tanh(x).view(768, -1) * 2.0 + x.view(768, -1)).view(x.shape)")


def large(inputs: str = "torch.randn(768, 1024)", factor: str = "2.0") -> Problem:
    return parse_problem(SOURCE.format(inputs=inputs, factor=factor), "large", origin="test")


@pytest.fixture(scope="module")
def evaluator():
    config = quick_config()
    config.check = dataclasses.replace(config.check, large_mib=1, windows=4)
    with Evaluator(config) as evaluator:
        yield evaluator


def opened(evaluator: Evaluator):
    return next(reversed(evaluator._problems._sessions.values()))


def test_large_problem_when_a_candidate_is_honest_accepts_it_with_small_trials(evaluator):
    verdict = evaluator.evaluate(large(), HONEST)
    assert verdict.accepted, verdict
    session = opened(evaluator)
    assert {trial.kind: trial.other_batch for trial in session.trials} == {
        "own": False, "scaled": True, "lowered": True, "sparse": True, "one_row": True, "batch": True,
    }  # fmt: skip
    assert all(trial.input_bytes <= 1 << 19 for trial in session.trials if trial.other_batch)
    own = session.own[0].expected[0]
    assert own.shape == (768, 1024) and own.truth.numel() == 4 << 16 and own.nbytes == 3 << 20
    assert not any(trial.values for trial in session.own)


def test_large_problem_when_opened_holds_its_largest_inputs_once(evaluator, monkeypatch):
    prepared: list[bool] = []
    ask = timed_contestant.TimedContestant.ask

    def noted(self, message, *arguments, **options):
        if isinstance(message, Prepare):
            prepared.append(message.reuse)
        return ask(self, message, *arguments, **options)

    monkeypatch.setattr(timed_contestant.TimedContestant, "ask", noted)
    assert evaluator.evaluate(large(), HONEST).accepted and not all(prepared)
    prepared.clear()
    monkeypatch.setattr(timed_contestant, "_LET_GO_FIRST", 1 << 20)
    assert evaluator.evaluate(large(), HONEST + "\n# again\n").accepted and prepared and all(prepared)


@pytest.mark.parametrize("code", [HALF, ONE_BATCH])
def test_large_problem_when_half_the_work_or_one_batch_is_done_refuses_it(evaluator, code):
    verdict = evaluator.evaluate(large(), code)
    assert not verdict.accepted and set(verdict.reasons) & {"partial_compute", "wrong_output", "shape_overfit"}


def test_large_problem_when_inputs_are_fixed_is_tried_at_their_own_size(evaluator):
    fixed = large("torch.linspace(-1, 1, 768 * 1024).view(768, 1024)")
    verdict = evaluator.evaluate(fixed, HONEST)
    assert verdict.accepted and not verdict.degenerate, verdict


def test_large_problem_when_its_output_is_constant_is_degenerate(evaluator):
    verdict = evaluator.evaluate(large(factor="0.0 + torch.arange(1024.0) - x"), HONEST)
    assert verdict.reasons == ("degenerate_input",) and verdict.degenerate, verdict


def test_large_outputs_when_compared_keep_their_own_precision(monkeypatch):
    """In double precision the 9 MiB of outputs would be copied twice over, for every trial."""
    config, twins = quick_config(), []

    def expect(native, exact, *rest):
        twins.append(exact.dtype)
        return comparison.expect(native, exact, *rest)

    monkeypatch.setattr(maker_requests, "expect", expect)
    with Evaluator(config) as evaluator:
        assert evaluator.evaluate(large("torch.randn(2304, 1024)"), HONEST).accepted
        assert twins[0] is torch.float32 and torch.float64 in twins  # the latter for the smaller batch
        (expected,) = opened(evaluator).own[0].expected
        assert expected.truth.dtype is torch.float32 and expected.truth.numel() == 2304 * 1024
        assert not comparison.is_coarse(expected, config.check) and expected.infinite is None
        nearly = FASTER.format(body="return (torch.tanh(x).mul_(2.0).add_(x)).half().float()")
        assert evaluator.evaluate(large("torch.randn(2304, 1024)"), nearly).reasons == ("precision_downgrade",)


def test_very_large_problem_when_opened_waits_for_an_exclusive_turn(tmp_path, monkeypatch):
    monkeypatch.setattr(maker_requests, "needs_all", lambda device, nbytes: nbytes > 2 << 20)
    config = quick_config()
    path = str(tmp_path / "turns")
    config.check = dataclasses.replace(config.check, large_mib=1, windows=4)
    others = Turns(path)
    with Evaluator(config, turns_file=path) as evaluator, ThreadPoolExecutor(1) as threads:
        with others.candidate():
            assert evaluator.evaluate(large("torch.randn(64, 64)"), HONEST).accepted  # a small one runs beside others
            waiting = threads.submit(evaluator.evaluate, large(), HONEST)
            with pytest.raises(TimeoutError):
                waiting.result(5.0)
        assert waiting.result(120).accepted
    others.close()


def test_problems_when_memory_is_short_are_held_ready_as_far_as_it_allows():
    config = quick_config()
    config.live_references, config.live_mib = 8, 16
    with Evaluator(config) as evaluator:
        for number in range(3):
            assert evaluator.evaluate(large(factor=f"(2.0 + 0.0 * {number})"), HONEST).accepted
        assert 1 <= len(evaluator._problems._sessions) < 3


TORCH = (
    "in forward: OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted}. GPU 0 has a total capacity of "
    "139.80 GiB of which {free} is free. Including non-PyTorch memory, this process has 30.60 GiB memory in use. "
    "111.84 GiB allowed; Of the allocated memory {held} is allocated by PyTorch, and 9.98 MiB is reserved by PyTorch…"
)


@pytest.mark.parametrize(("reason", "detail", "others"), [
    ("memory_limit", "in forward: MemoryError", True),
    ("runtime_error", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling", True),
    ("reference_error", "crash: ended by SIGKILL", True),
    ("runtime_error", "ZeroDivisionError", False),
    ("memory_limit", "8295 MiB of 8192 MiB allowed", False),  # the limit of one process
    ("memory_limit", "more than 8192 MiB of 8192 MiB allowed, at once", False),  # the same, as its control group has it
    ("memory_limit", TORCH.format(wanted="132.81 GiB", free="138.37 GiB", held="140.02 MiB"), False),
    ("memory_limit", TORCH.format(wanted="90.00 GiB", free="109.20 GiB", held="30.00 GiB"), False),
    ("memory_limit", TORCH.format(wanted="512.00 MiB", free="12.00 MiB", held="30.00 GiB"), True),
])  # fmt: skip
def test_shortage_when_other_processes_caused_it_differs_from_exceeded_limits(reason, detail, others):
    assert others_may_have_it(Verdict.rejected("p", reason, detail)) == others


IN_THIS_PROCESS = (torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUDA error: out of memory\nSearch for"))


@pytest.mark.parametrize("raised", [None, *IN_THIS_PROCESS], ids=["candidate", "torch", "CUDA"])
@pytest.mark.parametrize(("short", "tried"), [(0, [False]), (1, [False, False]), (2, [False, False, True])])
def test_evaluation_when_the_gpu_is_full_is_tried_beside_others_before_it_waits(
    tmp_path, monkeypatch, short, tried, raised
):
    had_room: list[bool] = []

    def attempt(problem, *_, has_room):
        had_room.append(has_room)
        full = len(had_room) <= short
        if full and raised is not None:
            raise raised
        return Verdict.rejected(problem.problem_id, "memory_limit" if full else "wrong_output", "")

    monkeypatch.setattr(evaluator_module, "_PAUSE_S", 0.0)
    with Evaluator(quick_config(), turns_file=str(tmp_path / "turns")) as evaluator:
        monkeypatch.setattr(evaluator, "_attempt", attempt)
        monkeypatch.setattr(evaluator, "_give_memory_back", lambda most: None)
        evaluator.config.device = "cuda"
        verdict = evaluator._with_room_if_needed(large(), lambda session: None)
    assert verdict.reasons == ("wrong_output",) and had_room == tried


@pytest.mark.parametrize("raised", IN_THIS_PROCESS, ids=["torch", "CUDA"])
def test_evaluation_when_the_gpu_stays_full_tells_what_to_do(monkeypatch, raised):
    def attempt(*_, **__):
        raise raised

    with Evaluator(quick_config()) as evaluator:
        monkeypatch.setattr(evaluator, "_attempt", attempt)
        verdict = evaluator.evaluate(large(), HONEST)
    assert verdict.reasons == ("evaluator_error",)
    assert verdict.detail == "cpu has no memory left for the evaluator; end what else uses it"


SHORT = "(_ for _ in ()).throw(torch.OutOfMemoryError('CUDA out of memory'))"


@pytest.mark.parametrize(
    "problem",
    [
        large(factor=f"(2.0 if x.dtype is not torch.float64 else {SHORT})"),  # the exact outputs
        large(f"torch.randn(768, 1024) if not torch.utils._python_dispatch._len_torch_dispatch_stack() else {SHORT}"),
    ],
    ids=["exact", "plan"],
)
def test_opening_when_memory_is_short_beside_others_is_done_again_without_them(tmp_path, monkeypatch, problem):
    monkeypatch.setattr(maker_requests, "may_draw", lambda device, nbytes: True)
    config, had_room = quick_config(), []
    attempt = Evaluator._attempt

    def attempted(evaluator, *arguments, has_room):
        had_room.append(has_room)
        return attempt(evaluator, *arguments, has_room=has_room)

    monkeypatch.setattr(Evaluator, "_attempt", attempted)
    monkeypatch.setattr(evaluator_module, "_PAUSE_S", 0.0)
    with Evaluator(config, turns_file=str(tmp_path / "turns")) as evaluator:
        verdict = evaluator.evaluate(problem, HONEST)
        assert verdict.accepted, verdict  # what could not be had alone either is done without
        (session,) = evaluator._problems._sessions.values()
    assert had_room == [False, True]
    assert (session.variation == "drawn") == ("dispatch" not in problem.source)
