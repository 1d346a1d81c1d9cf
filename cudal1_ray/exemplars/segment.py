"""Consecutive exemplars of the buffer: what a shard on disk holds, or what is going to be one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cudal1_ray.exemplars.codes import Codes
from cudal1_ray.exemplars.columns import MEASURED, ProblemColumns
from cudal1_ray.exemplars.exemplar import Exemplar
from cudal1_ray.exemplars.features import CodeFeatures

FEATURES = [("length", pa.int32()), ("operations", pa.int32()), ("sketch", pa.uint64())]
SCHEMA = pa.schema(
    [
        ("exemplar_id", pa.string()),
        ("problem_id", pa.string()),
        ("code", pa.large_string()),  # 64-bit offsets: a shard's code can pass 2 GiB
        ("speedup", pa.float64()),
        ("policy_version", pa.int64()),
        ("step", pa.int64()),
        ("parent_ids", pa.list_(pa.string())),
        ("reasons", pa.list_(pa.string())),
        ("detail", pa.string()),
        *FEATURES,
    ]
)
FACTS = pa.schema([field for field in SCHEMA if field.name != "code"])


@dataclass(frozen=True)
class Segment:
    """facts: everything but the code, one row per exemplar, of schema FACTS. codes: the code, by the same index."""

    facts: pa.RecordBatch
    codes: Codes

    @classmethod
    def of(cls, exemplars: Sequence[Exemplar]) -> Segment:
        features = [e.features for e in exemplars]
        values = {name: [getattr(f, name) for f in features] for name, _ in FEATURES}
        values |= {
            field.name: [getattr(e, field.name) for e in exemplars] for field in FACTS if field.name not in values
        }
        arrays = [pa.array(values[field.name], field.type) for field in FACTS]
        codes = pa.array([_encodable(e.code) for e in exemplars], pa.large_string())
        return cls(pa.RecordBatch.from_arrays(arrays, schema=FACTS), Codes.of(codes))

    def __len__(self) -> int:
        return self.facts.num_rows

    def exemplar(self, index: int) -> Exemplar:
        """Return the exemplar at an index."""
        value = {name: self.facts.column(i)[index].as_py() for i, name in enumerate(FACTS.names)}
        features = CodeFeatures(**{name: value.pop(name) for name, _ in FEATURES})
        value |= {"parent_ids": tuple(value["parent_ids"]), "reasons": tuple(value["reasons"])}
        return Exemplar(code=self.codes[index], features=features, **value)

    def record_batch(self) -> pa.RecordBatch:
        """Return the segment as one batch of SCHEMA."""
        code = self.codes.column(len(self))
        arrays = [code if name == "code" else self.facts.column(name) for name in SCHEMA.names]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def regroup(segments: Sequence[Segment], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the exemplars of the segments, in order, in whole batches of `rows` (the last one may have fewer).

    No more than one such batch and one segment are decompressed at a time.
    """
    waiting: list[pa.RecordBatch] = []
    missing = rows
    for segment in segments:
        batch = segment.record_batch()
        while len(batch) >= missing:
            yield pa.concat_batches([*waiting, batch.slice(0, missing)])
            batch, waiting, missing = batch.slice(missing), [], rows
        if len(batch):
            waiting.append(batch)
            missing -= len(batch)
    if waiting:
        yield pa.concat_batches(waiting)


def by_problem(facts: pa.RecordBatch, first_row: int) -> Iterator[tuple[str, np.ndarray, pa.RecordBatch]]:
    """Yield the facts of each problem in turn, in order, with their global rows (int64[m])."""
    encoded = facts.column("problem_id").dictionary_encode()
    problem = encoded.indices.to_numpy()
    order = np.argsort(problem, kind="stable")
    ordered = facts.take(pa.array(order))
    ends = np.cumsum(np.bincount(problem, minlength=len(encoded.dictionary))).tolist()
    for problem_id, start, stop in zip(encoded.dictionary.to_pylist(), [0, *ends], ends, strict=False):
        yield problem_id, order[start:stop] + first_row, ordered.slice(start, stop - start)


def index_facts(columns: ProblemColumns, facts: pa.RecordBatch, rows: np.ndarray) -> None:
    """Add the facts of exemplars of one problem, not there yet, to its columns."""
    parents, reasons = facts.column("parent_ids"), facts.column("reasons")
    empty = pc.sum(pc.list_value_length(reasons)).as_py() == 0
    columns.extend(
        facts.column("exemplar_id").to_pylist(),
        rows,
        {name: facts.column(name).to_numpy() for name in MEASURED},
        parents.flatten().to_pylist(),
        pc.list_value_length(parents).to_numpy(),
        [()] * len(facts) if empty else [tuple(each) for each in reasons.to_pylist()],
    )


def index_exemplars(columns: ProblemColumns, exemplars: Sequence[Exemplar], rows: Sequence[int]) -> None:
    """Add exemplars of one problem, not there yet, to its columns."""
    features = [e.features for e in exemplars]
    measured = {name: [getattr(f, name) for f in features] for name, _ in FEATURES}
    measured |= {name: [getattr(e, name) for e in exemplars] for name in MEASURED if name not in measured}
    columns.extend(
        [e.exemplar_id for e in exemplars],
        rows,
        measured,
        [parent for e in exemplars for parent in e.parent_ids],
        [len(e.parent_ids) for e in exemplars],
        [e.reasons for e in exemplars],
    )


def _encodable(code: str) -> str:
    # Arrow holds UTF-8; a model's lone surrogate is none, and code with one never compiled.
    try:
        code.encode()
    except UnicodeEncodeError:
        return code.encode("utf-8", "replace").decode()
    return code
