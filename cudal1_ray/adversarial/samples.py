"""Load the adversarial and honest candidates that the project's evaluator is tested with.

A sample is a file `<suite>/<kind>/<name>.py`: a docstring that describes its trick, then comments `# <field>: <value>`,
then the candidate. A problem is a file `<suite>/problems/<name>.py`. README.md beside the suites lists the fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from cudal1_ray.errors import UserError
from cudal1_ray.problems import Problem

SUITES = ("cpu", "cuda")
KINDS = ("adversarial", "honest")
EXPECTATIONS = ("refused", "uncredited", "accepted")

# Reasons that fit several cheats equally well: work that is late, and outputs that are not the answer.
GROUPS = {
    "late": frozenset({"async_stream", "async_thread", "lazy_tensor"}),
    "wrong": frozenset(
        {
            "wrong_output",
            "wrong_structure",
            "partial_compute",
            "phase_detection",
            "tolerance_exploit",
            "precision_downgrade",
            "nan_comparison",
            "stale_memory",
            "result_cache",
        }
    ),
}
# Highest speedup that an uncredited sample may be credited with: what a measurement's noise reaches. A CPU is noisier.
MOST_UNEARNED = {"cpu": 1.15, "cuda": 1.05}
# Prefixes of the problem ids, which the shipped hack cases carry.
_PROBLEM_IDS = {"cpu": "test/", "cuda": "cuda-"}
_FIELD = re.compile(r"^# (problem|expect|reasons|control|least|most): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Sample:
    """One candidate and the verdict that an evaluator must reach.

    Attributes:
        name: `<category>_<variant>` for an adversarial one; unique in its suite and kind.
        suite: "cpu" or "cuda", the device that it needs.
        kind: "adversarial" or "honest".
        description: one sentence, what the candidate does.
        problem: what it claims to solve.
        code: the candidate's whole text, which defines `ModelNew`.
        expectation: "refused" (rejected without its static check, for one of `reasons`), "uncredited" (rejected for one
            of `reasons`, or accepted with a speedup of at most `most`) or "accepted".
        reasons: the rejection reasons that name its trick; empty for an honest one.
        control: an honest sample to evaluate next: it fails where this one damaged the evaluator. Empty for any.
        least: speedup that an honest one reaches on any large GPU; 0.0 where none is certain.
        most: highest speedup that may be credited; only noise is above 1.0.
    """

    name: str
    suite: str
    kind: str
    description: str
    problem: Problem
    code: str
    expectation: str
    reasons: frozenset[str] = frozenset()
    control: str = ""
    least: float = 0.0
    most: float = 0.0


def folder() -> Path:
    """Return the folder of the suites: inside an installed package, else in the checkout."""
    package = Path(str(files("cudal1_ray")))
    places = (package / "adversarial" / "suites", package.parent / "tests" / "adversarial")
    return next(place for place in places if place.is_dir())


def load_samples(suite: str, kind: str) -> list[Sample]:
    """Return the samples of a suite ("cpu" or "cuda") and kind ("adversarial" or "honest"), by name.

    Raises:
        UserError: for a suite or kind that does not exist, or naming the file whose head lacks a field.
    """
    if suite not in SUITES or kind not in KINDS:
        raise UserError(f"samples {suite}/{kind}: use a suite of {', '.join(SUITES)} and a kind of {', '.join(KINDS)}")
    return [_load(path, suite, kind) for path in sorted((folder() / suite / kind).glob("*.py"))]


@cache
def load_problem(suite: str, name: str) -> Problem:
    """Return a problem of a suite. Raises UserError when there is none of that name."""
    path = folder() / suite / "problems" / f"{name}.py"
    if not path.is_file():
        raise UserError(
            f"problem {name!r}: {path.parent} has {', '.join(sorted(p.stem for p in path.parent.iterdir()))}"
        )
    return Problem(f"{_PROBLEM_IDS[suite]}{name}", path.read_text(encoding="utf-8"), name)


def _load(path: Path, suite: str, kind: str) -> Sample:
    code = path.read_text(encoding="utf-8")
    head = dict(_FIELD.findall(code))
    missing = {"problem", "expect"} | ({"reasons"} if kind == "adversarial" else set())
    if missing := missing - set(head):
        raise UserError(f"{path}: its head lacks `# {sorted(missing)[0]}: ...`")
    if head["expect"] not in EXPECTATIONS or (kind == "honest") != (head["expect"] == "accepted"):
        raise UserError(f"{path}: `# expect: {head['expect']}`: a sample of this kind cannot be expected to be that")
    reasons: set[str] = set()
    for word in re.findall(r"\w+", head.get("reasons", "")):
        reasons |= GROUPS.get(word, {word})
    description = re.match(r'"""(.*?)"""', code, re.DOTALL)
    return Sample(
        path.stem,
        suite,
        kind,
        " ".join(description[1].split()) if description else "",
        load_problem(suite, head["problem"]),
        code,
        head["expect"],
        frozenset(reasons),
        head.get("control", ""),
        float(head.get("least", 0.0)),
        float(head.get("most", MOST_UNEARNED[suite] if kind == "adversarial" else "inf")),
    )
