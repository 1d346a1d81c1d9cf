"""Winners measured again: against other baselines, in other sizes, on another device."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.paper.records import rule_settings
from cudal1_ray import cli
from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.reasons import MOMENTARY
from cudal1_ray.evaluation.verdict import candidate_hash
from cudal1_ray.files import JsonLines, read_json_lines, write_atomically
from cudal1_ray.problems import load_problems
from cudal1_ray.source.text import clean_text


def measure(
    rows: list[dict[str, Any]],
    against: Sequence[str],
    folder: Path,
    problem_settings: list[str],
    arguments: list[str],
    lacking: bool = False,
) -> Iterator[Path]:
    """Measure winners under the rules of their runs by `cudal1 evaluate`, and yield a file of verdicts per baseline.

    A verdict that its file has of the same candidate is not made again.

    Args:
        rows: those of a data set.
        folder: where manifests and verdicts go.
        problem_settings: those that load the problems.
        arguments: further ones of `cudal1 evaluate`, such as --device cuda.
        lacking: leave out winners that have a speedup against the baseline.

    Raises:
        UserError: the settings load none of the problems, or others than those of the folder's verdicts, or the
            winners were trained under several sets of rules.
        SystemExit: `cudal1 evaluate` was interrupted or refuses its arguments, as it has printed.
    """
    rules = measuring_settings(rows)
    for baseline in against:
        chosen = [row for row in rows if not lacking or baseline not in ("eager", *dict(row["baselines"] or ()))]
        if lacking and not chosen:
            continue
        name = "-".join(part for part in Path(baseline).parts if part != "/")  # files in two folders may share a name
        lines, verdicts = folder / f"{name}.manifest.jsonl", folder / f"{name}.jsonl"
        entries = manifest(chosen, problem_settings)
        folder.mkdir(parents=True, exist_ok=True)
        _require_same_problems(folder, {entry["id"]: _hash(entry["problem"]) for entry in entries})
        write_atomically(lines, "".join(json.dumps(entry) + "\n" for entry in entries))
        _drop_other_candidates(verdicts, {entry["id"]: _hash(entry["candidate"]) for entry in entries})
        command = ["evaluate", "--manifest", str(lines), "--out", str(verdicts), "--against", baseline]
        code = cli.main([*command, *arguments, *rules])
        if verdicts.is_file():
            yield verdicts
        if code:
            raise SystemExit(code)


def verdict_files(folder: Path) -> list[Path]:
    """Return the files of verdicts that `measure` has left in a folder, by any command."""
    return [file for file in sorted(folder.glob("*.jsonl")) if not file.name.endswith(".manifest.jsonl")]


def _require_same_problems(folder: Path, hashes: dict[str, str]) -> None:
    """Raise UserError where any verdict, against any baseline, was made on another text of its problem."""
    for file in verdict_files(folder):
        for row in read_json_lines(file):
            made_on = row.get("problem_hash", "")
            if made_on and hashes.get(row["id"], made_on) != made_on:
                raise UserError(
                    f"{file}: {row['id']} was measured in other sizes or with another text; give another --out"
                )


def _drop_other_candidates(verdicts: Path, hashes: dict[str, str]) -> None:
    """Remove verdicts on what won these problems before, which `cudal1 evaluate` would refuse to go on from."""
    lines = JsonLines(verdicts)
    current = [row for row in lines if hashes.get(row.get("id"), code := row.get("candidate_hash")) == code]
    if len(current) < sum(1 for _ in lines):
        lines.keep(current)
    lines.close()


def _hash(code: str) -> str:
    """Return the hash by which a verdict names its candidate."""
    return candidate_hash(clean_text(code))


def manifest(rows: list[dict[str, Any]], overrides: list[str]) -> list[dict[str, str]]:
    """Return rows of a manifest, for the problems that the settings load.

    Raises:
        UserError: they load none of the problems, or there is no row.
    """
    if not rows:
        raise UserError("the data set has no winner: no accepted candidate that the policy wrote itself was found")
    problems = {problem.problem_id: problem.source for problem in load_problems(load_config(overrides).problems)}
    entries = [
        {"id": row["problem_id"], "problem": problems[row["problem_id"]], "candidate": row["code"]}
        for row in rows
        if row["problem_id"] in problems
    ]
    if not entries:
        raise UserError("problems: the settings load none of the data set's problems; give problems.path and levels")
    return entries


def measuring_settings(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the settings with which `cudal1 evaluate` holds winners to the rules that they were trained under.

    Raises:
        UserError: they were trained under several sets of rules, which one command cannot measure.
    """
    sets = {tuple(rule_settings(dict(row.get("rules") or ()))): row for row in rows}
    if len(sets) > 1:
        arms = "; ".join(f"{row['arm']}: {' '.join(settings) or 'defaults'}" for settings, row in sets.items())
        raise UserError(f"rules: the winners were trained under several ({arms}); export these arms by themselves")
    return list(next(iter(sets), ()))


def with_verdicts(rows: list[dict[str, Any]], files: list[Path], sizes: str = "") -> list[dict[str, Any]]:
    """Return the rows with the verdicts: speedups against eager, and against other baselines on the same device.

    A candidate that was rejected is left out. A baseline that a reference cannot be measured as has no speedup; the
    candidate stays. What was measured on another device, or in other sizes, before is left out, and so is a verdict on
    another candidate. A rejection that another evaluation may not repeat, which the next one replaces, is no verdict.

    Args:
        sizes: those of the problems that were measured; a row without a verdict against eager has no speedup there and
            is left out. Empty: as the rows have them, and such a row stays as it is.
    """
    verdicts: dict[str, dict[str, dict[str, Any]]] = {}
    for verdict in (verdict for file in files for verdict in read_json_lines(file)):
        if MOMENTARY.isdisjoint(verdict.get("reasons", ())):
            verdicts.setdefault(str(verdict["id"]), {})[verdict["against"]] = verdict
    kept = []
    for row in rows:
        of_problem, code_hash = verdicts.get(row["problem_id"], {}), _hash(row["code"])
        of_row = {name: of for name, of in of_problem.items() if of.get("candidate_hash", code_hash) == code_hash}
        eager, winner = of_row.pop("eager", None), row | {"sizes": sizes or row["sizes"]}
        if (eager is None and sizes) or (eager is not None and eager["verdict"] != "accepted"):
            continue
        if eager is not None:
            winner |= {name: float(eager[name]) for name in ("speedup", "speedup_low", "speedup_high")}
            winner["device"] = eager["hardware"]
        is_moved = sizes or winner["device"] != row["device"]
        right = {
            name: verdict
            for name, verdict in of_row.items()
            if verdict["verdict"] == "accepted" and winner["device"] in ("", verdict["hardware"])
        }
        for column, figure in (("baselines", "speedup"), ("baselines_low", "speedup_low")):
            earlier = {} if is_moved else dict(row.get(column) or ())
            winner[column] = [*(earlier | {name: float(verdict[figure]) for name, verdict in right.items()}).items()]
        kept.append(winner)
    return kept
