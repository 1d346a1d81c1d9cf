"""A sweep's report: settings that differ by more than chance, by runs and not by samples; nothing unfinished."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy import stats
from synthetic_run import write_run

from cudal1_ray.analysis.run_data import RunData
from cudal1_ray.analysis.sweep import Setting, compare_settings, summarise_sweep
from cudal1_ray.analysis.sweep_page import present_sweep, settings_plot, sweep_html, sweep_markdown
from cudal1_ray.errors import UserError


def write_sweep(folder: Path, levels: dict[str, list[float]], failed: tuple[str, ...] = (), seeds=(1, 2, 3)) -> Path:
    """Return a sweep over exemplars and seed; `levels` adds to every log speedup of one setting, seed by seed."""
    folder.mkdir(parents=True)
    rows = []
    for number, (label, by_seed) in enumerate(levels.items()):
        for seed, level in zip(seeds, by_seed, strict=False):
            job = f"exemplars={label},seed={seed}"
            write_run(folder / job, seed=100 * number + seed, level=level, problems=9, samples=4)
            rows += [row(job, label, seed, "started"), row(job, label, seed, "finished")]
    rows += [row(job, job.split(",")[0].split("=")[1], 9, "failed") for job in failed]
    (folder / "jobs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows) + '{"job": "cut sho')
    (folder / "sweep.json").write_text(json.dumps({"varied": ["exemplars", "seed"], "shared": []}))
    return folder


def row(job: str, label: str, seed: int, state: str) -> dict:
    return {"job": job, "settings": {"exemplars": label, "seed": str(seed)}, "overrides": [], "state": state}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> Path:
    levels = {"none": [-0.9, -0.8, -0.85], "best_worst": [0.0, 0.05, 0.1], "bucket": [0.02, 0.08, 0.1]}
    return write_sweep(tmp_path_factory.mktemp("runs") / "which", levels, failed=("exemplars=island,seed=9",))


@pytest.fixture(scope="module")
def summary(sweep) -> dict:
    return summarise_sweep(sweep)


def test_settings_when_summarised_are_means_over_seeds_with_their_interval(summary):
    assert list(summary["settings"]) == ["none", "best_worst", "bucket"] and summary["stage"] == "contrastive"
    assert summary["unfinished"] == {"exemplars=island,seed=9": "failed"}
    for setting in summary["settings"].values():
        assert setting["seeds"] == ["1", "2", "3"]
        for entry in setting["splits"].values():
            logs = np.log(list(entry["geomean_per_seed"].values()))
            assert entry["geomean"] == pytest.approx(math.exp(logs.mean()))
            half = stats.t.ppf(0.975, 2) * logs.std(ddof=1) / math.sqrt(3)
            bounds = [math.exp(logs.mean() - half), math.exp(logs.mean() + half)]
            assert entry["intervals"]["geomean"] == pytest.approx(bounds, rel=1e-3)


def test_comparison_when_seeds_are_shared_is_the_paired_t_test_over_them(summary):
    by_pair = {(c["first"], c["second"], c["split"]): c for c in summary["comparisons"]}
    assert len(by_pair) == 6
    for (first, second, split), row in by_pair.items():
        logs = [
            np.log(list(summary["settings"][s]["splits"][split]["geomean_per_seed"].values())) for s in (first, second)
        ]
        expected = stats.ttest_rel(logs[1], logs[0])
        assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-6) and row["test"] == "paired t"
        assert math.log(row["ratio"]) == pytest.approx((logs[1] - logs[0]).mean())
        assert (row["low"] > 1 or row["high"] < 1) == (row["p_value"] < 0.05)  # interval and test agree
    # A difference of exp(0.9) is seen with three seeds; one of nothing is not.
    assert by_pair["none", "bucket", "train"]["low"] > 1.5
    assert by_pair["best_worst", "bucket", "train"]["p_adjusted"] > 0.05


def test_holm_correction_when_applied_counts_the_tests_of_a_split(summary):
    for split in ("train", "held_out"):
        tests = [c for c in summary["comparisons"] if c["split"] == split]
        ordered = sorted(tests, key=lambda c: c["p_value"])
        least = 0.0
        assert len(ordered) == 3
        for place, row in enumerate(ordered):
            least = max(least, min(1.0, row["p_value"] * (len(ordered) - place)))
            assert row["p_adjusted"] == pytest.approx(least)


def test_p_values_when_settings_differ_by_seeds_only_are_small_at_their_rate():
    """Settings that differ in their seeds only: p values below 0.1 come up about one time in ten."""
    rng = np.random.default_rng(0)

    def run() -> RunData:
        level = rng.normal(0, 0.3)  # what the seed did to the whole run; its samples scatter much less
        rows = [(f"p{i}", float(np.exp(level + rng.normal(0, 0.1)))) for i in range(8)]
        fixed = {"stage": "contrastive", "split": "train", "status": "accepted"}
        return RunData(Path(), assessments=[{**fixed, "problem_id": p, "speedup": s} for p, s in rows])

    low = 0
    for _ in range(200):
        settings = [Setting(label, {seed: run() for seed in "123"}) for label in ("a", "b")]
        (comparison,) = compare_settings(settings, "contrastive", "train")
        low += comparison.p_value < 0.1
    assert 8 <= low <= 34  # binomial(200, 0.1) is outside once in some thousands


def test_settings_when_their_seeds_differ_are_not_paired(tmp_path):
    folder = write_sweep(tmp_path / "a", {"x": [0.0, 0.1]}, seeds=(1, 2))
    other = write_sweep(tmp_path / "b", {"y": [0.5, 0.7]}, seeds=(3, 4))
    for job in other.glob("exemplars=*"):
        job.rename(folder / job.name)
    lines = (other / "jobs.jsonl").read_text().splitlines()[:-1]
    whole = (folder / "jobs.jsonl").read_text().splitlines()[:-1]
    (folder / "jobs.jsonl").write_text("\n".join([*whole, *lines]) + "\n")
    rows = summarise_sweep(folder)["comparisons"]
    assert {row["split"] for row in rows} == {"train", "held_out"}
    for row in rows:
        assert row["pairs"] == 0 and row["test"] == "Welch t" and row["low"] < row["ratio"] < row["high"]


def test_sweep_when_it_has_one_seed_has_a_table_and_no_test(tmp_path):
    summary = summarise_sweep(write_sweep(tmp_path / "one", {"x": [0.0], "y": [0.3]}))
    assert all(c["p_value"] is None and c["low"] is None for c in summary["comparisons"])
    assert "–" in sweep_markdown(summary) and settings_plot(summary).svg


def test_sweep_page_when_a_run_is_missing_names_it_and_needs_no_other_file(summary):
    html = sweep_html(summary)
    assert html.count("<svg") == 2 and "island" in html and "best worst against none" in html
    assert "http://" not in html and "https://" not in html


def test_present_when_a_sweep_is_finished_writes_and_prints_it(sweep):
    console = Console(width=130, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    page = present_sweep(sweep, console)
    text = console.export_text()
    assert page.read_text().startswith("<!doctype html>")
    assert "bucket against none" in text and "not in the table: exemplars=island,seed=9 (failed)" in text
    assert json.loads((sweep / "report" / "sweep.json").read_text())["stage"] == "contrastive"
    assert "| setting |" in (sweep / "report" / "table.md").read_text()


def test_summary_when_there_is_no_sweep_or_no_finished_run_says_which(tmp_path):
    with pytest.raises(UserError, match="holds no sweep"):
        summarise_sweep(tmp_path)
    folder = write_sweep(tmp_path / "none", {}, failed=("exemplars=bucket,seed=9",))
    with pytest.raises(UserError, match="no run of this sweep is finished"):
        summarise_sweep(folder)


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("sweep.json", '{"varied": ["se', "sweep.json: cannot be read as JSON"),
        ("sweep.json", "[1]", "sweep.json: holds no JSON object"),
        ("sweep.json", '{"varied": "seed", "shared": []}', "sweep.json: varied must be a list of texts"),
        ("sweep.json", '{"varied": ["seed"], "shared": [1]}', "sweep.json: shared must be a list of texts"),
        ("jobs.jsonl", '{"job": "a"}\n', "jobs.jsonl, row 1: settings must be an object"),
        ("jobs.jsonl", '{"job": 1, "settings": {}, "overrides": [], "state": "failed"}\n', "row 1: job must be a text"),
        ("jobs.jsonl", "no JSON\n", "jobs.jsonl, line 1: not JSON"),
    ],
)
def test_sweep_when_a_file_of_it_is_damaged_names_file_and_field(tmp_path, name, text, named):
    folder = write_sweep(tmp_path / "damaged", {}, failed=("exemplars=bucket,seed=9",))
    (folder / name).write_text(text)
    with pytest.raises(UserError, match=named):
        summarise_sweep(folder)


def test_settings_when_they_share_no_problem_are_not_compared():
    assert compare_settings([], "contrastive", "train") == []
