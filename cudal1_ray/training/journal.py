"""The verdict journal: everything that was ever evaluated in a run, so that nothing is evaluated twice or lost."""

from __future__ import annotations

from pathlib import Path

from cudal1_ray.evaluation import Verdict
from cudal1_ray.exemplars import exemplar_id
from cudal1_ray.training.run_folder import JsonLines


class VerdictJournal:
    """Verdicts by (scope, problem, normalised code), appended to disk the moment they arrive.

    The scope keeps measurements apart that must not be mixed: what training saw ("training") and what the report's
    table is made of ("assessment") are measured separately even for the same code.
    """

    def __init__(self, path: Path):
        self._lines = JsonLines(path)
        self._known = {(row["scope"], row["key"]): Verdict.from_dict(row["verdict"]) for row in self._lines}

    @staticmethod
    def key(problem_id: str, code: str) -> str:
        """Equal for candidates that differ in comments and formatting only."""
        return exemplar_id(problem_id, code)

    def get(self, scope: str, key: str) -> Verdict | None:
        return self._known.get((scope, key))

    def add(self, scope: str, key: str, verdict: Verdict) -> None:
        self._known[scope, key] = verdict
        self._lines.append({"scope": scope, "key": key, "verdict": verdict.to_dict()})

    def verdicts(self, scope: str) -> list[Verdict]:
        """All of a scope, in the order they came."""
        return [verdict for (theirs, _), verdict in self._known.items() if theirs == scope]

    def __len__(self) -> int:
        return len(self._known)
