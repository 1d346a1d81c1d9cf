"""Weights over NVLink or the network from GPU to GPU."""

from __future__ import annotations

import torch
from torch.distributed import Backend, PrefixStore, TCPStore

from cudal1_ray.rollout.transports.broadcast import BroadcastPublisher, BroadcastReceiver, broadcast

TRANSPORT = "nccl"


def make_group(store: TCPStore, rank: int, size: int, timeout_s: float, device: torch.device) -> Backend:
    """Return a communicator on `device`, connected by a first byte: NCCL connects at the first collective."""
    from torch.distributed import ProcessGroupNCCL  # a torch without CUDA has none

    torch.cuda.set_device(device)  # of this thread, which is a new one
    group = ProcessGroupNCCL(PrefixStore(TRANSPORT, store), rank, size, ProcessGroupNCCL.Options())
    broadcast(group, torch.zeros(1, dtype=torch.uint8, device=device), timeout_s)
    return group


class NcclPublisher(BroadcastPublisher):
    transport, device = TRANSPORT, "cuda"
    make_group = staticmethod(make_group)


class NcclReceiver(BroadcastReceiver):
    make_group = staticmethod(make_group)
