"""Weights handed over by reference, to an engine in this process; across tensor-parallel workers they are pickled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cudal1_ray.rollout.transports.base import NamedTensors, WeightOffer, WeightReceiver

TRANSPORT = "in_process"


def offer_of(weights: Mapping[str, Tensor]) -> WeightOffer:
    """Return tensors that are in this process as an offer of one bucket."""
    return WeightOffer(TRANSPORT, TRANSPORT, buckets=({name: tensor.detach() for name, tensor in weights.items()},))


class InProcessReceiver(WeightReceiver):
    """Passes tensors on."""

    def __init__(self, arguments: dict[str, Any], worker: int, device: torch.device):
        """Open nothing."""

    def receive(self, bucket: Mapping[str, Tensor]) -> NamedTensors:
        return bucket.items()

    def close(self) -> None:
        """Hold nothing."""
