"""The hack-case database: candidates that are known to be hacks or honest, as one Parquet file.

The package ships one, made of the project's own adversarial suite and of honest candidates; a run continues it in its
own folder with the hacks it confirms. A case is one candidate of one problem: the same text may be a hack of one
problem and honest for another.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.reasons import HACKS, POLICY
from cudal1_ray.files import replacing
from cudal1_ray.source.normal_form import bare_code

SHIPPED = Path(__file__).parent / "hack_cases.parquet"
# What a hack may be called: the evaluator's names for cheating, those of rules that a run may lift, and the errors that
# live off a lax check. Rules about what counts as an own contribution name no cheat.
CATEGORIES: frozenset[str] = (HACKS | POLICY | {"input_mutation", "nan_comparison"}) - {
    "same_operations", "whole_graph_compiler", "no_own_kernel",
}  # fmt: skip
SCHEMA = pa.schema(
    [
        ("case_id", pa.string()),
        ("problem_id", pa.string()),
        ("category", pa.string()),  # of CATEGORIES; empty: an honest candidate
        ("reason", pa.string()),
        ("code", pa.large_string()),
        ("reference", pa.large_string()),
        ("source", pa.string()),
        ("speedup", pa.float64()),
        ("confirmed_by", pa.string()),
    ]
)
_ID_LENGTH = 20


@dataclass(frozen=True)
class HackCase:
    """One candidate whose nature is known.

    `category` is one of CATEGORIES, or empty for an honest candidate; `reason` describes in one sentence what it does.
    `reference` is the problem's source, so that cases of different problems can be compared by what they change.
    `source` names where the case comes from, `speedup` what was measured for it (0.0: not measured), and
    `confirmed_by` how it became a case: "suite", "recheck" or "trust".
    """

    case_id: str
    problem_id: str
    category: str
    reason: str
    code: str
    reference: str = ""
    source: str = ""
    speedup: float = 0.0
    confirmed_by: str = "suite"

    @property
    def is_hack(self) -> bool:
        return bool(self.category)

    @classmethod
    def new(cls, problem_id: str, category: str, reason: str, code: str, **fields) -> HackCase:
        """Return a case whose id follows from its content. Raises ValueError for a category that does not exist."""
        if category and category not in CATEGORIES:
            raise ValueError(f"{category!r} is no category of hacks")
        return cls(case_id(problem_id, code), problem_id, category, reason, code, **fields)


def case_id(problem_id: str, code: str) -> str:
    """Return the identity of a candidate of a problem.

    It is equal for texts that differ in comments, docstrings and formatting, those of inline CUDA and C++ included.
    """
    content = f"{problem_id}\0{bare_code(code)}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:_ID_LENGTH]


class HackCases:
    """The cases in memory, bound to a file. One owner writes; a reader finds a whole file at any moment."""

    def __init__(self, path: str | Path | None = None, cases: Iterable[HackCase] = ()) -> None:
        self.path = None if path is None else Path(path)
        self._cases: dict[str, HackCase] = {}
        for case in cases:
            self._cases.setdefault(case.case_id, case)

    @classmethod
    def open(cls, path: str | Path, start: str | Path = SHIPPED) -> HackCases:
        """Return the database at `path`, or, where there is none yet, the cases of `start` bound to `path`.

        Raises UserError when the file that is to be read is missing or damaged.
        """
        path = Path(path)
        return cls(path, read_cases(path if path.exists() else Path(start)))

    def __len__(self) -> int:
        return len(self._cases)

    def __iter__(self) -> Iterator[HackCase]:
        """Return all cases, in the order they came."""
        return iter(self._cases.values())

    def hacks(self) -> list[HackCase]:
        return [case for case in self if case.is_hack]

    def find(self, problem_id: str, code: str) -> HackCase | None:
        """Return the case of this candidate, whatever its comments and formatting, or None."""
        return self._cases.get(case_id(problem_id, code))

    def add(self, case: HackCase) -> bool:
        """Add a case and return whether anything changed.

        A hack replaces an honest case of the same candidate; nothing replaces a hack.
        """
        earlier = self._cases.get(case.case_id)
        if earlier is not None and (earlier.is_hack or not case.is_hack):
            return False
        self._cases[case.case_id] = case
        return True

    def save(self) -> None:
        """Rewrite the file; an interrupted save leaves the one before it. Raises UserError when it cannot."""
        if self.path is None:
            raise ValueError("these cases have no file: create them with HackCases.open(path)")
        try:
            write_cases(self.path, self)
        except OSError as error:
            raise UserError(f"{self.path}: hack cases cannot be saved ({error.strerror or error})") from error


def read_cases(path: Path) -> list[HackCase]:
    """Return the cases of a file. Raises UserError naming the file when it is missing, damaged or of other columns."""
    try:
        table = pq.read_table(path, memory_map=False)
        rows = table.select(SCHEMA.names).cast(SCHEMA).to_pylist()
    except FileNotFoundError:
        raise UserError(f"{path}: no hack cases here; set rewards.checker.cases to a Parquet file, or null") from None
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: no readable hack cases ({reason}); restore the file, or remove it") from error
    return [HackCase(**row) for row in rows]


def write_cases(path: Path, cases: Iterable[HackCase]) -> None:
    """Write beside the target and renames, both flushed to the disk. Raises OSError."""
    rows = [dataclasses.asdict(case) for case in cases]
    for row in rows:  # Arrow holds UTF-8; a model's lone surrogate is none
        row["code"] = row["code"].encode("utf-8", "replace").decode()
    with replacing(path) as file:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), file, compression="zstd")
