"""Our transports as one backend of vLLM's weight-transfer API, in vLLM's worker.

One backend for all of them: an engine's transport is chosen when a channel is opened, not when it is built, and
what happens to the tensors once they are here is the same. vLLM's own `nccl` and `ipc` are not used: their arguments
differ between 0.26 and 0.27, and they let parameters that never came pass unnoticed.

Importing this module registers it. Workers in other processes import it because the engine names
`ReceiverRegistration` as its worker extension.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from cudal1_ray.rollout.transports import WeightReceiver, open_receiver
from cudal1_ray.rollout.types import AdapterShape
from cudal1_ray.rollout.vllm_adapters import AdapterLoader, begin

BACKEND = "cudal1"


@dataclass
class ChannelInfo(WeightTransferInitInfo):
    """Which transport, and what its receiving half is opened with."""

    transport: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass
class BucketInfo(WeightTransferUpdateInfo):
    """What the transport's receiving half needs for one bucket; of what shape, where the bucket holds adapters."""

    bucket: Any
    adapter: AdapterShape | None = None


class BucketLoader(WeightTransferEngine[ChannelInfo, BucketInfo]):
    """Loads what a transport receives.

    The layerwise bracket is needed even for tensors that are here already: after loading, vLLM repacks matrices for its
    kernels, and only the bracket undoes and redoes that. It forgives parameters that never came, so they are counted.
    """

    init_info_cls = ChannelInfo
    update_info_cls = BucketInfo
    _receiver: WeightReceiver | None = None
    _adapters: AdapterLoader | None = None  # of an engine that serves adapters: nothing else is loaded then

    def init_transfer_engine(self, init_info: ChannelInfo) -> None:
        self.shutdown()
        worker = self.parallel_config.rank
        self._receiver = open_receiver(init_info.transport, init_info.arguments, worker, self.device)

    def start_weight_update(self) -> None:
        if (manager := getattr(self.model, "lora_manager", None)) is not None:
            self._adapters = AdapterLoader(manager)
            return
        with set_current_vllm_config(self.vllm_config):  # 0.27 has it set already, 0.26 has not
            initialize_layerwise_reload(self.model)
        self._tied = bool(getattr(self.model_config.hf_config, "tie_word_embeddings", False))
        names = {name for name, _ in self.model.named_parameters()}
        self._missing = {name for name in names if not (self._tied and name.startswith("lm_head."))}

    def receive_weights(self, update_info: BucketInfo) -> None:
        if self._receiver is None:
            raise RuntimeError("weights arrived before `init_transfer_engine` opened a channel")
        tensors = self._receiver.receive(update_info.bucket)
        if self._adapters is not None:
            if update_info.adapter is None:
                raise ValueError("an engine that serves adapters received a bucket of whole weights")
            self._adapters.add(tensors, update_info.adapter)
            return
        with set_current_vllm_config(self.vllm_config):
            self._missing -= self.model.load_weights(iter(tensors)) or set()

    def finish_weight_update(self) -> None:
        """Raise ValueError when parameters of the model were not among the weights, or adapters fit no layer."""
        if self._adapters is not None:
            self._adapters.activate()
            self._synchronise()
            return
        with set_current_vllm_config(self.vllm_config):
            finalize_layerwise_reload(self.model, self.model_config)
            for module in self.model.modules():
                # A tied output matrix shares the new embedding, but on a CPU its kernel still holds a packed copy of
                # the old one: nothing was loaded into it by name, so the bracket has not processed it.
                if self._tied and isinstance(module, ParallelLMHead):
                    module.quant_method.process_weights_after_loading(module)
        self._synchronise()
        if self._missing:
            names = ", ".join(sorted(self._missing)[:3])
            raise ValueError(f"{len(self._missing)} parameters were not sent: {names} ...")

    def _synchronise(self) -> None:
        if self.device.type == "cuda":  # the thread that takes the next step has a stream of its own
            torch.cuda.synchronize(self.device)

    def shutdown(self) -> None:
        if self._receiver is not None:
            self._receiver.close()
            self._receiver = None

    @staticmethod
    def trainer_send_weights(iterator: Iterator[Any], trainer_args: dict[str, Any] | Any) -> None:
        """Refuse to send: vLLM's base class demands this half, and a `WeightPublisher` does its work here."""
        raise RuntimeError("send through a publisher of cudal1_ray.rollout.transports")


class ReceiverRegistration:
    """Makes a worker import this module, and gives it a first adapter where it serves one."""

    model_runner: Any  # of vLLM's worker, which takes this class in among its bases

    def begin_adapter(self, rank: int) -> None:
        """Activate an adapter that changes nothing: requests name one from the first on, and keep it over updates."""
        begin(self.model_runner.get_model().lora_manager, self.model_runner.lora_manager.embedding_modules, rank)


def register() -> None:
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, BucketLoader)


register()
# At every update it warns of layers that have no weights of their own; what is really missing is counted above.
logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)
