"""Configuration of the rollout engine."""

from __future__ import annotations

from dataclasses import dataclass

from cudal1_ray.errors import UserError

ENGINES = ("vllm", "transformers")
DEVICES = ("cpu", "cuda")
DTYPES = ("float32", "bfloat16", "float16", "auto")


@dataclass
class RolloutConfig:
    """One inference engine. What vLLM wants as environment variables is set from here while it is built."""

    engine: str = "vllm"  # vllm | transformers
    device: str = "cpu"  # cpu | cuda
    dtype: str = "float32"  # of weights, activations and KV cache; "auto": as the checkpoint says. bfloat16 on a CPU
    # is faster but moves log-probabilities by up to 0.2
    max_model_len: int = 1024  # prompt and completion together stay below this many tokens
    max_num_seqs: int = 128  # completions decoded together
    max_num_batched_tokens: int = 4096  # tokens per step; on a CPU raised to max_model_len where that is larger
    kv_cache_gib: float | None = 0.5  # memory of the KV cache, GiB; null on a GPU: what gpu_memory_utilization leaves
    gpu_memory_utilization: float = 0.85  # fraction of the GPU's memory that vLLM may hold
    block_size: int | None = 32  # tokens per KV-cache block, a multiple of 32 on a CPU; null: vLLM's default
    enable_prefix_caching: bool = True  # the completions of a group share the KV cache of their prompt
    enforce_eager: bool = True  # no torch.compile, no CUDA graphs: quick to start; on a GPU some three times slower
    tensor_parallel: int = 1  # GPUs of one engine
    threads: int | None = None  # OpenMP threads; null: as many as this process has (OMP_NUM_THREADS)
    seed: int = 0  # of completions that are drawn without a seed of their own
    trust_remote_code: bool = False  # run Python code shipped with the checkpoint
    weight_update_timeout_s: float = 120.0  # for each phase (start, transfer, finish, drop caches) of an update
    log_level: str = "WARNING"  # of vLLM's own messages


def check_rollout_config(config: RolloutConfig) -> None:
    """Checks what types cannot say.

    Raises:
        UserError: naming the field and what it takes.
    """
    for field, values in (("engine", ENGINES), ("device", DEVICES), ("dtype", DTYPES)):
        if getattr(config, field) not in values:
            raise UserError(f"rollout.{field}={getattr(config, field)}: must be one of {', '.join(values)}")
    for field in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "tensor_parallel"):
        if getattr(config, field) < 1:
            raise UserError(f"rollout.{field}={getattr(config, field)}: must be at least 1")
    if config.device == "cpu" and config.kv_cache_gib is None and config.engine == "vllm":
        raise UserError("rollout.kv_cache_gib=null: give a size in GiB on a CPU, vLLM would take most of the memory")
    if config.device == "cpu" and config.block_size is not None and config.block_size % 32:
        raise UserError(f"rollout.block_size={config.block_size}: must be a multiple of 32 on a CPU")
    if config.engine == "transformers" and config.tensor_parallel > 1:
        raise UserError(f"rollout.tensor_parallel={config.tensor_parallel}: the transformers engine takes 1 only")
