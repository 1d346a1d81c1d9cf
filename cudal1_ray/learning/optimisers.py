"""Optimisers over a policy's parameters: AdamW for all of them, or Muon for the matrices of the blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from cudal1_ray.learning.config import LearnerConfig
from cudal1_ray.learning.lora import is_adapter


def build_optimiser(named: Iterable[tuple[str, torch.nn.Parameter]], config: LearnerConfig, fused: bool) -> Any:
    """Return the configured optimiser, with weight decay on matrices only; adapters always train with AdamW.

    Args:
        named: trainable parameters with their names.
        fused: AdamW in one kernel, where the device has it.
    """
    matrices: list[torch.nn.Parameter] = []
    embeddings: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, parameter in named:
        shape = getattr(parameter, "ds_shape", parameter.shape)  # under ZeRO-3 the parameter itself is empty
        if len(shape) < 2:
            others.append(parameter)
        else:
            # A factor of an adapter is no matrix of a block: orthogonalised, it would learn at a rate of its own.
            by_adamw = "embed" in name or "lm_head" in name or is_adapter(name)
            (embeddings if by_adamw else matrices).append(parameter)

    def groups(decayed: list[torch.nn.Parameter], plain: list[torch.nn.Parameter]) -> list[dict[str, Any]]:
        both = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        return [group for group in both if group["params"]]

    adamw = {"lr": 0.0, "betas": (config.betas[0], config.betas[1]), "eps": config.epsilon, "fused": fused}
    if config.optimizer == "adamw" or not matrices:
        return torch.optim.AdamW(groups(matrices + embeddings, others), **adamw)
    muon = torch.optim.Muon(matrices, lr=0.0, weight_decay=config.weight_decay)
    muon.param_groups[0]["rate_factor"] = config.muon_rate_factor
    return MuonWithAdamW(muon, torch.optim.AdamW(groups(embeddings, others), **adamw))


class MuonWithAdamW(torch.optim.Optimizer):
    """Two optimisers that DeepSpeed sees as one: Muon for some parameters, AdamW for the others.

    Source: K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024; it orthogonalises the
    update of a matrix, and leaves vectors and embeddings to AdamW.
    """

    def __init__(self, muon: torch.optim.Muon, adamw: torch.optim.AdamW):
        super().__init__([*muon.param_groups, *adamw.param_groups], {})
        self._parts, self._muon_groups = (muon, adamw), len(muon.param_groups)

    def step(self, closure: None = None) -> None:
        # Loading a state replaces groups and state, so the parts are given the current ones at every step.
        muon, adamw = self._parts
        muon.param_groups, adamw.param_groups = (
            self.param_groups[: self._muon_groups],
            self.param_groups[self._muon_groups :],
        )
        for part in self._parts:
            part.state = self.state
            part.step()
