"""Processes that are reused from problem to problem, as on a GPU the maker and the eager reference are."""

from __future__ import annotations

import dataclasses
import os
import signal

import pytest
from evaluator_settings import quick_config
from problems_for_tests import problem, renamed

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation import measuring as measuring_module
from cudal1_ray.evaluation.host.handles import ForkServer
from cudal1_ray.evaluation.host.kept_process import KeptProcess
from cudal1_ray.evaluation.measuring import CandidateMeasurement
from cudal1_ray.evaluation.screening.hints import several_streams
from cudal1_ray.evaluation.sharing.turns import Turns
from cudal1_ray.problems import parse_problem


@pytest.fixture(scope="module")
def server():
    server = ForkServer(quick_config())
    yield server
    server.close()


def pid_of(kept: KeptProcess) -> int:
    return kept.take().watch.pid


@pytest.fixture
def keeping(warm_server):
    """Yield an evaluator that keeps its processes, as on a GPU, and measures with as few as possible."""
    config = quick_config()
    config.rules.same_operations = "measure"
    config.timing.contestants, config.timing.most_contestants = 1, 3
    with Evaluator(config) as evaluator:
        evaluator._problems._maker.lives_on = evaluator._references._process.lives_on = True
        yield evaluator


def test_kept_process_when_cleared_is_the_same_until_it_is_dropped(server):
    kept = KeptProcess(server, "reference", lives_on=True)
    first = pid_of(kept)
    kept.clear()
    assert pid_of(kept) == first
    kept.drop()
    kept.drop()
    assert not os.path.exists(f"/proc/{first}")
    assert pid_of(kept) != first


def test_kept_process_when_it_died_or_held_gigabytes_is_replaced(server):
    kept = KeptProcess(server, "maker", lives_on=True)
    first = kept.take()
    server.kill(first.supervisor)
    kept.clear()
    second = kept.take()
    assert second is not first
    second.regions_mib = 1 << 20
    kept.clear()
    assert kept.take() is not second


def test_kept_process_when_its_server_closes_ends(server):
    kept = KeptProcess(server, "maker", lives_on=True)
    first, descriptors = kept.take(), os.listdir("/proc/self/fd")
    server.close()
    kept.clear()
    assert pid_of(kept) != first.watch.pid
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)  # none of the first's is left


def test_verdicts_when_processes_are_kept_are_the_same(keeping):
    """The kept processes serve several problems in turn, with wrong candidates between, and one of them dies."""
    for name in ("chain", "softmax", "chain"):
        right, wrong = problem(name), "import torch\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
        assert keeping.evaluate(right, renamed(name)).accepted
        assert not keeping.evaluate(right, wrong).accepted
    before = pid_of(keeping._references._process)
    keeping._server.kill(keeping._references._process.take().supervisor)
    assert keeping.evaluate(right, renamed(name) + "\n# once more\n").accepted
    assert pid_of(keeping._references._process) != before


SPOILS = "\nimport torch\ntorch.nn.functional.softmax = torch.softmax = torch.Tensor.softmax = None\n"


def test_problem_when_an_earlier_one_spoiled_the_kept_process_is_tried_in_a_new_one(keeping):
    """The second problem's opening, and its reference, are tried once more in an unused process."""
    spoiling = dataclasses.replace(problem("chain"), source=SPOILS + problem("chain").source)
    assert keeping.evaluate(spoiling, renamed("chain")).accepted
    assert keeping._problems._maker.used
    verdict = keeping.evaluate(problem("softmax"), renamed("softmax"))
    assert verdict.accepted, verdict
    broken = dataclasses.replace(problem("softmax"), source=problem("softmax").source.replace("softmax", "hardmax"))
    for _ in range(2):
        assert keeping.evaluate(broken, renamed("softmax")).reasons == ("reference_error",)
    assert keeping.evaluate(problem("softmax"), renamed("softmax")).accepted


def test_reference_when_it_dies_beside_a_candidate_is_no_crash_of_the_candidate(keeping, monkeypatch):
    measure, killed = measuring_module.measure, []

    def deadly(pairs, *arguments, **options):
        if not killed:
            killed.append(pairs._watches[0].contestant.handle.watch.pid)
            os.kill(killed[0], signal.SIGSEGV)
        return measure(pairs, *arguments, **options)

    monkeypatch.setattr(measuring_module, "measure", deadly)
    verdict = keeping.evaluate(problem("chain"), renamed("chain"))
    assert verdict.reasons == ("resource_exhaustion",) and "fails beside it" in verdict.detail, verdict
    assert keeping.evaluate(problem("chain"), renamed("chain") + "\n# again\n").accepted


@pytest.mark.parametrize(
    ("code", "several"),
    [
        ("s = torch.cuda.Stream()", True),
        ("cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);", True),
        ("auto s = at::cuda::getStreamFromPool();", True),
        ("self.layer = nn.LSTM(8, 8)", True),
        ("cudaStream_t stream = at::cuda::getCurrentCUDAStream();", False),
        ("#include <c10/cuda/CUDAStream.h>", False),
        ("torch.cuda.current_stream().synchronize()", False),
    ],
)
def test_several_streams_when_code_makes_them_is_true(code, several):
    assert several_streams(code) is several


ASKS = """
import os
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.queues = int(os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", 0))

    def forward(self, x):
        return torch.tanh(x) * (1 + self.queues)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("several", [False, True])
def test_hardware_queues_when_a_candidate_may_need_them_are_given_to_both_sides(keeping, monkeypatch, several):
    monkeypatch.setattr(CandidateMeasurement, "_several_streams", lambda measurement: several)
    processes, spawn = [], ForkServer.spawn

    def spawned(self, *, role, streams=False, **rest):
        if role != "screener":
            processes.append((role, streams))
        return spawn(self, role=role, streams=streams, **rest)

    monkeypatch.setattr(ForkServer, "spawn", spawned)
    asks = parse_problem(ASKS, "asks", origin="test")
    verdict = keeping.evaluate(asks, ASKS.replace("class Model(", "class ModelNew("))
    if several:  # the trials were drawn by a process with a single queue, and the problem records the number
        assert verdict.reasons == ("wrong_output",)
        assert processes == [("maker", False), ("reference", False), ("reference", True), ("candidate", True)]
    else:
        assert verdict.accepted, verdict
        assert processes[:3] == [("maker", False), ("reference", False), ("candidate", False)]
        assert not any(streams for _, streams in processes)


# Takes several times as long as its reference: no noise makes it a gain, which would be looked at more closely.
SLOWER = renamed("chain").replace(
    "def forward(self, x):\n", "def forward(self, x):\n        for _ in range(100_000):\n            pass\n"
)


def roles_made(keeping, monkeypatch) -> list[str]:
    """Return the roles of the processes for one verdict, whose candidate is slower and is measured only once."""
    roles, spawn = [], ForkServer.spawn
    monkeypatch.setattr(
        ForkServer, "spawn", lambda self, *, role, **rest: roles.append(role) or spawn(self, role=role, **rest)
    )
    assert keeping.evaluate(problem("chain"), SLOWER).accepted
    return roles


def test_fresh_pairs_when_made_begin_with_reference_and_candidate_in_turn(keeping, monkeypatch):
    """They take turns, since on a GPU the process that is made later launches faster."""
    keeping.config.timing.contestants = keeping.config.timing.most_contestants = 3
    # Fresh references are wanted from the second pair on, whatever a busy machine's clocks show of the first.
    monkeypatch.setattr(measuring_module, "wants_fresh_reference", lambda parts, timing: bool(parts))
    roles = roles_made(keeping, monkeypatch)
    # The first candidate is timed against the reused reference.
    assert roles == ["screener", "maker", "reference", "candidate", "candidate", "reference", "reference", "candidate"]


def test_gain_when_processes_differ_is_confirmed_against_another_reference(keeping, monkeypatch):
    keeping.config.timing.contestants = keeping.config.timing.most_contestants = 1
    keeping.config.timing.remeasure_above, keeping.config.timing.remeasure_difference = 0.01, 9.0
    monkeypatch.setattr(measuring_module, "wants_fresh_reference", lambda parts, timing: bool(parts))
    roles = roles_made(keeping, monkeypatch)
    assert roles == ["screener", "maker", "reference", "candidate", "reference", "candidate"]


def test_device_when_a_gain_is_confirmed_rests_before(keeping, monkeypatch):
    timing = keeping.config.timing
    timing.contestants = timing.most_contestants = 2
    timing.remeasure_above, timing.remeasure_difference, timing.cool_down_s = 0.01, 9.0, 0.125
    rests, alone = [], Turns.alone
    monkeypatch.setattr(Turns, "alone", lambda self, **how: rests.append(how.get("rest_s")) or alone(self, **how))
    verdict = keeping.evaluate(problem("chain"), SLOWER)
    assert [rest_s for rest_s in rests if rest_s is not None] == [0.0, 0.0, 0.125, 0.0]
    assert verdict.accepted and verdict.confirmed_on == "same_device"
    assert len(verdict.remeasured) == 2 and verdict.credited_speedup == min(verdict.remeasured)
