"""Which problems to ask: those from which something can be learnt, and none that the evaluator cannot measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cudal1_ray.rewards import is_void
from cudal1_ray.training.sampling import EvaluatedSample

# Weight of a problem whose groups never differ, against 1 for one whose groups always do: it is asked now and then,
# since a policy that learns elsewhere may come to solve it.
LEAST_WEIGHT = 0.1
# Share of the old estimate that remains when a problem is asked again: an estimate is of the last three or four times.
DECAY = 0.7
# Times in a row that a problem's evaluations are void before it leaves the rotation.
MOST_VOID = 2


@dataclass
class ProblemRecord:
    """What is known of one problem.

    Attributes:
        informative: running share of its groups whose completions differed in their advantage; 1 before the first.
        success: running share of accepted completions; 0 before the first.
        asked_at: step in which it was asked last; 0: never.
        void_in_a_row: times in a row that half of its candidates or more had a void evaluation.
    """

    informative: float = 1.0
    success: float = 0.0
    asked_at: int = 0
    void_in_a_row: int = 0


class ProblemHistory:
    """What a stage knows of its problems; part of the state that a checkpoint holds."""

    def __init__(self) -> None:
        self._records: dict[str, ProblemRecord] = {}

    def record(self, problem_id: str) -> ProblemRecord:
        return self._records.get(problem_id, ProblemRecord())

    def retired(self, problem_id: str) -> bool:
        """Return whether the problem's evaluations were void so often that it is not asked any more."""
        return self.record(problem_id).void_in_a_row >= MOST_VOID

    def update(self, step: int, samples: Sequence[EvaluatedSample], advantages: Sequence[float]) -> list[str]:
        """Take in a step's samples; return the problems that leave the rotation with it."""
        by_problem: dict[str, list[tuple[EvaluatedSample, float]]] = {}
        for sample, advantage in zip(samples, advantages, strict=True):
            by_problem.setdefault(sample.prompt.problem_id, []).append((sample, advantage))
        leaving = []
        for problem_id, completions in by_problem.items():
            record = self._records.setdefault(problem_id, ProblemRecord())
            record.asked_at = step
            candidates = [sample for sample, _ in completions if sample.verdict.reasons != ("unparsable",)]
            void = sum(is_void(sample.verdict) for sample in candidates)
            if candidates and 2 * void >= len(candidates):
                record.void_in_a_row += 1
                if record.void_in_a_row == MOST_VOID:
                    leaving.append(problem_id)
                continue
            if candidates:
                record.void_in_a_row = 0
            differs = any(advantage != 0.0 for _, advantage in completions)
            accepted = sum(sample.verdict.accepted for sample, _ in completions) / len(completions)
            record.informative = DECAY * record.informative + (1 - DECAY) * differs
            record.success = DECAY * record.success + (1 - DECAY) * accepted
        return leaving

    def draw(self, problem_ids: Sequence[str], count: int, step: int, rng: np.random.Generator) -> list[str]:
        """Return `count` distinct problems (all, when there are fewer), drawn by what can be learnt from them.

        A problem's weight is (LEAST_WEIGHT + (1 - LEAST_WEIGHT) x informative) x steps since it was asked: a problem
        that is always or never solved comes up seldom, and none is forgotten. Online difficulty filtering (prime-rl)
        and DAPO's dynamic sampling (arXiv 2503.14476) drop such problems after they were paid for; this asks less.
        """
        records = [self.record(problem_id) for problem_id in problem_ids]
        weights = np.array(
            [(LEAST_WEIGHT + (1 - LEAST_WEIGHT) * r.informative) * max(1, step - r.asked_at) for r in records]
        )
        count = min(count, len(problem_ids))
        chosen = rng.choice(len(problem_ids), size=count, replace=False, p=weights / weights.sum())
        return [problem_ids[place] for place in chosen]

    def get_state(self) -> dict[str, Any]:
        """Return everything that `set_state` needs, in plain types."""
        return {problem_id: asdict(record) for problem_id, record in self._records.items()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._records = {problem_id: ProblemRecord(**record) for problem_id, record in state.items()}
