"""Exemplars on disk: Parquet shards, and a manifest that says which of them count.

A shard is written under a temporary name, flushed to the disk and renamed; the manifest, replaced last and
atomically, is the only thing a reader believes. So a crash at any moment leaves the previous manifest and
every file it names: what a half-done save left behind is named by nobody, and the next save removes it.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cudal1_ray.errors import UserError
from cudal1_ray.exemplars.exemplar import Exemplar

FORMAT = 1
MANIFEST = "manifest.json"
SCHEMA = pa.schema(
    [
        ("exemplar_id", pa.string()),
        ("problem_id", pa.string()),
        ("code", pa.large_string()),  # 64-bit offsets: a buffer's code can pass 2 GiB
        ("speedup", pa.float64()),
        ("policy_version", pa.int64()),
        ("step", pa.int64()),
        ("parent_ids", pa.list_(pa.string())),
        ("reasons", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True)
class Shard:
    """A Parquet file and how many of its first rows count (fewer than it holds after a rollback)."""

    file: str
    rows: int


@dataclass(frozen=True)
class Manifest:
    """One committed state. `rollbacks` lists (generation, rows): that generation cut the buffer back to so
    many rows.
    """

    generation: int = 0
    shards: tuple[Shard, ...] = ()
    rollbacks: tuple[tuple[int, int], ...] = ()

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)


def to_batch(exemplars: Sequence[Exemplar]) -> pa.RecordBatch:
    """The exemplars as one Arrow record batch of SCHEMA."""
    columns = [[getattr(e, field.name) for e in exemplars] for field in SCHEMA]
    columns[2] = [_encodable(code) for code in columns[2]]
    arrays = [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _encodable(code: str) -> str:
    # Arrow holds UTF-8; a model's lone surrogate is none, and code with one never compiled.
    try:
        code.encode()
    except UnicodeEncodeError:
        return code.encode("utf-8", "replace").decode()
    return code


def from_batch(batch: pa.RecordBatch, index: int) -> Exemplar:
    """The exemplar at one row of a batch."""
    values = [batch.column(i)[index].as_py() for i in range(len(SCHEMA))]
    return Exemplar(*values[:6], tuple(values[6]), tuple(values[7]))


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of the batches, in order, as one batch."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)


def write_shard(folder: Path, generation: int, batch: pa.RecordBatch) -> Shard:
    """Writes a batch as a new shard file; it counts only once a manifest names it."""
    name = f"shard-{generation:08d}-{uuid.uuid4().hex[:8]}.parquet"
    temporary = folder / f"{name}.tmp"
    with open(temporary, "wb") as file:
        pq.write_table(pa.Table.from_batches([batch]), file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, folder / name)
    return Shard(name, batch.num_rows)


def read_shard(folder: Path, shard: Shard) -> pa.RecordBatch:
    """The rows of a shard that count. Raises FileNotFoundError when it is gone, UserError when it is
    damaged.
    """
    path = folder / shard.file
    try:
        table = pq.read_table(path, schema=SCHEMA, memory_map=False)
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise UserError(f"{path} cannot be read ({_line(error)}): restore it or start a new run") from error
    if table.num_rows < shard.rows:
        raise UserError(f"{path} holds {table.num_rows} rows, its manifest says {shard.rows}: restore it")
    batches = table.slice(0, shard.rows).combine_chunks().to_batches()
    return concat(batches) if batches else to_batch([])


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Commits a manifest: after the rename it is the state of the folder, before it nothing has changed."""
    content = {
        "format": FORMAT,
        "generation": manifest.generation,
        "rows": manifest.rows,
        "shards": [[shard.file, shard.rows] for shard in manifest.shards],
        "rollbacks": [list(pair) for pair in manifest.rollbacks],
    }
    temporary = folder / f"{MANIFEST}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(folder)  # the shards' names must be on the disk before the manifest that relies on them
    os.replace(temporary, folder / MANIFEST)
    _sync_folder(folder)


def read_manifest(folder: Path) -> Manifest:
    """The committed state of a folder; the empty one when nothing was ever saved. UserError when it is
    damaged.
    """
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            found = content["format"]
            raise UserError(f"{path} has format {found}, not {FORMAT}: use the version that wrote it")
        return Manifest(
            content["generation"],
            tuple(Shard(file, rows) for file, rows in content["shards"]),
            tuple((generation, rows) for generation, rows in content["rollbacks"]),
        )
    except FileNotFoundError:
        return Manifest()
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({_line(error)}): restore it or start a new run") from error


def remove_unnamed(folder: Path, manifest: Manifest) -> None:
    """Removes shards and temporary files that the manifest does not name. Only the writer may call it."""
    named = {shard.file for shard in manifest.shards}
    for pattern in ("shard-*.parquet", "shard-*.tmp"):
        for path in folder.glob(pattern):
            if path.name not in named:
                path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
