"""Rounds of prompting with the real evaluator. The policy's part is read from a script, so that its skill is known."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.evaluation.rules import OwnKernel
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer, ExemplarsConfig
from cudal1_ray.problems import ProblemsConfig, load_problems, parse_problem
from cudal1_ray.prompting import PromptBuilder, PromptingConfig, render_answer
from cudal1_ray.serving.optimize.evaluators import Evaluators
from cudal1_ray.serving.optimize.jobs import JobSettings
from cudal1_ray.serving.optimize.rounds import ModuleFault, Optimizer, PriorExemplars, SpeedupGoals
from cudal1_ray.serving.optimize.winner import optimize

PROBLEM = next(p for p in load_problems(ProblemsConfig()) if p.problem_id == "diag_matmul_1")
HEAD = "import torch\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, d, x):\n        "
FAST = HEAD + "return torch.relu(d[:, None] * x) + 1.0\n"
# Three products where the module has one: whatever a busy machine's clocks show, it is no faster.
SLOWER = HEAD + (
    "a = torch.diag(d)\n        h = (torch.mm(a, x) + torch.mm(a, x) + torch.mm(a, x)) / 3\n"
    "        return torch.clamp(h, min=0.0) + 1.0\n"
)
WRONG = HEAD + "return torch.relu(d[:, None] * x)\n"
AIMS = SpeedupGoals(temperature=1.0, min_speedup=1.5, confirm=2, seed=1, include_analysis=True)
NOTHING = PriorExemplars()
CHECKED = {"type": "module", "note": "", "device_name": "a processor"}  # the module has been evaluated before


def answer(code: str) -> str:
    return render_answer("A diagonal scales rows.", "Scale them.", code)


@pytest.fixture(scope="module")
def evaluators(warm_server):
    config = EvaluationConfig(live_references=1)
    config.timing.budget_s, config.timing.contestants, config.timing.most_contestants = 0.2, 1, 1
    config.timing.remeasure_above = config.timing.remeasure_over_best = 0.0  # the evaluator's own tests see to that
    config.limits.call_timeout_s, config.limits.slowdown_limit = 60.0, 1e7  # for hangs, of which there is none here
    config.check.distributions, config.check.shape_trials = [], 0
    evaluators = Evaluators(config)
    yield evaluators
    evaluators.close()


@pytest.fixture
def script(evaluators):
    return lambda *answers: Script(evaluators, *answers)


class Script:
    """Answers to give, in this order, and the prompts they were asked with; evaluated by real evaluators."""

    def __init__(self, evaluators: Evaluators, *answers: str):
        self.answers, self.prompts, self.evaluated, self.compared = list(answers), [], [], []
        self.evaluators = evaluators

    async def write(self, prompt, n, temperature, seed):
        self.prompts.append(prompt)
        texts, self.answers = self.answers[:n], self.answers[n:]
        return [SimpleNamespace(text=text, tokens=len(text.split())) for text in texts]

    async def evaluate(self, problem, code, best_speedup):
        self.evaluated.append(code)
        return self.evaluators.evaluate(problem, code, best_speedup)

    async def check(self, problem):
        return self.evaluators.check(problem)

    async def against(self, problem, code, baseline):
        self.compared.append(baseline)
        return self.evaluators.against(problem, code, baseline)

    async def device_name(self):
        return self.evaluators.device_name()


def run(script: Script, buffer: ExemplarBuffer, problem=PROBLEM, rounds=2, samples=2, before=(CHECKED,), events=None,
        aims=AIMS, prior=NOTHING, **limits):  # fmt: skip
    log = [] if events is None else events
    prompts = PromptBuilder(PromptingConfig(), lambda text: len(text) // 3)
    settings = JobSettings(rounds, samples, **{"time_limit_s": 600.0, **limits})
    job = Optimizer(problem, settings, aims, script, prompts, ExemplarsConfig(), buffer, log.append, before, prior)
    return asyncio.run(optimize(job))


def test_winner_when_it_is_faster_twice_is_returned_with_its_analysis(tmp_path, script):
    played = script(answer(WRONG), answer(SLOWER), answer(FAST), answer(f"# again\n{FAST}"))
    events: list[dict] = []
    result = run(played, ExemplarBuffer.open(tmp_path), events=events)
    assert result["found"] and result["code"].strip() == FAST.strip()
    assert result["speedup_low"] > 1.0 and result["credited_speedup"] >= AIMS.min_speedup
    assert result["analysis"] == "A diagonal scales rows." and result["design"] == "Scale them."
    assert (result["candidates"], result["accepted"], result["rounds"]) == (4, 2, 2)
    assert result["costs"]["evaluations"] == 4 and result["costs"]["prompts"] == 2
    assert result["costs"]["completion_tokens"] == sum(
        len(answer(code).split()) for code in (WRONG, SLOWER, FAST, f"# again\n{FAST}")
    )
    (row,) = result["baselines"]  # the configured one; it is the confirmation itself
    assert (row["baseline"], row["speedup"], row["missing"]) == ("eager", result["speedup"], "")
    assert played.evaluated.count(FAST.strip()) == 2  # once, and once more to confirm it
    assert [event["status"] for event in events if event["type"] == "candidate"].count("known") == 1
    assert "torch.clamp" not in played.prompts[0] and "torch.clamp" in played.prompts[1]  # the second round is shown it
    assert "relu(d[:, None] * x)" not in played.prompts[1]  # a rejected candidate is no exemplar


def test_result_when_nothing_is_faster_states_it(tmp_path, script):
    result = run(script(answer(WRONG), "I would rather not.", answer(SLOWER)), ExemplarBuffer.open(tmp_path))
    assert result["found"] is False and result["message"] == "nothing faster found"
    assert (result["candidates"], result["accepted"]) == (3, 1) and "code" not in result
    assert [row["reasons"] for row in result["tried"]] == [[], ["wrong_output"]]  # what was no answer is no candidate
    assert 0.0 < result["best_tried"] < AIMS.min_speedup


def test_candidate_when_its_evaluation_is_void_is_tried_again_and_reported(tmp_path, script):
    played, events = script(answer(FAST), answer(FAST)), []
    evaluate, unsure = played.evaluate, [Verdict.rejected("p", "unstable_timing", "evaluate it again")]

    async def unsure_at_first(*arguments):
        return unsure.pop() if unsure else await evaluate(*arguments)

    played.evaluate = unsure_at_first
    result = run(played, ExemplarBuffer.open(tmp_path), rounds=2, samples=1, events=events)
    assert result["found"] and result["code"].strip() == FAST.strip()
    assert result["note"] == "an evaluation says nothing about the candidate (evaluate it again)"
    again = run(script(), ExemplarBuffer.open(tmp_path), rounds=2, before=[CHECKED, *events])
    assert again["note"] == result["note"]


def test_job_when_interrupted_goes_on_where_it_was(tmp_path, script):
    events: list[dict] = []
    run(script(answer(SLOWER), answer(FAST)), ExemplarBuffer.open(tmp_path), rounds=1, events=events)
    played = script(answer(FAST), answer(WRONG))
    result = run(played, ExemplarBuffer.open(tmp_path), rounds=2, before=[CHECKED, *events])
    assert result["found"] and result["rounds"] == 2 and result["candidates"] == 4
    assert len(played.prompts) == 1 and played.evaluated == [WRONG.strip(), FAST.strip()]  # the second: confirmation
    assert result["analysis"] == "A diagonal scales rows."
    assert result["spent_s"] >= events[-1].get("spent_s", 0.0)


def test_job_when_its_time_is_used_up_returns_the_best_so_far(tmp_path, script):
    events: list[dict] = []
    run(script(answer(FAST)), ExemplarBuffer.open(tmp_path), rounds=1, events=events)
    late = [CHECKED, *events, {"type": "round", "round": 1, "spent_s": 600.0}]
    played, later_events = script(), []
    result = run(played, ExemplarBuffer.open(tmp_path), rounds=9, before=late, events=later_events)
    assert result["found"] and not played.prompts and later_events[0]["type"] == "time_limit"


def test_rounds_when_tokens_are_used_up_end(tmp_path, script):
    events: list[dict] = []
    played = script(answer(SLOWER), answer(WRONG), answer(FAST))
    result = run(played, ExemplarBuffer.open(tmp_path), rounds=9, samples=1, max_tokens=60, events=events)
    assert result["found"] is False and 0 < result["rounds"] < 3
    assert [event["type"] for event in events].count("token_limit") == 1


def test_exemplars_when_known_from_a_run_are_measured_again_and_may_win(tmp_path, script):
    """The whole way: the module is evaluated first, the winner is measured against every baseline that there is."""
    prior = PriorExemplars(tuple(Exemplar.new("theirs", code, 40.0) for code in (FAST, WRONG)), "demo")
    played, events = script(answer(SLOWER)), []
    aims = SpeedupGoals(1.0, 1.5, 2, 1, True, "/of/this/server.py", ("eager", "tuned_eager", "cuda_graph"))
    arguments = {"rounds": 1, "samples": 1, "before": (), "aims": aims, "prior": prior, "events": events}
    result = run(played, ExemplarBuffer.open(tmp_path), **arguments)
    assert [e["type"] for e in events if e["type"] in ("module", "exemplar", "round")] == [
        "module", "exemplar", "exemplar", "round",
    ]  # fmt: skip
    assert events[0]["status"] == "accepted" and events[0]["reference_ms"] > 0 and events[0]["device_name"]
    assert result["found"] and result["origin"] == "known" and result["known"] == 2 and result["candidates"] == 1
    assert "relu(d[:, None] * x)" in played.prompts[0]  # the policy is shown it, with what it is worth here
    assert 1.5 < result["speedup"] != 40.0
    own, eager, tuned, graph = result["baselines"]
    assert own["baseline"] == result["against"] == "<path>" and own["speedup"] == result["speedup"]
    assert eager["speedup_low"] > 1.0 and tuned["speedup_low"] > 1.0 and tuned["baseline_ms"] > 0
    assert "device cuda" in graph["missing"] and graph["speedup"] == 0.0
    assert played.compared == ["eager", "tuned_eager", "cuda_graph"] and result["devices"] == ["cpu"]


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("torch.diag(d)", "torch.no_such(d)", "no_such"),
        ("return torch", "return 0 * torch", "does not depend"),
        ("import torch\n", "import torch\nopen('/etc/shadow-of/a/file')\n", "No such file.*<path>"),
    ],
)
def test_module_when_it_cannot_be_measured_is_at_fault_before_anything_is_written(tmp_path, script, old, new, message):
    source = PROBLEM.source.replace(old, new)
    assert source != PROBLEM.source
    played = script(answer(FAST))
    broken = parse_problem(source, "broken", origin="test")
    with pytest.raises(ModuleFault, match=message):
        run(played, ExemplarBuffer.open(tmp_path), problem=broken, before=())
    assert not played.prompts


def test_module_when_candidates_need_a_kernel_of_their_own_needs_none(evaluators, monkeypatch):
    required = replace(evaluators._config.rules, own_kernel=OwnKernel.required)
    monkeypatch.setattr(evaluators._config, "rules", required)
    assert evaluators.check(PROBLEM).accepted
