"""Learning: from rewards to weights. Losses, advantages, policies, and the DeepSpeed learner.

Names are resolved on first use, so that importing the configuration costs neither torch nor DeepSpeed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudal1_ray.learning.algorithm import Algorithm, compute_advantages, get_algorithm, register_algorithm
    from cudal1_ray.learning.config import AlgorithmConfig, LearnerConfig, PolicyConfig
    from cudal1_ray.learning.learner import Learner
    from cudal1_ray.learning.policy import build_policy, load_tokenizer, save_policy
    from cudal1_ray.learning.tokenizer import encode_completion, encode_prompt, opened_thought, train_tokenizer
    from cudal1_ray.learning.types import TrainingSequence

_HOME = {
    "Algorithm": "algorithm",
    "compute_advantages": "algorithm",
    "get_algorithm": "algorithm",
    "register_algorithm": "algorithm",
    "AlgorithmConfig": "config",
    "LearnerConfig": "config",
    "PolicyConfig": "config",
    "Learner": "learner",
    "build_policy": "policy",
    "load_tokenizer": "policy",
    "save_policy": "policy",
    "encode_completion": "tokenizer",
    "encode_prompt": "tokenizer",
    "opened_thought": "tokenizer",
    "train_tokenizer": "tokenizer",
    "TrainingSequence": "types",
}

__all__ = [
    "Algorithm",
    "AlgorithmConfig",
    "Learner",
    "LearnerConfig",
    "PolicyConfig",
    "TrainingSequence",
    "build_policy",
    "compute_advantages",
    "encode_completion",
    "encode_prompt",
    "get_algorithm",
    "load_tokenizer",
    "opened_thought",
    "register_algorithm",
    "save_policy",
    "train_tokenizer",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
