"""The key of a problem, apart from open problems: the owner of a pool needs it, and nothing that imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudal1_ray.evaluation.verdict import candidate_hash
from cudal1_ray.problems import Problem

if TYPE_CHECKING:
    from cudal1_ray.evaluation.opening.session import ProblemSession


def session_key(problem: Problem | ProblemSession) -> str:
    """Return the key of a problem's text: whatever an evaluator keeps open belongs to one key alone."""
    return f"{problem.problem_id}:{candidate_hash(problem.source)}"
