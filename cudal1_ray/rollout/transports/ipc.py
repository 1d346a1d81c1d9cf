"""Weights between two processes on one GPU: the learner shares its packed copy, the engine reads it in place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cudal1_ray.rollout.transports.base import NamedTensors, WeightOffer, WeightPublisher, WeightReceiver
from cudal1_ray.rollout.transports.buckets import BucketLayout, pack

TRANSPORT = "ipc"
# Place of the device's number in what torch shares a CUDA tensor as; numbers differ by process.
DEVICE_ARGUMENT = 6


class IpcPublisher(WeightPublisher):
    """Keeps the packed buckets on the GPU for as long as they are current.

    Args:
        bucket_bytes, dtype: as `pack` takes them.
    """

    transport, device = TRANSPORT, "cuda"

    def __init__(self, bucket_bytes: int, dtype: torch.dtype | None):
        super().__init__()
        self._bucket_bytes, self._dtype = bucket_bytes, dtype
        self._buckets: list[tuple[BucketLayout, Tensor]] = []

    def publish(self, weights: NamedTensors) -> int:
        self._buckets = []
        torch.cuda.ipc_collect()  # frees what engines have closed
        self._buckets = list(pack(weights, self._bucket_bytes, self.device, self._dtype))
        if not self._buckets:
            raise ValueError("no weights were given")
        torch.cuda.current_stream().synchronize()
        return sum(layout.nbytes for layout, _ in self._buckets)

    def offer(self, channel: str, workers: int) -> WeightOffer:
        if not self._buckets:
            raise RuntimeError("no weights were published yet")
        from torch.multiprocessing.reductions import reduce_tensor

        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        shared = tuple((layout, reduce_tensor(buffer)[1]) for layout, buffer in self._buckets)
        return WeightOffer(self.transport, f"{self.name}/{channel}", {"gpu": uuid}, shared)

    def close(self) -> None:
        self._buckets = []


class IpcReceiver(WeightReceiver):
    """Opens shared buffers.

    Raises:
        ValueError: from the constructor, when this worker is on another GPU than the publisher.
    """

    def __init__(self, arguments: dict[str, Any], worker: int, device: torch.device):
        self._index = torch.cuda.current_device() if device.index is None else device.index
        uuid = str(torch.cuda.get_device_properties(self._index).uuid)
        if uuid != arguments["gpu"]:
            raise ValueError(
                f"the learner's weights are on GPU {arguments['gpu']}, this worker is on {uuid}: "
                "rollout.weight_sync.transport=ipc needs one GPU for both, use nccl"
            )

    def receive(self, bucket: tuple[BucketLayout, tuple[Any, ...]]) -> NamedTensors:
        from torch.multiprocessing.reductions import rebuild_cuda_tensor

        layout, shared = bucket
        arguments = (*shared[:DEVICE_ARGUMENT], self._index, *shared[DEVICE_ARGUMENT + 1 :])
        # A copy: the publisher may repack once the update is over, and vLLM holds on to some tensors until then.
        return layout.views(rebuild_cuda_tensor(*arguments).clone())

    def close(self) -> None:
        """Hold nothing between buckets."""
