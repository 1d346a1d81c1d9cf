"""Problems: what a policy is asked to make faster, where they are loaded from, and the stage-1 corpus."""

from __future__ import annotations

from cudal1_ray.problems.config import ProblemsConfig
from cudal1_ray.problems.corpus import CorpusEntry, load_corpus
from cudal1_ray.problems.corpus_sources import read_corpus
from cudal1_ray.problems.members import MemberDraw
from cudal1_ray.problems.problem import HELD_OUT, TRAIN, Problem, parse_problem
from cudal1_ray.problems.select import load_problems, register_source

__all__ = [
    "HELD_OUT",
    "TRAIN",
    "CorpusEntry",
    "MemberDraw",
    "Problem",
    "ProblemsConfig",
    "load_corpus",
    "load_problems",
    "parse_problem",
    "read_corpus",
    "register_source",
]
