"""Which cores evaluators beside each other take."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from cudal1_ray.evaluation.cores import Cores, choose_measuring_core, launching_from_one_core
from cudal1_ray.evaluation.sandbox.process_watch import ProcessWatch

ALL = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(ALL) < 2, reason="one core: nothing to choose")


def test_evaluators_keep_apart_while_there_is_room(tmp_path):
    held = [Cores(1, "cpu", str(tmp_path)) for _ in ALL]
    assert sorted(cores.numbers[0] for cores in held) == ALL
    late = Cores(1, "cpu", str(tmp_path))  # shares one with somebody
    assert len(late.numbers) == 1 and late.numbers[0] in ALL
    left = held[0].numbers
    held[0].close(), held[0].close()
    assert Cores(1, "cpu", str(tmp_path)).numbers == left
    for cores in held:
        cores.close()


def test_a_dead_holder_leaves_its_core(tmp_path):
    if (child := os.fork()) == 0:
        held = [Cores(1, "cpu", str(tmp_path)) for _ in ALL]
        os._exit(len({cores.numbers[0] for cores in held}))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(ALL)
    held = [Cores(1, "cpu", str(tmp_path)) for _ in ALL]
    assert sorted(cores.numbers[0] for cores in held) == ALL


def test_nothing_is_pinned_where_that_would_mean_nothing(tmp_path):
    assert Cores(len(ALL), "cpu", str(tmp_path)).numbers == Cores(1, "cuda:0", str(tmp_path)).numbers == []


def test_without_a_folder_for_locks_cores_are_taken_by_chance(tmp_path):
    (tmp_path / "file").write_text("")
    assert len(Cores(1, "cpu", str(tmp_path / "file")).numbers) == 1


def test_what_is_started_keeps_away_from_the_measuring_core():
    core = max(ALL)
    code = (
        "import os; from cudal1_ray.evaluation.cores import leave_measuring_core, _siblings; "
        f"leave_measuring_core({core}); print(sorted(os.sched_getaffinity(0)), sorted(_siblings({core})))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    left, siblings = json.loads(f"[{told.strip().replace('] [', '],[')}]")
    assert core in siblings and left == (sorted(set(ALL) - set(siblings)) or ALL)


@pytest.mark.parametrize(("count", "spared"), [(1, False), (4, False), (5, True), (16, True)])
def test_only_a_machine_with_cores_enough_spares_one(monkeypatch, count, spared):
    monkeypatch.setattr("cudal1_ray.evaluation.cores._siblings", lambda core: {core})
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(count)))
    assert choose_measuring_core() in (range(count) if spared else (-1,))


def test_who_is_measured_launches_from_one_core_and_leaves_it_in_the_end():
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    watch = ProcessWatch(sleeper.pid, os.getpid())
    before = os.sched_getaffinity(0)
    try:
        with launching_from_one_core([watch], -1) as fastest, launching_from_one_core([watch], max(ALL)) as core:
            assert fastest in before and core == max(ALL)
            assert os.sched_getaffinity(sleeper.pid) == {core}
        assert os.sched_getaffinity(sleeper.pid) == os.sched_getaffinity(0) == before
    finally:
        watch.close()
        sleeper.kill()
        sleeper.wait()
    with launching_from_one_core([watch], max(ALL)):  # one that has died is nobody's trouble
        pass
