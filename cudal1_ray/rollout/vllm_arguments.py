"""A `RolloutConfig` as vLLM's arguments: those that engines for training and for serving share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cudal1_ray.rollout.config import RolloutConfig
from cudal1_ray.rollout.vllm_compilation import compilation_arguments

GIB = 1024**3


def engine_arguments(config: RolloutConfig, model_path: str) -> dict[str, Any]:
    """Return arguments of vLLM's `EngineArgs` and `AsyncEngineArgs`, weight transfer and compilation included.

    Registers the weight receiver with vLLM. The environment must be set (`vllm_environment`).
    """
    from vllm.config import WeightTransferConfig

    from cudal1_ray.rollout.vllm_weight_receiver import BACKEND, ReceiverRegistration, register

    register()
    return engine_settings(config, model_path) | dict(
        weight_transfer_config=WeightTransferConfig(backend=BACKEND),
        worker_extension_cls=f"{ReceiverRegistration.__module__}.{ReceiverRegistration.__qualname__}",
    )


def engine_settings(config: RolloutConfig, model_path: str) -> dict[str, Any]:
    """Return those of the arguments that vLLM's own server has too, as plain values."""
    on_cpu = config.device == "cpu"
    optional = {} if config.block_size is None else {"block_size": config.block_size}
    return dict(
        model=model_path,
        dtype=config.dtype,
        seed=config.seed,
        trust_remote_code=config.trust_remote_code,
        max_model_len=config.max_model_len,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=max(config.max_num_batched_tokens, config.max_model_len if on_cpu else 0),
        # A prompt in chunks makes vLLM rewind the request's random generator, which those of a CPU cannot do.
        enable_chunked_prefill=not on_cpu,
        enable_prefix_caching=config.enable_prefix_caching,
        kv_cache_memory_bytes=None if config.kv_cache_gib is None else int(config.kv_cache_gib * GIB),
        # Beside the former too: vLLM starts only where this share of the memory is free.
        gpu_memory_utilization=config.gpu_memory_utilization,
        tensor_parallel_size=config.tensor_parallel,
        enforce_eager=config.enforce_eager,
        generation_config="vllm",  # sampling is the caller's alone, whatever the checkpoint recommends
        **optional,
        **compilation_arguments(config),
    )


def register_architectures(config: RolloutConfig, model_path: str) -> None:
    """Make vLLM look at the model's classes in this process, where its engine will run.

    By itself it imports torch and vLLM once more in a process of its own, to keep CUDA out of this one until workers
    are forked: 31 of the 137 s that the start of an engine for `recipe=kernelbench_one_gpu` took on a fresh H100.
    """
    if config.tensor_parallel > 1:
        return
    from vllm.model_executor.models import ModelRegistry

    named = json.loads((Path(model_path) / "config.json").read_text()).get("architectures") or ()
    for name in set(named) & set(ModelRegistry.models):
        ModelRegistry.register_model(name, ModelRegistry.models[name].load_model_cls())
