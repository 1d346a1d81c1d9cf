"""Modules that strangers hand in: whatever they do is their own fault, they learn nothing, and the next one works."""

from __future__ import annotations

import itertools
import os

import pytest

from cudal1_ray.evaluation import CheckConfig, EvaluationConfig, Evaluator
from cudal1_ray.evaluation.sandbox.walls import LEVELS
from cudal1_ray.problems import ProblemsConfig, load_problems, parse_problem
from cudal1_ray.serving.access.keys import KeyFile

HONEST = load_problems(ProblemsConfig())[0]
PLACES = ("at_import", "in_inputs", "in_forward")
SECRET = "cudal1-test-secret"
BEHIND_WALLS = LEVELS[:2]  # levels that hide files

# Run at import, in `get_inputs`, and in `forward`.
TEMPLATE = """
import json, os, socket, struct, subprocess, sys, threading, time
import torch

def act():
    {act}

{at_import}
class Model(torch.nn.Module):
    def forward(self, x):
        {in_forward}
        return x * 2 + 1

def get_inputs():
    {in_inputs}
    return [torch.randn(8, 8)]

def get_init_inputs():
    return []
"""
# A message as the harness would send it, on every descriptor there is.
FORGE = """messages = [json.dumps(answer).encode() for answer in {answers}]
    for fd in range(3, 64):
        try:
            os.write(fd, b"".join(struct.pack("<I", len(message)) + message for message in messages))
        except OSError:
            pass
    time.sleep(0.5)"""
CLAIM = {"state": [], "init": "", "init_tensors": [], "arguments": "", "flat": True, "tensors": 0, "bytes": 60 << 30}
CLAIM |= {"stateful": False, "stochastic": False, "fixed_inputs": False}
SPEC = ["float32", [1 << 34], [], 0, 1 << 36, "cpu"]
TRIAL = {"inputs": [SPEC], "structure": 0, "native": [SPEC], "exact": [], "mutated": False, "bytes": 1}
ACTS = {
    "tells its environment": "raise RuntimeError(str(dict(os.environ))[-300:])",
    "tells what files there are": "raise RuntimeError(' '.join(os.listdir('/')) + ' '.join(os.listdir('/tmp')))",
    "forges an answer": FORGE.format(answers=[CLAIM]),
    "forges a trial": FORGE.format(answers=[CLAIM | {"bytes": 0}, TRIAL, TRIAL]),
    "forges nonsense": FORGE.format(answers=[{"bytes": "many", "inputs": 3}]),
    "forges no message": FORGE.replace("json.dumps(answer).encode() for answer in {answers}", "b'{' * 9000"),
    "ends itself": "os._exit(0)",
    "ends its parents": "[os.kill(pid, 9) for pid in (os.getppid(), 1)] and os._exit(1)",
    "never ends": "\n    while True: pass",
    "sleeps": "time.sleep(600)",
    "takes all memory": "kept = []\n    while True: kept.append(torch.ones(1 << 24))",
    "takes all processes": "\n    while True: subprocess.Popen(['/bin/sleep', '600'])",
    "takes all descriptors": "kept = []\n    while True: kept.append(os.open('/dev/null', 0))",
    "goes too deep": "act()",
    "raises what cannot be shown": "raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})()",
}


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory):
    os.environ["CUDAL1_TEST_SECRET"] = SECRET
    check = CheckConfig(trials=1, distributions=[], shape_trials=0, static_gate=False)
    config = EvaluationConfig(trust_problems=False, check=check)
    config.rules.same_operations = "measure"
    config.timing.budget_s, config.timing.min_pairs, config.timing.max_pairs = 0.05, 3, 3
    config.timing.contestants = config.timing.most_contestants = 1
    config.limits.slowdown_limit = 1e7  # a call of microseconds has all of `call_timeout_s`
    config.limits.memory_mib, config.limits.processes = 1024, 64
    with Evaluator(config) as evaluator:
        yield evaluator
    del os.environ["CUDAL1_TEST_SECRET"]


def evaluated(evaluator, source: str):
    """Return the verdict of a module as its own candidate."""
    problem = parse_problem(source, "hostile", origin="test")
    return evaluator.evaluate(problem, f"{source}\n\nModelNew = Model\n")


@pytest.mark.parametrize("act, where", zip(ACTS, itertools.cycle(PLACES), strict=False))
def test_module_when_hostile_is_at_fault_and_the_next_one_works(evaluator, monkeypatch, act, where):
    parts = dict.fromkeys(PLACES, "pass") | {where: "act()"}
    with monkeypatch.context() as patch:  # some never end
        for limit in ("load_timeout_s", "first_call_timeout_s", "call_timeout_s"):
            patch.setattr(evaluator.config.limits, limit, 3.0)
        verdict = evaluated(evaluator, TEMPLATE.format(act=ACTS[act], **parts))
    assert not verdict.accepted and verdict.reasons == ("reference_error",), verdict
    assert SECRET not in verdict.detail and len(verdict.detail) <= 400
    assert "keys.json" not in verdict.detail and "job.json" not in verdict.detail
    assert evaluated(evaluator, HONEST.source).accepted


def test_module_when_it_reaches_for_files_or_the_network_gets_none(evaluator, tmp_path):
    if evaluator.sandbox_level() not in BEHIND_WALLS:
        pytest.skip(f"the sandbox here is {evaluator.sandbox_level()}, which hides no files; serving refuses it")
    keys = KeyFile(tmp_path / "keys.json")
    keys.add("alice")
    reach = [
        f"open({str(keys.path)!r}).read()",
        f"os.listdir({os.getcwd()!r} + '/cudal1_ray')",
        "open('/etc/shadow').read()",
        "open('/usr/lib/planted', 'w')",
        "socket.create_connection(('127.0.0.1', 22), 2)",
        "open('/proc/1/environ').read(1) + open(f'/proc/{os.getppid()}/environ').read(1)",
    ]
    tried = "try:\n        got = {}\n    except OSError:\n        pass\n    else:\n        reached.append(got)\n    "
    act = (
        "reached = []\n    "
        + "".join(tried.replace("{}", expression) for expression in reach)
        + "\n    if any(reached): raise RuntimeError(f'reached {reached}')"
    )
    verdict = evaluated(evaluator, TEMPLATE.format(act=act, at_import="act()", in_inputs="act()", in_forward="pass"))
    assert verdict.accepted, verdict.detail
