"""Low-rank adapters (LoRA, Hu et al., arXiv 2106.09685) on linear layers.

A linear layer becomes a `LoraLinear` in place: its weight keeps its name and stands still, two small matrices train.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LoraLinear(nn.Linear):
    """y = x W^T + b + scale * (x A^T) B^T, with A [rank, in] random and B [out, rank] zero at first."""

    lora_a: nn.Parameter
    lora_b: nn.Parameter
    lora_scale: float

    def forward(self, x: Tensor) -> Tensor:
        low = nn.functional.linear(nn.functional.linear(x, self.lora_a), self.lora_b)
        return super().forward(x) + self.lora_scale * low


def add_adapters(blocks: nn.Module, rank: int, alpha: float, seed: int) -> None:
    """Adapt every linear layer under `blocks`.

    Args:
        blocks: the model without its output matrix.
        seed: decides A; torch's global generator is left alone.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in blocks.modules():
        if type(module) is not nn.Linear:
            continue
        weight = module.weight
        a = torch.randn(rank, module.in_features, generator=generator) / module.in_features**0.5
        module.__class__ = LoraLinear
        module.lora_a = nn.Parameter(a.to(weight.device, weight.dtype))
        module.lora_b = nn.Parameter(weight.new_zeros(module.out_features, rank))
        module.lora_scale = alpha / rank


def freeze_all_but_adapters(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        parameter.requires_grad = is_adapter(name)


def is_adapter(name: str) -> bool:
    return name.endswith((".lora_a", ".lora_b"))


def merged(module: LoraLinear) -> Tensor:
    """Return W + scale * B A, in W's precision; the adapter itself stays as it is."""
    low = module.lora_b.detach().float() @ module.lora_a.detach().float()
    return (module.weight.detach().float() + module.lora_scale * low).to(module.weight.dtype)
