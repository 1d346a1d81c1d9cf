"""`cudal1 evaluate --run`: a folder of KernelBench generations, scored as KernelBench does, by our verdicts.

KernelBench's scripts write `level_L_problem_P_sample_S_kernel.py` files, and score sample 0 of each problem: fast_p is
the share of all problems of the level whose candidate is right and more than p times as fast as the baseline (Ouyang
et al., arXiv 2502.10517).
"""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cudal1_ray.analysis.summary import write_report_file
from cudal1_ray.analysis.tables import print_table
from cudal1_ray.commands.evaluate_manifest import INTERRUPTED, evaluate_pairs, report_skipped
from cudal1_ray.commands.manifest import Pair, VerdictFile
from cudal1_ray.config import Config
from cudal1_ray.errors import UserError
from cudal1_ray.problems import Problem, load_problems
from cudal1_ray.problems.kernelbench import kernelbench_id
from cudal1_ray.source.text import read_source

GENERATION = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
# Values of p in fast_p, as in KernelBench's analysis.
THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
# Reasons of what KernelBench calls not compiled.
UNBUILT = frozenset({"unparsable", "compile_error", "missing_model"})


def evaluate_run(run: str, out: str | None, config: Config, *, over_ray: bool = False, as_json: bool = False) -> int:
    """Evaluate every generation of a folder against its problem of `config.problems`, and print KernelBench's scores.

    Verdicts go to `out` (default: `cudal1_verdicts.jsonl` in the folder) as they come; a run that was stopped goes on
    from there. The scores are written to `cudal1_scores.json` in the folder.

    Returns:
        0 whatever the verdicts are, 130 when it was interrupted.

    Raises:
        UserError: for a folder without generations, and problems that cannot be loaded.
    """
    folder, console = Path(run), Console(stderr=as_json)
    problems = load_problems(config.problems)
    pairs, skipped = read_generations(folder, problems)
    verdict_file, score_file = Path(out) if out else folder / "cudal1_verdicts.jsonl", folder / "cudal1_scores.json"
    with VerdictFile(verdict_file, pairs, config.evaluation) as verdicts:
        if not evaluate_pairs(pairs, verdicts, config, console, over_ray):
            return INTERRUPTED
        levels = sorted({problem.level for problem in problems if problem.level is not None})
        scores = [score_level(level, problems, verdicts.rows) for level in levels]
    scores = [score for score in scores if score["evaluated"]]
    report = {"run": folder.name, "against": config.evaluation.against, "levels": scores}
    report_skipped(skipped, console)
    if as_json:
        print(json.dumps(report | {"skipped": len(skipped)}))
    else:
        print_table(console, score_table(scores))
    write_report_file(score_file, json.dumps(report, indent=2) + "\n")  # what is printed is seen where this fails
    if not as_json:
        console.print(f"verdicts: {verdict_file}, scores: {score_file}", soft_wrap=True, markup=False, highlight=False)
    return 0


def read_generations(folder: Path, problems: Sequence[Problem]) -> tuple[list[Pair], list[str]]:
    """Return the pairs of a folder's generations, in the order of level, problem and sample, and a line for each
    generation that has no problem or cannot be read.

    Raises:
        UserError: when there is no folder, or no generation of these problems in it.
    """
    if not folder.is_dir():
        raise UserError(f"--run {folder}: no such folder; give one with level_1_problem_2_sample_0_kernel.py files")
    by_id = {problem.problem_id: problem for problem in problems}
    matches = ((GENERATION.fullmatch(file.name), file) for file in folder.iterdir())
    generations = sorted((int(m[1]), int(m[2]), int(m[3]), file) for m, file in matches if m)
    if not generations:
        raise UserError(f"--run {folder}: holds no generation, such as level_1_problem_2_sample_0_kernel.py")
    pairs, skipped = [], []
    for level, number, _, file in generations:
        problem = by_id.get(kernelbench_id(level, number))
        if problem is None:
            skipped.append(f"{file}: problem {number} of level {level} is not among the problems given (problems.path)")
            continue
        try:
            code = read_source(file)
        except UserError as error:
            skipped.append(str(error))
            continue
        identity = file.name.removesuffix("_kernel.py")
        pairs.append(Pair(identity, identity, problem, code))
    if not pairs:
        raise UserError(skipped[0])
    return pairs, skipped


def score_level(level: int, problems: Sequence[Problem], rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the scores of one level over all of its problems; a problem without a generation counts as a failure.

    Args:
        rows: verdicts by id, `level_1_problem_2_sample_0`.

    Returns:
        `problems`, `evaluated` (problems with a generation), `compiled`, `correct`, `geometric_mean` (of correct ones,
        None without any) and `fast_p` by threshold: all of sample 0, as KernelBench counts; `best_of_n` is `fast_p`
        with each problem's best sample, `samples` their largest number.
    """
    samples: dict[int, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for identity, row in rows.items():
        of_level, number, sample = (int(part) for part in re.findall(r"\d+", identity))
        if of_level == level:
            samples[number][sample] = row
    total = sum(problem.level == level for problem in problems)
    first = [rows_of_problem[0] for rows_of_problem in samples.values() if 0 in rows_of_problem]
    correct = [row["credited_speedup"] for row in first if row["verdict"] == "accepted"]
    best = [max(row["credited_speedup"] for row in rows_of_problem.values()) for rows_of_problem in samples.values()]
    return {
        "level": level,
        "problems": total,
        "evaluated": len(samples),
        "compiled": sum(UNBUILT.isdisjoint(row["reasons"]) for row in first),
        "correct": len(correct),
        "geometric_mean": statistics.geometric_mean(correct) if correct else None,
        "fast_p": {str(p): sum(speedup > p for speedup in correct) / total for p in THRESHOLDS},
        "best_of_n": {str(p): sum(speedup > p for speedup in best) / total for p in THRESHOLDS},
        "samples": max((len(rows_of_problem) for rows_of_problem in samples.values()), default=0),
    }


def score_table(levels: Sequence[Mapping[str, Any]]) -> Table:
    """Return the scores for a person: a row for each level."""
    table = Table(box=None, padding=(0, 1))
    columns = ("level", "problems", "evaluated", "compiled", "correct", "fast_0", "fast_1", "fast_2", "geomean")
    for column in columns:
        table.add_column(column, justify="right")
    for row in levels:
        shares = [f"{100 * row['fast_p'][p]:.1f}%" for p in ("0.0", "1.0", "2.0")]
        mean = "none" if row["geometric_mean"] is None else f"{row['geometric_mean']:.3f}x"
        counts = [str(row[name]) for name in ("level", "problems", "evaluated", "compiled", "correct")]
        table.add_row(*counts, *shares, mean)
        if row["samples"] > 1:
            shares = [f"{100 * row['best_of_n'][p]:.1f}%" for p in ("0.0", "1.0", "2.0")]
            table.add_row("", "", f"best of {row['samples']}", "", "", *shares, "")
    return table
