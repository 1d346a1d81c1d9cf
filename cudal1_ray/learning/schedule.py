"""The learning rate of each step of a stage."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cudal1_ray.errors import UserError


@dataclass(frozen=True)
class LearningRateSchedule:
    """Linear warm-up, then constant, linear or cosine.

    Attributes:
        peak: learning rate after warm-up.
        kind: constant | linear | cosine.
        warmup_steps: the first of them already moves, the last has the peak.
        total_steps: steps of the stage, at which linear and cosine have reached `final_share` x peak and stay there.
    """

    peak: float
    kind: str = "constant"
    warmup_steps: int = 0
    total_steps: int = 0
    final_share: float = 0.1

    def __post_init__(self) -> None:
        if self.kind != "constant" and self.total_steps < 1:
            raise UserError(f"learner.schedule={self.kind}: this stage has no known number of steps; use constant")

    def rate(self, step: int) -> float:
        """Return the learning rate of the step-th optimiser step of the stage, counted from 0."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        if self.kind == "constant":
            return self.peak
        done = min(1.0, (step - self.warmup_steps) / max(1, self.total_steps - 1 - self.warmup_steps))
        left = 1 - done if self.kind == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.peak * (self.final_share + (1 - self.final_share) * left)
