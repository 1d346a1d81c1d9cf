"""The texts of a generated problem: reference, candidate, analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1_ray.problems.generated.candidates import CHANNELS, EVERYTHING, PLANES, Tail, Written
from cudal1_ray.problems.generated.layers import Layer
from cudal1_ray.problems.generated.steps import Step
from cudal1_ray.problems.generated.triton_functions import TRITON_FUNCTIONS

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Description:
    """A problem before it is written.

    Attributes:
        kept: layers and norms that come before the tail's steps, or belong to its statistic.
        last: a layer after all steps, which a candidate leaves to the library.
        folded: the kernel's name of the layer's bias where it adds that.
    """

    name: str
    layer: Layer
    tail: Tail
    kept: tuple[Step, ...]
    last: tuple[Step, ...]
    folded: str

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.kept, *self.tail.steps, *self.last)

    @property
    def arguments(self) -> list[tuple[str, str]]:
        """Return the constructor's arguments and their values."""
        return [*self.layer.arguments, *(pair for step in self.steps for pair in step.arguments)]

    @property
    def inputs(self) -> list[str]:
        return ["x", *(step.same_shape for step in self.tail.steps if step.same_shape)]


def reference(description: Description, rng: np.random.Generator) -> str:
    """Return the problem's file, in KernelBench's form."""
    layer, tail = description.layer, description.tail
    body = [layer.forward] if layer.forward else []
    body += [step.forward for step in (*description.kept, *tail.before) if step.forward]
    if tail.statistic is not None:
        of = tail.statistic
        forms = {CHANNELS: of.of_channels, PLANES: of.of_planes, EVERYTHING: of.of_everything}
        body += [forms.get(tail.over, of.of_rows)[0]]
    body += [step.forward for step in (*tail.after, *description.last)]
    state = [*layer.state, *(line for step in description.steps for line in step.state)]
    words = description.name.replace("_", ", ")
    docstring = f'    """\n    {rng.choice(["Model that performs", "Simple model that computes"])} {words}.\n    """\n'
    text = "import torch\nimport torch.nn as nn\n"
    if "F." in "\n".join(body):
        text += "import torch.nn.functional as F\n"
    text += "\n\nclass Model(nn.Module):\n" + (docstring if rng.random() < 0.7 else "")
    text += _constructor(description.arguments, state, "super(Model, self).__init__()")
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
        body[-1] = description.last[0].forward.replace("x = ", "return ", 1)
    parts = ["import torch\nimport torch.nn as nn\n" + ("import torch.nn.functional as F\n" if description.folded else "")]
    parts[0] += "import triton\nimport triton.language as tl\n"
    parts += [TRITON_FUNCTIONS[name].strip() + "\n" for name in written.kernel.functions]
    parts += [written.kernel.text()]
    model = "class ModelNew(nn.Module):\n" + _constructor(description.arguments, state, "super().__init__()")
    model += f"\n    def forward(self, {', '.join(description.inputs)}):\n"
    return "\n\n".join([*parts, model + "".join(f"        {line}\n" for line in body)])


def analysis(description: Description, rng: np.random.Generator) -> str:
    """Return why the reference is slow, and what a kernel saves."""
    tail, layer = description.tail, description.layer
    passes = sum(bool(step.word) for step in tail.steps) + (len(tail.statistic.passes) if tail.statistic else 0)
    of = {"gemm": "the matrix product's output", "conv": "the convolution's output", "": "the input"}[layer.kind]
    library = "The layer itself is best left to the library. " if layer.kind else ""
    times = "once" if passes == 1 else f"{passes} times"
    read = str(rng.choice(["Memory traffic bounds what follows", "What follows is bound by memory bandwidth"]))
    if not layer.kind:
        read = "Memory bandwidth bounds it"
    fused = "One kernel that reads each element once and writes the result once replaces all of these passes"
    return f"{library}{read}: the reference goes over {of} at least {times}, a kernel launch each. {fused}."


def _constructor(arguments: list[tuple[str, str]], state: list[str], first: str) -> str:
    names = "".join(f", {name}" for name, _ in arguments)
    return f"    def __init__(self{names}):\n        {first}\n" + "".join(f"        {line}\n" for line in state)
