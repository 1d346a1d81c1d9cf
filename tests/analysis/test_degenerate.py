"""Void rows are left out of means; degenerate problems too, and counted. Runs from before the flag are read as well."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from cudal1_ray.analysis import combine_seeds, compare_runs, present, read_run, summarise
from cudal1_ray.analysis.plots_outcome import problems_plot
from cudal1_ray.analysis.problem_table import problem_lines
from cudal1_ray.analysis.step_assessments import step_assessments_table


def row(problem_id, speedup, **more):
    status = "accepted" if speedup else "rejected"
    return {"stage": "sft", "split": "train", "problem_id": problem_id, "status": status, "speedup": speedup} | more


def write(folder, rows, rollouts=()):
    folder.mkdir(parents=True, exist_ok=True)
    numbered = ({"index": number, **fields} for number, fields in enumerate(rows))
    (folder / "assessments.jsonl").write_text("".join(json.dumps(line) + "\n" for line in numbered))
    if rollouts:
        (folder / "rollouts").mkdir()
        pq.write_table(pa.Table.from_pylist(list(rollouts)), folder / "rollouts" / "sft-000000.parquet")
    return folder


def test_summary_when_a_row_flags_a_problem_as_degenerate_leaves_it_out_of_means_and_counts_it(tmp_path):
    rows = [row("plain", 2.0, degenerate=False), row("plain", 2.0, degenerate=False)]
    rows += [row("constant", 90.0, degenerate=True)]
    rows += [row("constant", 0.0, degenerate=False, reasons=["unparsable"])]  # it fell before the problem was opened
    run = read_run(write(tmp_path / "run", rows))
    summary = summarise(run)
    assert summary["degenerate"] == {"problems": ["constant"], "samples": 2, "left_out": True}
    entry = summary["stages"]["sft"]["train"]
    assert (entry["problems"], entry["samples"], entry["success_rate"]) == (1, 2, 1.0)
    assert entry["mean"] == entry["max"] == pytest.approx(2.0)

    both = combine_seeds([summary, {**summary, "degenerate": {}}])  # the second: a summary from before the flag
    assert both["degenerate"]["problems"] == ["constant"] and both["degenerate"]["samples"] == 2


def test_best_candidates_when_rollouts_flag_a_problem_as_degenerate_leave_it_out(tmp_path):
    rollouts = [
        {"stage": "sft", "step": 0, "code": "class ModelNew: pass", "policy_version": 1} | fields
        for fields in (row("constant", 90.0, degenerate=True), row("plain", 2.0, degenerate=False))
    ]
    folder = write(tmp_path / "run", [row("constant", 0.0), row("plain", 2.0)], rollouts)
    text = io.StringIO()
    page = present(folder, Console(file=text, width=100))
    assert "1 degenerate problem (1 sample), left out of all means" in " ".join(text.getvalue().split())
    html = page.read_text()
    assert "1 degenerate problem (1 sample), left out of all means" in html and "90" not in html.split("</style>")[1]
    assert json.loads((folder / "report" / "summary.json").read_text())["degenerate"]["problems"] == ["constant"]


def test_report_when_all_problems_are_degenerate_has_no_stage(tmp_path):
    folder = write(tmp_path / "run", [row("constant", 90.0, degenerate=True)])
    text = io.StringIO()
    html = present(folder, Console(file=text, width=100)).read_text()
    assert "1 degenerate problem" in text.getvalue() and "1 degenerate problem" in html
    assert summarise(read_run(folder))["stages"] == {}


def test_summary_when_a_run_has_no_degenerate_flag_uses_its_reasons(tmp_path):
    old = [row("plain", 2.0), row("constant", 0.0, reasons=["degenerate_input"])]
    summary = summarise(read_run(write(tmp_path / "old", old)))
    assert summary["degenerate"]["problems"] == ["constant"] and summary["stages"]["sft"]["train"]["problems"] == 1
    older = summarise(read_run(write(tmp_path / "older", [row("plain", 2.0)])))
    assert older["degenerate"] == {"problems": [], "samples": 0, "left_out": True}
    both = [row("plain", 2.0), row("constant", 5.0)], [row("plain", 4.0), row("constant", 5.0, degenerate=True)]
    comparison = compare_runs(*both, stage="sft", split="train")
    assert comparison.problems == 1 and comparison.speedup_ratio == pytest.approx(2.0)


@pytest.mark.parametrize("reason", ["evaluator_error", "unstable_timing", "reference_error"])
def test_summary_when_the_evaluation_of_a_sample_failed_leaves_it_out(tmp_path, reason):
    rows = [row("plain", 2.0), row("plain", 0.0, reasons=[reason]), row("plain", 0.0, reasons=["wrong_output"])]
    rollouts = [{"step": 1, **line} for line in rows]
    run = read_run(write(tmp_path / "run", rows, [{"reasons": []} | line for line in rollouts]))
    entry = summarise(run)["stages"]["sft"]["train"]
    assert (entry["problems"], entry["samples"], entry["success_rate"]) == (1, 2, 0.5)
    assert len(run.counted_rollouts()) == 2
    [line] = problem_lines(run)
    assert (line.correct, line.rollouts, line.assessed_correct, line.assessed) == (1, 2, 1, 2)


def test_figures_when_an_evaluation_failed_or_a_problem_is_degenerate_leave_the_rows_out(tmp_path):
    rows = [row("plain", 2.0, own_kernel=True), row("plain", 0.0, own_kernel=False, reasons=["wrong_output"])]
    rows += [row(problem, 0.0, own_kernel=False, reasons=["evaluator_error"]) for problem in ("plain", "unmeasured")]
    rows += [row("constant", 90.0, own_kernel=True, degenerate=True), row("constant", 0.0, own_kernel=False)]
    run = read_run(write(tmp_path / "run", rows))
    html = step_assessments_table(run)
    assert "train problems, 2 samples" in html and html.count("<td>50%</td>") == 3
    drawn = problems_plot(run).svg
    assert "plain, supervised" in drawn and "unmeasured, " not in drawn and "constant, " not in drawn
