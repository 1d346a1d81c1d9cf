"""Ways for weights from the learner into engines, by name; one file each."""

from __future__ import annotations

from typing import Any

import torch

from cudal1_ray.rollout.config import WeightSyncConfig
from cudal1_ray.rollout.transports.base import NamedTensors, WeightOffer, WeightPublisher, WeightReceiver
from cudal1_ray.rollout.transports.files import FilesReceiver, offer_of_folder
from cudal1_ray.rollout.transports.gloo import GlooPublisher, GlooReceiver
from cudal1_ray.rollout.transports.in_process import InProcessReceiver, offer_of
from cudal1_ray.rollout.transports.ipc import IpcPublisher, IpcReceiver
from cudal1_ray.rollout.transports.nccl import NcclPublisher, NcclReceiver

__all__ = [
    "NamedTensors",
    "WeightOffer",
    "WeightPublisher",
    "WeightReceiver",
    "build_publisher",
    "offer_of",
    "offer_of_folder",
    "open_receiver",
]

RECEIVERS: dict[str, type[WeightReceiver]] = {
    "in_process": InProcessReceiver,
    "files": FilesReceiver,
    "gloo": GlooReceiver,
    "nccl": NcclReceiver,
    "ipc": IpcReceiver,
}


def build_publisher(config: WeightSyncConfig, dtype: str, address: str) -> WeightPublisher:
    """Return the sending half that the configuration names; `in_process` has none, see `offer_of`.

    Args:
        dtype: type of the engines' weights ("bfloat16"; "auto" sends the weights as they are).
        address: this host's, as engines reach it.
    """
    sent = None if dtype == "auto" else getattr(torch, dtype)
    bucket_bytes = config.bucket_mib << 20
    if config.transport == "ipc":
        return IpcPublisher(bucket_bytes, sent)
    publisher = {"gloo": GlooPublisher, "nccl": NcclPublisher}[config.transport]
    return publisher(address, bucket_bytes, sent, config.connect_timeout_s, config.transfer_timeout_s)


def open_receiver(transport: str, arguments: dict[str, Any], worker: int, device: torch.device) -> WeightReceiver:
    return RECEIVERS[transport](arguments, worker, device)
