"""Stage 1 on a corpus of a user's own, as a whole run: recorded verdicts count, the rest is evaluated, lengths hold."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cudal1_ray.evaluation.hardware import processor_name
from cudal1_ray.exemplars import ExemplarBuffer
from cudal1_ray.problems import load_corpus
from tests.training.test_runs import finish, rows, start

pytestmark = pytest.mark.timeout(2400)


@pytest.mark.slow
def test_stage_1_when_on_a_parquet_corpus_evaluates_what_has_no_verdict_and_drops_long_candidates(tmp_path):
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
        "hardware": [processor_name()] * count,  # else the seeds would be measured again
    }
    pq.write_table(pa.table(table), tmp_path / "mine.parquet")
    source = str(tmp_path / "mine.parquet")
    overrides = ["stage=sft", "sft.epochs=1", f"sft.corpus={source}", f"exemplars.seed_from={source}"]
    overrides += ["assessment.enabled=false", "prompting.strip_comments=false"]
    output = finish(start(tmp_path, *overrides, "rollout=transformers"))  # stage 1 generates nothing
    run = tmp_path / "run"
    assert "1 of 4 accepted candidates left out" in " ".join(output.split())
    assert [row["verdict"]["status"] for row in rows(run / "verdicts.jsonl")] == ["rejected"]
    assert [row["stage"] for row in rows(run / "metrics.jsonl")] == ["sft"]
    seeded = {exemplar.code: exemplar.speedup for exemplar in ExemplarBuffer.open(run.joinpath("exemplars"))}
    assert set(seeded.values()) == {1.5, 1.2, 1.1}  # the padded one is the first again, up to comments
