"""Adapters beside the linear layers of a transformers model, added to their outputs by forward hooks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cudal1_ray.rollout.types import AdapterShape

PREFIX, SUFFIXES = "base_model.model.", (".lora_A.weight", ".lora_B.weight")  # of PEFT's names


class AdapterHooks:
    """Adds scale * (x A^T) B^T to the output of each layer that has an adapter; until the first `load` none has."""

    def __init__(self, model: nn.Module, shape: AdapterShape):
        self._shape = shape
        self._modules = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
        self._hooked: set[str] = set()
        self._pairs: dict[str, tuple[Tensor, Tensor]] = {}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Replace all adapters.

        Args:
            weights: by PEFT's names, A [rank, in] and B [out, rank].

        Raises:
            ValueError: an adapter belongs to no linear layer, or one of its two matrices is missing.
        """
        names = {name.removeprefix(PREFIX).removesuffix(s) for name in weights for s in SUFFIXES if name.endswith(s)}
        wrong = sorted(names - set(self._modules))
        if wrong or 2 * len(names) != len(weights):
            raise ValueError(f"adapters of no layer: {wrong[:3]}; {len(weights)} matrices for {len(names)} layers")
        pairs = {}
        for name in names:
            place = self._modules[name].weight
            a, b = (weights[PREFIX + name + suffix].detach().to(place, copy=True) for suffix in SUFFIXES)
            pairs[name] = (a, b * self._shape.scale)
        self._pairs = pairs
        for name in names - self._hooked:
            self._modules[name].register_forward_hook(self._hook(name))
            self._hooked.add(name)

    def _hook(self, name: str):
        def add(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            if (pair := self._pairs.get(name)) is None:
                return output
            return output + torch.nn.functional.linear(torch.nn.functional.linear(inputs[0], pair[0]), pair[1])

        return add
