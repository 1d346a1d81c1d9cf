"""The worked examples of the prompts, each with the problem that it solves."""

from __future__ import annotations

from cudal1_ray.problems import Problem
from cudal1_ray.prompting.builder import EXAMPLES

_REFERENCE = """
import torch


class Model(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.{parameter} = torch.nn.Parameter(torch.{initial}(columns))

    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.randn({rows}, {columns})]


def get_init_inputs():
    return [{columns}]
"""


def worked(rows: int, columns: int) -> dict[str, tuple[Problem, str]]:
    """Return (problem, candidate) by the example's name, for inputs of rows x columns."""
    results = {
        "triton": ("weight", "ones", "x * self.weight / (1 + x.abs().amax(-1, keepdim=True))"),
        "cuda": ("bias", "zeros", "torch.tanh(x + self.bias) * x"),
    }
    return {
        name: (
            Problem(
                f"worked_{name}",
                _REFERENCE.format(parameter=parameter, initial=initial, result=result, rows=rows, columns=columns),
                f"Worked {name}",
            ),
            (EXAMPLES / f"{name}.py").read_text(),
        )
        for name, (parameter, initial, result) in results.items()
    }
