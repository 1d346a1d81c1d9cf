"""Learning: from rewards to weights. Losses, advantages, policies, and the DeepSpeed learner.

Names are resolved on first use, so that importing the configuration costs neither torch nor DeepSpeed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

if TYPE_CHECKING:
    from cudal1_ray.learning.algorithm import Algorithm, compute_advantages, get_algorithm, register_algorithm
    from cudal1_ray.learning.config import AlgorithmConfig, LearnerConfig, PolicyConfig
    from cudal1_ray.learning.learner import Learner
    from cudal1_ray.learning.policy import build_policy, load_tokenizer, save_policy
    from cudal1_ray.learning.tokenizer import encode_completion, encode_prompt, thought_prefix, train_tokenizer
    from cudal1_ray.learning.types import TrainingSequence

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "algorithm": ["Algorithm", "compute_advantages", "get_algorithm", "register_algorithm"],
        "config": ["AlgorithmConfig", "LearnerConfig", "PolicyConfig"],
        "learner": ["Learner"],
        "policy": ["build_policy", "load_tokenizer", "save_policy"],
        "tokenizer": ["encode_completion", "encode_prompt", "thought_prefix", "train_tokenizer"],
        "types": ["TrainingSequence"],
    },
)
