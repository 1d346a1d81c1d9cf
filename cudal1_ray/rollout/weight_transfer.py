"""How new weights get into a vLLM engine: phases with timeouts, and the transports that carry the bytes.

vLLM's own weight-transfer API does the receiving: `start_weight_update`, any number of `update_weights`,
`finish_weight_update`. A `WeightTransport` is the sending half of one of its backends. The only one needed when
learner and engine meet in one process (a CPU, or one GPU that both share) hands tensors over by reference; NCCL and
CUDA IPC are further classes with the same three methods, whose receiving halves vLLM brings along.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from cudal1_ray.rollout.engine import WeightUpdateError

Rpc = Callable[[str, dict[str, Any]], Any]  # (worker method, keyword arguments), run on every worker


class WeightTransport(Protocol):
    """The sending half of a weight-transfer backend."""

    backend: str  # the name of the receiving half in vLLM's WeightTransferEngineFactory

    def init_info(self) -> dict[str, Any]:
        """What the receiving half needs once, before the first update (a rendezvous address, for instance)."""
        ...

    def send(self, weights: Mapping[str, torch.Tensor], update: Callable[[dict[str, Any]], None]) -> None:
        """Sends all weights; calls `update` with the backend's update info once per bucket."""
        ...

    def close(self) -> None: ...


class InProcessTransport:
    """Hands tensors over by reference; across tensor-parallel workers they are pickled."""

    backend = "in_process"

    def init_info(self) -> dict[str, Any]:
        return {}

    def send(self, weights: Mapping[str, torch.Tensor], update: Callable[[dict[str, Any]], None]) -> None:
        update({"weights": {name: tensor.detach() for name, tensor in weights.items()}})

    def close(self) -> None:
        """Holds nothing."""


class WeightUpdater:
    """Runs updates over one transport, phase by phase."""

    def __init__(self, rpc: Rpc, transport: WeightTransport, timeout_s: float):
        self._rpc, self._transport, self._timeout_s = rpc, transport, timeout_s
        self._initialised = False

    def update(self, weights: Mapping[str, torch.Tensor], drop_caches: Callable[[], None]) -> None:
        """Replaces the engine's weights. No step may run meanwhile.

        Raises:
            WeightUpdateError: naming the phase; weights are then neither old nor new.
        """
        if not self._initialised:
            info = self._transport.init_info
            self._phase("init", lambda: self._call("init_weight_transfer_engine", init_info=info()))
            self._initialised = True
        self._phase("start", lambda: self._call("start_weight_update"))
        self._phase(
            "transfer",
            lambda: self._transport.send(weights, lambda info: self._call("update_weights", update_info=info)),
        )
        self._phase("finish", lambda: self._call("finish_weight_update"))
        self._phase("drop caches", drop_caches)

    def close(self) -> None:
        self._transport.close()

    def _call(self, method: str, **arguments: Any) -> None:
        self._rpc(method, arguments)

    def _phase(self, name: str, run: Callable[[], None]) -> None:
        run_phase(name, run, self._timeout_s)


def run_phase(name: str, run: Callable[[], None], timeout_s: float) -> None:
    """Runs one phase in a thread of its own, so that a peer that never answers cannot hang the engine's owner.

    A thread cannot be killed: after a timeout it is left behind, which is why the engine is poisoned.

    Raises:
        WeightUpdateError: the phase raised, or was not done after `timeout_s`.
    """
    failures: list[BaseException] = []

    def body() -> None:
        try:
            with torch.no_grad():
                run()
        except BaseException as error:  # carried over to the caller's thread
            failures.append(error)

    thread = threading.Thread(target=body, name=f"weight-update-{name}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise WeightUpdateError(f"weight update: phase '{name}' was not done after {timeout_s} s")
    if failures:
        raise WeightUpdateError(f"weight update: phase '{name}' failed: {failures[0]}") from failures[0]
