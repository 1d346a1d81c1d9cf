"""No exemplars: GRPO without contrast, the baseline of the paper's ablation."""

from __future__ import annotations

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.view import Draw, ProblemView


def none(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Draw nothing, whatever is asked."""
    return Draw()
