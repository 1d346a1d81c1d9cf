"""The registry of algorithms: a name stands for a way to make advantages and a loss per token.

What can be put together freely (clip range, KL, truncated importance sampling, normalisation) is in `AlgorithmConfig`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cudal1_ray.errors import UserError
from cudal1_ray.learning.advantages import (
    AdvantageFunction,
    as_arrays,
    group_centred,
    group_normalised,
    leave_one_out,
    reward_itself,
)
from cudal1_ray.learning.config import AlgorithmConfig


@dataclass(frozen=True)
class Algorithm:
    """One entry of the registry.

    Attributes:
        advantages: rewards and groups -> advantages.
        surrogate: name of a function of `policy_loss.SURROGATES`: token_clip, sequence_clip or reinforce.
    """

    advantages: AdvantageFunction
    surrogate: str = "token_clip"


_ALGORITHMS: dict[str, Algorithm] = {}


def register_algorithm(name: str, algorithm: Algorithm) -> None:
    """Add an algorithm, or replace it; `algorithm.name=<name>` then selects it."""
    _ALGORITHMS[name] = algorithm


def get_algorithm(name: str) -> Algorithm:
    """Return the algorithm of that name.

    Raises:
        UserError: naming the known ones.
    """
    if name not in _ALGORITHMS:
        raise UserError(f"algorithm.name={name!r}: must be one of {', '.join(sorted(_ALGORITHMS))}")
    return _ALGORITHMS[name]


def compute_advantages(rewards: Sequence[float], groups: Sequence[int], config: AlgorithmConfig) -> np.ndarray:
    """Return advantages [C] of completions, in order; completions of one prompt share a group number.

    Raises:
        UserError: on an unknown algorithm.
        ValueError: when there is not one group per reward, or a reward is not finite.
    """
    return get_algorithm(config.name).advantages(*as_arrays(rewards, groups))


register_algorithm("grpo", Algorithm(group_normalised))  # arXiv 2402.03300; CUDA-L1's stage 3
register_algorithm("grpo_leave_one_out", Algorithm(leave_one_out))  # RLOO baseline, arXiv 2402.14740
register_algorithm("dr_grpo", Algorithm(group_centred))  # arXiv 2503.20783
register_algorithm("gspo", Algorithm(group_normalised, "sequence_clip"))  # arXiv 2507.18071
register_algorithm("reinforce", Algorithm(reward_itself, "reinforce"))  # CUDA-L1's stage 2
