"""Rewards: from a verdict to the number that reinforcement learning maximises.

Names are resolved on first use, so that importing the configuration costs no numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudal1_ray.rewards.config import RewardsConfig
    from cudal1_ray.rewards.reward import round_toward_one, verdict_reward
    from cudal1_ray.rewards.robust import RobustScore, agree, needs_second_measurement, robust_score
    from cudal1_ray.rewards.smoothing import RewardSmoother

_HOME = {
    "RewardsConfig": "config",
    "round_toward_one": "reward",
    "verdict_reward": "reward",
    "RobustScore": "robust",
    "agree": "robust",
    "needs_second_measurement": "robust",
    "robust_score": "robust",
    "RewardSmoother": "smoothing",
}

__all__ = [
    "RewardSmoother",
    "RewardsConfig",
    "RobustScore",
    "agree",
    "needs_second_measurement",
    "robust_score",
    "round_toward_one",
    "verdict_reward",
]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
