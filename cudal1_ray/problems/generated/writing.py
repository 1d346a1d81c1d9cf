"""The texts of a generated problem: reference, candidate, analysis, design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1_ray.problems.generated.candidates import Tail, Written
from cudal1_ray.problems.generated.layers import Layer
from cudal1_ray.problems.generated.steps import Step
from cudal1_ray.problems.generated.triton_functions import TRITON_FUNCTIONS

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Description:
    """A problem before it is written.

    Attributes:
        name: the problem's operations, joined by underscores.
        layer: what it begins with.
        tail: what the candidate's kernel computes.
        kept: a norm between the two that a candidate leaves to the library, or lines that the tail's statistic needs.
        last: a layer after all steps, which a candidate leaves to the library.
        folded: name, in the kernel, of the layer's bias that it adds; empty where the library adds it.
    """

    name: str
    layer: Layer
    tail: Tail
    kept: tuple[Step, ...]
    last: Step | None
    folded: str

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return all steps, in the order of the reference."""
        return (*self.kept, *self.tail.steps, *([self.last] if self.last else []))

    @property
    def arguments(self) -> list[tuple[str, str]]:
        """Return the constructor's arguments, (name, value as text)."""
        return [*self.layer.arguments, *(pair for step in self.steps for pair in step.arguments)]

    @property
    def inputs(self) -> list[str]:
        """Return the parameters of `forward`."""
        return ["x", *(step.same_shape for step in self.tail.steps if step.same_shape)]


def reference(description: Description, rng: np.random.Generator) -> str:
    """Return the problem's file, in KernelBench's form."""
    layer, tail = description.layer, description.tail
    body = [layer.forward] if layer.forward else []
    body += [step.forward for step in (*description.kept, *tail.before) if step.forward]
    body += [tail.forward] if tail.forward else []
    body += [step.forward for step in tail.after]
    body += [description.last.forward] if description.last else []
    state = [*layer.state, *(line for step in description.steps for line in step.state)]
    words = description.name.replace("_", ", ")
    docstring = f'    """\n    {rng.choice(["Model that performs", "Simple model that computes"])} {words}.\n    """\n'
    text = "import torch\nimport torch.nn as nn\n"
    if "F." in "\n".join(body):
        text += "import torch.nn.functional as F\n"
    text += "\n\nclass Model(nn.Module):\n" + (docstring if rng.random() < 0.7 else "")
    text += constructor(description.arguments, state, "super(Model, self).__init__()")
    text += f"\n    def forward(self, {', '.join(description.inputs)}):\n"
    text += "".join(f"        {line}\n" for line in body) + "        return x\n\n\n"
    sizes = dict([*layer.sizes, *description.arguments])
    text += "".join(f"{name} = {value}\n" for name, value in sizes.items())
    shapes = ", ".join(f"torch.rand({shape})" for shape in layer.inputs)
    text += f"\n\ndef get_inputs():\n    return [{shapes}]\n\n\n"
    names = ", ".join(name for name, _ in description.arguments)
    return text + f"def get_init_inputs():\n    return [{names}]\n"


def candidate(description: Description, written: Written) -> str:
    """Return the candidate's file."""
    layer = description.layer
    state = [*layer.state, *(line for step in description.steps for line in step.kept)]
    first = [layer.forward] if layer.forward else []
    if description.folded:
        first = [f"x = {layer.without_bias}"]
    first += [step.forward for step in description.kept if step.forward]
    if first and layer.dims > 2:
        first[-1] += ".contiguous()"
    elif not first:
        first = ["x = x.contiguous()"]
    body = [*first, *written.forward]
    if description.last:
        body[-1] = description.last.forward.replace("x = ", "return ", 1)
    functional = "import torch.nn.functional as F\n" if description.folded else ""
    imports = f"import torch\nimport torch.nn as nn\n{functional}import triton\nimport triton.language as tl\n"
    functions = [TRITON_FUNCTIONS[name].strip() + "\n" for name in written.kernel.functions]
    model = "class ModelNew(nn.Module):\n" + constructor(description.arguments, state, "super().__init__()")
    model += f"\n    def forward(self, {', '.join(description.inputs)}):\n"
    model += "".join(f"        {line}\n" for line in body)
    return "\n\n".join([imports, *functions, written.kernel.text(), model])


def analysis(description: Description, written: Written, rng: np.random.Generator) -> str:
    """Return why the reference is slow, and what the candidate's kernel saves."""
    tail, layer = description.tail, description.layer
    # A step after a reduction goes over its few results.
    large = tail.before if tail.statistic and tail.statistic.reduces else tail.steps
    passes = sum(bool(step.word) for step in large) + bool(tail.statistic)
    of = {"gemm": "the matrix product's output", "conv": "the convolution's output", "": "the input"}[layer.kind]
    library = "The layer itself is best left to the library. " if layer.kind else ""
    read = str(rng.choice(["Memory traffic bounds what follows", "What follows is bound by memory bandwidth"]))
    if not layer.kind:
        read = "Memory bandwidth bounds it"
    launches = "a kernel launch each" if passes > 1 else "in a kernel of its own"
    slow = f"{library}{read}: the reference goes over {of} at least {_times(passes)}, {launches}."
    replaced = "all of these passes" if passes > 1 else "such a pass"
    if written.reads == 1:
        return f"{slow} One kernel that reads each element once and writes the result once replaces {replaced}."
    return (
        f"{slow} One kernel replaces {replaced}: it reads each element {_times(written.reads)}, writes the result once "
        "and keeps everything between in registers."
    )


def design(description: Description, written: Written) -> str:
    """Return what the candidate does, as numbered sentences."""
    layer, sentences = description.layer, list(written.design)
    if layer.kind:
        own = "`x @ self.weight.T`" if layer.attribute == "weight" else f"`self.{layer.attribute}`"
        first = f"{own} computes the {'matrix product' if layer.kind == 'gemm' else 'convolution'}"
        first += " without its bias, which the kernel adds." if description.folded else " with the library."
        beside = [step.word for step in (*description.kept, *([description.last] if description.last else []))]
        if words := list(filter(None, beside)):
            first += f" {' and '.join(words)} {'are' if len(words) > 1 else 'is'} left to the library too."
        sentences.insert(0, first)
    return numbered(sentences)


def numbered(sentences: Sequence[str]) -> str:
    """Return the sentences as a numbered list."""
    return "\n".join(f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def constructor(arguments: Sequence[tuple[str, str]], state: Sequence[str], first: str) -> str:
    """Return `__init__`, whose first line calls the base class."""
    names = "".join(f", {name}" for name, _ in arguments)
    return f"    def __init__(self{names}):\n        {first}\n" + "".join(f"        {line}\n" for line in state)
