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
        source = current if saved is None else saved
        if [w.shape for w in source] != [w.shape for w in current]:
            raise ValueError("reference policy: the saved tensors have other shapes than the parameters")
        pairs = zip(source, current, strict=True)
        self._weights = [w.detach().to(now.device, now.dtype, copy=True) for w, now in pairs]

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
