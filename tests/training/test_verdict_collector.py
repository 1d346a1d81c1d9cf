"""What becomes of candidates that take the actor which works on them down every time."""

from __future__ import annotations

import pytest
from rich.console import Console

from cudal1_ray.actors.evaluation_queue import lost_verdict
from cudal1_ray.actors.work_queue import WorkResult
from cudal1_ray.config import load_config
from cudal1_ray.evaluation import Verdict
from cudal1_ray.problems import load_problems
from cudal1_ray.training.journal import VerdictJournal
from cudal1_ray.training.progress import Progress
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.verdict_collector import VerdictCollector
from tests.training.scripted_run import Company

CODE = "class ModelNew: ..."


class Losing:
    """A queue that has lost an actor at every attempt, as `WorkQueue` and `EvaluationQueue` answer it."""

    def __init__(self, verdict: Verdict | None) -> None:
        self._verdict, self._waiting = verdict, []

    def submit(self, work_id: str, *args) -> None:
        self._waiting.append(work_id)

    def collect(self, timeout_s: float = 0.0) -> list[WorkResult]:
        done, self._waiting = [WorkResult(work_id, self._verdict, "killed") for work_id in self._waiting], []
        return done


@pytest.mark.parametrize("role", ["compiler", "evaluator"])
def test_collector_when_every_attempt_lost_its_actor_records_a_void_verdict_once(tmp_path, role):
    config = load_config([f"runs_dir={tmp_path}", "name=run", "policy.kind=huggingface", "policy.path=none"])
    run, problem = RunFolder.open(config), load_problems(config.problems)[0]
    crew = Company(config, run)
    if role == "compiler":
        crew.compilations = Losing(None)
    else:
        crew.evaluations = Losing(lost_verdict(problem.problem_id, role, "killed", "cpu"))
    progress = Progress("run", str(run.path), Console(quiet=True))

    def collector() -> VerdictCollector:
        return VerdictCollector(crew, VerdictJournal(tmp_path / "journal.jsonl"), progress, "training")

    first = collector()
    assert first.submit("a", problem, CODE)
    first.finish()
    assert first.verdicts["a"].reasons == ("evaluator_error",)
    assert first.verdicts["a"].detail == f"took its {role} down every time: killed"
    again = collector()
    assert not again.submit("b", problem, CODE) and again.verdicts["b"] == first.verdicts["a"]


def test_journal_when_it_has_the_earlier_name_of_a_lost_evaluator_is_read(tmp_path):
    journal = VerdictJournal(tmp_path / "journal.jsonl")
    key = journal.key("p", CODE)
    verdict = Verdict.rejected("p", "crash", "took its evaluator down every time: killed")
    journal.add("training", key, verdict)
    assert VerdictJournal(tmp_path / "journal.jsonl").get("training", key) == verdict
