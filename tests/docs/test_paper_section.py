"""The paper's table on the documentation's pages: from no result, and from one with arms that are missing."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.common.results import write_result
from benchmarks.paper import figures, winners
from benchmarks.paper.collect import collect
from cudal1_ray.problems import CorpusEntry
from tests.benchmarks.paper.tiny_table import write_table

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def docs(tmp_path, monkeypatch):
    """Return the module that makes the pages, with an empty folder of the table's results."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    monkeypatch.setattr(figures, "DRAWS", 200)
    generate = importlib.import_module("generate")
    monkeypatch.setattr(generate.paper_table, "FOLDER", tmp_path / "results")
    return generate


@pytest.fixture
def result(docs, tmp_path):
    """Return a result of the arms base, stage1 and bucket, and an older one."""
    folder = docs.paper_table.FOLDER / "arms"
    folder.mkdir(parents=True)
    for date, seeds in (("2026-11-01", (1,)), ("2026-11-02", (1, 2))):
        runs = write_table(tmp_path / date, {"base": 0.5, "stage1": 1.0, "bucket": 2.0}, seeds)
        file = folder / f"{date}-h100-abcdef0.json"
        write_result(file, collect([runs]), {})
    return file


def test_section_when_there_is_no_result_says_not_yet_run(docs):
    assert docs.paper_table.section() == "Not yet run.\n"
    assert docs.paper_table.front_rows("results/") == [] and docs.paper_table.curves() is None
    assert "learning curves" not in docs.front_table("results/")


def test_section_when_arms_are_missing_has_the_others_and_the_curves(docs, result):
    text = docs.paper_table.section()
    assert text.startswith(
        "![learning curves of every arm](learning-curves.svg)\n\n`arms/2026-11-02-h100-abcdef0.json`"
    )
    assert (
        re.search(r"^Not yet run: .*; \+ GRPO without contrast; ", text, re.M)
        and "| + contrastive, bucket | 1, 2; 3 not" in text
    )
    assert docs.paper_table.drawn_from(docs.paper_table.curves()) == "arms/2026-11-02-h100-abcdef0.json"


@pytest.mark.parametrize("gains", [{"base": 1.0, "stage1": 1.0}, {"bucket": 2.0}], ids=["no-last", "no-earlier"])
def test_front_page_when_one_side_is_not_assessed_shows_nothing_of_the_table(docs, result, tmp_path, gains):
    write_result(result, collect([write_table(tmp_path / "part", gains, (1,))]), {})
    text = docs.front_table("results/")
    assert "[arms," not in text and "learning-curves" not in text


def test_front_page_when_an_arm_is_missing_shows_the_others_and_the_seeds(docs, result, tmp_path):
    write_result(result, collect([write_table(tmp_path / "part", {"base": 0.5, "bucket": 2.0}, (1,))]), {})
    text = docs.front_table("results/")
    assert "a failure counted as 0.1x | base model 0.50x; contrastive RL 2.00x | H100 |" in text
    assert "samples accepted | base model 50% (1 seed); contrastive RL 50% (1 seed) | H100 |" in text
    parts = [tmp_path / "part", write_table(tmp_path / "more", {"bucket": 2.0}, (2,))]
    write_result(result, collect(parts), {})
    assert "base model 50% (1 seed); contrastive RL 50% (2 seeds) |" in docs.front_table("results/")
    kinds = {"train": {"geomean": 0.5}, "train with exemplars": {"geomean": 2.0}}
    assert docs.paper_table._geomeans("RL", kinds) == [("RL (shown earlier kernels)", 2.0)]
    kinds[docs.paper_table.CONTROL] = {"geomean": 1.0}
    assert docs.paper_table._geomeans("RL", kinds)[0] == ("before RL (shown earlier kernels)", 1.0)


def test_front_page_when_the_table_is_whole_shows_two_rows_and_one_plot(docs, result, tmp_path):
    gains = {"base": 0.5, "stage1": 1.0, "grpo": 1.0, "bucket": 2.0}
    write_result(result, collect([write_table(tmp_path / "whole", gains, (1, 2, 3))]), {})
    text = docs.front_table("results/")
    before = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| ")]
    assert "stage 1 1.00x; GRPO without contrast 1.00x; contrastive RL 2.00x | H100 | [arms, 2026-11-02](res" in text
    assert "stage 1 50% (3 seeds); GRPO without contrast 50% (3 seeds); contrastive RL 50% (3 seeds) | H100 |" in text
    assert text.count("[arms,") == 2 and text.count("(docs/learning-curves.svg)") == 1
    page = docs.replace_marked(ROOT / "README.md", {"front": text})
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) == len(before) and len(page.splitlines()) <= 120 and len(page.split()) <= 1200


def test_picture_when_of_an_older_result_is_not_current(docs, result, tmp_path):
    picture = docs.paper_table.curves()
    (file := tmp_path / "learning-curves.svg").write_text(picture.replace("font-size: 8px", "font-size: 9px"))
    assert docs.is_current(file, picture)
    file.write_text(picture.replace("2026-11-02", "2026-11-01"))
    assert not docs.is_current(file, picture)


def test_section_when_winners_were_measured_again_counts_them_by_baseline(docs, result):
    schema = docs.paper_table.WINNERS
    low = {"a": 1.2, "b": 0.9, "c": 1.5, "d": 1.5}
    baselines = {"a": [("compile", 1.1)], "b": [("compile", 1.3)], "c": [], "d": [("compile", 1.02)]}
    of_intervals = {"b": [("compile", 1.25)], "d": [("compile", 0.98)]}
    rows = [
        {
            "problem_id": name,
            "device": "an H100",
            "speedup": 2.0,
            "speedup_low": low[name],
            "baselines": baselines[name],
            "baselines_low": of_intervals.get(name),
        }
        for name in "abcd"
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), result.parent / "winners-h100.parquet")
    text = docs.paper_table.section()
    assert "of each problem, an H100, sizes not recorded, `arms/winners-h100.parquet`" in text
    assert "| eager | 4 | 3 | 2.00x |\n| compile | 3 | 2 | 1.10x |\n| each of these | 3 | 1 | 0.98x |" in text
    assert "Faster than each of these on 1 of 2 problems asked in stage 3 (50%); a third is the aim." in text
    assert "Not measured, of these: 1 against compile_reduce_overhead, 1 against cuda_graph, 1 against tuned" in text
    assert "the corpus" not in text  # it has no kernels for these problems


def test_winners_when_the_corpus_has_kernels_that_their_device_measured_are_compared_with_the_fastest():
    kernel = CorpusEntry("a", "a/1", "", "", "", "", "accepted", speedup=3.0, hardware="an H100")
    corpus = [kernel, replace(kernel, speedup=2.0, speedups={"an H200": 1.0}), replace(kernel, problem_id="b")]
    winner = {"sizes": "scaled", "speedup": 2.0, "speedup_low": 1.5, "device": "an H200"}
    rows = [winner | {"problem_id": name} for name in "abc"]
    assert winners.against_corpus(rows, corpus) == [["the corpus's fastest kernel", "1", "1", "2.00x"]]
    rows[0] |= {"speedup": 2.4, "device": "an H100"}
    assert winners.against_corpus(rows, corpus) == [["the corpus's fastest kernel", "1", "0", "0.80x"]]
    assert winners.against_corpus([row | {"sizes": "paper"} for row in rows], corpus) == []
