"""Problems whose members are written out one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.corpus.level2.parts import cuda_file, model, triton_file
from benchmarks.corpus.record import Draft


@dataclass(frozen=True)
class Member:
    """One way to compute a problem: its kernels, the text of `forward`, and what distinguishes it. `constants`
    replaces words in `kernels`, `forward` and `design`. For CUDA, `entries` names the kernels."""

    name: str
    kernels: str
    forward: str
    design: str
    techniques: tuple[str, ...]
    functions: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    constants: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """A problem with its members; `arguments` and `body` are the constructor that every member shares."""

    problem: int
    arguments: str
    body: tuple[str, ...]
    analysis: str
    members: tuple[Member, ...]
    inputs: str = "x"


def drafts(problem: Problem) -> Iterator[Draft]:
    """Yield the problem's candidates."""
    for member in problem.members:
        kernels, forward, design = (
            _filled(text, member.constants) for text in (member.kernels, member.forward, member.design)
        )
        source = model(problem.arguments, problem.body, problem.inputs, forward)
        if member.entries:
            code = cuda_file(member.functions, kernels, member.entries, source)
        else:
            code = triton_file(member.functions, kernels, source)
        language = "cuda" if member.entries else "triton"
        yield Draft(
            problem.problem,
            member.name,
            code,
            " ".join(problem.analysis.split()),
            " ".join(design.split()),
            member.techniques,
            language,
        )


def _filled(text: str, constants: dict[str, object]) -> str:
    for name in sorted(constants, key=len, reverse=True):
        text = text.replace(name, str(constants[name]))
    return text
