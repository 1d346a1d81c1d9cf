"""What several devices measured, in the table of own kernels that the package ships."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.corpus.collect import OUT, collect, comparison, measured_by_device, merged_speedups, write
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import Verdict
from cudal1_ray.evaluation.verdict import candidate_hash
from cudal1_ray.problems.kernelbench import kernelbench_id

CODES = ["a = 1", "b = 2", "a = 1"]  # some problems share a code
PROBLEMS = [f"kernelbench-l1-p{number:03d}" for number in (1, 2, 3)]
ROWS = [
    {"key": f"l1-{n:03d}-x", "level": 1, "problem_id": n, "code": code, "speedup": 2.0, "hardware": "A"}
    for n, code in enumerate(CODES, start=1)
]


def verdict(place: int, speedup: float, hardware: str = "B") -> Verdict:
    fields = {"hardware": hardware, "candidate_hash": candidate_hash(CODES[place]), "speedup": speedup or 1.0}
    if not speedup:
        return Verdict.rejected(PROBLEMS[place], "wrong_output", **fields)
    return Verdict(PROBLEMS[place], "accepted", credited_speedup=speedup, **fields)


def evaluated(path, *verdicts: Verdict):
    """Write verdicts as `cudal1 evaluate --out` does."""
    rows = [verdict.to_dict() for verdict in verdicts]
    lines = [json.dumps({"id": "x", "verdict": row.pop("status"), **row}) + "\n" for row in rows]
    path.write_text("".join(lines))
    return path


def trained(path, *verdicts: Verdict):
    """Write verdicts as a training run does."""
    rows = [{"scope": "training", "key": str(n), "verdict": v.to_dict()} for n, v in enumerate(verdicts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_speedups_when_several_runs_measured_them_are_their_geometric_mean(tmp_path):
    first = evaluated(tmp_path / "1.jsonl", verdict(0, 1.0), verdict(1, 3.0), verdict(2, 5.0, "C"), verdict(0, 2.0))
    second = trained(tmp_path / "2.jsonl", verdict(0, 4.5), verdict(1, 0.0))
    measured = measured_by_device(ROWS, [first, second])
    assert measured == {"B": {"l1-001-x": [2.0, 4.5], "l1-002-x": [3.0, 0.0]}, "C": {"l1-003-x": [5.0]}}
    merged = merged_speedups(ROWS, measured)
    assert merged == [{"A": 2.0, "B": 3.0}, {"A": 2.0}, {"A": 2.0, "C": 5.0}]
    (count, agreement, ratio) = comparison(ROWS, "B", measured["B"])
    assert count == "B: every measurement accepts 1 of 2 candidates"
    assert "of 1 measured again 0.0% within 2%" in agreement and "at most 125% apart" in agreement
    assert "median 1.500, 0.0% within 5%" in ratio


def test_speedups_when_added_leave_other_devices_and_columns_as_they_were(tmp_path):
    path, table = tmp_path / "table.parquet", pa.Table.from_pylist(ROWS)
    write(table, merged_speedups(ROWS, {"B": {"l1-001-x": [3.0], "l1-002-x": [4.0]}}), path)
    again = pq.read_table(path)
    assert again.drop_columns(["speedups"]) == table
    later = merged_speedups(again.to_pylist(), {"C": {"l1-001-x": [6.0]}, "B": {"l1-002-x": [0.0]}, "A": {}})
    assert later == [{"A": 2.0, "B": 3.0, "C": 6.0}, {"A": 2.0}, {"A": 2.0}]
    write(again, later, path)
    assert pq.read_table(path).column_names == [*table.column_names, "speedups"]


def test_verdicts_when_none_is_of_the_table_name_their_file(tmp_path):
    other = evaluated(tmp_path / "other.jsonl", Verdict("kernelbench-l1-p002", "accepted", candidate_hash="0"))
    for file in (other, tmp_path / "absent.jsonl"):
        with pytest.raises(UserError, match=f"{file.name}: no verdict of a candidate of the table"):
            measured_by_device(ROWS, [file])


def test_table_when_few_candidates_are_evaluated_keeps_the_rows_of_the_others(tmp_path):
    before = pq.read_table(OUT).to_pylist()
    first, second, stale = (dict(row) for row in before[:3])
    stale["code"] += "# changed"
    fields = {"candidate_hash": candidate_hash(first["code"]), "speedup": 9.0, "speedup_low": 8.0, "speedup_high": 10.0}
    problem = kernelbench_id(first["level"], first["problem_id"])
    new = Verdict(problem, "accepted", credited_speedup=9.0, runtime_ms=1.0, hardware="B", own_kernel=True, **fields)
    row = {"id": first["key"], "verdict": "accepted", **new.to_dict()}
    (tmp_path / "verdicts.jsonl").write_text(json.dumps(row) + "\n")
    rows, outcomes = collect([tmp_path / "verdicts.jsonl"], "scaled", "2.11.0", "abc", [first, second, stale])
    assert [row["key"] for row in rows] == [first["key"], second["key"]]
    assert rows[0]["speedup"] == 9.0 and rows[0]["hardware"] == "B" and rows[1] == second
    assert (outcomes["accepted"], outcomes["evaluated before"]) == (1, 1)
    assert merged_speedups(rows, {}) == [{"B": 9.0}, dict(second["speedups"])]
