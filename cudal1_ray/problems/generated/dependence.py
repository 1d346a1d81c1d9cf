"""Whether a drawn problem's output depends on its input: a clamp or ReLU far from all values would leave a constant."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F

from cudal1_ray.problems.generated.candidates import Tail
from cudal1_ray.problems.generated.layers import Layer
from cudal1_ray.problems.generated.statistics import CHANNELS, EVERYTHING, GROUPS, ROWS
from cudal1_ray.problems.generated.steps import Step

# Draws of weights, and inputs of each of both sides for every one of them.
_WEIGHTS, _INPUTS = 8, 4
# Lengths of the axis after the batch, and of further ones, where no statistic goes over them.
_LENGTH, _SIDE = 16, 4
# The axis after the batch that has its own length, by what a statistic is over.
_WHOLE = {ROWS: -1, CHANNELS: 0, GROUPS: 0}


def depends_on_input(layer: Layer, tail: Tail, kept: Sequence[Step], last: Sequence[Step]) -> bool:
    """Return whether other inputs give another output with each of several draws of weights.

    The reference's own lines run on a small tensor that stands for the layer's output.

    Args:
        kept, last: the library's layers before and after the tail.
    """
    steps = (*kept, *tail.steps, *last)
    values = dict((*layer.sizes, *layer.arguments, *(pair for step in steps for pair in step.arguments)))
    lengths = [_LENGTH, *[_SIDE] * (layer.dims - 2)]
    if tail.over in _WHOLE:
        axis = _WHOLE[tail.over]
        lengths[axis] = int(values[layer.channels or layer.sizes[1:][axis][0]])
    if layer.channels:
        values[layer.channels] = str(lengths[0])
    module = SimpleNamespace()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # `torch.manual_seed` would seed GPUs as well
        x = _stand_in(layer, lengths).flatten(0, 2)
        names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": F, "self": module, "x": x}
        names |= {step.same_shape: torch.rand_like(x) for step in steps if step.same_shape}
        for name, value in values.items():
            names[name] = eval(value, names)  # noqa: S307 - the grammar's own text
        _run([line for step in steps for line in step.state], names)
        for name, value in vars(module).items():
            if isinstance(value, torch.nn.Parameter) and not value.dim():
                setattr(module, name, _redrawn(value, layer.dims))
        _run([step.forward for step in (*kept, *tail.before)], names)
        if tail.over != EVERYTHING:
            _run([tail.forward], names)
        _run([step.forward for step in (*tail.after, *last)], names)
    first, second = names["x"].unflatten(0, (2, _WEIGHTS, -1))
    return not bool(torch.isclose(first, second).flatten(1).all(dim=1).any())


def _run(lines: Sequence[str], names: dict[str, Any]) -> None:
    exec("\n".join(filter(None, lines)), names)  # noqa: S102 - the grammar's own text


def _stand_in(layer: Layer, lengths: Sequence[int]) -> torch.Tensor:
    """Return what the layer may give, or inputs where there is none: (2, draws of weights, inputs, *lengths)."""
    shape = (2, 1, _INPUTS, *lengths)
    if not layer.kind:
        return torch.rand(shape).repeat_interleave(_WEIGHTS, dim=1)
    # The sum of n inputs in [0, 1) by n weights within 1 / sqrt(n): for the weights of a channel it has a mean, whose
    # deviation is sqrt(1 / 12), and for the inputs a deviation of 1 / 6 from that.
    mean = torch.randn(1, _WEIGHTS, 1, lengths[0], *[1] * len(lengths[1:])) / 12**0.5
    return _scale(layer) * (mean + torch.randn(shape) / 6)


def _scale(layer: Layer) -> float:
    """Return the size of the layer's outputs as a multiple of that of `nn.Linear`."""
    sizes = dict(layer.arguments)
    if layer.attribute == "weight":  # standard normal weights
        return (3 * int(layer.arguments[0][1])) ** 0.5
    if "Transpose" in layer.word:  # n counts outputs, and of a kernel a stride of 2 meets half along each axis
        return (int(sizes["in_channels"]) / int(sizes["out_channels"]) * 0.5 ** (layer.dims - 2)) ** 0.5
    return 1.0


def _redrawn(parameter: torch.Tensor, dims: int) -> torch.Tensor:
    """Return a value of a parameter with one value for each draw of weights: up to three deviations of what an
    evaluator makes of it (`evaluation/inside/state.py`).
    """
    deviation = (0.2 * parameter).hypot(torch.tensor(0.1))
    drawn = parameter + deviation * torch.linspace(-3, 3, _WEIGHTS)[torch.randperm(_WEIGHTS)]
    return drawn.view(1, -1, 1).expand(2, -1, _INPUTS).reshape(-1, *[1] * (dims - 1))
