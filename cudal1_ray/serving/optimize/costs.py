"""What a job has cost so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class Costs:
    """Sums over a job, attempts before a restart included.

    generation_s and evaluation_s add up what went on side by side, so together they may exceed the time spent.
    """

    before_s: float = 0.0  # spent by attempts before this one
    prompts: int = 0
    completion_tokens: int = 0
    generation_s: float = 0.0
    evaluations: int = 0
    evaluation_s: float = 0.0

    @classmethod
    def after(cls, events: Sequence[dict[str, Any]]) -> Costs:
        """Continue from the events of a job that was interrupted."""
        earlier = [event["costs"] for event in events if isinstance(event.get("costs"), dict)]
        names = {entry.name for entry in fields(cls)} - {"before_s"}
        costs = cls(**{key: value for key, value in earlier[-1].items() if key in names}) if earlier else cls()
        costs.before_s = max((event.get("spent_s", 0.0) for event in events), default=0.0)
        return costs

    def wrote(self, tokens: int, seconds: float) -> None:
        self.prompts += 1
        self.completion_tokens += tokens
        self.generation_s += seconds

    def evaluated(self, seconds: float) -> None:
        self.evaluations += 1
        self.evaluation_s += seconds

    def so_far(self, spent_s: float) -> dict[str, Any]:
        """Return `spent_s` and `costs`, as events and results carry them."""
        rounded = {name: round(value, 3) for name, value in asdict(self).items() if name != "before_s"}
        return {"spent_s": spent_s, "costs": rounded}
