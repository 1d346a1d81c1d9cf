"""Configuration of the rollout engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudal1_ray.errors import UserError
from cudal1_ray.settings import bounded, check_values, one_of

# Largest seed, of 32 bits: vLLM gives it to numpy.random.seed, which takes no larger one.
_LARGEST_SEED = 2**32 - 1
TRANSPORTS = ("in_process", "gloo", "nccl", "ipc")


@dataclass
class WeightSyncConfig:
    """How new weights reach an engine. A phase that runs past its timeout poisons the engine; another one is built."""

    # in_process: through Ray's object store | gloo: CPU to CPU | nccl: GPU to GPU | ipc: learner and engine share a
    # GPU.
    transport: str = one_of(*TRANSPORTS)
    bucket_mib: int = 512  # tensors travel packed, this much at a time; 0: one by one
    pause_timeout_s: float = bounded(60.0, above=0)  # until the step under way is over
    # Until learner and all workers of the engine have met, once per engine.
    connect_timeout_s: float = bounded(120.0, above=0)
    start_timeout_s: float = bounded(60.0, above=0)  # until the engine is ready to receive
    # Until all buckets are there; on the sending side, for each of them.
    transfer_timeout_s: float = bounded(120.0, above=0)
    finish_timeout_s: float = bounded(120.0, above=0)  # until the weights are in the form that the kernels want
    drop_caches_timeout_s: float = bounded(60.0, above=0)  # until everything computed from the old weights is gone


@dataclass
class RolloutConfig:
    """One inference engine. vLLM's environment variables are set from these fields while it is built."""

    engine: str = one_of("vllm", "transformers")  # vllm | transformers
    device: str = one_of("cpu", "cuda")  # cpu | cuda
    # Type of weights, activations and KV cache: float32 | bfloat16 | float16 | auto, as in the checkpoint. bfloat16 on
    # a CPU is faster but moves log-probabilities by up to 0.2.
    dtype: str = one_of("float32", "bfloat16", "float16", "auto")
    # Prompt and completion together stay below this many tokens: here those of prompting's defaults, 3,072, with what a
    # chat template adds.
    max_model_len: int = bounded(4096, least=1)
    # Completions decoded together. On a CPU tokens/s grow with it: 128 is some 10% ahead of 64.
    max_num_seqs: int = bounded(128, least=1)
    # Tokens per step; on a CPU raised to max_model_len where that is larger.
    max_num_batched_tokens: int = bounded(4096, least=1)
    # Memory of the KV cache, GiB; null on a GPU: what gpu_memory_utilization leaves.
    kv_cache_gib: float | None = bounded(0.5, above=0)
    gpu_memory_utilization: float = bounded(0.85, above=0, most=1)  # fraction of the GPU's memory that vLLM may hold
    # Tokens per KV-cache block, a multiple of 32 on a CPU, where 32 is some 10% faster than vLLM's own 128;
    # null: vLLM's default.
    block_size: int | None = bounded(32, least=1)
    enable_prefix_caching: bool = True  # the completions of a group share the KV cache of their prompt
    # No torch.compile, no CUDA graphs: quick to start, where a CPU compiles for over a minute; on a GPU some three
    # times slower.
    enforce_eager: bool = True
    # vllm on a GPU, with enforce_eager=false: torch.compile the model; false: CUDA graphs of the model as it is.
    compile: bool = True
    tensor_parallel: int = bounded(1, least=1)  # GPUs of one engine
    # OpenMP threads; null: as many as this process has (OMP_NUM_THREADS). On busy cores two were up to nine times
    # slower than one.
    threads: int | None = bounded(None, least=1)
    # Seed of completions that have none of their own.
    seed: int = bounded(0, least=0, most=_LARGEST_SEED)
    # vllm: every completion has a seed of its own, and is the same draw when it is asked for again. On a GPU vLLM then
    # draws one completion after another, and every step takes longer.
    seed_completions: bool = True
    trust_remote_code: bool = False  # run Python code shipped with the checkpoint
    # Between generations the GPU's memory is handed back: weights go to host memory, the KV cache is dropped. For a GPU
    # that the engine shares.
    sleep_mode: bool = False
    weight_sync: WeightSyncConfig = field(default_factory=WeightSyncConfig)
    # Alarm when engine and learner disagree by more than this, nats per token: the mean over a step's tokens of
    # |log p (engine) - log p (learner)|.
    drift_band: float = bounded(0.1, above=0)
    log_level: str = one_of("WARNING", "DEBUG", "INFO", "ERROR", "CRITICAL")  # level of vLLM's own messages


def check_rollout_config(config: RolloutConfig) -> None:
    """Check what types cannot express.

    Raises:
        UserError: naming the field and what it takes.
    """
    check_values(config, "rollout.")
    if config.device == "cpu" and config.kv_cache_gib is None and config.engine == "vllm":
        raise UserError("rollout.kv_cache_gib=null: give a size in GiB on a CPU, vLLM would take most of the memory")
    if config.device == "cpu" and config.block_size is not None and config.block_size % 32:
        raise UserError(f"rollout.block_size={config.block_size}: must be a multiple of 32 on a CPU")
    if config.engine == "transformers" and config.tensor_parallel > 1:
        raise UserError(f"rollout.tensor_parallel={config.tensor_parallel}: the transformers engine takes 1 only")
    sync = config.weight_sync
    if sync.transport != "in_process" and config.engine == "transformers":
        raise UserError(
            f"rollout.weight_sync.transport={sync.transport}: the transformers engine takes in_process only"
        )
    required = {"gloo": "cpu", "nccl": "cuda", "ipc": "cuda"}.get(sync.transport, config.device)
    if config.device != required:
        raise UserError(f"rollout.weight_sync.transport={sync.transport}: needs rollout.device={required}")
    if sync.transport == "ipc" and config.tensor_parallel > 1:
        raise UserError(
            f"rollout.weight_sync.transport=ipc: one GPU for engine and learner, but rollout.tensor_parallel="
            f"{config.tensor_parallel}; use nccl"
        )
    if config.sleep_mode and (config.engine != "vllm" or config.device != "cuda"):
        raise UserError("rollout.sleep_mode=true: only vLLM on a GPU can hand memory back; set it to false")
