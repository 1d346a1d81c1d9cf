"""Adapters in a vLLM engine: one slot, whose content every weight update replaces.

Tensors come through the same transports as whole weights and go into vLLM's LoRA manager without a file: the request
that names the adapter has a path that is never read, since the adapter is loaded before the first request. Read in
the sources of 0.26 (GPU) and 0.27.1 (CPU), where `LoRAModel`, `PEFTHelper` and the manager are the same.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from cudal1_ray.rollout.config import RolloutConfig
from cudal1_ray.rollout.types import AdapterShape

if TYPE_CHECKING:
    from cudal1_ray.rollout.transports import NamedTensors

NAME, SLOT_ID = "policy", 1
# Ranks that vLLM has kernels for (`vllm.config.lora.MaxLoRARanks`): a smaller one is served in the next larger slot.
SLOT_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def refusal(config: RolloutConfig, model_path: str, adapter: AdapterShape) -> str:
    """Return why vLLM cannot serve adapters of this shape on the model; empty when it can."""
    from vllm import EngineArgs
    from vllm.model_executor.model_loader.utils import get_model_architecture
    from vllm.model_executor.models import supports_lora

    if adapter.rank > SLOT_RANKS[-1]:
        return f"rank {adapter.rank} is above vLLM's largest, {SLOT_RANKS[-1]}"
    model = EngineArgs(
        model=model_path, dtype=config.dtype, trust_remote_code=config.trust_remote_code
    ).create_model_config()
    architecture, name = get_model_architecture(model)
    return "" if supports_lora(architecture) else f"vLLM's {name} takes no adapters"


def engine_arguments(config: RolloutConfig, model_path: str, adapter: AdapterShape) -> dict[str, Any]:
    """Return the `EngineArgs` of vLLM for one adapter on the linear layers of the blocks.

    Embedding and output matrix are left alone: adapted, they cost time in every step, and vLLM refuses vocabularies
    above 258,048 tokens.
    """
    return dict(
        lora_target_modules=_linear_modules(config, model_path),
        enable_lora=True,
        max_loras=1,
        max_cpu_loras=1,
        max_lora_rank=next(rank for rank in SLOT_RANKS if rank >= adapter.rank),
    )


def _linear_modules(config: RolloutConfig, model_path: str) -> list[str]:
    """Return the last parts of the names of the linear layers in the blocks, such as "q_proj"."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = AutoConfig.from_pretrained(model_path, trust_remote_code=config.trust_remote_code)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape, trust_remote_code=config.trust_remote_code)
    blocks = getattr(model, model.base_model_prefix)
    names = (name for name, module in blocks.named_modules() if isinstance(module, torch.nn.Linear))
    return sorted({name.rpartition(".")[2] for name in names})


def request() -> Any:
    """Return the `LoRARequest` of every request."""
    from vllm.lora.request import LoRARequest

    return LoRARequest(NAME, SLOT_ID, lora_path="in-memory")


def begin(manager: Any, embedding_modules: dict[str, str], rank: int) -> None:
    """Fill a worker's slot with an adapter of zeros."""
    manager.add_adapter(manager.create_dummy_lora(SLOT_ID, rank, embedding_modules))
    manager.activate_adapter(SLOT_ID)


class AdapterLoader:
    """Collects the tensors of one update in a worker, then put them in the place of the adapter before.

    Args:
        manager: vLLM's `LoRAModelManager` of the worker's model.
    """

    def __init__(self, manager: Any):
        self._manager = manager
        self._tensors: dict[str, Any] = {}
        self._shape: AdapterShape | None = None

    def add(self, tensors: NamedTensors, shape: AdapterShape) -> None:
        """Take tensors by PEFT's names. Copies: vLLM scales them in place."""
        self._shape = shape
        self._tensors.update((name, tensor.detach().to("cpu", copy=True)) for name, tensor in tensors)

    def activate(self) -> None:
        """Make the collected adapter the one that requests use from now on.

        Raises:
            ValueError: an adapter belongs to no layer of the engine's model, or one of its two matrices is missing.
        """
        from vllm.lora.lora_model import LoRAModel
        from vllm.lora.peft_helper import PEFTHelper

        manager, shape = self._manager, self._shape
        if shape is None:
            raise ValueError("no adapters were sent")
        mapper = getattr(manager.model, "hf_to_vllm_mapper", None)
        model = LoRAModel.from_lora_tensors(
            lora_model_id=SLOT_ID,
            tensors=self._tensors,
            peft_helper=PEFTHelper(r=shape.rank, lora_alpha=shape.alpha, target_modules=[]),
            device="cpu",
            dtype=manager.lora_config.lora_dtype,
            weights_mapper=None if mapper is None else mapper.get_unstacked_mapper(),
        )
        self._tensors = {}
        _check(model.loras, {*manager.modules, *(part for parts in manager.packed_modules.values() for part in parts)})
        manager.remove_adapter(SLOT_ID)
        manager.add_adapter(model)
        manager.activate_adapter(SLOT_ID)


def _check(loras: dict[str, Any], served: Collection[str]) -> None:
    """Raise ValueError naming adapters that vLLM would leave out without a word."""
    unknown = [name for name in loras if name not in served]
    halves = [name for name, weights in loras.items() if weights.lora_a is None or weights.lora_b is None]
    if unknown or halves:
        raise ValueError(f"adapters of no layer: {unknown[:3]}; with one matrix of two: {halves[:3]}")
