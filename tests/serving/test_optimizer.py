"""Rounds of prompting with the real evaluator. The policy's part is read from a script, so that its skill is known."""

from __future__ import annotations

import asyncio

import pytest

from cudal1_ray.evaluation import EvaluationConfig, Evaluator
from cudal1_ray.exemplars import ExemplarBuffer, ExemplarsConfig
from cudal1_ray.problems import ProblemsConfig, load_problems, parse_problem
from cudal1_ray.prompting import PromptBuilder, PromptingConfig, render_answer
from cudal1_ray.serving.jobs import JobSettings
from cudal1_ray.serving.optimizer import Aims, ModuleFault, Optimizer

PROBLEM = next(p for p in load_problems(ProblemsConfig()) if p.problem_id == "diag_matmul_1")
HEAD = "import torch\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, d, x):\n        "
FAST = HEAD + "return torch.relu(d[:, None] * x) + 1.0\n"
SAME = HEAD + "h = torch.mm(torch.diag(d), x)\n        return torch.clamp(h, min=0.0) + 1.0\n"
WRONG = HEAD + "return torch.relu(d[:, None] * x)\n"
AIMS = Aims(temperature=1.0, min_speedup=1.5, confirm=2, seed=1, include_analysis=True)


def answer(code: str) -> str:
    return render_answer("A diagonal scales rows.", "Scale them.", code)


@pytest.fixture(scope="module")
def evaluator():
    config = EvaluationConfig(live_references=1)
    config.timing.budget_s = 0.2
    with Evaluator(config) as evaluator:
        yield evaluator


@pytest.fixture
def script(evaluator):
    return lambda *answers: Script(evaluator, *answers)


class Script:
    """Answers to give, in this order, and the prompts they were asked with; judged by a real evaluator."""

    def __init__(self, evaluator: Evaluator, *answers: str):
        self.answers, self.prompts, self.judged = list(answers), [], []
        self.evaluator = evaluator

    async def write(self, prompt, n, temperature, seed):
        self.prompts.append(prompt)
        given, self.answers = self.answers[:n], self.answers[n:]
        return given

    async def judge(self, problem, code, best_speedup):
        self.judged.append(code)
        return self.evaluator.evaluate(problem, code, best_speedup)


def run(script: Script, buffer: ExemplarBuffer, problem=PROBLEM, rounds=2, samples=2, before=(), events=None):
    told = [] if events is None else events
    prompts = PromptBuilder(PromptingConfig(), lambda text: len(text) // 3)
    settings = JobSettings(rounds, samples, 600.0)
    optimizer = Optimizer(problem, settings, AIMS, script, prompts, ExemplarsConfig(), buffer, told.append, before)
    return asyncio.run(optimizer.run())


def test_the_fastest_that_is_faster_twice_is_the_answer_with_what_was_said_of_it(tmp_path, script):
    played = script(answer(WRONG), answer(SAME), answer(FAST), answer(f"# again\n{FAST}"))
    events: list[dict] = []
    result = run(played, ExemplarBuffer.open(tmp_path), events=events)
    assert result["found"] and result["code"].strip() == FAST.strip()
    assert result["speedup_low"] > 1.0 and result["credited_speedup"] >= AIMS.min_speedup
    assert result["analysis"] == "A diagonal scales rows." and result["design"] == "Scale them."
    assert (result["candidates"], result["accepted"], result["rounds"]) == (4, 2, 2)
    assert played.judged.count(FAST.strip()) == 2  # once, and once more to confirm: what is known is not judged again
    assert [event["status"] for event in events if event["type"] == "candidate"].count("known") == 1
    assert "torch.clamp" not in played.prompts[0] and "torch.clamp" in played.prompts[1]  # the second round is shown it
    assert "relu(d[:, None] * x)" not in played.prompts[1]  # a rejected candidate is no exemplar


def test_nothing_faster_is_said_so(tmp_path, script):
    result = run(script(answer(WRONG), "I would rather not.", answer(SAME)), ExemplarBuffer.open(tmp_path))
    assert result["found"] is False and result["message"] == "nothing faster found"
    assert (result["candidates"], result["accepted"]) == (3, 1) and "code" not in result


def test_an_interrupted_job_goes_on_where_it_was(tmp_path, script):
    events: list[dict] = []
    run(script(answer(SAME), answer(FAST)), ExemplarBuffer.open(tmp_path), rounds=1, events=events)
    played = script(answer(FAST), answer(WRONG))
    result = run(played, ExemplarBuffer.open(tmp_path), rounds=2, before=events)
    assert result["found"] and result["rounds"] == 2 and result["candidates"] == 4
    assert len(played.prompts) == 1 and played.judged == [WRONG.strip(), FAST.strip()]  # the second: confirmation
    assert result["analysis"] == "A diagonal scales rows."
    assert result["spent_s"] >= events[-1].get("spent_s", 0.0)


def test_time_that_is_used_up_leaves_the_best_so_far(tmp_path, script):
    events: list[dict] = []
    run(script(answer(FAST)), ExemplarBuffer.open(tmp_path), rounds=1, events=events)
    late = [*events, {"type": "round", "round": 1, "spent_s": 600.0}]
    played, told = script(), []
    result = run(played, ExemplarBuffer.open(tmp_path), rounds=9, before=late, events=told)
    assert result["found"] and not played.prompts and told[0]["type"] == "time_limit"


def test_a_module_that_does_not_run_is_at_fault_itself(tmp_path, script):
    source = PROBLEM.source.replace("torch.diag(d)", "torch.no_such(d)")
    broken = parse_problem(source, "broken", origin="test")
    with pytest.raises(ModuleFault, match="no_such"):
        run(script(answer(FAST)), ExemplarBuffer.open(tmp_path), problem=broken)
