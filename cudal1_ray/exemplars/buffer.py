"""The replay buffer of exemplars: every evaluated candidate, by problem, kept on disk and read by selection.

Three representations, each for its reader: numpy columns per problem (selection: no code is touched), Arrow batches
with the code beside them in compressed blocks (the exemplars served), Parquet shards (the disk, and other readers).
The buffer only grows: the first measurement of a candidate stands, because keeping the best of several would reward
noise.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import storage
from cudal1_ray.exemplars.columns import ProblemColumns
from cudal1_ray.exemplars.exemplar import ID_LENGTH, Exemplar, exemplar_id
from cudal1_ray.exemplars.segment import Segment, by_problem, index_exemplars, index_facts, regroup
from cudal1_ray.exemplars.storage import BufferManifest, Shard
from cudal1_ray.exemplars.view import ProblemView
from cudal1_ray.wording import counted

# New exemplars that stay Python objects before they become a segment.
_TAIL_ROWS = 1024
# Rows up to which shards are merged; each keeps one file open.
_SHARD_ROWS = 16_384
_READ_ATTEMPTS = 5


class ExemplarBuffer:
    """Exemplars in memory, optionally bound to a folder.

    `ExemplarBuffer()` lives in memory only; `ExemplarBuffer.open(folder)` continues what the folder holds.
    It has one owner: neither two threads nor two processes may write to one, while any process may read.
    """

    def __init__(self, folder: str | Path | None = None, *, shard_rows: int = _SHARD_ROWS) -> None:
        self.folder = None if folder is None else Path(folder)
        self._shard_rows = shard_rows
        self._problems: dict[str, ProblemColumns] = {}
        self._segments: list[Segment] = []  # in order; those that the manifest's shards hold come first
        self._starts: list[int] = []  # global row at which each segment starts
        self._tail: list[Exemplar] = []  # the newest rows, not yet a segment
        self._rows = 0
        self._manifest = BufferManifest()
        self._cut = False  # opened at an earlier state: the next save commits the cut

    @classmethod
    def open(
        cls,
        folder: str | Path,
        state: Mapping[str, int] | None = None,
        *,
        create: bool = False,
        shard_rows: int = _SHARD_ROWS,
    ) -> ExemplarBuffer:
        """Return the buffer that a folder holds; an empty one bound to it where it holds none.

        Args:
            create: create the folder where there is none.
            state: what `state()` returned when a checkpoint was taken; later exemplars are then left out, and
                dropped for good by the next save.

        Raises:
            UserError: when there is no such folder, when it is that of a run, and when it is damaged or no longer holds
                that state.
        """
        if create:
            try:
                Path(folder).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(f"cannot create the exemplar folder {folder}: {error.strerror or error}") from error
        elif not Path(folder).is_dir():
            raise UserError(f"no folder {folder}: give the folder exemplars of a run, or create=True for a new buffer")
        elif (inside := Path(folder) / "exemplars").is_dir():
            raise UserError(f"{folder}: the folder of a run; its exemplars are in {inside}")
        buffer = cls(folder, shard_rows=shard_rows)
        manifest, shards, open_shards = _open_shards(Path(folder), state)
        for shard in open_shards:
            buffer._append(shard.read())
        buffer._manifest = BufferManifest(manifest.generation, shards, manifest.rollbacks)
        buffer._cut = len(buffer) < manifest.rows
        return buffer

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[Exemplar]:
        """Return all exemplars in order of insertion."""
        return (self._at(row) for row in range(self._rows))

    def __contains__(self, identity: str) -> bool:
        return any(identity in columns.position_of for columns in self._problems.values())

    def problem_ids(self) -> tuple[str, ...]:
        """Return the problems that have any exemplar, failed ones included."""
        return tuple(self._problems)

    def insert(self, exemplars: Iterable[Exemplar]) -> int:
        """Add the exemplars whose normalised code its problem does not hold yet; return how many were new.

        Nothing reaches the disk before `save`. Raises ValueError, adding nothing, for a speedup that is
        negative or not finite, and for an id that no `Exemplar.new` has made.
        """
        exemplars = list(exemplars)
        for exemplar in exemplars:
            _check(exemplar)
        new: dict[str, dict[str, tuple[int, Exemplar]]] = {}  # by problem and id, with the global row
        for exemplar in exemplars:
            of_problem = new.setdefault(exemplar.problem_id, {})
            identity = exemplar.exemplar_id
            if identity not in of_problem and identity not in self._columns(exemplar.problem_id).position_of:
                of_problem[identity] = (self._rows, exemplar)
                self._rows += 1
                self._tail.append(exemplar)
        for problem_id, numbered in new.items():
            if numbered:
                rows, fresh = zip(*numbered.values(), strict=True)
                index_exemplars(self._columns(problem_id), fresh, rows)
        if len(self._tail) >= _TAIL_ROWS:
            self._seal_tail()
        return sum(map(len, new.values()))

    def of(self, problem_id: str) -> list[Exemplar]:
        """Return all exemplars of a problem, failed ones included, in order of insertion."""
        columns = self._problems.get(problem_id)
        return [] if columns is None else [self._at(row) for row in columns.rows().tolist()]

    def find(self, problem_id: str, code: str) -> Exemplar | None:
        """Return the problem's exemplar with this code up to formatting, which is evaluated already, or None."""
        columns = self._problems.get(problem_id)
        if columns is None:
            return None
        position = columns.position_of.get(exemplar_id(problem_id, code))
        return None if position is None else self._at(columns.row(position))

    def best(self, problem_id: str) -> Exemplar | None:
        """Return the fastest accepted exemplar of a problem, the earliest of equals; None when none was accepted."""
        columns = self._problems.get(problem_id)
        if columns is None:
            return None
        speedup = columns.view().speedup
        position = int(np.argmax(speedup))
        return self._at(columns.row(position)) if speedup[position] > 0.0 else None

    def view(self, problem_id: str) -> ProblemView:
        """Return the problem's exemplars by column, for a strategy; a view of nothing when there are none."""
        return (self._problems.get(problem_id) or ProblemColumns(problem_id)).view()

    def at(self, problem_id: str, positions: Iterable[int]) -> tuple[Exemplar, ...]:
        """Return the exemplars at positions of the problem's view, in the order asked."""
        columns = self._problems.get(problem_id) or ProblemColumns(problem_id)
        return tuple(self._at(columns.row(position)) for position in positions)

    def save(self) -> int:
        """Commit everything inserted so far and return the manifest's generation.

        When it has returned, a crash loses none of it; when it is interrupted, the state saved before stands.

        Raises:
            UserError: when the folder cannot be written; the exemplars stay in memory and a later save can succeed.
        """
        if self.folder is None:
            raise ValueError("this buffer has no folder: create it with ExemplarBuffer.open(folder, create=True)")
        self._seal_tail()
        saved = len(self._manifest.shards)
        if saved == len(self._segments) and not self._cut:
            return self._manifest.generation
        generation = self._manifest.generation + 1
        rollbacks = self._manifest.rollbacks
        if self._cut:
            rollbacks += ((generation, self._manifest.rows),)
        unchanged = self._unchanged_shards(saved)
        try:
            new_segments = [
                storage.write_shard(self.folder, generation, batch)
                for batch in regroup(self._segments[unchanged:], self._shard_rows)
            ]
            shards = (*self._manifest.shards[:unchanged], *(shard for shard, _ in new_segments))
            manifest = BufferManifest(generation, shards, rollbacks)
            storage.write_manifest(self.folder, manifest)
        except OSError as error:
            raise UserError(f"cannot save exemplars to {self.folder}: {error.strerror or error}") from error
        self._segments[unchanged:] = [segment for _, segment in new_segments]
        self._starts = [0, *itertools.accumulate(map(len, self._segments))][:-1]
        self._manifest, self._cut = manifest, False
        storage.remove_unnamed(self.folder, manifest)
        return generation

    def state(self) -> dict[str, int]:
        """Save, and return what `open` needs to come back to exactly this state, for a checkpoint."""
        return {"generation": self.save(), "rows": self._rows}

    def _unchanged_shards(self, saved: int) -> int:
        """Return how many shards stay as they are; what comes after is written anew.

        The new rows swallow earlier shards no larger than themselves, as in a log-structured merge: n saves
        leave about log2(n) shards, and a row is rewritten about log2(n) times. A shard that was cut is written
        anew too: a reader of the Parquet files knows nothing of cuts.
        """
        shards = saved - 1 if self._cut and saved else saved
        rows = sum(map(len, self._segments[shards:]))
        while shards and len(self._segments[shards - 1]) <= min(rows, self._shard_rows - rows):
            shards -= 1
            rows += len(self._segments[shards])
        return shards

    def _append(self, segment: Segment) -> None:
        for problem_id, rows, facts in by_problem(segment.facts, self._rows):
            index_facts(self._columns(problem_id), facts, rows)
        self._starts.append(self._rows)
        self._segments.append(segment)
        self._rows += len(segment)

    def _columns(self, problem_id: str) -> ProblemColumns:
        columns = self._problems.get(problem_id)
        if columns is None:
            columns = self._problems[problem_id] = ProblemColumns(problem_id)
        return columns

    def _seal_tail(self) -> None:
        for start in range(0, len(self._tail), _TAIL_ROWS):
            segment = Segment.of(self._tail[start : start + _TAIL_ROWS])
            self._starts.append(self._rows - len(self._tail) + start)
            self._segments.append(segment)
        self._tail = []

    def _at(self, row: int) -> Exemplar:
        first_of_tail = self._rows - len(self._tail)
        if row >= first_of_tail:
            return self._tail[row - first_of_tail]
        which = bisect.bisect_right(self._starts, row) - 1
        return self._segments[which].exemplar(row - self._starts[which])


def _check(exemplar: Exemplar) -> None:
    if not (math.isfinite(exemplar.speedup) and exemplar.speedup >= 0.0):
        raise ValueError(f"exemplar {exemplar.exemplar_id} has speedup {exemplar.speedup}: use a finite one >= 0")
    if len(exemplar.exemplar_id) != ID_LENGTH:
        raise ValueError(f"id {exemplar.exemplar_id!r} is not that of the exemplar's code: use Exemplar.new(...)")


def _open_shards(
    folder: Path, state: Mapping[str, int] | None
) -> tuple[BufferManifest, tuple[Shard, ...], list[storage.OpenShard]]:
    """Return the committed manifest, the shards of it that the state needs, and those same shards open.

    A writer may merge shards away between our reading of the manifest and the opening of its files; then both are done
    again. It takes milliseconds, and what is open stays readable for as long as a reader needs it.
    """
    for _ in range(_READ_ATTEMPTS):
        manifest = storage.read_manifest(folder)
        left = manifest.rows if state is None else _checked_rows(folder, manifest, state)
        shards = []
        for shard in manifest.shards:
            if left > 0:
                shards.append(Shard(shard.file, min(shard.rows, left)))
                left -= shards[-1].rows
        try:
            return manifest, tuple(shards), [storage.OpenShard(folder, shard) for shard in shards]
        except FileNotFoundError as error:
            missing = error
            if storage.read_manifest(folder) == manifest:
                break
    path = folder / storage.MANIFEST
    raise UserError(f"{path} names a shard that is missing ({missing}): restore it") from missing


def _checked_rows(folder: Path, manifest: BufferManifest, state: Mapping[str, int]) -> int:
    rows, generation = state["rows"], state["generation"]
    lost = any(after > generation and left < rows for after, left in manifest.rollbacks)
    if lost or rows > manifest.rows or generation > manifest.generation:
        raise UserError(
            f"{folder} no longer holds the exemplars of generation {generation} ({counted(rows, 'row')}): a later run "
            "went back beyond it; resume from an earlier or a newer checkpoint"
        )
    return rows
