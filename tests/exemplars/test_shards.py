"""The buffer's files: readable by others as they are, and readable when a part of them is missing or old."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer
from cudal1_ray.exemplars.codes import BLOCK_ROWS, Codes
from cudal1_ray.exemplars.parents import ParentLists
from cudal1_ray.exemplars.segment import FEATURES, SCHEMA, Segment, regroup
from cudal1_ray.exemplars.storage import OpenShard

EXEMPLARS = [
    Exemplar.new(
        f"p{n % 2}",
        f"def forward(x):\n    return x @ x + {n}  # {'é' * n}\n",
        0.0 if n % 5 == 4 else 1.0 + n / 10,
        policy_version=n // 10,
        step=n,
        reasons=("timeout", "crash") if n % 5 == 4 else (),
        detail="it hangs" if n % 5 == 4 else "",
    )
    for n in range(50)
]


@pytest.fixture
def folder(tmp_path):
    buffer = ExemplarBuffer.open(tmp_path, shard_rows=20)
    buffer.insert(EXEMPLARS)
    buffer.save()
    return tmp_path


def codes_files(folder):
    return sorted(folder.glob("*.codes.arrow"))


def with_pandas(files):
    pandas = pytest.importorskip("pandas")
    return pandas.concat(map(pandas.read_parquet, files)).sort_values("step").to_dict("list")


def with_polars(files):
    polars = pytest.importorskip("polars")
    return polars.read_parquet(files).sort("step").to_dict(as_series=False)


def with_duckdb(files):
    duckdb = pytest.importorskip("duckdb")
    rows = duckdb.read_parquet([str(file) for file in files]).order("step").to_arrow_table()
    return rows.to_pydict()


@pytest.mark.parametrize("read", [with_pandas, with_polars, with_duckdb])
def test_shards_when_read_by_other_tools_are_plain_parquet(read, folder):
    table = read(sorted(folder.glob("*.parquet")))
    assert list(table) == SCHEMA.names
    assert table["code"] == [e.code for e in EXEMPLARS]
    assert table["speedup"] == [e.speedup for e in EXEMPLARS]
    assert [tuple(each) for each in table["reasons"]] == [e.reasons for e in EXEMPLARS]
    assert table["sketch"] == [e.features.sketch for e in EXEMPLARS]


def test_shards_when_gone_back_hold_no_row_that_was_cut(folder):
    buffer = ExemplarBuffer.open(folder, {"generation": 1, "rows": 33}, shard_rows=20)
    buffer.save()
    steps = [step for file in folder.glob("*.parquet") for step in pq.read_table(file)["step"].to_pylist()]
    assert sorted(steps) == list(range(33))
    assert list(ExemplarBuffer.open(folder)) == EXEMPLARS[:33]


@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "another"])
def test_shard_when_its_codes_file_is_lost_is_read(folder, damage):
    files = codes_files(folder)
    others = [file.read_bytes() for file in files[1:] + files[:1]]
    for file, other in zip(files, others, strict=True):
        content = file.read_bytes()
        file.unlink()
        if damage == "cut":
            file.write_bytes(content[: len(content) // 2])
        elif damage == "empty":
            file.write_bytes(b"")
        elif damage == "another":
            file.write_bytes(other)
    assert list(ExemplarBuffer.open(folder)) == EXEMPLARS


def test_shard_when_damaged_after_opening_names_the_file(folder):
    buffer = ExemplarBuffer.open(folder)
    for file in codes_files(folder):
        with open(file, "r+b") as opened:
            opened.truncate(16)
    with pytest.raises(UserError, match=r"codes\.arrow is damaged"):
        list(buffer)


def test_reader_when_the_writer_merged_its_shards_reads_on(tmp_path):
    writer = ExemplarBuffer.open(tmp_path)
    writer.insert(EXEMPLARS[:10])
    writer.save()
    reader, before = ExemplarBuffer.open(tmp_path), set(tmp_path.iterdir())
    writer.insert(EXEMPLARS[10:])
    writer.save()
    assert not before & set(tmp_path.glob("shard-*"))
    assert list(reader) == EXEMPLARS[:10] and len(ExemplarBuffer.open(tmp_path)) == 50


def test_reader_when_slower_than_the_writer_sees_the_state_it_began_with(tmp_path, monkeypatch):
    """Between any two shards that the reader reads, the writer saves, and merges away all there was."""
    writer, rest = ExemplarBuffer.open(tmp_path), EXEMPLARS[7:]
    for batch in (EXEMPLARS[:4], EXEMPLARS[4:6], EXEMPLARS[6:7]):
        writer.insert(batch)
        writer.save()
    before, read, saves = set(tmp_path.glob("*.parquet")), OpenShard.read, []

    def slowly(self):
        writer.insert([rest.pop(0) for _ in range(8)])
        saves.append(writer.save())
        return read(self)

    monkeypatch.setattr(OpenShard, "read", slowly)
    assert list(ExemplarBuffer.open(tmp_path)) == EXEMPLARS[:7]
    assert len(before) == len(saves) == 3 and not before & set(tmp_path.glob("*.parquet"))


def test_shards_when_older_than_features_are_read_and_completed(folder):
    for file in folder.glob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns([name for name, _ in FEATURES]), file)
    for file in codes_files(folder):
        file.unlink()
    buffer = ExemplarBuffer.open(folder)
    assert list(buffer) == EXEMPLARS
    buffer.insert([Exemplar.new("p0", "y = 1", 1.0)])
    buffer.save()
    assert list(ExemplarBuffer.open(folder))[:50] == EXEMPLARS


def test_shards_when_older_than_details_are_read_without(folder):
    for file in folder.glob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["detail"]), file)
    assert list(ExemplarBuffer.open(folder)) == [dataclasses.replace(exemplar, detail="") for exemplar in EXEMPLARS]


def test_selection_when_a_buffer_is_opened_is_that_of_the_inserted_one(folder):
    inserted = ExemplarBuffer()
    inserted.insert(EXEMPLARS)
    for problem_id in ("p0", "p1"):
        before, after = inserted.view(problem_id), ExemplarBuffer.open(folder).view(problem_id)
        for name in ("speedup", "step", "ids", "length", "operations", "sketch"):
            assert getattr(before, name).tolist() == getattr(after, name).tolist()
            assert getattr(before, name).dtype == getattr(after, name).dtype


@pytest.mark.parametrize("rows", [0, 1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS - 1])
def test_codes_when_indexed_are_those_of_their_rows(rows):
    texts = [f"{n} é" * (n + 1) for n in range(rows)]
    codes = Codes.of(pa.array(texts, pa.large_string()))
    assert [codes[n] for n in range(rows)] == texts == codes.column(rows).to_pylist()
    assert codes.belongs_to("", rows) and not codes.belongs_to("", rows + BLOCK_ROWS)
    assert not codes.belongs_to("shard-1.parquet", rows)


@pytest.mark.parametrize("rows", [1, 7, 16, 50, 99])
def test_regroup_when_segments_differ_in_length_keeps_every_row_in_order(rows):
    segments = [Segment.of(EXEMPLARS[a:b]) for a, b in [(0, 5), (5, 6), (6, 30), (30, 50)]]
    batches = list(regroup(segments, rows))
    assert [len(batch) for batch in batches[:-1]] == [rows] * (len(batches) - 1) and 0 < len(batches[-1]) <= rows
    assert pa.Table.from_batches(batches) == pa.Table.from_batches([Segment.of(EXEMPLARS).record_batch()])


def test_parent_lists_when_sliced_are_the_lists_they_are_made_of():
    lists = [(), (0,), (1, 0), (), (2, 2, 1)]
    parents = ParentLists(np.array([0, 1, 3, 3, 6]), np.array([0, 1, 0, 2, 2, 1]))
    assert list(parents) == lists and parents[-1] == (2, 2, 1) and len(parents) == 5
    for start, stop in [(0, 5), (1, 3), (3, 4), (2, 2), (4, 9), (0, 0)]:
        assert parents[start:stop] == lists[start:stop]
    assert parents.child_counts().tolist() == [2, 2, 2, 0, 0]
    assert parents.child_of().tolist() == [1, 2, 2, 4, 4, 4]
    with pytest.raises(IndexError):
        parents[5]
