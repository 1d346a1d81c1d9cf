"""Buckets by broadcast: what gloo and NCCL have in common, which is all but the making of a process group.

Every engine has a group of its own with the learner, so that one that dies in the middle takes no other with it. Groups
are made without torch's global registry: learner and engine each have a default group already, for work of their own.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import abstractmethod
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import Backend, BroadcastOptions, TCPStore

from cudal1_ray.rollout.transports.base import NamedTensors, WeightOffer, WeightPublisher, WeightReceiver
from cudal1_ray.rollout.transports.buckets import BucketLayout, pack

log = logging.getLogger(__name__)
# Seconds between two looks at a broadcast: at first, and at most.
POLL_S = (2e-5, 1e-3)


class BroadcastPublisher(WeightPublisher):
    """Rank 0 of every engine's group.

    Args:
        address: this host's, as engines reach it.
        bucket_bytes, dtype: as `pack` takes them.
        connect_timeout_s, transfer_timeout_s: for making a group, and for each bucket.
    """

    def __init__(
        self,
        address: str,
        bucket_bytes: int,
        dtype: torch.dtype | None,
        connect_timeout_s: float,
        transfer_timeout_s: float,
    ):
        super().__init__()
        self._address, self._bucket_bytes, self._dtype = address, bucket_bytes, dtype
        self.connect_timeout_s, self.transfer_timeout_s = connect_timeout_s, transfer_timeout_s
        self._buckets: list[tuple[BucketLayout, Tensor]] = []
        self._channels: dict[str, _SendingChannel] = {}
        self._asked_for: set[str] = set()

    @abstractmethod
    def make_group(self, store: TCPStore, rank: int, size: int, timeout_s: float, device: torch.device) -> Backend: ...

    def publish(self, weights: NamedTensors) -> int:
        for name in set(self._channels) - self._asked_for:
            self._channels.pop(name).close()
        self._asked_for.clear()
        self._buckets = []  # the old copy goes before the new one comes
        self._buckets = list(pack(weights, self._bucket_bytes, self.device, self._dtype))
        if not self._buckets:
            raise ValueError("no weights were given")
        if self.device == "cuda":
            # Threads send from streams of their own. Not the whole device: a broadcast to an engine that died may still
            # wait on another stream, for as long as its timeout.
            torch.cuda.current_stream().synchronize()
        return sum(layout.nbytes for layout, _ in self._buckets)

    def offer(self, channel: str, workers: int) -> WeightOffer:
        if not self._buckets:
            raise RuntimeError("no weights were published yet")
        if channel not in self._channels:
            self._channels[channel] = _SendingChannel(self, workers)
        opened = self._channels[channel]
        self._asked_for.add(channel)
        opened.send([buffer for _, buffer in self._buckets])
        arguments = {
            "address": self._address,
            "port": opened.store.port,
            "workers": workers,
            "connect_timeout_s": self.connect_timeout_s,
            "transfer_timeout_s": self.transfer_timeout_s,
        }
        return WeightOffer(
            self.transport, f"{self.name}/{channel}", arguments, tuple(layout for layout, _ in self._buckets)
        )

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
            channel.wait()
        self._channels, self._buckets = {}, []


class _SendingChannel:
    """The sending end of one engine's group, and the thread that sends."""

    def __init__(self, publisher: BroadcastPublisher, workers: int):
        self._publisher, self._size = publisher, workers + 1
        timeout = timedelta(seconds=publisher.connect_timeout_s)
        # Port 0: the store binds a free one and reports it, so no other process can take it in between.
        self.store = TCPStore("0.0.0.0", 0, None, True, timeout, wait_for_workers=False)
        self._group: Backend | None = None
        self._thread: threading.Thread | None = None

    def send(self, buffers: list[Tensor]) -> None:
        before, publisher = self._thread, self._publisher

        def body() -> None:
            try:
                if before is not None:
                    before.join()
                if self._group is None:
                    device = buffers[0].device
                    self._group = publisher.make_group(self.store, 0, self._size, publisher.connect_timeout_s, device)
                for buffer in buffers:
                    broadcast(self._group, buffer, publisher.transfer_timeout_s)
            except Exception as error:  # the engine fails or times out by itself; this end reports its own error
                log.warning("weights could not be sent to an engine: %s", error)

        self._thread = threading.Thread(target=body, name="weight-publisher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._group is not None:
            self._group.abort()
            self._group = None

    def wait(self) -> None:
        """Wait until the thread is done, which its timeouts ensure; the interpreter must not end before it."""
        if self._thread is not None:
            self._thread.join()


class BroadcastReceiver(WeightReceiver):
    """Rank `worker + 1` of its engine's group."""

    def __init__(self, arguments: dict[str, Any], worker: int, device: torch.device):
        self._timeout_s, self._device = arguments["transfer_timeout_s"], device
        connect_s = arguments["connect_timeout_s"]
        store = TCPStore(
            arguments["address"], arguments["port"], None, False, timedelta(seconds=connect_s), wait_for_workers=False
        )
        self._group = self.make_group(store, worker + 1, arguments["workers"] + 1, connect_s, device)

    @abstractmethod
    def make_group(self, store: TCPStore, rank: int, size: int, timeout_s: float, device: torch.device) -> Backend: ...

    def receive(self, bucket: BucketLayout) -> NamedTensors:
        # A fresh buffer each time: vLLM keeps the views until a layer is complete, perhaps two buckets later.
        buffer = torch.empty(bucket.nbytes, dtype=torch.uint8, device=self._device)
        broadcast(self._group, buffer, self._timeout_s)
        return bucket.views(buffer)

    def close(self) -> None:
        self._group.abort()


def broadcast(group: Backend, buffer: Tensor, timeout_s: float) -> None:
    """Broadcast from rank 0 and return when the bytes are there.

    Polls instead of waiting: a wait for NCCL leaves a peer that is gone to a watchdog that ends the process.

    Raises:
        TimeoutError: after `timeout_s`; the group is then aborted.
        RuntimeError: the peer is gone.
    """
    options = BroadcastOptions()
    options.rootRank = 0
    options.timeout = timedelta(seconds=timeout_s)
    work = group.broadcast([buffer], options)
    deadline, pause_s = time.monotonic() + timeout_s, POLL_S[0]
    while not work.is_completed():
        if time.monotonic() > deadline:
            group.abort()
            raise TimeoutError(f"a bucket was not through after {timeout_s:g} s")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, POLL_S[1])
    work.wait()  # raises what went wrong, and orders the caller's stream after the broadcast
