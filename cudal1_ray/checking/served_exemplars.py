"""The replay buffer without the hacks: what is confirmed as one is never shown in a prompt again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from cudal1_ray.checking.hack_cases import case_id
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer
from cudal1_ray.exemplars.hardware_buffers import WITHHELD, buffers_of
from cudal1_ray.files import read_json_object, write_atomically


class ServedExemplars:
    """A replay buffer with a list of candidates that it keeps for the record and never serves.

    The list is a file beside the buffer's shards, so that a later owner of the folder withholds the same ones. A
    candidate stays withheld whatever comments and formatting it comes back with.

    Attributes:
        served: the buffer to select from.
    """

    def __init__(self, buffer: ExemplarBuffer, beside: Iterable[Path] = ()) -> None:
        """Take over a buffer that has a folder.

        Args:
            beside: folders of further buffers, whose lists count here too.

        Raises:
            ValueError: the buffer is in memory only.
            UserError: the list is damaged.
        """
        if buffer.folder is None:
            raise ValueError("a buffer without a folder has no place for the list of what it withholds")
        self._buffer = buffer
        self._path = Path(buffer.folder) / WITHHELD
        self._withheld = _read(self._path)  # problem id -> case ids
        for folder in beside:
            for problem_id, identities in _read(folder / WITHHELD).items():
                self._withheld.setdefault(problem_id, set()).update(identities)
        self._case_ids: dict[str, str] = {}  # exemplar id -> case id, of problems that have something withheld
        self.served = self._without_withheld()

    def insert(self, exemplars: Iterable[Exemplar]) -> int:
        """Add what is new and not withheld; return how many were new. On disk after `save`."""
        welcome = [exemplar for exemplar in exemplars if not self._is_withheld(exemplar)]
        new = self._buffer.insert(welcome)
        if self.served is not self._buffer:
            self.served.insert(welcome)
        return new

    def save(self) -> None:
        self._buffer.save()

    def withhold(self, candidates: Iterable[tuple[str, str]]) -> int:
        """Take these (problem id, code) out of what is served, for good; return how many were not withheld before.

        Raises UserError when the list cannot be written; nothing is withheld then.
        """
        new = {(problem_id, case_id(problem_id, code)) for problem_id, code in candidates}
        new = {(problem_id, identity) for problem_id, identity in new if identity not in self._of(problem_id)}
        if not new:
            return 0
        withheld = {problem_id: set(ids) for problem_id, ids in self._withheld.items()}
        for problem_id, identity in new:
            withheld.setdefault(problem_id, set()).add(identity)
        _write(self._path, withheld)
        self._withheld = withheld
        touched = {problem_id for problem_id, _ in new}
        if any(self._is_withheld(exemplar) for problem_id in touched for exemplar in self.served.of(problem_id)):
            self.served = self._without_withheld()
        return len(new)

    def __len__(self) -> int:
        return len(self.served)

    def _of(self, problem_id: str) -> set[str]:
        return self._withheld.get(problem_id, set())

    def _is_withheld(self, exemplar: Exemplar) -> bool:
        theirs = self._of(exemplar.problem_id)
        if not theirs:
            return False
        identity = self._case_ids.get(exemplar.exemplar_id)
        if identity is None:
            identity = self._case_ids[exemplar.exemplar_id] = case_id(exemplar.problem_id, exemplar.code)
        return identity in theirs

    def _without_withheld(self) -> ExemplarBuffer:
        """Return the buffer itself while nothing in it is withheld, else a copy in memory without what is withheld."""
        if not any(self._is_withheld(e) for problem_id in self._withheld for e in self._buffer.of(problem_id)):
            return self._buffer
        copy = ExemplarBuffer()
        copy.insert(exemplar for exemplar in self._buffer if not self._is_withheld(exemplar))
        return copy


def served_buffers(folder: Path) -> Iterator[tuple[Path, ExemplarBuffer]]:
    """Yield the buffers of a run with their folders, `folder` first, for a reader that does not own them: each without
    what any of them withholds, since a hack is one on any hardware.
    """
    places = buffers_of(folder)
    for place in places:
        yield place, ServedExemplars(ExemplarBuffer.open(place), beside=places).served


def _read(path: Path) -> dict[str, set[str]]:
    try:
        content = read_json_object(path)
        return {str(problem_id): {str(identity) for identity in ids} for problem_id, ids in content.items()}
    except FileNotFoundError:
        return {}
    except TypeError as error:
        raise UserError(f"{path} is damaged ({' '.join(str(error).split())[:200]}): restore it") from error


def _write(path: Path, withheld: dict[str, set[str]]) -> None:
    try:
        write_atomically(path, json.dumps({problem_id: sorted(ids) for problem_id, ids in withheld.items()}, indent=1))
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from error
