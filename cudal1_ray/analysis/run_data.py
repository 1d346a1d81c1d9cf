"""Read a run folder into plain rows, taking what is there: the run may be half-done, or killed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import pyarrow as pa
import pyarrow.parquet as pq

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.reasons import MOMENTARY, PROBLEM_FAULTS
from cudal1_ray.files import read_json_object, salvage_json_lines
from cudal1_ray.settings.suggestions import nearest_folders, question
from cudal1_ray.wording import counted

# With their other way of asking, see `training.assessment`; the one that a stage is known by comes last.
STAGES = (
    "untrained_with_exemplars",
    "untrained",
    "sft",
    "self_supervised_with_own_exemplars",
    "self_supervised",
    "sft_with_exemplars",
    "self_supervised_with_exemplars",
    "start_with_exemplars",
    "contrastive_without_exemplars",
    "contrastive",
)
SPLITS = ("held_out", "train")

# Reasons that are no statement about a candidate. Degenerate problems are counted where they are asked for.
_FAILED_OTHERWISE = MOMENTARY | PROBLEM_FAULTS - {"degenerate_input"}
# Fields by which rows differ: each holds a text or a number.
_KEYS = ("stage", "split", "problem_id", "index", "step")
# A folder with none of these is no run.
_PARTS = ("config.yaml", "metrics.jsonl", "assessments.jsonl", "rollouts", "exemplars")

_ROLLOUT_COLUMNS = (
    "stage",
    "step",
    "problem_id",
    "index",
    "code",
    "status",
    "reasons",
    "degenerate",
    "speedup",
    "speedup_low",
    "speedup_high",
    "reward",
    "policy_version",
    "exemplar_ids",
)
_EXEMPLAR_COLUMNS = ("exemplar_id", "problem_id", "code", "speedup", "policy_version", "step", "parent_ids")


@dataclass
class RunData:
    """The rows of one run folder; `notes` names, one sentence each, what could not be read."""

    folder: Path
    config: dict[str, Any] = field(default_factory=dict)
    config_text: str = ""
    environment: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    assessments: list[dict[str, Any]] = field(default_factory=list)
    looks: list[dict[str, Any]] = field(default_factory=list)  # at the policy between two steps
    selections: list[dict[str, Any]] = field(default_factory=list)
    rollouts: list[dict[str, Any]] = field(default_factory=list)
    assessed: list[dict[str, Any]] = field(default_factory=list)  # the samples behind `assessments`, with their texts
    problems: list[dict[str, Any]] = field(default_factory=list)  # id, name, level, split and source
    exemplars: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    def counted_rollouts(self) -> list[dict[str, Any]]:
        """Return the rollouts that are neither void nor of a degenerate problem, whose speedups mean nothing."""
        return counted_rows(self.rollouts)

    def stages(self) -> list[str]:
        """Return the stages that occur in the run, in the order of the method; unknown names last."""
        names = {
            str(row["stage"])
            for rows in (self.assessments, self.metrics, self.rollouts)
            for row in rows
            if row.get("stage")
        }
        return [s for s in STAGES if s in names] + sorted(names - set(STAGES))


@overload
def number(value: Any) -> float | None: ...
@overload
def number(value: Any, default: float) -> float: ...
def number(value: Any, default: float | None = None) -> float | None:
    """Return `value` as a finite float, else `default`."""
    try:
        finite = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond what a float holds
        finite = False
    return float(value) if finite else default


def is_accepted(row: Mapping[str, Any]) -> bool:
    return row.get("status") == "accepted"


def is_void(row: Mapping[str, Any]) -> bool:
    """Return whether a row is no statement about its candidate: the evaluator or the reference failed."""
    return not _FAILED_OTHERWISE.isdisjoint(text_list(row.get("reasons")))


def is_degenerate(row: Mapping[str, Any]) -> bool:
    """Return whether the output of a row's problem does not depend on its input; older runs only have the reason."""
    return bool(row.get("degenerate")) or "degenerate_input" in text_list(row.get("reasons"))


def degenerate_problems(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return ids of the problems that any row flags: a candidate may fail before its problem is ever opened."""
    return {str(row["problem_id"]) for row in rows if row.get("problem_id") and is_degenerate(row)}


def counted_rows(rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the rows that shares and means are of: neither void, nor of a problem that any of the rows flags as
    degenerate, so that its speedups mean nothing.
    """
    rows = list(rows)
    left_out = degenerate_problems(rows)
    return [row for row in rows if str(row.get("problem_id")) not in left_out and not is_void(row)]


def credited_speedup(row: Mapping[str, Any]) -> float:
    """Return the speedup of an accepted row, 0.0 of any other."""
    return max(0.0, number(row.get("speedup"), 0.0)) if is_accepted(row) else 0.0


def text_list(value: Any) -> list[str]:
    """Return a list as strings, empty for null and anything else."""
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else []


def read_run(folder: str | Path) -> RunData:
    """Read everything in the run folder that can be read.

    Raises UserError when the folder does not exist or holds no run. A missing file is an empty list; an
    unreadable line or shard is skipped and mentioned in `notes`.
    """
    path = Path(folder)
    if not path.is_dir():
        advice = question(nearest_folders(path)) or "give the folder of a run, for example runs/<name>"
        raise UserError(f"run folder {str(folder)!r} does not exist: {advice}")
    if (path / "sweep.json").is_file():
        raise UserError(f"{folder}: a sweep; give one of its runs, or `cudal1 report --sweep {folder}`")
    if not any((path / name).exists() for name in _PARTS):
        parts = ", ".join(_PARTS)
        raise UserError(f"{str(folder)!r} holds no run (none of {parts}): give the folder of a run")
    run = RunData(folder=path)
    run.config_text, run.config = _read_config(path / "config.yaml", run.notes)
    run.environment = _read_json_object(path / "environment.json", run.notes)
    run.metrics = _merge_steps(_read_lines(path / "metrics.jsonl", run.notes))
    run.looks = _read_lines(path / "assessments_during.jsonl", run.notes)
    run.assessments = _last_by_index(_read_lines(path / "assessments.jsonl", run.notes))
    run.selections = _read_lines(path / "selections.jsonl", run.notes)
    run.problems = _read_lines(path / "problems.jsonl", run.notes)
    for name, rows in (("rollouts", run.rollouts), ("assessed", run.assessed)):
        shards = [(shard, None) for shard in sorted((path / name).glob("*.parquet"))]
        rows.extend(_read_shards(shards, _ROLLOUT_COLUMNS, run.notes))
    flagged = degenerate_problems([*run.assessments, *run.rollouts])
    for row in [*run.assessments, *run.rollouts, *run.assessed] if flagged else ():
        row["degenerate"] = str(row.get("problem_id")) in flagged
    exemplars = _read_shards(_exemplar_shards(path / "exemplars", run.notes), _EXEMPLAR_COLUMNS, run.notes)
    run.exemplars = list({row.get("exemplar_id") or f"row {i}": row for i, row in enumerate(exemplars)}.values())
    return run


def read_texts(row: dict[str, Any], columns: Iterable[str]) -> dict[str, str]:
    """Return the long text columns (prompt, completion) of one row of `RunData.rollouts`, from its shard."""
    shard, place = row["_shard"], row["_row"]
    try:
        names = [name for name in columns if name in pq.read_schema(shard).names]
        table = pq.read_table(shard, columns=names).slice(place, 1)
    except (OSError, pa.ArrowException):
        return {}
    texts = table.to_pylist()
    return {name: value for name, value in (texts[0] if texts else {}).items() if isinstance(value, str)}


def _read_lines(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    every, unreadable = salvage_json_lines(path)
    rows = [row for row in every if not any(isinstance(row.get(key), (list, dict)) for key in _KEYS)]
    if unreadable := unreadable + len(every) - len(rows):
        notes.append(f"{path.name}: {counted(unreadable, 'unreadable line')} skipped.")
    return rows


def _read_json_object(path: Path, notes: list[str]) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return read_json_object(path)
    except UserError:
        notes.append(f"{path.name} could not be read.")
        return {}


def _read_config(path: Path, notes: list[str]) -> tuple[str, dict[str, Any]]:
    if not path.is_file():
        return "", {}
    from cudal1_ray.config import read_settings

    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        return text, read_settings(path.parent)
    except UserError as error:
        notes.append(f"{path.name} is not readable as a configuration ({error}).")
        return text, {}


def _merge_steps(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each (stage, step): a step repeated after a resume is merged, the latest wins."""
    merged: dict[Any, dict[str, Any]] = {}
    for place, row in enumerate(rows):
        key = (row.get("stage"), row["step"]) if number(row.get("step")) is not None else ("no step", place)
        merged[key] = {**merged.get(key, {}), **row}
    return list(merged.values())


def _last_by_index(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each (stage, split, problem, index): a resumed assessment may write one twice."""
    rows_by_key: dict[Any, dict[str, Any]] = {}
    for place, row in enumerate(rows):
        if "index" in row:
            rows_by_key[(row.get("stage"), row.get("split"), row.get("problem_id"), row["index"])] = row
        else:
            rows_by_key[("no index", place)] = row
    return list(rows_by_key.values())


def _exemplar_shards(folder: Path, notes: list[str]) -> list[tuple[Path, int | None]]:
    """Return (shard, rows that count) of the buffer: those that its manifest names, else all that are there."""
    shards = _read_json_object(folder / "manifest.json", notes).get("shards")
    try:
        if isinstance(shards, list):
            return [(folder / str(file), int(rows)) for file, rows in shards]
    except (TypeError, ValueError):
        pass
    return [(shard, None) for shard in sorted(folder.rglob("*.parquet"))]


def _read_shards(
    shards: Sequence[tuple[Path, int | None]], columns: tuple[str, ...], notes: list[str]
) -> Iterable[dict[str, Any]]:
    """Yield the rows of shards, at most the given number of each, with the shard and the row's place in it."""
    unreadable = []
    for shard, limit in shards:
        try:
            names = pq.read_schema(shard).names
            rows = pq.read_table(shard, columns=[name for name in columns if name in names]).to_pylist()
        except (OSError, pa.ArrowException):
            unreadable.append(shard.name)
            continue
        for place, row in enumerate(rows[:limit]):
            yield {**row, "_shard": shard, "_row": place}
    if unreadable:
        notes.append(f"Unreadable Parquet shards skipped: {', '.join(unreadable)}.")
