"""Places of tensors are random: on the CPU for every batch, on a GPU for every call."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import partial

import pytest
import torch
from evaluator_settings import quick_config
from problems_for_tests import problem

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.host.handles import ForkServer
from cudal1_ray.evaluation.host.timed_contestant import TimedContestant
from cudal1_ray.evaluation.timing.pairs import Pairs

pytestmark = pytest.mark.usefixtures("warm_server")

FAULTS = """
import resource, torch
for number in range(10):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    made = [torch.zeros(16 << 20, dtype=torch.uint8) for _ in range(6)]
    del made
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_memory_when_freed_stays_with_the_process():
    environment = ForkServer(quick_config())._environment(sys.path)
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
    first, *_, last = [int(line) for line in done.stdout.split()]
    assert last <= first // 20


@pytest.fixture(scope="module")
def evaluator():
    with Evaluator(quick_config()) as evaluator:
        yield evaluator


def test_memory_places_when_calls_go_on_move_equally_on_both_sides(evaluator):
    chain = problem("chain")
    session = evaluator._problems.session(chain, has_room=True)
    code = chain.source + "\n\nclass ModelNew(Model):\n    pass\n"
    candidate = TimedContestant(evaluator._server, session, code, "candidate", [])
    pairs = Pairs(session, evaluator._references.take(session), candidate, random.Random(1))
    pairs._next_question = -1  # timed batches only, without trials
    moves: list[list[tuple[int, int]]] = [[], []]
    for side, watch in enumerate(pairs._watches):
        space = watch.contestant.space

        def noted(*spacers, space=space, side=side, **options):
            moves[side].append(spacers)
            return space(*spacers, **options)

        watch.contestant.space = noted
    try:
        for _ in range(4):
            pairs.another()
    finally:
        for watch in pairs._watches:
            watch.contestant.close()
    assert moves[0] == moves[1] and len(set(moves[0])) == 4


@pytest.mark.gpu
def test_temporary_memory_when_on_a_gpu_lies_elsewhere_in_every_call():
    from cudal1_ray.evaluation.exchange.messages import DeviceSettings
    from cudal1_ray.evaluation.inside.cuda_device import open_device

    device = open_device(DeviceSettings("cuda", 1))
    addresses: list[int] = []

    def call(x):
        addresses.append(torch.empty_like(x).data_ptr())  # freed at once: the next would lie in the same place
        return x.sum()

    def places(run):
        addresses.clear()
        run(call, [[x]] * 16, None)
        return len(set(addresses))

    x = torch.zeros(4 << 20, device="cuda")
    assert places(device.run_batch) == 1
    device.scatter(2, 1024)
    assert places(device.run_batch) > 4 and places(partial(device.run_batch, queued=True)) > 4
    device.forget_inputs()
    assert places(device.run_batch) == 1
