"""Weights over TCP from CPU to CPU."""

from __future__ import annotations

from datetime import timedelta

import torch
from torch.distributed import Backend, PrefixStore, ProcessGroupGloo, TCPStore

from cudal1_ray.rollout.transports.broadcast import BroadcastPublisher, BroadcastReceiver

TRANSPORT = "gloo"


def make_group(store: TCPStore, rank: int, size: int, timeout_s: float, device: torch.device) -> Backend:
    return ProcessGroupGloo(PrefixStore(TRANSPORT, store), rank, size, timedelta(seconds=timeout_s))


class GlooPublisher(BroadcastPublisher):
    transport, device = TRANSPORT, "cpu"
    make_group = staticmethod(make_group)


class GlooReceiver(BroadcastReceiver):
    make_group = staticmethod(make_group)
