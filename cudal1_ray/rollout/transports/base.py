"""The two halves of a weight transport: a publisher with the learner, a receiver in every worker of an engine.

The publisher packs all weights once per policy version into large buckets and keeps that copy: engines take it while
the learner goes on, and an engine that replaces a dead one gets the same version hours later. What an engine is handed
is a `WeightOffer`, small enough to travel through any message; the bytes take the transport's own way.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

NamedTensors = Iterable[tuple[str, Tensor]]


@dataclass(frozen=True)
class WeightOffer:
    """All weights of one policy version, as one engine can fetch them.

    Attributes:
        transport: name of the receiving half.
        channel: an engine that has this channel open already uses it again; another name opens another one.
        arguments: what the receiving half is opened with (an address, for instance).
        buckets: what it needs for each bucket, in the order they are sent.
    """

    transport: str
    channel: str
    arguments: dict[str, Any] = field(default_factory=dict)
    buckets: tuple[Any, ...] = ()


class WeightPublisher(ABC):
    """The sending half, in the process of the learner's rank 0."""

    transport: ClassVar[str]
    device: ClassVar[str]  # where the packed copy lives: cpu | cuda

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex  # makes channels of two publishers distinct

    @abstractmethod
    def publish(self, weights: NamedTensors) -> int:
        """Pack a new version, which replaces the one before; bytes of it.

        Raises:
            ValueError: `weights` is empty.
        """

    @abstractmethod
    def offer(self, channel: str, workers: int) -> WeightOffer:
        """Return an offer of the published version for the engine at `channel`, with `workers` tensor-parallel workers.

        Returns at once: whatever has to be sent is sent from a thread. A channel is good for one engine; those that
        were not asked for between two calls of `publish` are forgotten.

        Raises:
            RuntimeError: nothing was published yet.
        """

    @abstractmethod
    def close(self) -> None:
        """Forget channels and packed weights. Idempotent."""


class WeightReceiver(ABC):
    """The receiving half, in one worker of an engine: `worker` of 0 .. tensor parallel - 1, on `device`."""

    @abstractmethod
    def __init__(self, arguments: dict[str, Any], worker: int, device: torch.device):
        """Open the channel; blocks until the publisher and all workers are there."""

    @abstractmethod
    def receive(self, bucket: Any) -> NamedTensors:
        """Return the tensors of one bucket, by Hugging Face name; valid for as long as a caller holds them."""

    @abstractmethod
    def close(self) -> None: ...
