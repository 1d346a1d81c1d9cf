"""Muon over stacks of matrices against torch's own, matrix by matrix."""

from __future__ import annotations

import pytest
import torch

from cudal1_ray.learning import optimisers
from cudal1_ray.learning.optimisers import StackedMuon, orthogonalise

SHAPES = [(16, 16), (40, 16), (16, 16), (16, 40), (40, 16), (16, 16)]
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of torch.optim.Muon


def trained(kind: type[torch.optim.Muon], steps: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Weights and momenta after some steps on random gradients, the same for every kind; one matrix has none."""
    generator = torch.Generator().manual_seed(1)
    weights = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    optimiser = kind(weights, lr=0.05, weight_decay=0.1)
    for _ in range(steps):
        for weight in weights[:-1]:
            weight.grad = torch.randn(weight.shape, generator=generator)
        optimiser.step()
    return [w.detach() for w in weights], [optimiser.state[w]["momentum_buffer"] for w in weights[:-1]]


@pytest.mark.parametrize("stack_elements", [1, 600, 1 << 22])
def test_stacked_muon_after_steps_has_the_weights_and_momenta_of_torch(monkeypatch, stack_elements):
    monkeypatch.setattr(optimisers, "STACK_ELEMENTS", stack_elements)  # every matrix alone; two of 16 x 16; all
    (weights, momenta), (expected, expected_momenta) = (trained(kind, 3) for kind in (StackedMuon, torch.optim.Muon))
    torch.testing.assert_close(momenta, expected_momenta, rtol=0.0, atol=0.0)
    # Products in bfloat16 (8 bits) may be rounded otherwise in a stack: directions of at most 1.2, three rates of 0.08.
    torch.testing.assert_close(weights, expected, rtol=0.0, atol=3e-3)


def test_orthogonalise_of_matrices_of_unequal_norms_has_singular_values_near_one():
    stack = (
        torch.randn(3, 24, 16, generator=torch.Generator().manual_seed(2))
        * torch.tensor([1e-3, 1.0, 1e3])[:, None, None]
    )
    values = torch.linalg.svdvals(orthogonalise(stack, COEFFICIENTS, 5, 1e-7).float())
    assert values.min() > 0.5
    assert values.max() < 1.3
