"""`cudal1 collect` and `cudal1 optimize` with a policy behind a real HTTP server, evaluated by the real evaluator."""

from __future__ import annotations

import asyncio
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from cudal1_ray.cli import main
from cudal1_ray.commands.collect import Collection
from cudal1_ray.config import load_config
from cudal1_ray.evaluation import Verdict
from cudal1_ray.evaluation.hardware import Machine
from cudal1_ray.files import JsonLines, claim_file
from cudal1_ray.problems import load_corpus, load_problems, read_corpus
from cudal1_ray.prompting import render_answer
from cudal1_ray.rollout.endpoint import WrittenText
from tests.checking.chat_server import chat_server
from tests.measured_once import MEASURED_ONCE

pytestmark = pytest.mark.timeout(1200)
ENTRIES = [entry for entry in load_corpus() if entry.problem_id == "swish_chain_1"]
RIGHT = [render_answer("Fewer passes.", "Fuse.", e.code) for e in ENTRIES if e.expected == "accepted"]
WRONG = [render_answer("a", "b", e.code) for e in ENTRIES if e.expected == "rejected"]
QUICK = ["evaluation.timing.budget_s=0.2", "evaluation.timing.half_width=0.5", "evaluation.timing.contestants=1"]
QUICK += MEASURED_ONCE


def writing(texts: list[str]):
    """Return a server that answers with one text after the other, the last again and again."""
    left = list(texts)

    def behave(handler, _):
        text = left.pop(0) if len(left) > 1 else left[0]
        handler.reply(200, json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}))

    return behave


@pytest.mark.slow
def test_collect_when_stopped_goes_on_and_writes_a_corpus(tmp_path, capsys):
    out = tmp_path / "corpus.parquet"
    overrides = [
        "policy=endpoint", "policy.model=m", "problems.ids=[swish_chain_1]", f"collect.out={out}", "collect.at_once=1",
        *QUICK,
    ]  # fmt: skip
    texts = ["no code at all", WRONG[0], RIGHT[0], RIGHT[0], RIGHT[1]]
    with chat_server(writing(texts)) as (url, requests):
        assert main(["collect", f"policy.url={url}", "collect.attempts=2", *overrides]) == 0
        assert not out.exists() and "0 accepted of 2 candidates" in " ".join(capsys.readouterr().out.split())
        assert main(["collect", f"policy.url={url}", "collect.attempts=6", *overrides]) == 0
        assert len(requests) == 5  # two before, then until two that differ were accepted
        assert main(["collect", f"policy.url={url}", "collect.attempts=6", *overrides]) == 0
        assert len(requests) == 5
    assert "You are an expert in GPU performance" in requests[0]["body"]["messages"][0]["content"]
    (first, second) = pq.read_table(out).to_pylist()
    assert first["speedup"] > 0 and first["status"] == "accepted" and first["language"] == "pytorch"
    assert (first["problem"], first["analysis"], first["policy"]) == ("swish_chain_1", "Fewer passes.", "m")
    assert {entry.code for entry in read_corpus(str(out))} == {first["code"] + "\n", second["code"] + "\n"}
    rows = [json.loads(line) for line in (tmp_path / "corpus.jsonl").read_text().splitlines()]
    assert [row["verdict"]["reasons"] for row in rows[:2]] == [["unparsable"], ["wrong_output"]]


class ScriptedPolicy:
    """A policy that answers every prompt with one text."""

    holds_device = False
    prompts: list[str]

    def __init__(self, text: str) -> None:
        self._text, self.prompts = text, []

    def count_tokens(self, text: str) -> int:
        return len(text) // 3

    async def write(self, prompts, temperature):
        self.prompts += [prompt for prompt, _ in prompts]
        return [WrittenText(self._text, 10, "stop") for _ in prompts]


class ScriptedEvaluators:
    """Evaluators that are out of order at first."""

    def __init__(self, failures: int) -> None:
        self._failures = failures

    def evaluate(self, problem, code, best_speedup):
        self._failures -= 1
        if self._failures >= 0:
            return Verdict.rejected(problem.problem_id, "evaluator_error", "out of order")
        return Verdict(problem.problem_id, "accepted", speedup=1.5, credited_speedup=1.5)


def collected(folder, policy, evaluators, *overrides):
    """Return the verdicts of a collection for one problem."""
    config = load_config(["policy=endpoint", "problems.ids=[swish_chain_1]", *overrides])
    attempts = JsonLines(folder / "attempts.jsonl")
    collection = Collection(config, load_problems(config.problems), attempts, Console(quiet=True))
    asyncio.run(collection.run(policy, evaluators))
    return [Verdict.from_dict(row["verdict"]) for row in attempts]


def test_collect_when_asking_several_at_once_makes_no_more_attempts_than_are_allowed(tmp_path):
    verdicts = collected(tmp_path, ScriptedPolicy("no code"), None, "collect.attempts=5", "collect.at_once=2")
    assert [verdict.reasons for verdict in verdicts] == [("unparsable",)] * 5
    verdicts = collected(tmp_path, ScriptedPolicy("no code"), None, "collect.attempts=6", "collect.at_once=4")
    assert len(verdicts) == 6


def test_candidate_when_the_evaluator_failed_is_evaluated_again(tmp_path):
    policy, settings = ScriptedPolicy(RIGHT[0]), ("collect.at_once=1", "collect.successes=1")
    verdicts = collected(tmp_path, policy, ScriptedEvaluators(1), "collect.attempts=1", *settings)
    assert [verdict.accepted for verdict in verdicts] == [False]
    verdicts = collected(tmp_path, policy, ScriptedEvaluators(1), "collect.attempts=9", *settings)
    assert [verdict.accepted for verdict in verdicts] == [False, False, True]


def test_collect_when_prompts_show_related_kernels_takes_them_from_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr("cudal1_ray.commands.collect.describe_machine", lambda device: Machine("a GPU", on_gpu=True))
    policy = ScriptedPolicy("no code")
    settings = ["prompting.style=full", "prompting.max_prompt_tokens=9000", "collect.attempts=1"]
    entry = next(entry for entry in load_corpus() if entry.problem_id == "swish_chain_2")
    table = {"problem": [entry.problem_id], "code": [entry.code], "speedup": [2.5]}
    pq.write_table(pa.table(table), tmp_path / "related.parquet")
    settings += ["problems.ids=[swish_chain_1,swish_chain_2]", f"prompting.related_from={tmp_path}/related.parquet"]
    collected(tmp_path, policy, None, *settings)
    assert sum("2.50x there" in prompt for prompt in policy.prompts) == 1  # not for its own problem


def test_collect_when_there_is_no_server_ends_with_one_line(tmp_path, capsys):
    arguments = ["collect", "policy=endpoint", "policy.url=http://127.0.0.1:9/v1", "policy.model=m"]
    (theirs := tmp_path / "theirs.parquet").write_text("theirs")
    assert main([*arguments, f"collect.out={theirs}"]) == 2 and theirs.read_text() == "theirs"
    assert "was not collected here" in capsys.readouterr().err
    arguments += ["policy.attempts=1", "problems.ids=[swish_chain_1]", f"collect.out={tmp_path / 'c.parquet'}"]
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert "policy.url=http://127.0.0.1:9/v1: no answer from m" in printed.err and "no table is written" in printed.out
    with open(tmp_path / "c.jsonl", "ab") as lock:
        assert claim_file(lock) and main(arguments) == 2
    assert "another command collects there" in capsys.readouterr().err


ATTEMPT = {"problem": "p", "code": "", "analysis": "", "design": "", "policy": "m"}
ATTEMPT |= {"verdict": Verdict.unparsable("p", "").to_dict()}


@pytest.mark.parametrize(
    "text",
    [
        '{"messages": []}\n{"messages": ["mine"]}',
        json.dumps(ATTEMPT) + "\nmine",
        json.dumps({**ATTEMPT, "verdict": 1}) + "\n",
    ],
)
def test_file_beside_the_table_when_it_is_anothers_is_refused_and_left_as_it_is(text, tmp_path, capsys):
    (theirs := tmp_path / "table.jsonl").write_text(text)
    arguments = ["policy=endpoint", "policy.url=http://127.0.0.1:9/v1", "policy.model=m", "policy.attempts=1"]
    assert main(["collect", *arguments, f"collect.out={tmp_path / 'table.parquet'}"]) == 2
    assert "table.jsonl has other lines than attempts" in capsys.readouterr().err
    assert theirs.read_text() == text


def test_attempts_when_the_last_was_cut_by_a_kill_go_on(tmp_path, capsys):
    (tmp_path / "table.jsonl").write_text(json.dumps(ATTEMPT) + "\n" + json.dumps(ATTEMPT)[:30])
    arguments = ["policy=endpoint", "policy.url=http://127.0.0.1:9/v1", "policy.model=m", "policy.attempts=1"]
    assert main(["collect", *arguments, f"collect.out={tmp_path / 'table.parquet'}"]) == 2
    printed = capsys.readouterr()
    assert "0 accepted of 1 candidate" in printed.out and "no answer from m" in printed.err


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["policy=tiny"], "policy.kind=scratch"),
        (["policy.url="], "policy.url=''"),
        (["policy.model="], "policy.model is empty"),
        (["collect.out=table.csv"], "collect.out=table.csv: must end in .parquet"),
        (["problems.split=held_out"], "problems.split=held_out"),
        (["problems=kernelbench_folder"], "problems.path: needed with problems.source=folder"),
    ],
)
def test_settings_when_nothing_can_be_collected_are_refused_by_collect_and_its_cfg_alike(overrides, named, capsys):
    for flags in ([], ["--cfg"]):
        server = ["policy=endpoint", "policy.url=http://127.0.0.1:9/v1", "policy.model=m"]
        assert main(["collect", *server, *overrides, *flags]) == 2
        assert named in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--cfg"]])
def test_endpoint_policy_when_trained_or_served_is_refused(flags, capsys):
    arguments = ["policy=endpoint", "policy.url=http://127.0.0.1:9/v1", "policy.model=m", *flags]
    assert main(["train", "recipe=none", *arguments]) == 2 and "no weights to train" in capsys.readouterr().err
    assert main(["serve", *arguments]) == 2 and "served at http://127.0.0.1:9/v1" in capsys.readouterr().err


@pytest.mark.slow
def test_optimize_when_the_policy_is_an_endpoint_saves_a_faster_module(tmp_path, capsys):
    from tests.serving.conftest import FAST, problem

    (tmp_path / "module.py").write_text(problem().source)
    settings = ["policy=endpoint", "policy.model=m", "optimize.rounds=1", "optimize.samples_per_round=1"]
    settings += ["optimize.baselines=[]", "evaluation.required_sandbox=seccomp", *QUICK]
    with chat_server(writing([render_answer("a", "b", FAST)])) as (url, requests):
        code = main(["optimize", str(tmp_path / "module.py"), f"policy.url={url}", *settings])
    assert code == 0, capsys.readouterr()
    assert (tmp_path / "module_fast.py").read_text().strip() == FAST.strip() and requests
