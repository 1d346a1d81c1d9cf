"""What vLLM compiles and captures before its first token: most of an engine's start on a GPU."""

from __future__ import annotations

from typing import Any

from cudal1_ray.rollout.config import RolloutConfig


def compilation_arguments(config: RolloutConfig) -> dict[str, Any]:
    """Return `compilation_config` of vLLM's `EngineArgs`; nothing where the model runs eagerly.

    By itself vLLM 0.26 captures 51 sizes up to 512 tokens piecewise and 35 up to 256 sequences whole, and each again
    for batches without an adapter, which the engines here never see. Sizes above `max_num_seqs` serve only prompts.
    """
    if config.enforce_eager or config.device != "cuda":
        return {}
    settings: dict[str, Any] = {
        "cudagraph_capture_sizes": capture_sizes(config.max_num_seqs),
        "cudagraph_specialize_lora": False,
    }
    if not config.compile:
        # Piecewise graphs are cut out of a compiled model; without one, decoding steps alone are graphs.
        settings |= {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
    return {"compilation_config": settings}


def capture_sizes(most: int) -> list[int]:
    """Return the numbers of sequences for which a decoding step is captured, up to `most`, four in each doubling.

    A batch is padded to the next size: by at most a quarter, where a step's time hardly depends on it.
    """
    sizes, base = {1, 2, 4, most}, 8
    while base <= most:
        sizes.update(base * quarters // 4 for quarters in range(4, 8))
        base *= 2
    return sorted(number for number in sizes if number <= most)
