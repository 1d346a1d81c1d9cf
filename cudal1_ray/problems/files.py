"""One problem from one file that a user names, in whichever form it is."""

from __future__ import annotations

from pathlib import Path

from cudal1_ray.problems.other_forms import TASK_FILE, read_definition, read_task
from cudal1_ray.problems.problem import Problem, parse_problem, problem_id_of
from cudal1_ray.source.text import read_source


def read_problem_file(path: Path) -> Problem:
    """Return the problem of a KernelBench file, of a task of robust-kbench, or of a definition's first workload.

    Raises:
        UserError: naming the file, where it cannot be read or is no problem.
    """
    source = read_source(path, "; give a KernelBench file")
    if path.suffix == ".json":
        return read_definition(path)[0]
    if path.name == TASK_FILE:
        return read_task(path.resolve(), source)
    return parse_problem(source, problem_id_of(path.stem), origin=str(path))
