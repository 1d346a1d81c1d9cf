"""Manifests and verdict files: what is wrong with a row is reported before anything runs, nothing written is lost."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from example_files import HONEST, PROBLEM

from cudal1_ray.commands.evaluate_manifest import summary, summary_line
from cudal1_ray.commands.manifest import VerdictFile, read_manifest
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.evaluation.reasons import MOMENTARY
from cudal1_ray.evaluation.rules import RulesConfig

VALID_ROW = {"id": "a", "problem": "chain.py", "candidate": "new.py"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "chain.py").write_text(PROBLEM)
    (tmp_path / "new.py").write_text(HONEST)
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00class")
    (tmp_path / "broken.json").write_text("{}")
    (tmp_path / "hex.py").write_bytes(f"# coding: hex\n{PROBLEM}".encode())
    return tmp_path


def manifest(folder, *rows):
    path = folder / "pairs.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return path


def test_rows_when_their_paths_are_relative_are_read_from_the_manifests_folder(folder, monkeypatch):
    monkeypatch.chdir("/")
    first, second = read_manifest(
        manifest(folder, VALID_ROW, "", VALID_ROW | {"id": 7, "candidate": "broken.json"})
    ).pairs
    assert (first.identity, first.problem.problem_id, first.code) == ("a", "chain", HONEST)
    assert second.given_id == 7 and second.code == "{}"  # whether it is Python, the evaluator decides
    assert second.problem is first.problem


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("{not json", "not JSON"),
        ("[1, 2]", "list"),
        ({"problem": "chain.py", "candidate": "new.py"}, "'id'"),
        ({"id": "b", "candidate": "new.py"}, "'problem'"),
        ({"id": "b", "problem": "chain.py"}, "'candidate'"),
        (VALID_ROW, "'a' is on line 1"),
        (VALID_ROW | {"id": None}, "'id'"),
        (VALID_ROW | {"id": "b", "problem": 3}, "'problem' is 3"),
        (VALID_ROW | {"id": "b", "problem": "gone.py"}, "gone.py: No such file"),
        (VALID_ROW | {"id": "b", "candidate": "gone.py"}, "gone.py: No such file"),
        (VALID_ROW | {"id": "b", "candidate": "."}, "'candidate'"),
        (VALID_ROW | {"id": "b", "candidate": "binary.py"}, "binary.py: invalid or missing encoding declaration"),
        (VALID_ROW | {"id": "b", "problem": "new.py"}, "no top-level class `Model`"),
        (VALID_ROW | {"id": "b", "problem": "binary.py"}, "'problem'"),
        (VALID_ROW | {"id": "b", "problem": "hex.py"}, "'hex' is not a text encoding"),
        (VALID_ROW | {"id": "b", "problem": "broken.json"}, "'problem'"),
        (VALID_ROW | {"id": "b", "candidate": "\ud800.py"}, "'candidate'"),
        (VALID_ROW | {"id": "b", "candidate": "a" * 3000}, "File name too long"),
    ],
)
def test_row_when_it_is_bad_is_skipped_with_manifest_line_and_field(folder, row, named):
    path = manifest(folder, VALID_ROW, row, VALID_ROW | {"id": "after"})
    read = read_manifest(path)
    (text,) = read.skipped
    assert [pair.identity for pair in read.pairs] == ["a", "after"]
    assert text.startswith(f"{path} line 2: ") and named in text and "\n" not in text and len(text) < 500


def test_manifest_when_it_has_no_row_or_no_file_is_refused(folder):
    with pytest.raises(UserError, match="holds no row"):
        read_manifest(manifest(folder, "", "  "))
    with pytest.raises(UserError, match="No such file"):
        read_manifest(folder / "none.jsonl")
    with pytest.raises(UserError, match="line 1: not JSON"):
        read_manifest(manifest(folder, "{", "["))


def test_row_when_it_holds_python_is_taken_for_problem_and_candidate(folder):
    other_ends = {"problem": "\ufeff" + PROBLEM.replace("\n", "\r"), "candidate": HONEST.replace("\n", "\r\n")}
    for row in ({"problem": PROBLEM, "candidate": "\ufeff" + HONEST}, other_ends):
        (pair,) = read_manifest(manifest(folder, VALID_ROW | row)).pairs
        assert pair.problem.source == PROBLEM and pair.code == HONEST


def test_verdicts_when_a_file_holds_others_follow_them_in_the_manifests_order(folder):
    config, out = EvaluationConfig(), folder / "out.jsonl"
    out.write_text('{"id": "other", "verdict": "rejected"}\n')
    pairs = read_manifest(manifest(folder, VALID_ROW, VALID_ROW | {"id": "b"})).pairs
    with VerdictFile(out, pairs, config) as file:
        for pair in reversed(pairs):
            file.add(pair, Verdict.rejected("chain", "crash"))
        file.arrange([pair.identity for pair in pairs])
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["other", "a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "my notes",
        json.dumps(VALID_ROW),
        f"{json.dumps(VALID_ROW)}\n{json.dumps(VALID_ROW | {'id': 'b'})}",
        PROBLEM,
        "\n\n{}",
    ],
)
def test_out_file_when_it_holds_something_else_stays_as_it_is(folder, text):
    (out := folder / "out.jsonl").write_text(text)
    with pytest.raises(UserError, match=f"^--out {out}.*; name another file$"):
        VerdictFile(out, read_manifest(manifest(folder, VALID_ROW)).pairs, EvaluationConfig())
    assert out.read_text() == text
    with pytest.raises(UserError, match="--out /dev/null: no regular file"):
        VerdictFile(Path("/dev/null"), [], EvaluationConfig())


@pytest.mark.parametrize(
    "change",
    [{"credited_speedup": value} for value in (None, "fast", 0.0, math.nan, math.inf)]
    + [{"reasons": 3}, {"speedup_low": "1.4"}, None],
)
def test_row_of_verdicts_when_figures_are_missing_or_of_another_type_is_named(folder, change):
    config, out = EvaluationConfig(), folder / "out.jsonl"
    pairs = read_manifest(manifest(folder, VALID_ROW)).pairs
    with VerdictFile(out, pairs, config) as file:
        row = file.add(pairs[0], Verdict("chain", "accepted", (), "", 1.5, 1.4, 1.6, 1.5))
    out.write_text(text := json.dumps({"id": "a", "verdict": "accepted"} if change is None else row | change) + "\n")
    with pytest.raises(UserError, match=f"^--out {out} row 1: not a whole verdict; remove the row"):
        VerdictFile(out, pairs, config)
    assert out.read_text() == text


def test_verdicts_when_the_last_line_is_torn_keep_the_others(folder):
    config, out = EvaluationConfig(), folder / "deep" / "out.jsonl"
    pairs = read_manifest(manifest(folder, VALID_ROW, VALID_ROW | {"id": "b"})).pairs
    with VerdictFile(out, pairs, config) as file:
        file.add(pairs[0], Verdict("chain", "accepted", (), "", 1.5, 1.4, 1.6, 1.5))
    whole = out.read_bytes()
    for torn in (b'{"i', b'{"id": "', b'{"id": "b', b'{"id": "b", "verd', b'{"id": 12, "verdict": "acc'):
        out.write_bytes(whole + torn)
        with VerdictFile(out, pairs, config) as file:
            assert set(file.rows) == {"a"} and out.read_bytes() == whole
    with VerdictFile(out, pairs, config) as file:
        file.add(pairs[1], Verdict.rejected("chain", "crash"))
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["id"], row["verdict"], row["credited_speedup"]) for row in rows] == [
        ("a", "accepted", 1.5),
        ("b", "rejected", 0.0),
    ]


@pytest.mark.parametrize("reason", sorted(MOMENTARY))
def test_verdict_when_the_machine_was_at_fault_is_replaced_by_the_next(folder, reason):
    config, out = EvaluationConfig(), folder / "out.jsonl"
    pairs = read_manifest(manifest(folder, VALID_ROW)).pairs
    for reasons, rows in (((reason,), set()), (("crash",), set()), ((), {"a"})):
        with VerdictFile(out, pairs, config) as file:
            assert set(file.rows) == rows
            if reasons:
                file.add(pairs[0], Verdict.rejected("chain", *reasons))
                file.arrange(["a"])
    assert [json.loads(line)["reasons"] for line in out.read_text().splitlines()] == [["crash"]]


def test_verdicts_when_they_are_of_other_texts_or_rules_are_not_reused(folder):
    config, out = EvaluationConfig(), folder / "out.jsonl"
    pairs = read_manifest(manifest(folder, VALID_ROW)).pairs
    with VerdictFile(out, pairs, config) as file:
        file.add(pairs[0], Verdict.rejected("chain", "crash"))
        with pytest.raises(UserError, match="another command is writing"):
            VerdictFile(out, pairs, config)
    with pytest.raises(UserError, match="row 1: id 'a' was evaluated with against 'eager', now it is 'compile'"):
        VerdictFile(out, pairs, EvaluationConfig(against="compile"))
    strict = RulesConfig(precision="tf32", own_kernel="required")
    rules = "evaluation.rules.precision=tf32 evaluation.rules.own_kernel=required"
    with pytest.raises(UserError, match=f"was evaluated with rules 'default', now it is '{rules}'"):
        VerdictFile(out, pairs, EvaluationConfig(rules=strict))
    (folder / "new.py").write_text(HONEST + "# changed\n")
    with pytest.raises(UserError, match="candidate_hash"):
        VerdictFile(out, read_manifest(manifest(folder, VALID_ROW)).pairs, config)
    out.write_text('{"id": "a"}\n')
    with pytest.raises(UserError, match="row 1: not a verdict"):
        VerdictFile(out, pairs, config)
    with pytest.raises(UserError, match="--out"):
        VerdictFile(folder, pairs, config)


def test_manifest_summary_when_a_problem_is_degenerate_leaves_it_out_of_its_means():
    def row(problem, credited, **more):
        verdict = "accepted" if credited else "rejected"
        return {"problem_hash": problem, "verdict": verdict, "credited_speedup": credited, **more}

    rows = [row("p", 1.0), row("q", 4.0), row("q", 0.0), row("z", 100.0, degenerate=True), row("z", 0.0)]
    counts = summary(rows)
    assert counts == {
        "rows": 5, "accepted": 3, "credited": 2, "mean": 2.5, "median": 2.5, "geometric_mean": pytest.approx(2.0),
        "flagged": 2, "flagged_problems": 1, "unconfined": 0,
    }  # fmt: skip
    assert "5 rows, " in summary_line(counts) and summary_line(counts).endswith("2 on 1 degenerate problem")
    assert summary([row("p", 0.0)])["mean"] is None and "none" in summary_line(summary([row("p", 0.0)]))
    assert summary_line(summary([row("p", 0.0)])).startswith("1 row, ")
