"""A step between its first request and its update: its prompts, its samples so far, and its next prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cudal1_ray.training.sampling import EvaluatedSample, SampleBatch


@dataclass
class StepUnderWay:
    """A step that was begun.

    Attributes:
        batches: what was asked: the step's prompts, then those that were asked again.
        groups: those of the latest batch's prompts.
        arrivals: samples of finished batches, `group` being the number of the prompt in the first.
        groups_to_repeat: those that are to be asked again, once the engines are free.
        to_revise: samples that are to be revised, once the engines are free.
        originals: samples that the latest batch revises, one for each of its prompts; empty for other batches.
        turn: turn of the latest batch.
        samples: all of the step, once all candidates have verdicts and the exemplars of them are known.
    """

    number: int
    batches: list[SampleBatch]
    groups: list[int]
    arrivals: list[EvaluatedSample] = field(default_factory=list)
    groups_to_repeat: list[int] = field(default_factory=list)
    to_revise: list[EvaluatedSample] = field(default_factory=list)
    originals: list[EvaluatedSample] = field(default_factory=list)
    turn: int = 0
    samples: list[EvaluatedSample] | None = None

    @property
    def batch(self) -> SampleBatch:
        """Return the latest batch."""
        return self.batches[-1]

    def take(self, samples: Sequence[EvaluatedSample]) -> None:
        """Add the latest batch's completions, numbered on from those that their groups have."""
        earlier = 1 + max((j.index for j in self.arrivals), default=-1)
        if not self.originals:
            self.arrivals += [replace(j, group=self.groups[j.group], index=earlier + j.index) for j in samples]
            return
        for j in samples:
            origin, turn = self.originals[j.group], self.turn
            place = (origin.group, origin.index)
            self.arrivals.append(replace(j, group=origin.group, index=earlier + j.group, turn=turn, revises=place))
