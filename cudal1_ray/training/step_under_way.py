"""A step between its first request and its update: what was asked, what has come, and what is to be asked next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cudal1_ray.training.sampling import Batch, Judged


@dataclass
class StepUnderWay:
    """A step that was begun.

    Attributes:
        batches: what was asked: the step's prompts, then those that were asked again.
        asked: groups of the latest batch's prompts.
        found: completions of finished batches, `group` being the number of the prompt in the first.
        again: groups that are to be asked again, once the engines are free.
        revise: completions that are to be revised, once the engines are free.
        revised: completions that the latest batch revises, one for each of its prompts; empty for other batches.
        turn: of the latest batch.
        judged: all completions, once all candidates have verdicts and the exemplars of them are known.
    """

    number: int
    batches: list[Batch]
    asked: list[int]
    found: list[Judged] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    revise: list[Judged] = field(default_factory=list)
    revised: list[Judged] = field(default_factory=list)
    turn: int = 0
    judged: list[Judged] | None = None

    @property
    def batch(self) -> Batch:
        """The latest."""
        return self.batches[-1]

    def take(self, judged: Sequence[Judged]) -> None:
        """Adds the latest batch's completions, numbered on from those that their groups have."""
        earlier = 1 + max((j.index for j in self.found), default=-1)
        if not self.revised:
            self.found += [replace(j, group=self.asked[j.group], index=earlier + j.index) for j in judged]
            return
        for j in judged:
            origin, turn = self.revised[j.group], self.turn
            place = (origin.group, origin.index)
            self.found.append(replace(j, group=origin.group, index=earlier + j.group, turn=turn, revises=place))
