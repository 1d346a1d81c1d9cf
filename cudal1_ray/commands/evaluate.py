"""`cudal1 evaluate`: is this candidate right, and how much faster is it really?"""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import Evaluator, Verdict
from cudal1_ray.problems import Problem, ProblemsConfig, load_problems, parse_problem


def evaluate_file(candidate: str, problem: str, device: str, as_json: bool, console: Console | None = None) -> int:
    """Judges one candidate file and prints its verdict; 0 whatever the verdict is.

    Raises:
        UserError: when a file is missing, or the problem is none.
    """
    console = console or Console()
    code, judged_against = read_candidate(Path(candidate)), read_problem(problem)
    config = load_config([f"evaluation={device}"]).evaluation
    with Evaluator(config) as evaluator, console.status("measuring") if not as_json else nullcontext():
        verdict = evaluator.evaluate(judged_against, code)
    if as_json:
        print(json.dumps(verdict.to_dict()))
    else:
        console.print(verdict_table(verdict))
    return 0


def read_candidate(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give a Python file that defines ModelNew") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file; give a Python file that defines ModelNew") from None


def read_problem(name: str) -> Problem:
    """A KernelBench file, or a bundled problem by its id."""
    path = Path(name)
    if path.is_file():
        return parse_problem(path.read_text(), path.stem, origin=str(path))
    known = {p.problem_id: p for p in load_problems(ProblemsConfig())}
    if name in known:
        return known[name]
    raise UserError(f"--problem {name}: no such file, and no bundled problem of that id (for example {min(known)})")


def verdict_table(verdict: Verdict) -> Table:
    """A verdict for a person: what it says first, then what it was made of."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    colour = "green" if verdict.accepted else "red"
    table.add_row("verdict", f"[bold {colour}]{verdict.status}[/]")
    if verdict.reasons:
        table.add_row("reasons", ", ".join(verdict.reasons))
    if verdict.detail:
        table.add_row("detail", verdict.detail)
    if verdict.timed_runs:
        interval = f"95% interval {verdict.speedup_low:.3f} to {verdict.speedup_high:.3f}"
        table.add_row("speedup", f"[bold]{verdict.speedup:.3f}x[/]  ({interval})")
        table.add_row("credited", f"{verdict.credited_speedup:.3f}x")
        table.add_row("candidate", f"{verdict.runtime_ms:.4f} ms")
        table.add_row("reference", f"{verdict.reference_ms:.4f} ms")
        table.add_row("timed runs", f"{verdict.timed_runs:,} on {verdict.device}, {verdict.evaluation_s:.2f} s in all")
    return table
