"""Stage 1 on a corpus of a user's own, as a whole run: recorded verdicts count, the rest is evaluated, lengths hold; no
engine is started, and no exemplar measured, before a stage needs it.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cudal1_ray.evaluation.hardware import processor_name
from cudal1_ray.exemplars import ExemplarBuffer
from cudal1_ray.problems import load_corpus
from tests.training.test_runs import finish, rows, start

pytestmark = pytest.mark.timeout(2400)


def stage_1_of(tmp_path):
    """Run stage 1 on a corpus, which is also the run's seeds; return the run's folder and its settings.

    The corpus has four candidates with a speedup, one of them too long, and one without.
    """
    entries = [entry for entry in load_corpus() if entry.problem_id == "swish_chain_1"]
    recorded = [entry for entry in entries if entry.expected == "accepted"][:3]
    unknown = [entry for entry in entries if entry.expected == "rejected"][:1]
    code = [entry.code for entry in recorded + unknown] + [recorded[0].code + "\n# padding" * 400]
    count = len(code)
    table = {
        "problem": ["swish_chain_1"] * count,
        "code": code,
        "analysis": ["It is fast."] * count,
        "design": ["Fuse."] * count,
        "speedup": [1.5, 1.2, 1.1, None, 1.4],
        "hardware": ["NVIDIA H100"] * count,
    }
    pq.write_table(pa.table(table), tmp_path / "mine.parquet")
    source = str(tmp_path / "mine.parquet")
    overrides = ["sft.epochs=1", "contrastive.steps=1", f"sft.corpus={source}", f"exemplars.seed_from={source}"]
    overrides += ["assessment.enabled=false", "prompting.strip_comments=false", "rollout=transformers"]
    stage_1 = [*overrides, "stage=sft", "cluster.num_cpus=3"]  # with an engine the roles want 4
    output = " ".join(finish(start(tmp_path, *stage_1)).split())
    run = tmp_path / "run"
    assert "1 of 4 accepted candidates left out" in output
    (started,) = re.findall(r"actors started in .*?\)", output)
    assert "exemplars" in started and "rollout" not in started
    assert "sft: idle evaluation" in output and "measuring" not in output
    assert [row["verdict"]["status"] for row in rows(run / "verdicts.jsonl")] == ["rejected"]
    assert [row["stage"] for row in rows(run / "metrics.jsonl")] == ["sft"]
    seeds = {exemplar.speedup for exemplar in ExemplarBuffer.open(run / "exemplars.nvidia-h100")}
    assert seeds == {1.5, 1.2, 1.1}  # the padded one is the first again, up to comments
    assert len(ExemplarBuffer.open(run / "exemplars")) == 0
    return run, overrides


@pytest.mark.slow
def test_stage_1_when_on_a_parquet_corpus_evaluates_what_has_no_verdict_and_starts_no_engine(tmp_path):
    stage_1_of(tmp_path)


@pytest.mark.long
def test_stage_3_when_it_follows_a_stage_1_without_engine_has_its_weights_and_measures_the_seeds_once(tmp_path):
    run, overrides = stage_1_of(tmp_path)
    stage_3 = [*overrides, "stage=contrastive"]
    output = finish(start(tmp_path, *stage_3))
    assert f"measuring 3 exemplars again on {processor_name()}" in output and "rollout" in output
    metrics = rows(run / "metrics.jsonl")
    assert [row["stage"] for row in metrics] == ["sft", "contrastive"] and metrics[1]["drift_mean_abs"] < 1e-4
    keys = [row["key"] for row in rows(run / "verdicts.jsonl")]
    assert len(keys) == len(set(keys)) >= 4
    assert len(ExemplarBuffer.open(run / "exemplars")) >= 1
    output = finish(start(tmp_path, *stage_3, "contrastive.steps=2"))
    assert "measuring" not in output and "continuing from" in output
