"""Problems whose members are written out: kernels, a model, and what distinguishes each variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from benchmarks.corpus.level1.files import cuda_file, prose, triton_file
from benchmarks.corpus.record import Draft


@dataclass(frozen=True)
class Member:
    """One way to compute a problem. `launcher` is set for CUDA only: the declaration of its launching function."""

    name: str
    kernels: str
    model: str
    design: str
    techniques: tuple[str, ...]
    launcher: str = ""
    constants: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """A problem with its members. `constants` are filled in for `$name` in all texts; a member's own come first."""

    problem: int
    analysis: str
    members: tuple[Member, ...]
    constants: Mapping[str, object] = field(default_factory=dict)


def drafts_of(problem: Problem) -> Iterator[Draft]:
    """Yield the problem's candidates."""
    for member in problem.members:
        constants = {**problem.constants, **member.constants}
        if member.launcher:
            name = f"kernel_{problem.problem}_{member.name}"
            code = cuda_file(name, member.kernels, member.launcher, member.model, **constants)
        else:
            code = triton_file(member.kernels, member.model, **constants)
        analysis, design = prose(problem.analysis, **constants), prose(member.design, **constants)
        language = "cuda" if member.launcher else "triton"
        yield Draft(problem.problem, member.name, code, analysis, design, member.techniques, language)
