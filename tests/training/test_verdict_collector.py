"""What becomes of verdicts that mean nothing for their candidates."""

from __future__ import annotations

import pytest
from rich.console import Console

from cudal1_ray.actors.evaluation_queue import lost_verdict
from cudal1_ray.actors.work_queue import WorkResult
from cudal1_ray.config import load_config
from cudal1_ray.evaluation import Verdict
from cudal1_ray.evaluation.reasons import MOMENTARY, PROBLEM_FAULTS
from cudal1_ray.problems import load_problems
from cudal1_ray.training.journal import VerdictJournal
from cudal1_ray.training.progress import Progress
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.verdict_collector import VerdictCollector
from tests.training.scripted_run import Company

CODE = "class ModelNew: ..."


class Answering:
    """A queue with one answer to all, as `WorkQueue` and `EvaluationQueue` give it; `error`: of a lost actor."""

    def __init__(self, verdict: Verdict | None, error: str = "killed") -> None:
        self._verdict, self._error, self._waiting = verdict, error, []

    def submit(self, work_id: str, *args) -> None:
        self._waiting.append(work_id)

    def collect(self, timeout_s: float = 0.0) -> list[WorkResult]:
        done, self._waiting = [WorkResult(work_id, self._verdict, self._error) for work_id in self._waiting], []
        return done


@pytest.fixture
def crew(tmp_path):
    config = load_config([f"runs_dir={tmp_path}", "name=run", "policy.kind=huggingface", "policy.path=none"])
    return Company(config, RunFolder.open(config))


@pytest.fixture
def problem():
    return load_problems(load_config([]).problems)[0]


@pytest.fixture
def collector(crew, tmp_path):
    """Return a function that makes a collector with what the journal has by then."""
    progress = Progress("run", str(tmp_path), Console(quiet=True))
    return lambda: VerdictCollector(crew, VerdictJournal(tmp_path / "journal.jsonl"), progress, "training")


@pytest.mark.parametrize("role", ["compiler", "evaluator"])
def test_collector_when_every_attempt_lost_its_actor_records_a_void_verdict_once(crew, problem, collector, role):
    if role == "compiler":
        crew.compilations = Answering(None)
    else:
        crew.evaluations = Answering(lost_verdict(problem.problem_id, role, "killed", "cpu"))
    first = collector()
    assert first.submit("a", problem, CODE)
    first.finish()
    assert first.verdicts["a"].reasons == ("evaluator_error",)
    assert first.verdicts["a"].detail == f"took its {role} down every time: killed"
    again = collector()
    assert not again.submit("b", problem, CODE) and again.verdicts["b"] == first.verdicts["a"]


@pytest.mark.parametrize("reason", sorted(MOMENTARY | PROBLEM_FAULTS))
def test_collector_when_machine_or_problem_was_at_fault_evaluates_again(crew, problem, collector, reason):
    crew.evaluations = Answering(Verdict.rejected(problem.problem_id, reason), error="")
    for _ in range(2):
        again = collector()
        assert again.submit("a", problem, CODE)
        again.finish()
        assert again.verdicts["a"].reasons == (reason,)


def test_collector_when_another_scope_is_under_way_beside_it_moves_both_on(crew, problem, tmp_path):
    journal, progress = VerdictJournal(tmp_path / "journal.jsonl"), Progress("run", "", Console(quiet=True))
    corpus = VerdictCollector(crew, journal, progress, "training")
    both, alone = "speed = 3", "speed = 4"
    for code in (both, alone):
        assert corpus.submit(code, problem, code)
    corpus.release()
    samples = VerdictCollector(crew, journal, progress, "assessment", beside=corpus)
    assert samples.submit("sample", problem, both)  # a scope does not take the other's verdict
    samples.finish()
    while corpus.pending:
        assert samples.collect()
    assert samples.verdicts["sample"].speedup == corpus.verdicts[both].speedup == 4.0
    assert corpus.verdicts[alone].speedup == 5.0
    assert set(crew.evaluations.evaluated.values()) == {1} and len(crew.evaluations.evaluated) == 3


def test_journal_when_it_has_the_earlier_name_of_a_lost_evaluator_is_read(tmp_path):
    journal = VerdictJournal(tmp_path / "journal.jsonl")
    key = journal.key("p", CODE)
    verdict = Verdict.rejected("p", "crash", "took its evaluator down every time: killed")
    journal.add("training", key, verdict)
    assert VerdictJournal(tmp_path / "journal.jsonl").get("training", key) == verdict
