"""The reference policy of the KL term: a frozen copy of what trains, put in place of the policy while it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class ReferencePolicy:
    """Weights as they were when this was made. Costs one copy of this rank's share of the trainable weights.

    No second model is built: the tensors behind the parameters are exchanged for a forward pass, then exchanged back.
    Under ZeRO-3 the exchanged tensors are this rank's shards.

    Args:
        engine: the DeepSpeed engine.
        saved: `state()` of an earlier one, to restore it; None copies the policy as it is now.
    """

    def __init__(self, engine: Any, saved: list[Tensor] | None = None):
        self._engine = engine
        self._parameters = [p for p in engine.module.parameters() if p.requires_grad]
        engine.empty_partition_cache()
        current = [_storage(p) for p in self._parameters]
        self._weights = [(s if s is not None else c).detach().clone() for c, s in _pairs(current, saved)]
        for weights, now in zip(self._weights, current, strict=True):
            if weights.shape != now.shape:
                raise ValueError(f"reference policy: a tensor of {tuple(weights.shape)} for {tuple(now.shape)}")
        self._weights = [w.to(now.device, now.dtype) for w, now in zip(self._weights, current, strict=True)]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Make the engine compute with the reference policy within the context, in which nothing may be trained."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def state(self) -> list[Tensor]:
        """Return this rank's share, on the CPU."""
        return [w.cpu() for w in self._weights]

    def _exchange(self) -> None:
        self._engine.empty_partition_cache()  # under ZeRO-3, whole parameters still lying about would be used
        for i, parameter in enumerate(self._parameters):
            storage = _storage(parameter)
            theirs, self._weights[i] = self._weights[i], storage.data
            storage.data = theirs


def _storage(parameter: torch.nn.Parameter) -> Tensor:
    """Return the tensor with a parameter's values on this rank: under ZeRO-3 its shard, else itself."""
    return getattr(parameter, "ds_tensor", parameter)


def _pairs(current: list[Tensor], saved: list[Tensor] | None) -> Iterator[tuple[Tensor, Tensor | None]]:
    if saved is None:
        return ((c, None) for c in current)
    if len(saved) != len(current):
        raise ValueError(f"reference policy: {len(saved)} saved tensors for {len(current)} parameters")
    return iter(zip(current, saved, strict=True))
