"""The receiving half of the in-process weight transport, in vLLM's worker.

Importing this module registers it. Workers in other processes import it because the engine names
`ReceiverRegistration` as its worker extension.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from cudal1_ray.rollout.weight_transfer import InProcessTransport


@dataclass
class InProcessInitInfo(WeightTransferInitInfo):
    """Nothing to agree on."""


@dataclass
class InProcessUpdateInfo(WeightTransferUpdateInfo):
    """Tensors by Hugging Face name."""

    weights: dict[str, torch.Tensor] = field(default_factory=dict)


class InProcessReceiver(WeightTransferEngine[InProcessInitInfo, InProcessUpdateInfo]):
    """Loads tensors that are already here.

    The layerwise bracket is needed even then: after loading, vLLM repacks matrices for its kernels, and only the
    bracket undoes and redoes that. It forgives parameters that never came, so they are counted here.
    """

    init_info_cls = InProcessInitInfo
    update_info_cls = InProcessUpdateInfo

    def init_transfer_engine(self, init_info: InProcessInitInfo) -> None:
        """Nothing to open."""

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)
        self._tied = bool(getattr(self.model_config.hf_config, "tie_word_embeddings", False))
        names = {name for name, _ in self.model.named_parameters()}
        self._missing = {name for name in names if not (self._tied and name.startswith("lm_head."))}

    def receive_weights(self, update_info: InProcessUpdateInfo) -> None:
        self._missing -= self.model.load_weights(iter(update_info.weights.items())) or set()

    def finish_weight_update(self) -> None:
        """Raises ValueError when parameters of the model were not among the weights."""
        finalize_layerwise_reload(self.model, self.model_config)
        for module in self.model.modules():
            # A tied output matrix shares the new embedding, but on a CPU its kernel still holds a packed copy of the
            # old one: nothing was loaded into it by name, so the bracket has not processed it.
            if self._tied and isinstance(module, ParallelLMHead):
                module.quant_method.process_weights_after_loading(module)
        if self._missing:
            names = ", ".join(sorted(self._missing)[:3])
            raise ValueError(f"{len(self._missing)} parameters were not sent: {names} ...")

    def shutdown(self) -> None:
        """Nothing to close."""

    @staticmethod
    def trainer_send_weights(iterator: Iterator[Any], trainer_args: dict[str, Any] | Any) -> None:
        """vLLM's own sending half; `InProcessTransport` is ours and goes through the engine instead."""
        raise RuntimeError("send through cudal1_ray.rollout.weight_transfer.InProcessTransport")


class ReceiverRegistration:
    """Adds nothing to a worker but the import of this module."""


def register() -> None:
    if InProcessTransport.backend not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(InProcessTransport.backend, InProcessReceiver)


register()
# At every update it warns of layers that have no weights of their own; what is really missing is counted above.
logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)
