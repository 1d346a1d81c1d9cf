"""What a family of the corpus yields."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Draft:
    """A candidate before it is evaluated.

    Attributes:
        problem: KernelBench's number; the level is that of the package which yields it.
        member: names the variant, unique within the problem.
        code: the candidate's file.
        analysis: where the reference spends its time, and what bounds it.
        design: what the candidate does, and why that is faster.
        techniques: names of the techniques it uses.
        language: "triton" or "cuda".
    """

    problem: int
    member: str
    code: str
    analysis: str
    design: str
    techniques: tuple[str, ...]
    language: str
