"""The environment variables that vLLM reads, set from the configuration while an engine is built."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cudal1_ray.rollout.config import RolloutConfig


def vllm_environment(config: RolloutConfig) -> dict[str, str | None]:
    """Return the value of each variable, None for one that must not be set.

    - VLLM_ENABLE_V1_MULTIPROCESSING: 0 keeps vLLM's core in this process: up in seconds, weights handed over by
      reference.
    - VLLM_CPU_KVCACHE_SPACE: unset, `kv_cache_gib` goes through the engine's arguments.
    - VLLM_CPU_OMP_THREADS_BIND: nobind; vLLM would otherwise pin threads to cores that it does not own alone.
    - VLLM_USE_FLASHINFER_SAMPLER: 0; it knows neither seeds per request nor processed log-probabilities.
    - HF_HUB_OFFLINE: 1; models are folders.
    """
    variables: dict[str, str | None] = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_LOGGING_LEVEL": config.log_level,
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if config.device == "cpu":
        variables |= {"VLLM_CPU_KVCACHE_SPACE": None, "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    if config.threads is not None:
        variables["OMP_NUM_THREADS"] = str(config.threads)
    return variables


@contextmanager
def applied(variables: dict[str, str | None]) -> Iterator[None]:
    """Set variables for the duration, then put the whole environment back.

    vLLM on a CPU leaves LD_PRELOAD and more behind, which every child process of this one would inherit.
    """
    before = dict(os.environ)
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)
