"""A problem: one KernelBench file, whose `Model` a candidate's `ModelNew` must reproduce and outrun."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from cudal1_ray.errors import UserError
from cudal1_ray.source.nodes import class_named, function_named, required_arguments
from cudal1_ray.source.parsing import parse_named
from cudal1_ray.source.text import clean_text

TRAIN = "train"
HELD_OUT = "held_out"
SPLITS = (TRAIN, HELD_OUT)

REQUIRED_FUNCTIONS = ("get_inputs", "get_init_inputs")
_PROBLEM_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


@dataclass(frozen=True)
class Problem:
    """One problem. Its source is text: the evaluator's processes run it, and `problems/sizes/` to compute other sizes.

    Attributes:
        problem_id: unique in a run, safe as a file name.
        source: the whole file: `Model`, `get_inputs()`, `get_init_inputs()`.
        name: what its authors call it.
        family: what kind of inefficiency it holds ("" where that is unknown).
        level: KernelBench level, None for problems of no level.
        split: "train", or "held_out" for problems that are only ever assessed.
    """

    problem_id: str
    source: str
    name: str
    family: str = ""
    level: int | None = None
    split: str = TRAIN

    @property
    def held_out(self) -> bool:
        return self.split == HELD_OUT


def problem_id_of(name: str) -> str:
    """Return the problem id of a file's or a class's name: what an id may not hold becomes a dash.

    A name of which nothing is left, as one in another script, gets an id of its digest, which keeps it apart.
    """
    identity = re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-")[:120]
    return identity or f"problem-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def parse_problem(
    source: str,
    problem_id: str,
    *,
    origin: str = "problem",
    name: str = "",
    family: str = "",
    level: int | None = None,
    split: str = TRAIN,
) -> Problem:
    """Make a Problem of a file's text, reading its syntax tree only: nothing in it is executed.

    Args:
        source: the file's text.
        problem_id: letters, digits, `.`, `_` and `-` only, as it becomes part of file names.
        origin: where the text came from (a path, or a row of a table), for messages.
        name, family, level, split: as in `Problem`; an empty name becomes the id.

    Raises:
        UserError: names `origin` when the id or the split is invalid, when the text does not parse, or lacks a
            top-level class `Model`, or functions `get_inputs()` and `get_init_inputs()` that can be called without
            arguments.
    """
    if not _PROBLEM_ID.fullmatch(problem_id):
        raise UserError(f"{origin}: problem id {problem_id!r} may hold only letters, digits and . _ - (at most 120)")
    if split not in SPLITS:
        raise UserError(f"{origin}: split {split!r} is none of {', '.join(SPLITS)}")
    source = clean_text(source)  # of a table, which keeps what files lose
    tree = parse_named(source, origin)
    if class_named(tree, "Model") is None:
        raise UserError(f"{origin}: no top-level class `Model`; a problem file defines the reference under that name")
    for required in REQUIRED_FUNCTIONS:
        function = function_named(tree, required)
        if function is None:
            raise UserError(f"{origin}: no top-level function `{required}()`; a problem file defines it")
        if required_arguments(function):
            raise UserError(f"{origin}: `{required}` is called without arguments, but requires some")
    return Problem(problem_id, source, name or problem_id, family, level, split)


def sorted_by_id(problems: Iterable[Problem], origin: str) -> list[Problem]:
    """Return the problems in the order of their ids.

    Raises:
        UserError: for two of one id, which would share exemplars and verdicts.
    """
    problems = sorted(problems, key=lambda problem: problem.problem_id)
    for first, second in zip(problems, problems[1:], strict=False):
        if first.problem_id == second.problem_id:
            both = f"{first.name!r} and {second.name!r} have one problem id, {first.problem_id}"
            raise UserError(f"{origin}: {both}; rename one of them")
    return problems
