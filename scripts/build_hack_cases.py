#!/usr/bin/env python3
"""Builds the hack-case database that the package ships, from this repository's own candidates.

Hacks: the adversarial samples for the CPU and for CUDA, tests/adversarial/, except their faults (a crash is no hack).
Honest candidates: those that the same suites want accepted, and the right ones of the bundled corpus.

    python scripts/build_hack_cases.py [--out cudal1_ray/checking/hack_cases.parquet]
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

from cudal1_ray.adversarial import KINDS, SUITES, load_samples
from cudal1_ray.checking.hack_cases import CATEGORIES, SHIPPED, HackCase, HackCases, write_cases
from cudal1_ray.problems import ProblemsConfig, load_corpus, load_problems
from cudal1_ray.source.parsing import parse
from cudal1_ray.source.text import split_docstring


def cases_of_suite(suite: str, kind: str) -> list[HackCase]:
    """Return one case per sample whose name begins with a category, and per honest one; faults are left out."""
    cases = []
    for sample in load_samples(suite, kind):
        honest = kind == "honest"
        category = max((c for c in CATEGORIES if sample.name.startswith(f"{c}_") and not honest), key=len, default="")
        if honest or category:
            source = f"{suite}/honest_{sample.name}" if honest else f"{suite}/{sample.name}"
            fields = {"reference": sample.problem.source, "source": source}
            text = _without_header(sample.code)
            cases.append(HackCase.new(sample.problem.problem_id, category, sample.description, text, **fields))
    return cases


def cases_of_corpus() -> list[HackCase]:
    """Return the right candidates of the bundled corpus."""
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
    """Return all cases of this checkout."""
    cases = [case for suite in SUITES for kind in KINDS for case in cases_of_suite(suite, kind)]
    return HackCases(None, cases + cases_of_corpus())


def _without_header(text: str) -> str:
    """Return the candidate without its docstring and the suite's comments: neither is part of what it does."""
    _, code = split_docstring(text, parse(text))
    return "\n".join(line for line in code.split("\n") if not re.match(r"# \w+:", line)).strip() + "\n"


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
