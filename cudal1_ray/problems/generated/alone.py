"""Problems of one operation alone, which the candidate's own kernel computes: what their texts have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1_ray.problems.corpus import CorpusEntry
from cudal1_ray.problems.generated.held_out import is_held_out
from cudal1_ray.problems.generated.writing import constructor, numbered
from cudal1_ray.problems.problem import Problem

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Alone:
    """A problem of one operation before it is written.

    Attributes:
        words: operation and options, which joined by underscores are the problem's name.
        sentence: the docstring of the reference.
        arguments: the constructor's arguments, (name, value as text).
        state: the reference's lines of the constructor.
        kept: the candidate's lines of the constructor.
        inputs: parameter of `forward` -> how `get_inputs` makes it.
        body: the reference's lines of `forward`.
        sizes: constants of the file that are no arguments, (name, value as text).
        kernels: the candidate's kernels, device functions before them.
        forward: the candidate's lines of `forward`.
        technique: what makes the candidate fast.
        analysis: what bounds the reference, and what a kernel saves.
        design: what the candidate does, a sentence or two each.
    """

    words: tuple[str, ...]
    sentence: str
    arguments: tuple[tuple[str, str], ...]
    state: tuple[str, ...]
    kept: tuple[str, ...]
    inputs: tuple[tuple[str, str], ...]
    body: tuple[str, ...]
    sizes: tuple[tuple[str, str], ...]
    kernels: tuple[str, ...]
    forward: tuple[str, ...]
    technique: str
    analysis: str
    design: tuple[str, ...]


def alone_pair(
    draw: Callable[[np.random.Generator], Alone], rng: np.random.Generator, identity: str
) -> tuple[Problem, CorpusEntry]:
    """Return a problem that is drawn until no held-out problem computes it, and its candidate."""
    while is_held_out("", (drawn := draw(rng)).words[:1]):
        pass
    entry = CorpusEntry(
        problem_id=identity,
        entry_id=f"{identity}/generated",
        code=_candidate(drawn),
        technique=drawn.technique,
        analysis=drawn.analysis,
        design=numbered(drawn.design),
        expected="accepted",
    )
    return Problem(identity, _reference(drawn, rng), "_".join(drawn.words)), entry


def kernel(name: str, parameters: Sequence[str], lines: Sequence[str]) -> str:
    """Return the source of a kernel or device function."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"@triton.jit\ndef {name}({', '.join(parameters)}):\n{body}\n"


def launch(name: str, grid: str, arguments: Sequence[str], warps: int = 4) -> tuple[str, ...]:
    """Return the lines of `forward` that launch a kernel."""
    return f"grid = {grid}", f"{name}[grid](", f"    {', '.join([*arguments, f'num_warps={warps}'])}", ")"


def _reference(drawn: Alone, rng: np.random.Generator) -> str:
    """Return the problem's file, in KernelBench's form."""
    text = "import torch\nimport torch.nn as nn\n"
    text += "import torch.nn.functional as F\n" if " F." in " ".join(drawn.body) else ""
    docstring = f'    """\n    {drawn.sentence}\n    """\n'
    text += "\n\nclass Model(nn.Module):\n" + (docstring if rng.random() < 0.7 else "")
    text += constructor(drawn.arguments, drawn.state, "super(Model, self).__init__()")
    text += f"\n    def forward(self, {', '.join(name for name, _ in drawn.inputs)}):\n"
    text += "".join(f"        {line}\n" for line in drawn.body) + "\n\n"
    text += "".join(f"{name} = {value}\n" for name, value in (*drawn.sizes, *drawn.arguments))
    text += f"\n\ndef get_inputs():\n    return [{', '.join(value for _, value in drawn.inputs)}]\n\n\n"
    return text + f"def get_init_inputs():\n    return [{', '.join(name for name, _ in drawn.arguments)}]\n"


def _candidate(drawn: Alone) -> str:
    """Return the candidate's file."""
    imports = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"
    model = "class ModelNew(nn.Module):\n" + constructor(drawn.arguments, drawn.kept, "super().__init__()")
    model += f"\n    def forward(self, {', '.join(name for name, _ in drawn.inputs)}):\n"
    model += "".join(f"        {line}\n" for line in drawn.forward)
    return "\n\n".join([imports, *drawn.kernels, model])
