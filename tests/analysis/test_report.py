"""The report of a complete, a half-done and a damaged run: self-contained, and naming what is missing."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cudal1_ray.analysis import read_run, write_report
from cudal1_ray.analysis.candidates import references_of
from cudal1_ray.analysis.figure import INKS, spread_labels
from cudal1_ray.analysis.plots_exemplars import best_so_far, lineage
from cudal1_ray.analysis.plots_progress import progress_plot, role_shares
from cudal1_ray.analysis.run_data import RunData
from cudal1_ray.errors import UserError

SECTIONS = {
    "what",
    "headline",
    "results",
    "problems",
    "samples",
    "progress",
    "candidates",
    "techniques",
    "changes",
    "rejections",
    "selections",
    "machinery",
    "record",
}
FIGURES = {
    "stages",
    "progress",
    "distribution",
    "problems",
    "buffer",
    "lineage",
    "rejections",
    "health",
    "utilisation",
}
VOID = {
    "meta",
    "br",
    "hr",
    "img",
    "link",
    "input",
    "path",
    "use",
    "rect",
    "circle",
    "line",
    "ellipse",
    "polygon",
    "stop",
}


class Page(HTMLParser):
    """Collects ids, tags, attribute values, text, and tags that were left open or closed twice."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.words: list[str] = []
        self.figures_with_svg: set[str] = set()
        self.figure = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for key, value in attrs:
            if key == "id":
                self.ids.append(value)
                if tag == "figure":
                    self.figure = value.removeprefix("figure-")
            if key in ("href", "src", "xlink:href", "action", "data") or key.startswith("xmlns"):
                self.links.append(value)
        if tag == "svg":
            self.figures_with_svg.add(self.figure)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def page_of(folder: Path) -> Page:
    path = write_report(folder)
    assert path == folder / "report" / "index.html"
    return checked_page(path.read_text(encoding="utf-8"))


def checked_page(html: str) -> Page:
    """Return a report's page, after the checks that every report passes."""
    assert "http://" not in html and "https://" not in html and "@import" not in html
    page = Page(html)
    assert not page.unbalanced and not page.open
    assert "script" not in page.tags and "link" not in page.tags and "img" not in page.tags
    assert all(link.startswith("#") for link in page.links)
    assert len(page.ids) == len(set(page.ids)), "an id is used twice"
    assert SECTIONS <= set(page.ids)
    assert not any(ink in html for ink in INKS.values()), "a stand-in colour was left in a figure"
    return page


@pytest.fixture(scope="module")
def report_files(complete) -> dict[str, str]:
    """Return the files of the complete run's report, by name: seconds of drawing, once for the tests that read it."""
    path = write_report(complete)
    assert path == complete / "report" / "index.html"
    return {file.name: file.read_text(encoding="utf-8") for file in path.parent.iterdir()}


def test_report_when_a_run_is_complete_has_every_figure_and_section(report_files):
    page = checked_page(report_files["index.html"])
    assert page.figures_with_svg == FIGURES
    summary = json.loads(report_files["summary.json"])
    after = summary["stages"]["contrastive"]["held_out"]
    assert f"{after['geomean']:.2f}× after" in page.text
    for words in (
        "contrastive RL against supervised fine-tuning",
        "as 0.1 in the geometric mean",
        "temperature 0.8",
        "builds a dense 256 x 256 matrix & loops in Python <1.2x>",
        "one matrix-vector product",
        "product = torch.diag(a) @ b",
        "algorithmic change",
        "p = 0.62",
        "hyperparameter tamper",
        "learning_rate: 1.0e-05",
        "machine that wrote this report",
    ):
        assert words in page.text, words
    assert sorted(report_files) == ["index.html", "summary.json"]


def test_report_when_written_twice_differs_in_its_date_only(complete, report_files):
    first = report_files["index.html"].split("Written ")[0]
    assert write_report(complete).read_text().split("Written ")[0] == first


def test_report_when_there_are_only_metrics_has_their_figures(complete, tmp_path):
    shutil.copy(complete / "metrics.jsonl", tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "contrastive", "st')  # the process was killed while it wrote
    page = page_of(tmp_path)
    assert page.figures_with_svg == {"progress", "health", "utilisation"}
    for words in (
        "No stage has been assessed yet",
        "1 unreadable line skipped",
        "No accepted candidate",
        "no config.yaml",
        "The exemplar buffer holds no accepted candidate yet",
    ):
        assert words in page.text, words
    assert json.loads((tmp_path / "report" / "summary.json").read_text())["stages"] == {}


def test_report_when_a_run_has_just_begun_is_empty_and_other_folders_are_refused(tmp_path):
    with pytest.raises(UserError, match="holds no run"):
        write_report(tmp_path)
    assert not (tmp_path / "report").exists()
    (tmp_path / "config.yaml").write_text("name: just-begun\n")
    assert page_of(tmp_path).figures_with_svg == set()
    with pytest.raises(UserError, match="does not exist"):
        write_report(tmp_path / "nowhere")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.json").write_text("{}")
    with pytest.raises(UserError, match="`cudal1 report --sweep"):
        write_report(tmp_path / "sweep")


def test_report_when_metrics_hold_strange_values_is_written(tmp_path):
    rows = [
        {
            "stage": "sft",
            "step": 0,
            "loss": float("nan"),
            "step_s": 0,
            "busy_rollout": 3,
            "geomean_speedup": None,
        },
        {"stage": "sft", "step": 1, "success_rate": "high", "best_speedup": 0.0, "geomean_speedup": 0.0},
        {"step": 2, "loss": 1.0},
        {"stage": "sft", "step": 2, "loss": 10**400, "step_s": 10**400},
        {"stage": "sft", "step": 10**400, "loss": 1.0},
        {"stage": "warm<up>", "step": 0, "loss": 2.0},
        {"note": "no step"},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "[1, 2]\n\n")
    assessed = [
        {
            "stage": "sft",
            "split": "train",
            "problem_id": "<script>alert(1)</script> $x_1$",
            "index": 0,
            "status": "accepted",
            "speedup": 1e9,
        },
        {
            "stage": "sft",
            "split": "train",
            "problem_id": "b",
            "index": 0,
            "status": "accepted",
            "speedup": float("inf"),
        },
        {
            "stage": "sft",
            "split": "train",
            "problem_id": "d",
            "index": 10**400,
            "status": "accepted",
            "speedup": 10**400,
        },
        {
            "stage": "sft",
            "split": "train",
            "problem_id": "b",
            "index": 1,
            "status": "rejected",
            "reasons": None,
        },
        {
            "stage": "contrastive",
            "split": "held_out",
            "problem_id": "c",
            "status": "rejected",
            "speedup": 0.0,
        },
    ]
    (tmp_path / "assessments.jsonl").write_text("".join(json.dumps(row) + "\n" for row in assessed))
    (tmp_path / "config.yaml").write_text("a: [unclosed\n")
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "half.parquet").write_bytes(b"PAR1 and no more")
    page = page_of(tmp_path)
    assert "<script>alert(1)" in page.text and "script" not in page.tags
    assert "half.parquet" in page.text and "not readable as a configuration" in page.text


def test_report_when_fields_are_of_another_type_leaves_their_rows_out_or_the_fields(tmp_path):
    row = {"stage": "sft", "split": "train", "problem_id": "a", "index": 0, "status": "rejected", "speedup": 0.0}
    files = {
        "metrics": [
            {"stage": ["sft"], "step": 1},
            {"stage": "sft", "step": {}},
            {"stage": "sft", "step": 0, "loss": 1.0},
        ],
        "assessments": [row | {"reasons": 5, "exemplar_ids": 3}, row | {"index": [1]}, row | {"problem_id": {}}],
        "assessments_during": [{"stage": "sft", "split": "train", "samples": None}],
        "selections": [{"stage": "sft", "step": 1, "exemplar_ids": 3}],
    }
    for name, rows in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = page_of(tmp_path)
    assert "metrics.jsonl: 2 unreadable lines skipped" in page.text
    assert "assessments.jsonl: 2 unreadable lines skipped" in page.text and "selections.jsonl" not in page.text


@pytest.mark.parametrize("text", ["", "- a", "a: [", "policy: 3", "1: a\nb: 2"])
def test_config_when_it_holds_no_settings_is_noted_as_unreadable(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    run = read_run(tmp_path)
    assert run.config == {} and run.config_text == text
    assert [note.partition(" (")[0] for note in run.notes] == ["config.yaml is not readable as a configuration"]
    write_report(tmp_path)


def test_references_when_read_come_from_the_prompts(complete):
    references = references_of(read_run(complete))
    assert len(references) == 12
    assert all(source.startswith("import torch") and "class Model(" in source for source in references.values())


def test_lineage_when_parents_are_known_has_best_so_far():
    rows = [
        {"exemplar_id": "a", "problem_id": "p", "speedup": 1.0, "step": 0, "parent_ids": []},
        {"exemplar_id": "b", "problem_id": "p", "speedup": 0.0, "step": 1, "parent_ids": ["a"]},
        {"exemplar_id": "c", "problem_id": "p", "speedup": 3.0, "step": 3, "parent_ids": ["b", "a", "gone"]},
        {"exemplar_id": "d", "problem_id": "p", "speedup": 2.0, "step": 4, "parent_ids": ["d", "c"]},
    ]
    assert lineage(rows) == [("c", 0, None), ("b", 1, "c"), ("a", 1, "c")]
    assert lineage(rows, "d") == [("d", 0, None), ("c", 1, "d"), ("b", 2, "c"), ("a", 2, "c")]
    steps, best = best_so_far(rows)["p"]
    assert steps.tolist() == [0, 3, 4] and best.tolist() == [1.0, 3.0, 3.0]


def test_role_shares_when_a_run_is_complete_are_between_0_and_1(complete):
    shares = role_shares(read_run(complete))
    assert list(shares) == ["rollout", "evaluation", "learner", "weight sync"]
    assert all(((share >= 0) & (share <= 1)).all() for _, share in shares.values())
    placed = spread_labels([0.0, 0.1, 5.0], 1.0)
    assert placed == pytest.approx([-0.45, 0.55, 5.0])


def test_busy_seconds_when_a_role_has_several_members_are_shared_out(tmp_path):
    (tmp_path / "config.yaml").write_text("cluster:\n  evaluator:\n    count: 4\n")
    row = {"stage": "contrastive", "step": 1, "step_s": 10.0, "busy_evaluation": 20.0, "busy_learner": 5.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    shares = role_shares(read_run(tmp_path))
    assert shares["evaluation"][1].tolist() == [0.5] and shares["learner"][1].tolist() == [0.5]


def test_exemplars_when_a_manifest_is_there_are_those_it_counts(complete, tmp_path):
    shutil.copytree(complete / "exemplars", tmp_path / "exemplars")
    shutil.copy(tmp_path / "exemplars" / "shard-0.parquet", tmp_path / "exemplars" / "shard-unnamed.parquet")
    assert len(read_run(tmp_path).exemplars) == 120
    manifest = {"format": 1, "shards": [["shard-0.parquet", 7]]}
    (tmp_path / "exemplars" / "manifest.json").write_text(json.dumps(manifest))
    assert len(read_run(tmp_path).exemplars) == 7


def test_progress_when_the_last_stage_has_one_step_ends_at_that_steps_value(tmp_path):
    steps = [("sft", step, 0.1, 0.0) for step in range(5)] + [("contrastive", 0, 3.0, 1.0)]
    names = ("stage", "step", "geomean_speedup", "success_rate")
    drawn = progress_plot(RunData(tmp_path, metrics=[dict(zip(names, row, strict=True)) for row in steps])).svg
    assert ">geometric mean 3.00×<" in drawn and ">success 100%<" in drawn
