"""The cores that evaluators take when several run on one machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from cudal1_ray.evaluation.sandbox.process_watch import ProcessWatch
from cudal1_ray.evaluation.sharing.cores import LaunchCore, leave_measuring_cores, measuring_cores, shared_cores

ALL = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(ALL) < 2, reason="one core: nothing to choose")


def test_cores_when_evaluators_share_a_machine_are_distinct_while_there_is_room(tmp_path):
    held = [shared_cores(1, "cpu", str(tmp_path)) for _ in ALL]
    assert sorted(cores.numbers[0] for cores in held) == ALL
    late = shared_cores(1, "cpu", str(tmp_path))  # shares one with another evaluator
    assert len(late.numbers) == 1 and late.numbers[0] in ALL
    left = held[0].numbers
    held[0].close(), held[0].close()
    assert shared_cores(1, "cpu", str(tmp_path)).numbers == left
    for cores in held:
        cores.close()


def test_core_when_its_holder_died_is_free(tmp_path):
    if (child := os.fork()) == 0:
        held = [shared_cores(1, "cpu", str(tmp_path)) for _ in ALL]
        os._exit(len({cores.numbers[0] for cores in held}))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(ALL)
    held = [shared_cores(1, "cpu", str(tmp_path)) for _ in ALL]
    assert sorted(cores.numbers[0] for cores in held) == ALL


def test_cores_when_pinning_has_no_use_are_none(tmp_path):
    assert (
        shared_cores(len(ALL), "cpu", str(tmp_path)).numbers == shared_cores(1, "cuda:0", str(tmp_path)).numbers == []
    )


def test_cores_when_there_is_no_folder_for_locks_are_drawn(tmp_path):
    (tmp_path / "file").write_text("")
    assert len(shared_cores(1, "cpu", str(tmp_path / "file")).numbers) == 1


def left_by_a_process(spared: list[int], folder: str) -> tuple[list[int], list[int]]:
    """Return the cores left to a process by `leave_measuring_cores`, and those with a sibling among them."""
    code = (
        "import os, sys; from cudal1_ray.evaluation.sharing.cores import leave_measuring_cores, _siblings; "
        f"leave_measuring_cores({spared}, {folder!r}); "
        f"print([sorted(os.sched_getaffinity(0)), sorted(_siblings({max(ALL)}))])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    left, siblings = json.loads(output)
    return left, siblings


def test_processes_when_started_keep_away_from_the_measuring_cores(tmp_path):
    left, siblings = left_by_a_process([max(ALL)], str(tmp_path))
    assert max(ALL) in siblings and left == (sorted(set(ALL) - set(siblings)) or ALL)


@pytest.fixture
def sixteen(monkeypatch):
    """Return a machine of sixteen cores, of which lower numbers are faster."""
    monkeypatch.setattr("cudal1_ray.evaluation.sharing.cores._siblings", lambda core: {core})
    monkeypatch.setattr("cudal1_ray.evaluation.sharing.cores.fastest_core", min)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    return monkeypatch


@pytest.mark.parametrize(("count", "spared"), [(1, 0), (4, 0), (5, 1), (8, 1), (10, 2), (16, 3), (64, 3)])
def test_measuring_cores_when_a_machine_has_few_cores_are_none(sixteen, tmp_path, count, spared):
    sixteen.setattr(os, "sched_getaffinity", lambda pid: set(range(count)))
    assert measuring_cores(str(tmp_path)).numbers == list(range(spared))


def test_measuring_cores_when_two_are_halves_of_one_are_spared_together(sixteen, tmp_path):
    sixteen.setattr("cudal1_ray.evaluation.sharing.cores._siblings", lambda core: {core, core ^ 1})
    assert measuring_cores(str(tmp_path)).numbers == [0, 2, 4]


def test_measuring_cores_when_evaluators_are_of_two_devices_differ(sixteen, tmp_path):
    folder, rest = str(tmp_path), []
    first, second = measuring_cores(folder), measuring_cores(folder)
    assert (first.numbers, second.numbers) == ([0, 1, 2], [3, 4])
    sixteen.setattr(os, "sched_setaffinity", lambda pid, cores: rest.append(sorted(cores)))
    leave_measuring_cores(first.numbers, folder)
    assert rest == [list(range(5, 16))]  # neither its own cores, nor those of the others
    second.close(), second.close()
    leave_measuring_cores(first.numbers, folder)
    assert rest[1:] == [list(range(3, 16))] and measuring_cores(folder).numbers == [3, 4]


def test_choosing_when_every_core_is_taken_only_leaves_the_own_core(sixteen, tmp_path):
    folder, rest = str(tmp_path), []
    held = [measuring_cores(folder) for _ in range(3)]
    sixteen.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 3})
    sixteen.setattr(os, "sched_setaffinity", lambda pid, cores: rest.append(sorted(cores)))
    leave_measuring_cores(held[0].numbers, folder)
    assert rest == [[3]]


def test_measuring_core_when_its_evaluator_died_is_free(tmp_path):
    (tmp_path / f"measuring-{max(ALL)}").touch()  # as an evaluator that died leaves it
    left, _ = left_by_a_process([], str(tmp_path))
    assert left == ALL


@pytest.fixture
def watch():
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    watch = ProcessWatch(sleeper.pid, os.getpid())
    yield watch
    watch.close()
    sleeper.kill()
    sleeper.wait()


def test_launch_core_when_left_gives_the_process_its_cores_back(watch):
    before = os.sched_getaffinity(0)
    with LaunchCore([watch], [max(ALL)]) as core:
        assert core.number == max(ALL) and os.sched_getaffinity(watch.pid) == {core.number}
        with core.shared():
            core.stay_fast()
            assert os.sched_getaffinity(0) == {core.number}
        assert os.sched_getaffinity(0) == before
    assert os.sched_getaffinity(watch.pid) == before
    with LaunchCore([watch], []) as core, core.shared():  # on the CPU nothing is pinned
        core.stay_fast()
        assert os.sched_getaffinity(watch.pid) == os.sched_getaffinity(0) == before
    watch.close()
    with LaunchCore([watch], [max(ALL)]):  # a process that has died raises no error
        pass


@pytest.mark.parametrize(("slow", "moves"), [((0,), True), ((0, 1), False), ((), False)])
def test_all_move_together_to_another_core_when_theirs_is_slow(monkeypatch, watch, slow, moves):
    first, second = ALL[:2]
    slow = {ALL[place] for place in slow}

    def pace() -> float:
        return 2.0 if now_slow and os.sched_getaffinity(0) <= slow else 1.0

    monkeypatch.setattr("cudal1_ray.evaluation.sharing.cores.pace", pace)
    monkeypatch.setattr("random.choice", lambda cores: first)
    for now_slow in (True, False):
        with LaunchCore([watch], [first, second]) as core, core.shared():
            assert core.number == (second if now_slow and moves else first)
            now_slow = True
            core.stay_fast()
            expected = {second if moves else first}
            assert os.sched_getaffinity(watch.pid) == os.sched_getaffinity(0) == {core.number} == expected
            assert (core.pace_s > 1.0) == (len(slow) == 2)  # no core was fast
