"""The summary of a run: what it counts and discloses, its headline, and its tables on terminals and in Markdown."""

from __future__ import annotations

import io
import json
import shlex
import shutil

import pytest
from rich.console import Console

from cudal1_ray.analysis import (
    combine_seeds,
    html_table,
    markdown_table,
    present,
    read_run,
    rich_table,
    summarise,
)
from cudal1_ray.analysis.report import headline
from cudal1_ray.analysis.tables import fitting_table, markdown_lines, print_table
from cudal1_ray.analysis.terminal import closing_lines, comparison_lines


def test_summary_when_an_assessment_is_recorded_twice_counts_it_once(complete, tmp_path):
    shutil.copy(complete / "assessments.jsonl", tmp_path)
    with (tmp_path / "assessments.jsonl").open("a") as file:
        file.write((complete / "assessments.jsonl").read_text())
    twice = summarise(read_run(tmp_path))
    assert twice["stages"] == summarise(read_run(complete))["stages"]


def test_tables_when_rendered_hold_the_papers_columns_and_the_convention(complete, tmp_path):
    summary = summarise(read_run(complete))
    console = Console(width=170, record=True, file=open(tmp_path / "out", "w"))
    console.print(rich_table(summary))
    for table in (console.export_text(), markdown_table(summary), html_table(summary)):
        for heading in ("mean", "geometric mean", "p50 (median)", "max", "p75", "p25", "success", "1.01×"):
            assert heading in table, heading
        assert "supervised fine-tuning" in table and "held-out" in table
        assert "failed sample counts as speedup 0" in " ".join(table.split())
    combined = combine_seeds([summary, summary])
    assert "Student t" in markdown_table(combined) and "of 4 solved" in markdown_table(combined, best_of_n=True)


def test_present_when_a_run_has_one_problem_has_ratios_without_an_interval(tmp_path):
    row = {"split": "train", "problem_id": "a", "index": 0, "status": "accepted"}
    rows = [{**row, "stage": "sft", "speedup": 1.2}, {**row, "stage": "contrastive", "speedup": 1.5, "copied": True}]
    (tmp_path / "assessments.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    console = Console(file=io.StringIO(), width=120)
    page = present(tmp_path, console).read_text()
    printed = " ".join(console.file.getvalue().split())
    assert "geometric mean times 1.25, success +0 points; times 0.08 with copies as failures" in printed
    assert "changed by a factor of 1.25; it holds" in " ".join(page.split())
    assert "1.50 to 1.50" not in page + printed and "1.25 to 1.25" not in page + printed


def test_present_when_a_run_is_complete_prints_its_table(complete, tmp_path):
    console = Console(width=170, record=True, file=open(tmp_path / "out", "w"))
    present(complete, console)
    (tmp_path / "rollouts").mkdir()
    present(tmp_path, console)
    text = " ".join(console.export_text().split())
    on_train, on_held_out = (
        text.index(f"contrastive RL against starting policy, {split} problems: geometric mean times")
        for split in ("8 train", "4 held-out")
    )
    assert on_train < on_held_out and f"next: cudal1 samples {complete}" in text.replace("\n", " ")
    assert "report: " in text and "index.html" in text
    assert "No stage of this run has been assessed yet." in text


def test_summary_when_prompts_held_exemplars_discloses_it(tmp_path):
    rows = [
        {"stage": s, "split": "train", "problem_id": "p", "index": 0, "status": "accepted", "speedup": 1.0}
        | {"exemplar_ids": ids}
        for s, ids in (("sft", []), ("contrastive", ["a", "b"]))
    ]
    (tmp_path / "assessments.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = summarise(read_run(tmp_path))
    assert summary["conventions"]["asked_with_exemplars"] == {"sft/train": 0.0, "contrastive/train": 1.0}
    assert "exemplars in the prompt: contrastive RL on train;" in markdown_table(summary)


def test_summary_when_samples_are_copies_counts_them_and_compares_without_them(tmp_path):
    def row(stage, index, speedup, copied):
        place = {"stage": stage, "split": "train", "problem_id": f"p{index % 2}", "index": index // 2}
        return place | {"status": "accepted" if speedup else "rejected", "speedup": speedup, "copied": copied}

    before = [row("sft", i, 1.0 if i < 2 else 0.0, False) for i in range(4)]
    after = [row("contrastive", i, 4.0 if i < 2 else 1.0, i < 2) for i in range(4)]
    (tmp_path / "assessments.jsonl").write_text("".join(json.dumps(row) + "\n" for row in before + after))
    summary = summarise(read_run(tmp_path))
    assert [summary["stages"][stage]["train"]["copied"] for stage in ("sft", "contrastive")] == [0.0, 0.5]
    (change,) = summary["comparisons"]
    # Of each problem one sample at 4x and one at 1x, against one at 1x and a failure, which counts as 0.1.
    assert change["speedup_ratio"] == pytest.approx(2.0 / 0.1**0.5)
    assert change["copies_fail"]["speedup_ratio"] == pytest.approx(1.0)
    both = combine_seeds([summary, summary])
    assert both["comparisons"][0]["copies_fail"]["speedup_ratio"] == pytest.approx(1.0)
    assert "| copies |" in markdown_table(both) and "copies" not in markdown_table(both, best_of_n=True).split("\n")[0]
    (line,) = comparison_lines(summary)
    assert "; times 1.00 (" in line and line.endswith(" with copies as failures")


def test_headline_when_the_first_stage_solved_nothing_starts_from_the_first_that_did(complete):
    summary = summarise(read_run(complete))
    nothing = {split: {**entry, "success_rate": 0.0} for split, entry in summary["stages"]["untrained"].items()}
    summary["stages"]["untrained"] = nothing
    head = headline(summary)
    assert (head["first"], head["last"], head["unsolved"]) == ("sft", "contrastive", ["untrained"])
    assert head["change"]["first"] == "sft"


def test_compact_table_when_a_stage_has_a_long_name_breaks_the_name_and_no_figure(complete, tmp_path):
    summary = summarise(read_run(complete))
    summary["stages"]["contrastive_without_exemplars"] = summary["stages"]["contrastive"]
    console = Console(width=80, record=True, file=open(tmp_path / "out", "w"))
    console.print(rich_table(summary, compact=True))
    assert "…" not in console.export_text()


@pytest.mark.parametrize("width", [80, 114, 140, 200])
def test_fitting_table_when_names_are_long_cuts_no_figure_at_any_width(complete, tmp_path, width):
    summary = summarise(read_run(complete))
    summary["stages"]["self_supervised_with_exemplars"] = summary["stages"]["contrastive"]
    console = Console(width=width, record=True, file=open(tmp_path / "out", "w"))
    print_table(console, fitting_table(console, summary))
    text = console.export_text()
    assert "…" not in text and ("p75" in text) == (width == 200)


@pytest.mark.parametrize(("width", "compact"), [(114, False), (80, True), (40, True)])
def test_terminal_tables_when_narrow_or_wide_fit_their_width(complete, tmp_path, width, compact):
    console = Console(width=width, record=True, file=open(tmp_path / "out", "w"))
    print_table(console, rich_table(summarise(read_run(complete)), compact=compact))
    text = " ".join(console.export_text().split())
    assert "…" not in text and "fine-tuning" in text and ("p75" in text) != compact


def test_headline_when_fine_tuning_was_assessed_compares_with_it(complete):
    summary = headline(summarise(read_run(complete)))
    assert (summary["first"], summary["last"]) == ("sft", "contrastive")
    assert summary["change"]["first"] == "sft"


def test_markdown_lines_when_a_cell_holds_bars_or_breaks_keep_one_line_a_row():
    assert markdown_lines(["a", "b"], [["x|y", "1\n2"]], right_aligned=[1]) == [
        "| a | b |",
        "|---|---:|",
        "| x\\|y | 1 2 |",
    ]


def test_closing_lines_when_a_name_has_spaces_and_quotes_are_commands_as_a_shell_reads_them(tmp_path):
    run = tmp_path / "it's my run"
    for folder in ("tb", "checkpoints/sft-final", "rollouts"):
        (run / folder).mkdir(parents=True)
    (run / "rollouts" / "a.parquet").touch()
    _, *lines = closing_lines(run, run / "report" / "index.html")
    assert [shlex.split(line.partition(":")[2]) for line in lines] == [
        ["tensorboard", "--logdir", str(run / "tb")],
        ["cudal1", "samples", str(run)],
        ["cudal1", "serve", f"policy={run}"],
    ]
