"""The winners of a table's runs, as a data set and measured again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.paper import remeasuring, winners
from cudal1_ray.commands.manifest import VerdictFile, read_manifest
from cudal1_ray.config import load_config, to_yaml
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.training.rollout_table import write_rollouts
from tests.benchmarks.paper.tiny_table import CODE, evaluated_sample, write_lines
from tests.commands.example_files import HONEST, PROBLEM, QUICK


def verdict_of(row: dict, against: str, speedup: float, **fields) -> dict:
    """Return a line as `cudal1 evaluate` writes it of a winner that was accepted."""
    speedups = dict.fromkeys(("speedup", "speedup_low", "speedup_high"), speedup)
    return {"id": row["problem_id"], "against": against, "verdict": "accepted", "hardware": "GPU", **speedups, **fields}


def test_winners_when_exported_are_the_best_of_each_problem(runs):
    rows = winners.export([runs], ["bucket"])
    assert [row["speedup"] for row in rows] == [3.5, 1.2] and rows[0]["seed"] == 2 and rows[0]["policy_version"] == 3
    lines = remeasuring.manifest(rows, [])
    assert [line["id"] for line in lines] == [row["problem_id"] for row in rows]
    assert "class Model" in lines[0]["problem"] and lines[0]["candidate"] == rows[0]["code"]


@pytest.mark.parametrize(
    ("before", "now", "sizes", "baselines"),
    [
        ("GPU", "GPU", "", [("cuda_graph", 1.1), ("compile", 1.5)]),
        ("", "GPU", "", [("compile", 1.5)]),  # on which device the first was measured is unknown
        ("other", "GPU", "", [("compile", 1.5)]),
        ("GPU", "GPU", "paper", [("compile", 1.5)]),
        ("other", None, "", [("cuda_graph", 1.1)]),
        ("GPU", None, "", [("cuda_graph", 1.1), ("compile", 1.5)]),
    ],
)
def test_winners_when_measured_again_keep_what_the_same_device_measured(runs, tmp_path, before, now, sizes, baselines):
    row = winners.export([runs], ["bucket"])[0] | {"device": before, "baselines": [("cuda_graph", 1.1)]}
    eager = [verdict_of(row, "eager", 3.0)] if now else []
    failed = verdict_of(row, "tuned_eager", 9.0, verdict="rejected")
    write_lines(tmp_path / "v.jsonl", [*eager, verdict_of(row, "compile", 1.5, speedup_low=1.45), failed])
    (kept,) = remeasuring.with_verdicts([row], [tmp_path / "v.jsonl"], sizes)
    assert kept["baselines"] == baselines and kept["sizes"] == (sizes or row["sizes"])
    assert kept["baselines_low"] == [("compile", 1.45)] * (("compile", 1.5) in baselines)
    assert (kept["device"], kept["speedup"]) == ((now, 3.0) if now else (before, row["speedup"]))


def test_winners_when_measured_again_and_rejected_or_not_measured_are_left_out(runs, tmp_path):
    first, second = winners.export([runs], ["bucket"])
    write_lines(tmp_path / "v.jsonl", [verdict_of(first, "eager", 0.9)])
    assert [row["speedup"] for row in remeasuring.with_verdicts([first, second], [tmp_path / "v.jsonl"], "paper")] == [
        0.9
    ]
    assert remeasuring.with_verdicts([second], [tmp_path / "v.jsonl"]) == [second]
    write_lines(tmp_path / "v.jsonl", [verdict_of(first, "eager", 0.9, verdict="rejected")])
    assert remeasuring.with_verdicts([first, second], [tmp_path / "v.jsonl"]) == [second]


def test_winners_when_an_evaluation_failed_for_the_moment_stay_as_they_are(runs, tmp_path):
    rows = winners.export([runs], ["bucket"])
    failed = verdict_of(rows[0], "eager", 0.0, verdict="rejected", reasons=["unstable_timing"])
    write_lines(tmp_path / "v.jsonl", [failed])
    assert remeasuring.with_verdicts(rows, [tmp_path / "v.jsonl"]) == rows
    assert remeasuring.with_verdicts(rows, [tmp_path / "v.jsonl"], "paper") == []


def test_winners_when_exported_of_runs_and_data_sets_are_the_best_of_all(runs, tmp_path):
    slow, fast = winners.export([runs], ["bucket"])[::-1]
    measured = slow | {"speedup_low": 9.0, "baselines": [("compile", 1.5)]}
    winners.write([measured, fast | {"speedup_low": 0.1}], file := tmp_path / "w.parquet")
    rows = {row["problem_id"]: row for row in winners.export([runs, file], ["bucket"])}
    assert rows[slow["problem_id"]]["baselines"] == [("compile", 1.5)]
    assert rows[fast["problem_id"]]["speedup_low"] == fast["speedup_low"]
    assert len(winners.export([file], ["bucket"])) == 2
    with pytest.raises(UserError, match="none of grpo"):
        winners.export([file], ["grpo"])
    file.write_text("no data set")
    with pytest.raises(UserError, match="w.parquet: no data set of winners"):
        winners.export([file], ["bucket"])


def test_winners_when_a_kernel_is_of_the_corpus_leave_it_out(runs, tmp_path):
    first = winners.export([runs], ["bucket"])[0]
    file = tmp_path / "corpus" / first["problem_id"] / "given.py"
    file.parent.mkdir(parents=True)
    renamed = first["code"].replace("(self, x)", "(self, tensor)").replace("x *", "tensor *")
    assert renamed != first["code"]
    file.write_text(f'"""Technique: none\nAnalysis: It is given.\nDesign: Give it.\n"""\n\n{renamed}')
    for config in runs.glob("*/config.yaml"):
        config.write_text(config.read_text().replace("corpus: bundled", f"corpus: {tmp_path / 'corpus'}"))
    rows = winners.export([runs], ["bucket"])
    assert len(rows) == 1 and rows[0]["problem_id"] != first["problem_id"]


def run_under_rules(folder: Path, rules: str, code: str) -> Path:
    """Return a run of the recipe under a set of rules, whose one accepted candidate has no kernel of its own."""
    (folder / "rollouts").mkdir(parents=True)
    config = load_config(
        ["recipe=kernelbench_one_gpu", "policy.path=x", "problems.path=x", f"evaluation/rules={rules}"]
    )
    (folder / "config.yaml").write_text(to_yaml(config))
    write_lines(folder / "verdicts.jsonl", [])
    sample = evaluated_sample("kernelbench-l1-p001", 1.5, 1)
    verdict, answer = replace(sample.verdict, own_kernel=False), replace(sample.answer, code=code)
    repeated = replace(
        sample, verdict=replace(verdict, flags=("same_operations",), speedup_low=9.0), answer=sample.answer
    )
    samples = [replace(sample, verdict=verdict, answer=answer), repeated]
    write_rollouts(folder / "rollouts", "contrastive", 1, samples, [1.0] * 2, [0.0] * 2)
    return folder


def test_winners_when_one_command_measures_them_again_are_held_to_the_rules_of_their_run(tmp_path, capfd):
    free, strict = (run_under_rules(tmp_path / rules, rules, HONEST) for rules in ("off", "strict"))
    assert winners.export_run(strict) == []  # accepted before the rule was: none that the run's rules allow
    data, out = tmp_path / "w.parquet", tmp_path / "again.parquet"
    winners.main(["export", "--run", str(free), "--out", str(data)])
    (problem_file := tmp_path / "problems" / "level1" / "1_tanh.py").parent.mkdir(parents=True)
    problem_file.write_text(PROBLEM)
    problems = ["problems=kernelbench_folder", f"problems.path={tmp_path / 'problems'}"]
    (exported,) = rows = winners.read(data)
    settings = remeasuring.measuring_settings(rows)
    assert load_config(settings).evaluation.rules == load_config(["evaluation/rules=off"]).evaluation.rules
    command = ["measure", str(data), "--out", str(out), *problems]
    winners.main([*command, *QUICK])
    (row,) = winners.read(out)
    assert (
        row["speedup_low"] <= row["speedup"] != exported["speedup"]
        and row["device"]
        and "1 rows, 0 were left out" in capfd.readouterr().out
    )
    winners.main([*command, "--lacking", *QUICK])
    assert "1 rows, 0 were left out" in capfd.readouterr().out and winners.read(data) == rows
    with pytest.raises(SystemExit) as refused:
        winners.main([*command, "--against", "nothing"])
    assert refused.value.code == 2 and "--against nothing" in capfd.readouterr().err and winners.read(out) == [row]
    with pytest.raises(UserError, match="--sizes paper: needs --out"):
        winners.main(["measure", str(data), "--sizes", "paper", *problems])


def test_winners_when_sigterm_ends_the_command_are_written_with_the_verdicts_so_far(tmp_path):
    (problems := tmp_path / "problems" / "level1").mkdir(parents=True)
    rows = []
    for number in (1, 2, 3):
        (problems / f"{number}_tanh.py").write_text(f"{PROBLEM}\n# {number}\n")
        row = dict.fromkeys(winners.SCHEMA.names) | {"problem_id": f"kernelbench-l1-p00{number}", "code": HONEST}
        rows.append(row | {"speedup": 99.0, "speedup_low": 99.0})
    winners.write(rows, data := tmp_path / "w.parquet")
    settings = ["problems=kernelbench_folder", f"problems.path={problems.parent}", *QUICK]
    command = [sys.executable, "-m", "benchmarks.paper.winners", "measure", str(data), *settings]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    verdicts, deadline = tmp_path / "w.measured" / "eager.jsonl", time.monotonic() + 300
    while not (verdicts.is_file() and verdicts.read_text()):
        assert started.poll() is None and time.monotonic() < deadline, started.communicate()[0]
        time.sleep(0.02)
    started.send_signal(signal.SIGTERM)
    output = started.communicate(timeout=300)[0]
    assert started.returncode == 130 and "the same command goes on" in output and "Traceback" not in output, output
    measured = [row for row in winners.read(data) if row["speedup"] != 99.0]
    assert len(measured) == len(verdicts.read_text().splitlines()) in (1, 2)


def test_winners_when_measured_again_are_loaded_in_the_sizes_that_they_get(runs, tmp_path, monkeypatch):
    settings, baselines = [], []
    monkeypatch.setattr(
        winners, "measure", lambda *words: baselines.append(words[1]) or settings.append(words[3]) or iter(())
    )
    rows = [row | {"sizes": "scaled"} for row in winners.export([runs], ["bucket"])]
    winners.write(rows, data := tmp_path / "w.parquet")
    winners.main(["measure", str(data), "--against", "eager", "compile", "problems.limit=36"])
    winners.main(["measure", str(data), "--sizes", "published", "--out", str(tmp_path / "p.parquet")])
    assert [load_config(of).problems.sizes for of in settings] == ["scaled", "published"]
    assert "problems.limit=36" in settings[0] and baselines == [["eager", "compile"], ["eager"]]
    with pytest.raises(SystemExit):
        winners.main(["export", "--out", str(tmp_path / "w.parquet"), "problems.limit=36"])
    with pytest.raises(UserError, match="problems.sizes=published: the winners are measured in sizes scaled"):
        winners.main(["measure", str(data), "problems.sizes=published"])
    with pytest.raises(UserError, match="sizes: the winners are of several .paper, scaled.; "):
        winners.problem_settings([*rows, {"sizes": "paper"}], [])


@pytest.fixture
def measured(monkeypatch):
    """Let `cudal1 evaluate` accept every candidate at 2x without measuring it; return what it was asked for, as pairs
    of id and baseline.
    """
    measured: list[tuple[str, str]] = []

    def evaluate(command: list[str]) -> int:
        options = dict(zip(command[1::2], command[2::2], strict=False))
        pairs, against = read_manifest(Path(options["--manifest"])).pairs, options["--against"]
        with VerdictFile(Path(options["--out"]), pairs, EvaluationConfig(against=against)) as file:
            for pair in pairs:
                if pair.identity not in file.rows:
                    measured.append((pair.identity, against))
                    names = ("speedup", "speedup_low", "speedup_high", "credited_speedup")
                    speedups = dict.fromkeys(names, 2.0)
                    file.add(pair, Verdict(pair.problem.problem_id, "accepted", hardware="GPU", **speedups))
        return 0

    monkeypatch.setattr(remeasuring.cli, "main", evaluate)
    return measured


def test_winners_when_another_candidate_wins_are_measured_anew_and_keep_other_baselines(runs, tmp_path, measured):
    first, second = winners.export([runs], ["bucket"])
    winners.write([first, second], data := tmp_path / "w.parquet")
    command = ["measure", str(data), "--out", str(out := tmp_path / "again.parquet"), "--sizes", "published"]
    winners.main(command)
    winners.main([*command, "--against", "compile"])
    assert [dict(row["baselines"]) for row in winners.read(out)] == [{"compile": 2.0}] * 2 and len(measured) == 4
    winners.write([first, second | {"code": CODE.format(99)}], data)
    winners.main(command)
    assert measured[4:] == [(second["problem_id"], "eager")]
    assert [dict(row["baselines"]) for row in winners.read(out)] == [{"compile": 2.0}, {}]


def test_winners_when_only_lacking_baselines_are_asked_for_are_all_written(runs, tmp_path, measured):
    first, second = winners.export([runs], ["bucket"])
    winners.write([first | {"baselines": [("compile", 1.5)], "device": "GPU"}, second], data := tmp_path / "w.parquet")
    command = ["measure", str(data), "--lacking", "--against", "compile", "--out"]
    winners.main([*command, str(out := tmp_path / "again.parquet")])
    assert measured == [(second["problem_id"], "compile")]
    assert [dict(row["baselines"])["compile"] for row in winners.read(out)] == [1.5, 2.0]
    winners.write(winners.read(out), data)
    winners.main([*command, str(out := tmp_path / "third.parquet")])
    assert len(measured) == 1 and winners.read(out) == winners.read(data)


def test_winners_when_baselines_are_files_have_the_verdicts_of_each_in_their_folder(runs, tmp_path, measured):
    winners.write(winners.export([runs], ["bucket"]), data := tmp_path / "w.parquet")
    own = [str(tmp_path / "elsewhere" / "dress.py"), "a/dress.py"]
    winners.main(["measure", str(data), "--out", str(out := tmp_path / "again.parquet"), "--against", "eager", *own])
    assert [dict(row["baselines"]) for row in winners.read(out)] == [dict.fromkeys(own, 2.0)] * 2
    assert (tmp_path / "again.measured" / "a-dress.py.jsonl").is_file() and not (tmp_path / "elsewhere").exists()


def test_winners_when_lacking_baselines_are_asked_for_in_other_sizes_are_all_measured(runs, tmp_path, measured):
    """A speedup in the runs' sizes is none in others."""
    rows = [row | {"baselines": [("compile", 1.5)]} for row in winners.export([runs], ["bucket"])]
    winners.write(rows, data := tmp_path / "w.parquet")
    sizes = ["--sizes", "published", "--out", str(out := tmp_path / "p.parquet")]
    winners.main(["measure", str(data), "--lacking", *sizes, "--against", "eager", "compile"])
    assert len(measured) == 4 and [dict(row["baselines"]) for row in winners.read(out)] == [{"compile": 2.0}] * 2


def test_winners_when_measured_before_on_other_problems_are_refused_whatever_the_baseline(runs, tmp_path, monkeypatch):
    """Else the speedups of the verdicts that are there would stand under the new sizes."""
    monkeypatch.setattr(remeasuring.cli, "main", lambda command: 0)
    rows = winners.export([runs], ["bucket"])
    winners.write(rows, data := tmp_path / "w.parquet")
    (folder := tmp_path / "again.measured").mkdir()
    write_lines(folder / "eager.jsonl", [verdict_of(rows[0], "eager", 2.0, problem_hash="of other sizes")])
    command = ["measure", str(data), "--out", str(tmp_path / "again.parquet"), "--sizes", "published"]
    with pytest.raises(UserError, match=f"eager.jsonl: {rows[0]['problem_id']} was measured in other sizes"):
        winners.main([*command, "--against", "compile"])


def test_winners_when_trained_under_several_rules_are_not_measured_by_one_command():
    rows = [{"arm": arm, "rules": [("own_kernel", choice)]} for arm, choice in (("a", "any"), ("b", "required"))]
    assert remeasuring.measuring_settings(rows[1:]) == ["evaluation.rules.own_kernel=required"]
    with pytest.raises(UserError, match="a: defaults; b: evaluation.rules.own_kernel=required"):
        remeasuring.measuring_settings(rows)


def test_cases_when_written_show_the_highest_gains_with_both_codes_and_evidence(runs):
    text = winners.cases(winners.export([runs], ["bucket"]), [], count=1)
    assert text.count("## ") == 1 and "3.50x (3.15 to 3.85)" in text and "bucket, seed 2" in text
    assert "class Model(" in text and "class ModelNew(" in text and "It is fused." in text


def test_winners_when_settings_follow_an_option_take_them(runs, tmp_path):
    data, out = str(tmp_path / "w.parquet"), tmp_path / "out"
    winners.write(winners.export([runs], ["bucket"]), Path(data))
    winners.main(["cases", data, "--out", str(out), "problems=bundled", "problems.limit=36"])
    assert out.read_text()
    with pytest.raises(SystemExit):
        winners.main(["cases", data, "--out", str(out), "--problems", "bundled"])
