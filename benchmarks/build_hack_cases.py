#!/usr/bin/env python3
"""Builds the hack-case database that the package ships, from this repository's own candidates.

Hacks: the adversarial suites for the CPU and for CUDA, tests/evaluation/evil*/, except their faults (a crash is no
hack). Honest candidates: those that the same suites want accepted, and the right ones of the bundled corpus.

    python benchmarks/build_hack_cases.py [--out cudal1_ray/rewards/hack_cases.parquet]
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from cudal1_ray.problems import Problem, ProblemsConfig, load_corpus, load_problems
from cudal1_ray.rewards.hack_cases import CATEGORIES, SHIPPED, HackCase, HackCases, write_cases

SUITES = Path(__file__).resolve().parent.parent / "tests" / "evaluation"
ProblemOf = Callable[[str], Problem]


def cases_of_files(folder: Path, suite: str, problem_of: ProblemOf) -> list[HackCase]:
    """One case per file evil_<category>_<variant>.py or honest_<kind>.py; faults are left out."""
    cases = []
    for path in sorted(folder.glob("*.py")):
        name, text = path.stem.removeprefix("evil_"), path.read_text()
        honest = name.startswith("honest_")
        category = max((c for c in CATEGORIES if name.startswith(f"{c}_") and not honest), key=len, default="")
        asked = re.search(r"# problem: (\w+)", text)
        if asked and (honest or category):
            problem = problem_of(asked.group(1))
            reason = " ".join((ast.get_docstring(ast.parse(text)) or "").split())
            fields = {"reference": problem.source, "source": f"{suite}/{name}"}
            cases.append(HackCase.new(problem.problem_id, category, reason, _without_header(text), **fields))
    return cases


def cases_of_kinds(kinds: dict[str, tuple[str, str]], suite: str, problem_of: ProblemOf) -> list[HackCase]:
    """The honest candidates that a test module holds as kind -> (problem, code)."""
    cases = []
    for kind, (name, code) in kinds.items():
        problem = problem_of(name)
        fields = {"reference": problem.source, "source": f"{suite}/honest_{kind}"}
        cases.append(HackCase.new(problem.problem_id, "", f"Honest: {kind.replace('_', ' ')}.", code, **fields))
    return cases


def cases_of_corpus() -> list[HackCase]:
    """The right candidates of the bundled corpus."""
    problems = {problem.problem_id: problem for problem in load_problems(ProblemsConfig())}
    return [
        HackCase.new(
            entry.problem_id,
            "",
            entry.design,
            entry.code,
            reference=problems[entry.problem_id].source,
            source=f"corpus/{entry.entry_id}",
        )
        for entry in load_corpus()
        if entry.expected == "accepted" and entry.problem_id in problems
    ]


def build() -> HackCases:
    """All cases of this checkout."""
    sys.path.insert(0, str(SUITES))
    from cuda_problems import cuda_problem
    from problems_for_tests import problem
    from test_honest import KINDS

    cases = cases_of_files(SUITES / "evil", "cpu", problem) + cases_of_kinds(KINDS, "cpu", problem)
    for folder in ("evil_cuda", "honest_cuda"):
        cases += cases_of_files(SUITES / folder, "cuda", cuda_problem)
    return HackCases(None, cases + cases_of_corpus())


def _without_header(text: str) -> str:
    """The candidate without its docstring and the comments for the suite: neither is part of what it does."""
    lines = text.splitlines()[ast.parse(text).body[0].end_lineno :]
    return "\n".join(line for line in lines if not re.match(r"# \w+:", line)).strip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=SHIPPED)
    arguments = parser.parse_args()
    cases = build()
    write_cases(arguments.out, cases)
    counts = Counter(case.category for case in cases)
    print(f"{len(cases.hacks())} hacks of {len(counts) - 1} categories, {counts['']} honest candidates")
    print(f"written: {arguments.out}")


if __name__ == "__main__":
    main()
