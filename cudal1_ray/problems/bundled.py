"""The problems that come with the package: small ones, with head-room on a CPU of one core.

`bundled/train/<family>_<n>.py` and `bundled/held_out/<family>_<n>.py`. A family is one kind of inefficiency;
its held-out member shares the kind, but neither the sizes nor the exact composition of those trained on.
"""

from __future__ import annotations

from pathlib import Path

from cudal1_ray.problems.problem import SPLITS, Problem, parse_problem

FOLDER = Path(__file__).parent / "bundled"


def load_bundled() -> list[Problem]:
    """Return the bundled problems of both splits in the order of their ids; a family is the id without its number."""
    problems = []
    for split in SPLITS:
        for file in (FOLDER / split).glob("*.py"):
            family = file.stem.rpartition("_")[0]
            source = file.read_text(encoding="utf-8")
            problems.append(
                parse_problem(source, file.stem, origin=str(file), name=file.stem, family=family, split=split)
            )
    return sorted(problems, key=lambda problem: problem.problem_id)
