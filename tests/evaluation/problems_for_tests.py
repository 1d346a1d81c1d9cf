"""Small problems that the evaluator's tests share: each costs a fraction of a millisecond to a few milliseconds."""

from __future__ import annotations

from cudal1_ray.adversarial import load_problem
from cudal1_ray.problems import Problem


def problem(name: str) -> Problem:
    """Return the problem in a file of tests/adversarial/cpu/problems."""
    return load_problem("cpu", name)


def renamed(name: str) -> str:
    """Return the reference of a problem as a candidate."""
    return problem(name).source.replace("class Model(", "class ModelNew(")


CHAIN = problem("chain").source
