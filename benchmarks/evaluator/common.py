"""What the evaluator's benchmarks share: their pairs of problem and candidate, and their configuration."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig
from cudal1_ray.problems import Problem, ProblemsConfig, load_problems, parse_problem


def evaluation_config(device: str, overrides: list[str]) -> EvaluationConfig:
    return load_config([f"evaluation={device}", *overrides]).evaluation


def published_pairs(path: Path, rows: slice) -> list[tuple[str, Problem, str]]:
    """Return (id, problem, candidate) of each row with a candidate in the Parquet that CUDA-L1's authors published."""
    try:
        table = pq.read_table(path).to_pylist()[rows]
    except OSError as error:
        raise UserError(f"{path}: {error}") from None
    pairs = []
    for row in table:
        if (row["custom_code"] or "None").strip() != "None":  # both stand for "none was found"
            identity = f"level{row['level_id']}_{row['task_id']}"
            pairs.append((identity, parse_problem(row["ref_code"], identity, origin=str(path)), row["custom_code"]))
    return pairs


def reference_pairs(path: Path | None, rows: slice) -> list[tuple[str, Problem, str]]:
    """Return each reference, renamed, as its own candidate: of a Parquet file, or the bundled ones."""
    if path is None:
        problems = load_problems(ProblemsConfig())[rows]
    else:
        column = "ref_code" if "ref_code" in pq.read_schema(path).names else "code"
        levels = "level_id" if column == "ref_code" else "level"
        table = [row for row in pq.read_table(path).to_pylist() if int(row[levels]) <= 3][rows]
        numbers = "task_id" if column == "ref_code" else "problem_id"
        problems = [parse_problem(row[column], f"level{row[levels]}_{row[numbers]}", origin=str(path)) for row in table]
    return [(problem.problem_id, problem, as_candidate(problem.source)) for problem in problems]


def as_candidate(source: str) -> str:
    """Return the reference under the candidate's name."""
    return source + "\n\nclass ModelNew(Model):\n    pass\n"


def rows_of(text: str) -> slice:
    """Return the slice that `first:end:step` names, as in Python."""
    return slice(*(int(part) if part else None for part in text.split(":")))
