"""Rewards: from a verdict to the number that reinforcement learning maximises.

Names are resolved on first use, so that importing the configuration costs no numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudal1_ray.rewards.checker import NeighbourJudge, RewardChecker, Ruling
    from cudal1_ray.rewards.config import CheckerConfig, EndpointConfig, RewardsConfig
    from cudal1_ray.rewards.hack_cases import HackCase, HackCases
    from cudal1_ray.rewards.opinions import Opinion, Reply, Suspect
    from cudal1_ray.rewards.reward import (
        is_void,
        register_reward,
        reward_noise,
        round_toward_one,
        verdict_reward,
    )
    from cudal1_ray.rewards.robust import RobustScore, robust_score, score_of_buckets
    from cudal1_ray.rewards.smoothing import RewardSmoother
    from cudal1_ray.rewards.withheld import ServedExemplars

_HOME = {
    "NeighbourJudge": "checker",
    "RewardChecker": "checker",
    "Ruling": "checker",
    "CheckerConfig": "config",
    "EndpointConfig": "config",
    "RewardsConfig": "config",
    "HackCase": "hack_cases",
    "HackCases": "hack_cases",
    "Opinion": "opinions",
    "Reply": "opinions",
    "Suspect": "opinions",
    "is_void": "reward",
    "register_reward": "reward",
    "reward_noise": "reward",
    "round_toward_one": "reward",
    "verdict_reward": "reward",
    "RobustScore": "robust",
    "robust_score": "robust",
    "score_of_buckets": "robust",
    "RewardSmoother": "smoothing",
    "ServedExemplars": "withheld",
}

__all__ = [
    "CheckerConfig",
    "EndpointConfig",
    "HackCase",
    "HackCases",
    "NeighbourJudge",
    "Opinion",
    "Reply",
    "RewardChecker",
    "RewardSmoother",
    "RewardsConfig",
    "RobustScore",
    "Ruling",
    "ServedExemplars",
    "Suspect",
    "is_void",
    "register_reward",
    "reward_noise",
    "robust_score",
    "round_toward_one",
    "score_of_buckets",
    "verdict_reward",
]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
