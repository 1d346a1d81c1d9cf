"""Problems of the CUDA suite, each a file of tests/adversarial/cuda/problems."""

from __future__ import annotations

from cudal1_ray.adversarial import load_problem
from cudal1_ray.problems import Problem


def cuda_problem(name: str) -> Problem:
    """Return the problem of that name; raise UserError when there is none."""
    return load_problem("cuda", name)


CHAIN = cuda_problem("chain").source
