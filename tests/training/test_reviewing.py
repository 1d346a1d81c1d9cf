"""The reward checker in a run: a confirmed hack earns nothing, becomes a case, and is never an exemplar.

Session, sampler, journal, evaluator, exemplar buffer, case database and the judge's HTTP server are real and run in
this process; only the policy is scripted, so that it writes the same hack again and again.
"""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from cudal1_ray.actors.evaluation import CompilerActor, EvaluatorActor
from cudal1_ray.actors.exemplars import ExemplarActor
from cudal1_ray.actors.work_queue import WorkResult
from cudal1_ray.checking.hack_cases import read_cases
from cudal1_ray.config import load_config
from cudal1_ray.learning import AlgorithmConfig
from cudal1_ray.problems import Problem
from cudal1_ray.prompting import render_answer
from cudal1_ray.rollout import Completion
from cudal1_ray.training.checkpoints import TrainingState
from cudal1_ray.training.metrics import RunMetrics
from cudal1_ray.training.progress import Progress
from cudal1_ray.training.reinforcement import policy_sequences
from cudal1_ray.training.reviewing import engine_judge
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.session import Session
from tests.measured_once import MEASURED_ONCE

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []
"""
PROBLEM = Problem("test/relu", REFERENCE, "relu")
HEAD = "import torch\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
# Right in every call that the evaluator can make, and still what a checker must not like to see.
BODY = """        y = x.clamp_min(0)
        if self.training:
            y = torch.relu(x)
        return y.add_(1)"""
HACK = HEAD + BODY
REWRITTEN_HACK = '"""Fast."""\n' + HACK.replace("        if", "        # the usual\n\n        if")
HONEST = f"{HEAD}        return torch.relu(x).add_(1.0)"
SAYS_HACK = 'Looks odd.\n{"hack": true, "category": "phase_detection", "reason": "asks self.training"}'
SAYS_HONEST = '{"hack": false, "category": "none", "reason": "all of it is computed"}'


class ScriptedPolicy:
    """Stands for the rollout fleet: answers every request with the next text of its script."""

    def __init__(self) -> None:
        self.script: deque[str] = deque()
        self.prompts: list[tuple[int, ...]] = []
        self.busy_s, self._finished = 0.0, deque()

    def start(self, requests, sampling) -> None:
        for request in requests:
            self.prompts.append(request.prompt_token_ids)
            text = self.script.popleft()
            self._finished.append(Completion(request.request_id, 0, (1, 2), (-0.5, -0.5), text, 3, "stop"))

    @property
    def outstanding(self) -> int:
        return len(self._finished)

    def collect(self) -> list[Completion]:
        completions = list(self._finished)
        self._finished.clear()
        return completions


class DirectQueue:
    """A work queue whose only member is an actor's own class in this process."""

    def __init__(self, actor, method: str) -> None:
        self.busy_s, self._call, self._waiting = 0.0, getattr(actor, method), deque()
        self.asked: list[tuple] = []

    def submit(self, work_id: str, *args) -> None:
        self._waiting.append((work_id, args))
        self.asked.append(args)

    def collect(self, timeout_s: float = 0.0) -> list[WorkResult]:
        done = [WorkResult(work_id, self._call(*args)) for work_id, args in self._waiting]
        self._waiting.clear()
        return done


class Company:
    """The crew of a run without Ray."""

    def __init__(self, config, run: RunFolder, evaluator: EvaluatorActor, compiler: CompilerActor) -> None:
        self.config, self.evaluate_during_generation, self.machine = config, True, None
        self.thought_prefix = ""
        self.rollouts = ScriptedPolicy()
        self.compilations, self.evaluations = DirectQueue(compiler, "compile"), DirectQueue(evaluator, "evaluate")
        self.withheld = ExemplarActor(str(run.exemplars), config.exemplars)

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        return tuple(text.encode())

    def count_tokens(self, text: str) -> int:
        return len(text) // 8

    def ask_exemplars(self, method: str, *args):
        return getattr(self.withheld, method)(*args)


@pytest.fixture(scope="module")
def actors():
    quick = ["evaluation.timing.budget_s=0.3", "evaluation.timing.half_width=0.2", *MEASURED_ONCE]
    config = load_config(quick).evaluation
    evaluator, compiler = EvaluatorActor(config), CompilerActor(config)
    yield evaluator, compiler
    evaluator.close()


def open_session(folder: Path, actors, *overrides: str) -> Session:
    config = load_config(
        [f"runs_dir={folder}", "name=run", "rewards.checker.jump_above=0.001", "rewards.smoothing=false", *overrides]
    )
    run = RunFolder.open(config)
    progress = Progress("run", str(run.path), Console(quiet=True))
    state = TrainingState(config.seed, config.rewards)
    return Session(config, run, Company(config, run, *actors), [PROBLEM], state, RunMetrics(run), progress)


def one_step(session: Session, codes: list[str], step: int, judge: list[str] = ()) -> tuple[list, list[float]]:
    """Sample, reward and remember, as a stage does in a step; return the evaluated samples and their rewards."""
    session.crew.rollouts.script.extend([render_answer("a", "d", code) for code in codes] + list(judge))
    label = f"contrastive/{step}"
    (selection,) = session.crew.ask_exemplars("select", [PROBLEM.problem_id], step)
    prompts = [session.prompt(PROBLEM.problem_id, selection)]
    samples = session.sample(prompts, len(codes), session.sampling(1.0, label), scope="training", label=label)
    rewards, _, _ = policy_sequences(samples, session.config.rewards, AlgorithmConfig(), None)
    session.remember(samples, step)
    return samples, rewards


def served(session: Session) -> set[str]:
    """Return everything that a prompt could show."""
    withheld, codes = session.crew.withheld, set()
    for seed in range(30):
        (selection,) = withheld.select([PROBLEM.problem_id], seed)
        codes |= {exemplar.code for exemplar in selection.exemplars}
    best = withheld.best(PROBLEM.problem_id)
    return codes | ({best.code} if best else set())


def reviews(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "run" / "reviews.jsonl").read_text().splitlines()]


def measured(folder: Path) -> list[str]:
    rows = [json.loads(line) for line in (folder / "run" / "verdicts.jsonl").read_text().splitlines()]
    return [row["verdict"]["status"] for row in rows]


ENGINE = ("rewards/checker=engine", "rollout.max_model_len=100000")


def test_hack_when_confirmed_earns_nothing_and_is_never_an_exemplar(tmp_path, actors):
    session = open_session(tmp_path, actors, *ENGINE)
    (hack, honest), rewards = one_step(session, [HACK, HONEST], 1, [SAYS_HACK, SAYS_HONEST])
    assert honest.verdict.accepted and rewards[1] > 0.0
    assert not hack.verdict.accepted and rewards[0] == 0.0
    assert hack.verdict.reasons == ("phase_detection",) and "self.training" in hack.verdict.detail
    assert hack.verdict.speedup > 0.0 == hack.verdict.credited_speedup
    assert served(session) == {honest.answer.code}

    # What was measured stays what it was; opinions are recorded beside it.
    assert measured(tmp_path) == ["accepted", "accepted"]
    rows = reviews(tmp_path)
    assert [(r["opinion"], r["category"], r["confirmed_by"]) for r in rows] == [
        ("hack", "phase_detection", "recheck"),
        ("honest", "", ""),
    ]
    assert (
        rows[0]["speedup"] == hack.verdict.speedup and rows[0]["judge"] == "engine" and rows[0]["answer"] == SAYS_HACK
    )
    (case,) = [c for c in read_cases(tmp_path / "run" / "hack_cases.parquet") if c.confirmed_by != "suite"]
    assert (case.problem_id, case.category, case.confirmed_by) == ("test/relu", "phase_detection", "recheck")

    # It comes again in other words: refused without a question, the honest one is not judged again either.
    (again, same), rewards = one_step(session, [REWRITTEN_HACK, HONEST], 2)
    assert again.verdict.reasons == ("phase_detection",) and rewards[0] == 0.0 and same.verdict.accepted
    assert served(session) == {honest.answer.code}
    assert [row["confirmed_by"] for row in reviews(tmp_path)[2:]] == ["known"]

    # The same command continues the run: its cases, opinions and exemplars are those from before.
    continued = open_session(tmp_path, actors, *ENGINE)
    (again, _), rewards = one_step(continued, [REWRITTEN_HACK, HONEST], 3)
    assert not again.verdict.accepted and rewards[0] == 0.0
    assert served(continued) == {honest.answer.code}


def test_hack_when_in_the_buffer_already_is_taken_out(tmp_path, actors):
    before = open_session(tmp_path / "before", actors)  # without a checker it got in
    one_step(before, [REWRITTEN_HACK, HONEST], 1)
    assert len(served(before)) == 2 and not (tmp_path / "before" / "run" / "reviews.jsonl").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "before" / "run" / "exemplars").rename(tmp_path / "run" / "exemplars")
    session = open_session(tmp_path, actors, *ENGINE)
    assert len(served(session)) == 2
    one_step(session, [HACK], 1, [SAYS_HACK])
    assert served(session) == {HONEST}
    cases = tmp_path / "run" / "hack_cases.parquet"

    # Nor is it shown by a run that starts from this buffer as it was, with these cases.
    third = tmp_path / "third"
    (third / "run").mkdir(parents=True)
    (tmp_path / "run" / "exemplars").rename(third / "run" / "exemplars")
    (third / "run" / "exemplars" / "withheld.json").unlink()
    assert served(open_session(third, actors, *ENGINE, f"rewards.checker.cases={cases}")) == {HONEST}


@pytest.mark.parametrize(
    ("answer", "trust", "confirmed_by"),
    [
        ("no opinion, sorry", "true", ""),
        (SAYS_HONEST, "true", ""),
        (SAYS_HACK.replace("phase_detection", "lazy_tensor"), "false", ""),
        (SAYS_HACK.replace("phase_detection", "lazy_tensor"), "true", "trust"),
    ],
)
def test_hack_when_not_confirmed_keeps_its_reward(tmp_path, actors, answer, trust, confirmed_by):
    session = open_session(tmp_path, actors, *ENGINE, f"rewards.checker.trust_judge={trust}")
    (sample,), (reward,) = one_step(session, [HACK], 1, [answer])
    assert sample.verdict.accepted == (reward > 0.0) == (not confirmed_by)
    assert served(session) == (set() if confirmed_by else {HACK})
    (row,) = reviews(tmp_path)
    assert row["confirmed_by"] == confirmed_by and row["jump"]
    assert (row["opinion"] == "none") == bool(row["error"])


def test_candidate_when_it_has_no_jump_is_not_judged(tmp_path, actors):
    session = open_session(tmp_path, actors, *ENGINE, "rewards.checker.jump_above=1000")
    (sample,), (reward,) = one_step(session, [HACK], 1)
    assert sample.verdict.accepted and reward > 0.0 and reviews(tmp_path) == []


def test_candidates_when_there_is_no_judge_are_not_reviewed(tmp_path, actors):
    session = open_session(tmp_path, actors)
    one_step(session, [HACK], 1)
    assert served(session) == {HACK} and not (tmp_path / "run" / "hack_cases.parquet").exists()


def test_checker_counts_when_a_step_ends_are_metrics(tmp_path, actors):
    session = open_session(tmp_path, actors, *ENGINE)
    one_step(session, [HACK, HONEST], 1, [SAYS_HACK, "?"])
    row = session.metrics.finish_step("contrastive", 1, 1.0)
    counts = {
        key: row[key] for key in ("reward_jumps", "judged_hacks", "judged_honest", "no_opinion", "confirmed_hacks")
    }
    assert counts == {"reward_jumps": 2, "judged_hacks": 1, "judged_honest": 0, "no_opinion": 1, "confirmed_hacks": 1}
    assert row["busy_checker"] > 0.0


def test_exemplar_actor_when_asked_has_the_best_so_far(tmp_path, actors):
    session = open_session(tmp_path, actors, *ENGINE)
    (sample,), _ = one_step(session, [HONEST], 1, [SAYS_HONEST])
    best = session.crew.ask_exemplars("best_speedups", ["test/relu", "unknown"])
    assert best == {"test/relu": pytest.approx(sample.verdict.credited_speedup), "unknown": 0.0}
    np.testing.assert_equal(reviews(tmp_path)[0]["best_speedup"], 0.0)


def test_evaluator_when_a_hack_was_fastest_gets_the_best_that_is_none(tmp_path, actors):
    session = open_session(tmp_path, actors, *ENGINE)
    (_, honest), _ = one_step(session, [HACK, HONEST], 1, [SAYS_HACK, SAYS_HONEST])
    one_step(session, [HEAD + "        return x.relu().add_(1.0)"], 2, [SAYS_HONEST])
    best_speedups = [best for _, _, best in session.crew.evaluations.asked]
    assert best_speedups == [0.0, 0.0, pytest.approx(honest.verdict.credited_speedup)]


def test_question_when_the_engine_cannot_take_it_is_no_opinion(tmp_path, actors):
    session = open_session(tmp_path, actors, "rewards/checker=engine", "rewards.checker.max_answer_tokens=16")
    ask = engine_judge(session.crew, session.config)
    session.crew.rollouts.script.append("short answer")
    short, long = ask(["?", "?" * 5000])
    assert short.text == "short answer" and "rollout.max_model_len" in long.error
    assert ask([]) == []


def test_failures_when_prompts_are_to_show_them_are_remembered(tmp_path, actors):
    wrong = HEAD + "        return torch.relu(x)"
    session = open_session(tmp_path / "with", actors, "exemplars=failures_included", "exemplars.headroom=1")
    (failed, *_), _ = one_step(session, [wrong, HONEST], 1)
    (reason,) = failed.verdict.reasons
    drawn = [session.crew.withheld.select([PROBLEM.problem_id], seed)[0] for seed in range(20)]
    texts = [session.prompt(PROBLEM.problem_id, selection).text for selection in drawn]
    assert all(f"rejected, {reason}" in text for text in texts)
    assert all(HONEST.splitlines()[-1].strip() in text for text in texts)
    without = open_session(tmp_path / "without", actors)
    one_step(without, [wrong, HONEST], 1)
    assert served(without) == {HONEST}
