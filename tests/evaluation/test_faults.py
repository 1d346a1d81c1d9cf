"""Real kills and real exhaustion: the evaluator survives, and its next verdict is right."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from evaluator_settings import quick_config
from problems_for_tests import problem, renamed

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig, Evaluator
from cudal1_ray.evaluation.exchange.messages import Load, Screen
from cudal1_ray.evaluation.host.handles import ContestantHandle
from cudal1_ray.evaluation.measuring import CandidateMeasurement
from cudal1_ray.evaluation.sandbox.process_watch import descendants
from cudal1_ray.problems import Problem
from tests.family import runs

HONEST = renamed("chain").replace("torch.relu(self.a(x))", "self.a(x).relu_()")
SLOW_TO_IMPORT = "import time\ntime.sleep(0.6)\n" + HONEST


@pytest.fixture
def during_import(monkeypatch):
    """Yield a function that has an action done once, when a candidate has been asked to import: for its screening
    (`Screen`) or with its problem open (`Load`).
    """
    ask, done = ContestantHandle.ask, []

    def arrange(kind, action):
        def ask_and_act(handle, message, *limits, **names):
            if isinstance(message, kind) and getattr(message, "role", "candidate") == "candidate" and not done:
                receive = handle.channel.receive

                def received(*waiting):
                    if not done:
                        done.append(action())
                    return receive(*waiting)

                monkeypatch.setattr(handle.channel, "receive", received)
            return ask(handle, message, *limits, **names)

        monkeypatch.setattr(ContestantHandle, "ask", ask_and_act)

    yield arrange
    assert done, "no candidate was asked"


def test_evaluation_when_the_fork_server_is_killed_under_it_is_repeated(evaluator, during_import):
    evaluator.evaluate(problem("chain"), HONEST)
    victim = evaluator._server.process.pid
    during_import(Load, lambda: os.kill(victim, signal.SIGKILL))
    verdict = evaluator.evaluate(problem("chain"), SLOW_TO_IMPORT)
    assert evaluator._server.process.pid != victim
    assert verdict.accepted, verdict
    assert evaluator.evaluate(problem("chain"), HONEST).accepted


ENDLESS_CALL = (
    HONEST
    + """

class ModelNew(ModelNew):
    def forward(self, x):
        import time

        time.sleep(600)
"""
)


def test_first_call_gets_the_longer_limit_only_when_code_may_compile_in_it(evaluator, monkeypatch):
    assert evaluator.evaluate(problem("chain"), HONEST).accepted  # opens the problem, before limits become short
    monkeypatch.setattr(evaluator.config.check, "static_gate", False)
    for name, limit_s in (("first_call_timeout_s", 2.0), ("plain_first_call_timeout_s", 1.0), ("call_timeout_s", 0.5)):
        monkeypatch.setattr(evaluator.config.limits, name, limit_s)
    for head, limit_s in (("", 1.0), ("# a Triton kernel would be here\n", 2.0)):
        verdict = evaluator.evaluate(problem("chain"), head + ENDLESS_CALL)
        assert verdict.reasons == ("timeout",), verdict
        assert f"no end of forward within {limit_s} s" in verdict.detail


@pytest.fixture(scope="module")
def impatient():
    """Yield an evaluator that waits long for compilers, and briefly for everything else."""
    config = quick_config()
    limits = config.limits
    limits.load_timeout_s, limits.plain_load_timeout_s, limits.first_call_timeout_s = 300.0, 1.0, 2.0
    with Evaluator(config) as evaluator:
        yield evaluator


@pytest.mark.parametrize("head", ["", "# triton\n", "from torch.utils import cpp_extension\n"])
def test_import_when_it_never_ends_and_no_compiler_works_is_stopped_early(impatient, head):
    unopened = Problem("test/endless", f"{problem('chain').source}\n# never opened\n", "endless")
    held = len(impatient._problems._sessions)
    verdict = impatient.evaluate(unopened, f"{head}import time\n{HONEST}\ntime.sleep(600)\n")
    limit = re.search(r"within ([\d.]+) s", verdict.detail)  # ten times what the reference needed, if that is more
    assert verdict.reasons == ("timeout",) and limit and float(limit[1]) < 300.0, verdict
    assert len(impatient._problems._sessions) == held


@pytest.mark.parametrize("head", ["", "from torch.utils import cpp_extension\n"])
def test_construction_when_the_references_takes_as_long_is_waited_for(impatient, head):
    slow = "import time\nclass {}(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    slow += "        time.sleep(1.5)\n    def forward(self, x):\n        return x * 2\n"
    functions = "def get_inputs():\n    return [torch.randn(64, 64)]\ndef get_init_inputs():\n    return []\n"
    source = f"import torch\n{slow.format('Model')}{functions}"
    verdict = impatient.evaluate(Problem("test/slow", source, "slow"), f"import torch\n{head}{slow.format('ModelNew')}")
    assert verdict.accepted, verdict


def test_import_when_a_child_process_works_for_it_has_the_whole_limit(impatient, monkeypatch):
    works = f"import subprocess\n{HONEST}\nsubprocess.run(['sleep', '2'])\n"
    monkeypatch.setattr(impatient.config.check, "static_gate", False)  # which allows no such import
    verdict = impatient.evaluate(problem("chain"), works)
    assert verdict.accepted, verdict


def test_evaluation_when_the_fork_server_was_killed_before_starts_another(evaluator):
    evaluator.evaluate(problem("chain"), HONEST)
    evaluator._server.process.kill()
    evaluator._server.process.wait()
    assert evaluator.evaluate(problem("chain"), HONEST).accepted


@pytest.mark.parametrize("kind", [Screen, Load])
def test_verdict_when_a_contestant_is_killed_from_outside_is_not_lost(evaluator, during_import, kind):
    evaluator.evaluate(problem("chain"), HONEST)

    def kill_contestants():
        for pid in descendants(evaluator._server.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    during_import(kind, kill_contestants)
    verdict = evaluator.evaluate(problem("chain"), SLOW_TO_IMPORT)
    assert verdict.accepted or verdict.reasons == ("crash",), verdict
    assert evaluator.evaluate(problem("chain"), HONEST).accepted


def test_processes_when_the_evaluator_closes_end():
    with Evaluator(quick_config()) as evaluator:
        assert evaluator.evaluate(problem("chain"), HONEST).accepted
        started = {evaluator._server.process.pid}
        assert all(os.path.exists(f"/proc/{pid}") for pid in started)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in started)


def test_processes_when_their_owner_is_killed_end():
    code = (
        "import sys, time\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}\n"
        "from evaluator_settings import quick_config\n"
        "from cudal1_ray.evaluation import Evaluator\n"
        "made = Evaluator(quick_config())\n"
        "made.sandbox_level()\n"
        "held = made._server.spawn(role='candidate', cores=[])\n"
        "print(made._server.process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    server = int(owner.stdout.readline())
    family = [server, *descendants(server)]
    assert len(family) >= 3
    owner.kill()
    owner.wait()
    deadline = time.monotonic() + 60.0
    while any(runs(pid) for pid in family) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(runs(pid) for pid in family)


@pytest.mark.parametrize(
    "source, reason",
    [
        ("class Model: pass\ndef get_inputs(): raise ValueError('no')\ndef get_init_inputs(): return []\n",
         "reference_error"),
        ("import os\nclass Model: pass\nos.abort()\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n",
         "reference_error"),
    ],
)  # fmt: skip
def test_problem_when_broken_gets_a_verdict(evaluator, source, reason):
    code = "import torch\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
    verdict = evaluator.evaluate(Problem("test/broken", source, "broken"), code)
    assert verdict.reasons == (reason,)
    assert evaluator.evaluate(problem("chain"), HONEST).accepted


@pytest.fixture(scope="module", params=["", "seccomp"])
def evaluator_of_level(request):
    with Evaluator(quick_config(sandbox=request.param, required_sandbox="seccomp")) as evaluator:
        yield evaluator


@pytest.mark.parametrize("limit", ["files=0", "files=7", "memory_mib=0", "load_timeout_s=1e-09"])
def test_verdict_when_a_limit_is_too_low_for_anything_to_run_names_it(evaluator_of_level, monkeypatch, limit):
    name, _, value = limit.partition("=")
    monkeypatch.setattr(evaluator_of_level.config.limits, name, float(value) if "e" in value else int(value))
    unopened = Problem("test/limited", f"{problem('chain').source}\n# {limit}\n", "limited")
    verdict = evaluator_of_level.evaluate(unopened, HONEST)
    assert set(verdict.reasons) <= {"reference_error", "evaluator_error"}, verdict
    assert re.search(rf"\(evaluation\.limits: .*\b{limit}\b", verdict.detail), verdict


def test_evaluator_when_its_settings_cannot_work_refuses_them_in_one_line():
    with pytest.raises(UserError, match="against"):
        Evaluator(EvaluationConfig(against="magic"))
    with pytest.raises(UserError, match="cuda_graph"):
        Evaluator(EvaluationConfig(against="cuda_graph"))
    with pytest.raises(UserError, match="required_sandbox"):
        with Evaluator(quick_config(sandbox="seccomp", required_sandbox="landlock")) as evaluator:
            evaluator.sandbox_level()


def test_evaluator_when_it_fails_itself_loses_one_verdict_only(evaluator, monkeypatch):
    def broken(*arguments):
        raise ZeroDivisionError("of all things")

    with monkeypatch.context() as patched:
        patched.setattr(CandidateMeasurement, "verdict", broken)
        verdict = evaluator.evaluate(problem("chain"), HONEST)
    assert verdict.reasons == ("evaluator_error",) and "ZeroDivisionError in test_faults.py" in verdict.detail
    assert evaluator.evaluate(problem("chain"), HONEST).accepted


@pytest.mark.parametrize(
    "text",
    [
        HONEST + "\nraise ValueError('\\ud800')\n",
        HONEST.replace("return self.norm", "return {'\\ud800': x} or self"),
    ],
)
def test_text_when_it_is_no_unicode_gets_a_verdict(evaluator, text):
    verdict = evaluator.evaluate(problem("chain"), text)
    assert verdict.reasons == ("runtime_error",) and "ud800" in verdict.detail, verdict
    assert evaluator.evaluate(problem("chain"), HONEST).accepted


def test_problem_when_its_text_is_no_unicode_is_at_fault(evaluator):
    broken = replace(problem("chain"), source="\n# \ud800")
    verdict = evaluator.evaluate(broken, HONEST)
    assert verdict.reasons == ("reference_error",) and "line 2: U+D800 is half" in verdict.detail, verdict
