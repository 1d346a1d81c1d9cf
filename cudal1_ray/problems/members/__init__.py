"""Further members of the families of the bundled problems, drawn: a problem with candidates that do the same work."""

from __future__ import annotations

from cudal1_ray.problems.members.drawing import MemberDraw

__all__ = ["MemberDraw"]
