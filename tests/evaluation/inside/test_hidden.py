"""Inputs that were made unreadable in advance come out as they were."""

from __future__ import annotations

import pytest
import torch

from cudal1_ray.evaluation.inside.hidden import hide

TENSORS = {
    "floats": lambda: torch.randn(3, 5),
    "an even number of them": lambda: torch.randn(64, 64),
    "half precision, odd": lambda: torch.randn(7).to(torch.bfloat16),
    "truth values": lambda: torch.rand(13) > 0.5,
    "whole numbers": lambda: torch.randint(-9, 9, (4, 3)),
    "one element": lambda: torch.tensor(2.5),
    "not finite": lambda: torch.tensor([torch.inf, -torch.inf, 0.0, torch.nan]),
}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", TENSORS)
def test_hidden_tensor_when_read_is_the_same_elsewhere(name, device):
    tensor = TENSORS[name]().to(device)
    original = tensor.clone()
    read = hide(tensor)
    first, second = read(), read()
    for copy in (first, second):
        assert copy.dtype == original.dtype and copy.shape == original.shape
        assert torch.equal(_bytes(copy), _bytes(original))
        assert copy.data_ptr() != tensor.data_ptr()
    assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize("device", DEVICES)
def test_hidden_tensor_when_looked_at_shows_no_value(device):
    tensor = torch.randn(256, device=device)
    original = tensor.clone()
    hide(tensor)
    assert not bool((tensor == original).any())


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8).cpu()
