"""Rollout: prompts in, completions with their log-probabilities out, and new weights without a restart."""

from __future__ import annotations

from importlib.util import find_spec

from cudal1_ray.errors import UserError
from cudal1_ray.rollout.config import RolloutConfig, check_rollout_config
from cudal1_ray.rollout.engine import EngineUnusable, RolloutEngine, WeightUpdateError
from cudal1_ray.rollout.types import AdapterShape, Completion, GenerationRequest, SamplingParameters, derive_seed
from cudal1_ray.uncollected import uncollected

__all__ = [
    "AdapterShape",
    "Completion",
    "EngineUnusable",
    "GenerationRequest",
    "RolloutConfig",
    "RolloutEngine",
    "SamplingParameters",
    "WeightUpdateError",
    "build_engine",
    "derive_seed",
]


def build_engine(config: RolloutConfig, model_path: str, adapter: AdapterShape | None = None) -> RolloutEngine:
    """Start the engine that the configuration names on the Hugging Face model folder `model_path`.

    Args:
        adapter: shape of the policy's, where low-rank adapters are what trains: an engine that can serves them beside
            the weights of the folder, and weight updates then hold nothing else; see `RolloutEngine.adapter`.

    Raises:
        UserError: a field of the configuration is wrong, or the engine's package is not installed.
    """
    check_rollout_config(config)
    with uncollected():  # CPU seconds of a start of the transformers engine: 3.6, with collections 4.2
        if config.engine == "transformers":
            from cudal1_ray.rollout.transformers_engine import TransformersEngine

            return TransformersEngine(config, model_path, adapter)
        if find_spec("vllm") is None:  # vLLM itself is imported later, once its environment is set
            raise UserError(
                "rollout.engine=vllm: vLLM is not installed; install the extra cpu or gpu, or set rollout=transformers"
            )
        from cudal1_ray.rollout.vllm_engine import VllmEngine

        return VllmEngine(config, model_path, adapter)
