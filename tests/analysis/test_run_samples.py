"""Single completions: which the report shows, and those that `cudal1 samples` finds."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_run import REFERENCE, write_run

from cudal1_ray.analysis import read_run, write_report
from cudal1_ray.analysis.candidates import reference_in_prompt, references_of
from cudal1_ray.analysis.figure import draw, hover_patch, hover_points
from cudal1_ray.analysis.problem_table import problem_lines
from cudal1_ray.analysis.samples import SampleFilter, find_samples, instructive_samples
from cudal1_ray.cli import main
from cudal1_ray.errors import UserError


def row(step, problem, status="accepted", speedup=1.0, reasons=(), stage="contrastive", **more):
    return {
        "stage": stage,
        "step": step,
        "problem_id": problem,
        "index": 0,
        "status": status,
        "speedup": speedup if status == "accepted" else 0.0,
        "reasons": list(reasons),
        "completion": f"text of step {step}",
        "code": "class ModelNew: pass",
        "prompt": "the prompt",
        "detail": "element 3 is 1.5, expected 2.5" if reasons else "",
        "finish_reason": "stop",
        "reward": speedup,
        "policy_version": step + (100 if stage == "contrastive" else 0),
    } | more


ROWS = [
    row(1, "softmax", speedup=3.0, stage="self_supervised"),
    row(1, "softmax", "rejected", reasons=["wrong_output"]),
    row(2, "gelu", speedup=2.0),
    row(2, "gelu", "rejected", reasons=["unparsable"], finish_reason="length"),
    row(2, "softmax", "rejected", reasons=["wrong_output"]),
]


@pytest.fixture
def run_folder(tmp_path):
    (tmp_path / "rollouts").mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rollouts" / "all-000000.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("sample_filter", "steps"),
    [
        (SampleFilter(), [2, 2, 2, 1, 1]),
        (SampleFilter(order="best", limit=2), [1, 2]),
        (SampleFilter(order="worst", limit=1), [2]),
        (SampleFilter(reason="wrong_output"), [2, 1]),
        (SampleFilter(reason="rejected", steps=(1, 1)), [1]),
        (SampleFilter(problem="gel", reason="accepted"), [2]),
        (SampleFilter(stage="self_supervised"), [1]),
    ],
)
def test_samples_when_filtered_are_those_that_match_in_order(run_folder, sample_filter, steps):
    samples, _ = find_samples(read_run(run_folder), sample_filter)
    assert [sample.step for sample in samples] == steps


def test_samples_when_limited_count_what_the_limit_leaves_out(run_folder):
    samples, count = find_samples(read_run(run_folder), SampleFilter(limit=2))
    assert len(samples) == 2 and count == 5
    assert samples[0].texts["completion"] == "text of step 2"


def test_samples_when_none_matches_name_the_values_there_are(run_folder):
    with pytest.raises(UserError, match="none of 5 samples matches.*contrastive.*wrong_output.*softmax"):
        find_samples(read_run(run_folder), SampleFilter(reason="timeout"))
    with pytest.raises(UserError, match="no samples of assessments"):
        find_samples(read_run(run_folder), SampleFilter(assessed=True))


def test_report_when_samples_are_there_shows_the_latest_of_each_reason_and_accepted_ones(run_folder):
    pairs = instructive_samples(read_run(run_folder), 9)
    assert [why.split(",")[0] for why, _ in pairs] == ["wrong_output", "unparsable", "slowest correct of the last step"]
    assert pairs[0][1].step == 2 and "expected 2.5" in pairs[0][1].texts["detail"]
    html = write_report(run_folder).read_text()
    assert "wrong_output: the output differs from the reference" in html and "cut at the token limit" in html


def test_samples_command_when_output_is_no_terminal_prints_plain_text(run_folder, capsys):
    assert main(["samples", str(run_folder), "--reason", "unparsable", "--prompt"]) == 0
    text = capsys.readouterr().out
    assert "gelu · contrastive · step 2 · #0\nunparsable: the text is not Python" in text
    assert "--- prompt\nthe prompt\n--- completion\ntext of step 2" in text and "\x1b" not in text
    assert main(["samples", str(run_folder), "--list", "--limit", "1"]) == 0
    assert capsys.readouterr().out.endswith("1 of 5 samples; --limit 0 shows all\n")
    assert main(["samples", str(run_folder), "--json", "--best", "--limit", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["speedup"] == 3.0
    for step in ("two", "1-", "²", "9" * 5000):
        assert main(["samples", str(run_folder), "--step", step]) == 2
        assert f"--step {step:.40}: give a step" in capsys.readouterr().err
    (run_folder / "rollouts" / "cut.parquet").write_bytes(b"PAR1")
    assert main(["samples", str(run_folder), "--list"]) == 0
    assert capsys.readouterr().err == f"{run_folder}: Unreadable Parquet shards skipped: cut.parquet.\n"


def test_references_when_the_run_recorded_them_are_those(run_folder):
    source = {"problem_id": "softmax", "split": "held_out", "source": "class Model: ..."}
    (run_folder / "problems.jsonl").write_text(json.dumps(source) + "\n")
    assert references_of(read_run(run_folder)) == {"softmax": "class Model: ..."}


def test_reference_when_under_a_heading_without_a_fence_is_read():
    prompt = f"## Reference\n{REFERENCE}\n## Candidate 1: 2.00x\nclass Model: 'no'\n"
    assert reference_in_prompt(prompt) == REFERENCE.strip()
    assert reference_in_prompt("## Reference\nnothing\n") == ""


def test_problem_table_when_a_run_is_assessed_counts_training_and_the_last_stage(tmp_path):
    run = read_run(write_run(tmp_path / "run", problems=6, samples=4))
    lines = problem_lines(run)
    assert [line.split for line in lines] == ["train"] * 4 + ["held_out"] * 2
    for line in lines:
        of_training = [r for r in run.rollouts if r["problem_id"] == line.problem_id]
        assert (line.rollouts, line.assessed) == (len(of_training), 4)
        assert line.best == max(r["speedup"] for r in of_training if r["status"] == "accepted")


def test_figures_when_drawn_have_titles_for_hovering_and_a_drawing_for_phones():
    def paint(figure, narrow):
        axes = figure.subplots()
        hover_points(axes, [1, 2], [3, 4], ["first <1>", "second"])
        (bar,) = axes.bar([1], [2])
        hover_patch(bar, "a bar")

    svg = draw("x", "title", "caption", (4, 2), paint).svg
    assert svg.count('class="wide"') == svg.count('class="narrow"') == 1
    for text in ("first &lt;1&gt;", "second", "a bar"):
        assert svg.count(f"<title>{text}</title>") == 2
