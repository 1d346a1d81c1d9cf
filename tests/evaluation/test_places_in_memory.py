"""On the CPU, where tensors lie is drawn for every batch, and memory that was there once is not asked for again."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from evaluator_settings import quick_config
from problems_for_tests import problem

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.referee.timed_contestant import TimedContestant
from cudal1_ray.evaluation.timing.pairs import Pairs

FAULTS = """
import resource, torch
from cudal1_ray.evaluation.contestants.devices import open_device
open_device("cpu", 1, 0, 1.0)
for number in range(10):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    made = [torch.zeros(16 << 20, dtype=torch.uint8) for _ in range(6)]
    del made
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_freed_memory_stays_with_the_process():
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True, timeout=120)
    first, *_, last = [int(line) for line in done.stdout.split()]
    assert last <= first // 100


@pytest.fixture(scope="module")
def evaluator():
    with Evaluator(quick_config()) as made:
        yield made


def test_both_sides_move_by_as_much(evaluator):
    one = problem("chain")
    session = evaluator._session(one, True)
    code = one.source + "\n\nclass ModelNew(Model):\n    pass\n"
    candidate = TimedContestant(evaluator._server, session, code, "candidate", [])
    pairs = Pairs(session, evaluator._references.take(session), candidate, random.Random(1))
    pairs._next_question = -1  # nothing but timed batches
    asked: list[list[tuple[int, int]]] = [[], []]
    for side, watch in enumerate(pairs._watches):
        prepare = watch.contestant.prepare

        def noted(*arguments, prepare=prepare, side=side, **options):
            asked[side].append(options["spacers"])
            return prepare(*arguments, **options)

        watch.contestant.prepare = noted
    try:
        for _ in range(4):
            pairs.another()
    finally:
        for watch in pairs._watches:
            watch.contestant.close()
    assert asked[0] == asked[1] and len(set(asked[0])) == 4
