"""Many pairs of problem and candidate in one file, and the file of verdicts that grows beside it.

Both are JSON lines. A manifest's rows are `{"id", "problem", "candidate"}`: paths relative to the manifest, or the
Python itself (a text with a line break in it). A row of verdicts is what `verdict_row` makes.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cudal1_ray.closable import Closable
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.reasons import MOMENTARY
from cudal1_ray.evaluation.rules import RulesConfig
from cudal1_ray.evaluation.verdict import Verdict, candidate_hash
from cudal1_ray.files import JsonLines, claim_file
from cudal1_ray.problems import Problem, parse_problem
from cudal1_ray.problems.files import read_problem_file
from cudal1_ray.source.text import clean_text, decode_source

FIELDS = ("id", "problem", "candidate")
_FORM = f"a row is {{{', '.join(map(repr, FIELDS))}}}"
# Fields of a row of verdicts that tables print.
FIGURES = ("speedup", "speedup_low", "speedup_high", "runtime_ms", "reference_ms")
# What a row of verdicts begins with, and what follows its id.
_ROW_BEGINS, _AFTER_ID = '{"id": ', ', "verdict": "'


@dataclass(frozen=True)
class Pair:
    """One row of a manifest, with its files read. `identity` is the row's id as text, unique in the manifest."""

    identity: str
    given_id: str | int
    problem: Problem
    code: str

    def stamp(self, config: EvaluationConfig) -> dict[str, str]:
        """Return what a verdict is a verdict about; another stamp, another measurement."""
        return {
            "candidate_hash": candidate_hash(self.code),
            "problem_hash": candidate_hash(self.problem.source),
            "device": config.device,
            "against": config.against,
            "rules": " ".join(config.rules.differences(RulesConfig())) or "default",
        }


@dataclass(frozen=True)
class PairManifest:
    """A manifest that was read: its pairs in order, and a line for each row that was skipped, with what is wrong."""

    pairs: list[Pair]
    skipped: list[str]


def read_manifest(path: Path) -> PairManifest:
    """Read every row and the files that it names; nothing is executed. Empty lines are left out.

    A row that cannot be evaluated is skipped and reported; the others are evaluated all the same. A candidate may be
    any text: that it is no Python is a verdict's business, not the manifest's. A file that is no text is skipped.

    Raises:
        UserError: for a file that cannot be read, or in which no row can be evaluated: with the first row's fault.
    """
    pairs: dict[str, Pair] = {}
    lines: dict[str, int] = {}
    problems: dict[str, Problem] = {}
    skipped: list[str] = []
    for number, text in enumerate(_read_lines(path), start=1):
        if not text.strip():
            continue
        try:
            pair = _pair(text, path, f"{path} line {number}", lines, problems)
        except UserError as error:
            skipped.append(str(error))
            continue
        pairs[pair.identity], lines[pair.identity] = pair, number
    if not pairs:
        raise UserError(skipped[0] if skipped else f"{path}: holds no row; {_FORM}")
    return PairManifest(list(pairs.values()), skipped)


def _pair(text: str, manifest: Path, where: str, lines: dict[str, int], problems: dict[str, Problem]) -> Pair:
    """Return one row's pair. `lines`: of the ids so far; `problems`: those read so far, by what their rows give."""
    row = _object(text, where)
    for name in FIELDS:
        if name not in row:
            raise UserError(f"{where}: no field {name!r}; {_FORM}")
    row_id = row["id"]
    if isinstance(row_id, bool) or not isinstance(row_id, (str, int)) or row_id == "":
        raise UserError(f"{where}: 'id' is {row_id!r:.60}: give a text or a whole number")
    identity = str(row_id)
    if identity in lines:
        raise UserError(f"{where}: 'id' {identity!r} is on line {lines[identity]} already; ids must differ")
    source = _field(row, "problem", where)
    if source not in problems:
        problems[source] = _problem(source, manifest, f"{where}: 'problem'")
    code = _code(_field(row, "candidate", where), manifest, f"{where}: 'candidate'")
    return Pair(identity, row_id, problems[source], code)


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        fault = error.strerror if isinstance(error, OSError) else "not a text file"
        raise UserError(f"{path}: {fault}; give a file of JSON lines: {_FORM}") from None


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise UserError(f"{where}: a {type(row).__name__} instead of an object; {_FORM}")
    return row


def _field(row: dict[str, Any], name: str, where: str) -> str:
    value = row[name]
    if not isinstance(value, str) or not value or "\0" in value:
        raise UserError(f"{where}: {name!r} is {value!r:.60}: give a path, relative to the manifest, or Python itself")
    return value


def _problem(path_or_text: str, manifest: Path, where: str) -> Problem:
    """Return the problem of a text, which has a line break as no path of a manifest has; else the file's."""
    if _is_text(path_or_text):
        return parse_problem(path_or_text, f"problem-{candidate_hash(path_or_text)[:12]}", origin=where)
    try:
        return read_problem_file(manifest.parent / path_or_text)
    except UserError as error:
        raise UserError(f"{where} {error}") from None


def _code(path_or_text: str, manifest: Path, where: str) -> str:
    if _is_text(path_or_text):
        return clean_text(path_or_text)
    path = manifest.parent / path_or_text
    try:
        return decode_source(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{where} {path!s:.200}: {getattr(error, 'strerror', None) or error}") from None


def _is_text(path_or_text: str) -> bool:
    return "\n" in path_or_text or "\r" in path_or_text


def verdict_row(pair: Pair, verdict: Verdict, config: EvaluationConfig) -> dict[str, Any]:
    """Return a row of the verdicts' file: id, verdict ("accepted" or "rejected"), then every field of the verdict."""
    fields = verdict.to_dict()
    return {"id": pair.given_id, "verdict": fields.pop("status"), **fields, **pair.stamp(config)}


class VerdictFile(Closable):
    """Verdicts as they come, a line each; a context manager. What is there already is kept.

    A line that a kill cut short is dropped when the file is opened: the lines before it are whole.

    Args:
        path: the file; its folder is made.
        pairs: those of the manifest, to recognise rows that are about something else now.

    Raises:
        UserError: when it is no file, another command writes it, a line is no verdict, or a row of this manifest's ids
            was measured from other texts, on another device, against another baseline or under other rules. It is as
            it was then.
    """

    def __init__(self, path: Path, pairs: list[Pair], config: EvaluationConfig) -> None:
        self.path, self._config = path, config
        try:
            if path.exists() and not path.is_file():
                raise UserError(f"--out {path}: no regular file; name one, it is made where there is none")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock: IO[bytes] = open(path, "ab")  # noqa: SIM115 (it holds the lock, which ends with the process)
        except OSError as error:
            raise UserError(f"--out {path}: {error.strerror}") from None
        try:
            if not claim_file(self._lock):
                raise UserError(f"--out {path}: another command is writing it; wait for it, or name another")
            if not _may_be_cut(path.read_bytes().rpartition(b"\n")[2].decode("utf-8", "replace")):
                raise UserError(f"--out {path}: its last line is not a verdict of this command; name another file")
            try:
                self._lines = JsonLines(path)
            except UserError as error:
                raise UserError(f"--out {str(error).rpartition('; ')[0]}; name another file") from None
            self.rows = self._rows_of({pair.identity: pair for pair in pairs})
        except BaseException:
            self._lock.close()
            raise

    def _rows_of(self, pairs: dict[str, Pair]) -> dict[str, dict[str, Any]]:
        """Return the rows of this manifest, by id, without those whose candidate is to be evaluated again."""
        rows: dict[str, dict[str, Any]] = {}
        for number, row in enumerate(self._lines, start=1):
            where, identity = f"--out {self.path} row {number}", str(row.get("id", ""))
            if row.get("verdict") not in ("accepted", "rejected") or not identity:
                raise UserError(f"{where}: not a verdict of this command; name another file")
            if identity in pairs:
                if not _has_figures(row):
                    raise UserError(f"{where}: not a whole verdict; remove the row, or name another file")
                self._same(row, pairs[identity], where)
                if not MOMENTARY & set(row.get("reasons") or ()):
                    rows[identity] = row
        return rows

    def _same(self, row: dict[str, Any], pair: Pair, where: str) -> None:
        for name, value in pair.stamp(self._config).items():
            if row.get(name, value) != value:
                raise UserError(
                    f"{where}: id {pair.identity!r} was evaluated with {name} {row[name]!r}, now it is {value!r}; "
                    "remove the row, or name another file"
                )

    def add(self, pair: Pair, verdict: Verdict) -> dict[str, Any]:
        """Write one verdict; it is with the operating system when this returns."""
        row = verdict_row(pair, verdict, self._config)
        self._lines.append(row)
        self.rows[pair.identity] = row
        return row

    def arrange(self, order: list[str]) -> None:
        """Rewrite the file: rows of other manifests first, then those of `order` in that order. Atomic: a kill leaves
        the file as it was or as it should be.
        """
        others = [row for row in self._lines if str(row.get("id", "")) not in self.rows]
        self._lines.keep([*others, *(self.rows[identity] for identity in order if identity in self.rows)])

    def close(self) -> None:
        """Close the file and release it to other commands; calling it twice is fine."""
        self._lines.close()
        self._lock.close()


def _has_figures(row: dict[str, Any]) -> bool:
    """Return whether a row has what summaries read of it: an accepted one has a credited speedup above 0."""
    try:
        verdict = Verdict.from_dict({**row, "status": row["verdict"]})
    except ValueError:
        return False
    credited = not verdict.accepted or 0.0 < verdict.credited_speedup < math.inf
    return credited and row.keys() >= {"reasons", "credited_speedup", *FIGURES}


def _may_be_cut(tail: str) -> bool:
    """Return whether a line without its end is the beginning of a verdict, as a kill leaves it, or nothing."""
    if not tail.startswith(_ROW_BEGINS):
        return _ROW_BEGINS.startswith(tail)
    rest = tail.removeprefix(_ROW_BEGINS)
    try:
        _, end = json.JSONDecoder().raw_decode(rest)
    except ValueError:  # cut within the id
        return True
    return rest[end:].startswith(_AFTER_ID) or _AFTER_ID.startswith(rest[end:])
