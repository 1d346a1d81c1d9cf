"""What is recorded of a run's samples."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.training.recorded_run import record

# Problem, status, reward, advantage: GRPO divides the rewards of each group by their deviation, however small.
ROWS = [
    ("a", "accepted", 1.2, 1.0),
    ("a", "rejected", 0.2, -1.0),
    ("b", "rejected", 0.2, 1.0),
    ("b", "rejected", 0.1, -1.0),
    ("c", "accepted", 1.2, 0.0),
    ("c", "rejected", None, None),  # void: it was not judged
]


def test_record_when_groups_differ_tells_where_the_advantages_lie(tmp_path):
    rollouts = tmp_path / "rollouts"
    rollouts.mkdir()
    rows = [
        {
            "problem_id": problem, "status": status, "reward": reward, "advantage": advantage, "reasons": [],
            "own_kernel": True, "own_kernel_share": 1.0, "copied": False, "exemplar_ids": ["e"], "speedup": 1.0,
            "speedup_low": 1.0,
        }
        for problem, status, reward, advantage in ROWS
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), rollouts / "contrastive-000001.parquet")
    (tmp_path / "metrics.jsonl").write_text("")
    speedups = {"accepted": 10.0, "rejected": 0.0}
    assessed = [
        {"stage": "sft", "split": "train", "status": status, "copied": True, "speedup": speedups[status]}
        for _, status, *_ in ROWS
    ]
    (tmp_path / "assessments.jsonl").write_text("".join(json.dumps(row) + "\n" for row in assessed))
    counts = {"stage": "sft", "split": "train", "samples": 6, "accepted": 2, "copies": 2}
    (assessment,) = record(tmp_path)["assessments"]
    # A failure counts as 0.1: two of 10 and four of 0.1.
    assert assessment == counts | {"geomean": pytest.approx(10 ** (-2 / 6), abs=1e-4)}
    advantages = record(tmp_path)["advantages"]
    assert advantages["groups"] == {"none_right": 0.3333, "some_right": 0.3333, "all_right": 0.3333}
    assert advantages["as_trained"] == {"none_right": 0.5, "some_right": 0.5, "all_right": 0.0}
    assert advantages["centred"] == {"none_right": 0.0909, "some_right": 0.9091, "all_right": 0.0}


def test_record_when_nothing_was_sampled_has_no_advantages(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    assert record(tmp_path)["advantages"] == {}
