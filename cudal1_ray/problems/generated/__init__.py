"""Problems drawn from a grammar, each with a right candidate, for stage 1 of a pretrained policy."""

from __future__ import annotations

from cudal1_ray.problems.generated.drawing import generate

__all__ = ["generate"]
