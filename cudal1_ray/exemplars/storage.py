"""Exemplars on disk: Parquet shards, and a manifest that lists which of them count.

A shard is written under a temporary name, flushed to the disk and renamed; the manifest, replaced last and
atomically, is the only thing a reader believes. So a crash at any moment leaves the previous manifest and
every file it names: what a half-done save left behind is named nowhere, and the next save removes it.

Beside each shard lies its code once more, in the form of `codes`, which lets one text be read without decoding the
shard. It may be missing: then it is made anew from the shard, in memory.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cudal1_ray.errors import UserError
from cudal1_ray.exemplars.codes import Codes, write_blocks
from cudal1_ray.exemplars.features import code_features
from cudal1_ray.exemplars.segment import FACTS, FEATURES, SCHEMA, Segment
from cudal1_ray.files import read_json_object, replacing, write_atomically
from cudal1_ray.source.normal_form import normalise_code
from cudal1_ray.wording import counted

FORMAT = 1
MANIFEST = "manifest.json"
# Columns that shards of earlier versions lack.
_ADDED = {"detail", *dict(FEATURES)}
# Columns worth a dictionary.
_REPETITIVE = ["problem_id", "parent_ids.list.element", "reasons.list.element"]


@dataclass(frozen=True)
class Shard:
    """A Parquet file and how many of its first rows count (fewer than it holds after a rollback)."""

    file: str
    rows: int


@dataclass(frozen=True)
class BufferManifest:
    """One committed state. `rollbacks` lists (generation, rows): that generation cut the buffer back to so
    many rows.
    """

    generation: int = 0
    shards: tuple[Shard, ...] = ()
    rollbacks: tuple[tuple[int, int], ...] = ()

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)


def write_shard(folder: Path, generation: int, batch: pa.RecordBatch) -> tuple[Shard, Segment]:
    """Write a batch of SCHEMA as a new shard; it counts only once a manifest names it."""
    name = f"shard-{generation:08d}-{uuid.uuid4().hex[:8]}.parquet"
    code = batch.column("code")
    table = pa.Table.from_batches([batch])
    with replacing(folder / codes_file(name)) as file:
        write_blocks(file, code, name)
    with replacing(folder / name) as file:
        pq.write_table(table, file, compression="zstd", use_dictionary=_REPETITIVE)
    facts = pa.RecordBatch.from_arrays([batch.column(each) for each in FACTS.names], schema=FACTS)
    return Shard(name, len(batch)), Segment(facts, Codes.open(folder / codes_file(name)))


def codes_file(shard_file: str) -> str:
    """Name of the file with the code of a shard."""
    return shard_file.removesuffix(".parquet") + ".codes.arrow"


class OpenShard:
    """A shard whose files are open: it can be read even when the writer has merged it away since."""

    def __init__(self, folder: Path, shard: Shard) -> None:
        """Raise FileNotFoundError when the shard is gone, UserError when it cannot be opened."""
        self._path, self._rows = folder / shard.file, shard.rows
        try:
            self._parquet = pa.OSFile(str(self._path))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._unreadable(error) from error
        self._codes: Codes | None = None
        try:
            self._codes = Codes.open(folder / codes_file(shard.file))
        except (pa.ArrowException, OSError):
            pass  # missing, or cut short: it holds nothing that the shard does not

    def read(self) -> Segment:
        """Return the rows that count; the Parquet file is closed then. Raises UserError when it is damaged."""
        try:
            with self._parquet, pq.ParquetFile(self._parquet) as file:
                rows = file.metadata.num_rows
                codes = self._codes
                if codes is None or not codes.belongs_to(self._path.name, rows):
                    codes = Codes.of(_single_batch(file.read(["code"])).column("code").cast(SCHEMA.field("code").type))
                facts = _facts(file, codes)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise self._unreadable(error) from error
        if rows < self._rows:
            raise UserError(f"{self._path} holds {counted(rows, 'row')}, its manifest states {self._rows}: restore it")
        return Segment(facts.slice(0, self._rows), codes)

    def _unreadable(self, error: Exception) -> UserError:
        return UserError(f"{self._path} cannot be read ({_line(error)}): restore it or start a new run")


def _facts(file: pq.ParquetFile, codes: Codes) -> pa.RecordBatch:
    names = [name for name in FACTS.names if name in file.schema_arrow.names or name not in _ADDED]
    facts = _single_batch(file.read(names, use_threads=False)).select(names)
    if not set(dict(FEATURES)) <= set(names):  # a shard from before features were stored
        features = [code_features(normalise_code(code)) for code in codes.column(len(facts)).to_pylist()]
        for name, kind in FEATURES:
            facts = facts.append_column(name, pa.array([getattr(each, name) for each in features], kind))
    if "detail" not in names:
        facts = facts.append_column("detail", pa.array([""] * len(facts), pa.string()))
    return facts.select(FACTS.names).cast(FACTS)


def _single_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def write_manifest(folder: Path, manifest: BufferManifest) -> None:
    """Commit a manifest: after the rename it is the state of the folder, before it nothing has changed."""
    content = {
        "format": FORMAT,
        "generation": manifest.generation,
        "rows": manifest.rows,
        "shards": [[shard.file, shard.rows] for shard in manifest.shards],
        "rollbacks": [list(pair) for pair in manifest.rollbacks],
    }
    write_atomically(folder / MANIFEST, json.dumps(content))  # the shards that it names are on the disk by then


def read_manifest(folder: Path) -> BufferManifest:
    """Return the committed state of a folder, the empty one when nothing was ever saved.

    Raises:
        UserError: when it is damaged.
    """
    path = folder / MANIFEST
    try:
        content = read_json_object(path)
        if content["format"] != FORMAT:
            file_format = content["format"]
            raise UserError(f"{path} has format {file_format}, not {FORMAT}: use the version that wrote it")
        return BufferManifest(
            content["generation"],
            tuple(Shard(file, rows) for file, rows in content["shards"]),
            tuple((generation, rows) for generation, rows in content["rollbacks"]),
        )
    except FileNotFoundError:
        return BufferManifest()
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({_line(error)}): restore it or start a new run") from error


def remove_unnamed(folder: Path, manifest: BufferManifest) -> None:
    """Remove shards and temporary files that the manifest does not name; only the writer may call it."""
    named = {name for shard in manifest.shards for name in (shard.file, codes_file(shard.file))}
    for pattern in ("shard-*.parquet", "shard-*.arrow", ".*.partial"):
        for path in folder.glob(pattern):
            if path.name not in named:
                path.unlink(missing_ok=True)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
