"""The verdict journal: everything that was ever evaluated in a run, so that nothing is evaluated twice or lost."""

from __future__ import annotations

from pathlib import Path

from cudal1_ray.evaluation import Verdict
from cudal1_ray.exemplars import exemplar_id
from cudal1_ray.files import JsonLines


class VerdictJournal:
    """Verdicts by (scope, problem, normalised code, hardware), appended to disk the moment they arrive.

    The scope keeps measurements apart that must not be mixed: what training saw ("training") and what the report's
    table is made of ("assessment") are measured separately even for the same code. So does the hardware, a run may go
    on with another GPU; a verdict of code that never ran there has none and holds for all.

    Args:
        hardware: that candidates are measured on now, as verdicts name it; empty takes what was measured anywhere.
    """

    def __init__(self, path: Path, hardware: str = ""):
        self._lines, self._hardware = JsonLines(path), hardware
        self._known: dict[tuple[str, str, str], Verdict] = {}
        for row in self._lines:
            self._remember(row["scope"], row["key"], Verdict.from_dict(row["verdict"]))

    @staticmethod
    def key(problem_id: str, code: str) -> str:
        """Return a key that is equal for candidates which differ in comments and formatting only."""
        return exemplar_id(problem_id, code)

    def get(self, scope: str, key: str) -> Verdict | None:
        for hardware in (self._hardware, ""):
            if (verdict := self._known.get((scope, key, hardware))) is not None:
                return verdict
        return None

    def add(self, scope: str, key: str, verdict: Verdict) -> None:
        self._remember(scope, key, verdict)
        self._lines.append({"scope": scope, "key": key, "verdict": verdict.to_dict()})

    def verdicts(self, scope: str) -> list[Verdict]:
        """Return all verdicts of a scope, in the order they came."""
        return [Verdict.from_dict(row["verdict"]) for row in self._lines if row["scope"] == scope]

    def _remember(self, scope: str, key: str, verdict: Verdict) -> None:
        self._known[scope, key, verdict.hardware if self._hardware else ""] = verdict
