"""How new weights get into a vLLM engine: the phases of vLLM's weight-transfer API, each with its own timeout.

`init_weight_transfer_engine` once per channel, then `start_weight_update`, one `update_weights` per bucket,
`finish_weight_update`. What carries the bytes is in `transports/`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from cudal1_ray.rollout.config import WeightSyncConfig
from cudal1_ray.rollout.engine import WeightUpdateError
from cudal1_ray.rollout.transports import WeightOffer
from cudal1_ray.rollout.types import AdapterShape

Rpc = Callable[[str, dict[str, Any]], Any]  # (worker method, keyword arguments), run on every worker


class WeightUpdater:
    """Fetches what a publisher offers, phase by phase.

    Args:
        adapter: what is offered are adapters of this shape; None: whole weights.
    """

    def __init__(self, rpc: Rpc, config: WeightSyncConfig, adapter: AdapterShape | None = None):
        self._rpc, self._config, self._adapter = rpc, config, adapter
        self._channel = ""

    def update(self, offer: WeightOffer, seconds: dict[str, float]) -> None:
        """Replace the engine's weights. No step may run meanwhile.

        Args:
            seconds: what each phase took is entered here.

        Raises:
            WeightUpdateError: naming the phase; weights are then neither old nor new.
        """
        if offer.channel != self._channel:
            info = {"transport": offer.transport, "arguments": offer.arguments}
            self._phase("connect", seconds, lambda: self._call("init_weight_transfer_engine", init_info=info))
            self._channel = offer.channel

        def transfer() -> None:
            for bucket in offer.buckets:
                self._call("update_weights", update_info={"bucket": bucket, "adapter": self._adapter})

        self._phase("start", seconds, lambda: self._call("start_weight_update"))
        self._phase("transfer", seconds, transfer)
        self._phase("finish", seconds, lambda: self._call("finish_weight_update"))

    def _call(self, method: str, **arguments: Any) -> None:
        self._rpc(method, arguments)

    def _phase(self, name: str, seconds: dict[str, float], run: Callable[[], None]) -> None:
        seconds[name] = run_phase(name, run, getattr(self._config, f"{name}_timeout_s"))


def run_phase(name: str, run: Callable[[], None], timeout_s: float) -> float:
    """Run one phase in a thread of its own, so that a peer that never answers cannot hang the engine's owner.

    A thread cannot be killed: after a timeout it is left behind, which is why the engine is poisoned.

    Returns:
        Seconds it took.

    Raises:
        WeightUpdateError: the phase raised, or was not done after `timeout_s`.
    """
    failures: list[BaseException] = []
    device = torch.cuda.current_device() if torch.cuda.is_initialized() else None  # threads start on device 0
    started = time.perf_counter()

    def body() -> None:
        try:
            if device is not None:
                torch.cuda.set_device(device)
            with torch.no_grad():
                run()
        except BaseException as error:  # carried over to the caller's thread
            failures.append(error)

    thread = threading.Thread(target=body, name=f"weight-update-{name}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise WeightUpdateError(f"weight update: phase '{name}' was not done after {timeout_s:g} s")
    if failures:
        raise WeightUpdateError(f"weight update: phase '{name}' failed: {failures[0]}") from failures[0]
    return time.perf_counter() - started
