"""The code of exemplars, apart from all that selection reads: compressed, and fetched one small block at a time.

A million candidates are gigabytes of text, of which a prompt shows two. So the text of a shard lies in an Arrow IPC
file of record batches of 8 rows each: to fetch one, the reader reads and decompresses one batch, from disk or, for
exemplars that are not saved yet, from the same bytes in memory.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from cudal1_ray.errors import UserError

BLOCK_ROWS = 8
_SCHEMA = pa.schema([("code", pa.large_string())])
# LZ4 for what is read at every prompt; the Parquet shard beside it has the better compression.
_WRITING = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READING = pa.ipc.IpcReadOptions(use_threads=False)


class Codes:
    """The texts of consecutive exemplars, by their index among them."""

    def __init__(self, file: pa.NativeFile, name: str) -> None:
        """Raise pyarrow.ArrowInvalid when the file is not one that `write_blocks` wrote to its end."""
        self._name = name
        self._reader = pa.ipc.open_file(file, options=_READING)

    @classmethod
    def of(cls, column: pa.LargeStringArray) -> Codes:
        """Return texts that are held in memory, compressed."""
        sink = pa.BufferOutputStream()
        write_blocks(sink, column, "")
        return cls(pa.BufferReader(pa.py_buffer(sink.getvalue().to_pybytes())), "memory")  # a copy of the right size

    @classmethod
    def open(cls, path: Path) -> Codes:
        """Return texts on disk; the file stays open and readable even when the writer has merged it away since."""
        return cls(pa.OSFile(str(path)), str(path))

    def belongs_to(self, shard: str, rows: int) -> bool:
        """Return whether these are the texts of that shard, and of this number of rows."""
        metadata = self._reader.schema.metadata or {}
        return metadata.get(b"shard") == shard.encode() and self._reader.num_record_batches == -(-rows // BLOCK_ROWS)

    def __getitem__(self, index: int) -> str:
        """Raise UserError when the file has been damaged since it was opened."""
        block, at = divmod(index, BLOCK_ROWS)
        try:
            return self._reader.get_batch(block).column(0)[at].as_py()
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def column(self, rows: int) -> pa.LargeStringArray:
        """Return the first `rows` texts. Raises UserError when the file has been damaged since it was opened."""
        try:
            return self._reader.read_all().column(0).slice(0, rows).combine_chunks()
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> UserError:
        return UserError(f"{self._name} is damaged ({error}): remove it, it is made anew from its shard")


def write_blocks(sink, column: pa.LargeStringArray, shard: str) -> None:
    """Write the texts of a shard in the form that `Codes` reads, to an Arrow or Python file."""
    schema = _SCHEMA.with_metadata({"shard": shard})
    batch = pa.RecordBatch.from_arrays([column], schema=schema)
    with pa.ipc.new_file(sink, schema, options=_WRITING) as writer:
        for start in range(0, len(column), BLOCK_ROWS):
            writer.write_batch(batch.slice(start, BLOCK_ROWS))
