"""Evaluators side by side on one device: right verdicts, and a worker that dies costs no candidate its verdict."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest
from evaluator_settings import quick_config
from problems_for_tests import problem, renamed

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.pool import EvaluatorPool, _Context, _in_turn
from cudal1_ray.evaluation.sandbox.process_watch import descendants
from cudal1_ray.evaluation.scrutiny.confirmation import BestSpeedups
from cudal1_ray.evaluation.sharing.schedule import Work
from cudal1_ray.evaluation.verdict import Verdict, candidate_hash

HONEST = renamed("chain").replace("torch.relu(self.a(x))", "self.a(x).relu_()")
WRONG = renamed("chain").replace("torch.relu", "torch.abs")
ZEROS = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x[:, :1] * 0\n"


SCRIPT = """import os
from evaluator_settings import quick_config
from problems_for_tests import problem, renamed
from cudal1_ray.evaluation.pool import EvaluatorPool

print("started", os.getpid())
with EvaluatorPool(quick_config()) as pool:
    print(pool.evaluate(problem("constant"), renamed("constant")).reasons)
"""


def pids(pool: EvaluatorPool) -> set[int]:
    """Return the ids of the processes that evaluate."""
    return {pid for worker in pool._workers for pid in list(worker._processes or ())}


@pytest.fixture(scope="module")
def pool():
    with EvaluatorPool(quick_config(slots=2)) as pool:
        yield pool


def test_slots_when_they_take_turns_evaluate_rightly(pool):
    pairs = [("good", problem("chain"), HONEST), ("wrong", problem("chain"), WRONG)]
    pairs += [("zeros", problem("constant"), ZEROS), ("unparsable", problem("chain"), "class ModelNew(")]
    verdicts = dict(pool.evaluate_all(pairs))
    assert {name: verdict.reasons for name, verdict in verdicts.items()} == {
        "good": (), "wrong": ("wrong_output",), "zeros": ("degenerate_input",), "unparsable": ("unparsable",),
    }  # fmt: skip
    assert verdicts["good"].credited_speedup > 0 and not verdicts["good"].degenerate
    assert verdicts["zeros"].degenerate and verdicts["zeros"].credited_speedup == 0.0


def test_worker_when_it_starts_is_reached_by_no_interrupt(tmp_path):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    worker = _Context().Process(target=os.system, args=(f"grep SigBlk /proc/$PPID/status >{tmp_path}/blocked",))
    worker.start()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    worker.join()
    blocked = int((tmp_path / "blocked").read_text().split()[1], 16)
    assert blocked & 1 << (signal.SIGINT - 1)


@pytest.mark.parametrize("way", [["script.py"], ["-m", "script"]], ids=" ".join)
def test_script_without_a_guard_when_it_evaluates_runs_once(tmp_path, way):
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, *way]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.stdout.count("started") == 1 and "('degenerate_input',)" in ended.stdout, ended
    assert ended.returncode == 0 and "Traceback" not in ended.stderr, ended


def test_pool_when_a_problem_can_be_read_hears_it_before_the_first_candidate_is_done(pool, monkeypatch):
    events = []
    for name in ("opened", "done"):
        function = getattr(pool._schedule, name)
        monkeypatch.setattr(
            pool._schedule, name, lambda what, n=name, f=function, **how: events.append((n, what)) or f(what, **how)
        )
    assert pool.evaluate(problem("small"), renamed("small") + "\n\nmore = 1\n").reference_ms > 0
    assert [name for name, _ in events[:2]] == ["opened", "done"]
    assert events[0][1] == events[1][1].problem


def test_candidates_when_their_problem_has_a_best_are_confirmed_against_it(pool):
    """A candidate twice as fast as any before it has to be measured again."""
    before = [{"problem_hash": candidate_hash(problem("chain").source), "credited_speedup": 0.01}]
    ((_, verdict),) = pool.evaluate_all([("good", problem("chain"), HONEST)], BestSpeedups(before))
    assert verdict.accepted and len(verdict.remeasured) >= 2, verdict
    ((_, verdict),) = pool.evaluate_all([("good", problem("chain"), HONEST)])
    assert verdict.accepted and not verdict.remeasured
    best = BestSpeedups()
    dict(pool.evaluate_all([("good", problem("chain"), HONEST), ("wrong", problem("small"), WRONG)], best))
    assert best.of(problem("chain")) > 0 and best.of(problem("small")) == 0.0


def test_candidates_when_their_problems_take_long_come_first_and_those_within_the_slots_in_turn():
    plain = problem("chain")
    problems = [replace(plain, problem_id=str(length), source=plain.source + length * "#") for length in range(3)]
    pairs = [(f"{length}{letter}", problems[length], letter) for length in (0, 2, 1) for letter in "abc"[: 3 - length]]
    assert [identity for identity, _, _ in _in_turn(pairs, 2)] == ["2a", "1a", "1b", "0a", "0b", "0c"]
    assert [identity for identity, _, _ in _in_turn(pairs, 3)] == ["2a", "1a", "0a", "1b", "0b", "0c"]


def test_candidates_when_interrupted_get_the_verdicts_that_workers_are_about_to_give(pool, monkeypatch):
    plain, futures = problem("chain"), []
    problems = [replace(plain, problem_id=str(number), source=plain.source + number * "#") for number in range(8)]

    def wait_until(some_wait: bool):
        deadline = time.monotonic() + 60
        while bool(pool._schedule._waiting) is not some_wait and time.monotonic() < deadline:
            time.sleep(0.01)

    def interrupt():
        wait_until(some_wait=True)
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(some_wait=False)
        for future in futures:
            future.set_result(Verdict("chain", "accepted"))

    def submit(*_):
        futures.append(Future())
        if len(futures) == 2:  # both slots have a candidate
            threading.Thread(target=interrupt).start()
        return futures[-1]

    monkeypatch.setattr(pool, "_submit", submit)
    verdicts = []
    with pytest.raises(KeyboardInterrupt):
        for verdict in pool.evaluate_all([(each.problem_id, each, HONEST) for each in problems]):
            verdicts.append(verdict)
    assert len(verdicts) == len(futures) == 2 and not pool._schedule._waiting


def test_candidates_when_interrupted_while_they_build_are_left(pool, monkeypatch):
    builds: list[Future] = []

    def submit(*_):
        builds.append(Future())  # it never ends
        if len(builds) == 2:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        return builds[-1]

    monkeypatch.setattr(pool, "_compilers", SimpleNamespace(submit=submit))
    pairs = [(str(number), problem("chain"), f"{HONEST}\n# cpp_extension {number}\n") for number in range(2)]
    with pytest.raises(KeyboardInterrupt):
        list(pool.evaluate_all(pairs))
    assert len(builds) == 2 and all(build.cancelled() for build in builds)


def test_candidate_when_the_gate_refuses_it_waits_for_no_process(pool, monkeypatch):
    pool.evaluate(problem("constant"), ZEROS)

    def never(*_):
        raise AssertionError("a process was asked for")

    monkeypatch.setattr(pool, "_submit", never)
    for name, degenerate in (("chain", False), ("constant", True)):
        verdict = pool.evaluate(problem(name), "class ModelNew(")
        assert verdict.reasons == ("unparsable",) and verdict.degenerate is degenerate


def test_worker_when_killed_is_replaced_and_its_candidate_evaluated(pool, monkeypatch):
    """The candidate's import never ends in the worker that is killed."""
    pool.evaluate(problem("chain"), HONEST)
    victims, submit = pids(pool), pool._submit

    def processes() -> set[int]:
        return {pid for victim in victims for pid in descendants(victim)}

    def submit_and_kill(worker, entry, code, best):
        if not victims:
            return submit(worker, entry, code, best)
        before, deadline = processes(), time.monotonic() + 60
        future = submit(worker, entry, f"import time\ntime.sleep(600)\n{code}", best)
        while processes() <= before:
            assert time.monotonic() < deadline, "no process was started for the candidate"
            time.sleep(0.01)
        while victims:
            os.kill(victims.pop(), signal.SIGKILL)
        return future

    monkeypatch.setattr(pool, "_submit", submit_and_kill)
    killed = set(victims)
    assert pool.evaluate(problem("chain"), HONEST).accepted
    assert not victims and not killed <= pids(pool)


def test_worker_when_it_died_idle_costs_no_attempt(pool):
    begun = [worker for worker in pool._workers if worker._processes]
    for pid in pids(pool):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while not all(worker._broken for worker in begun):
        assert begun and time.monotonic() < deadline
        time.sleep(0.05)
    work = Work("a", "a")
    pool._schedule.submit(work)
    assert pool._submit(pool._worker_for(work), problem("chain"), HONEST, 0.0).result().accepted
    assert work.attempts == 1
    pool._schedule.done(work)


def test_pool_when_its_settings_cannot_work_refuses_them_at_once(tmp_path):
    with pytest.raises(UserError, match="slots"):
        EvaluatorPool(quick_config(slots=0))
    with pytest.raises(UserError, match="cuda_graph"):
        EvaluatorPool(quick_config(against="cuda_graph"))
    tmp_path.chmod(0o777)
    with pytest.raises(UserError, match=r"evaluation\.problem_cache .* mode 0700"):
        EvaluatorPool(quick_config(problem_cache=str(tmp_path)))
    with pytest.raises(UserError, match=r"evaluation\.compile_cache /proc/none: No such file"):
        EvaluatorPool(quick_config(compile_cache="/proc/none"))


@pytest.mark.usefixtures("warm_server")
def test_degenerate_problem_when_a_rule_allows_it_is_measured(evaluator):
    config = quick_config()
    config.rules.degenerate = "allow"
    with type(evaluator)(config) as lenient:
        verdict = lenient.evaluate(problem("constant"), ZEROS)
        assert verdict.accepted and verdict.degenerate and verdict.timed_runs
        assert not lenient.evaluate(problem("chain"), HONEST).degenerate
        gated = lenient.evaluate(problem("constant"), "class ModelNew(")
    assert gated.degenerate and gated.reasons == ("unparsable",)
