"""Rewards: from a verdict to the number that reinforcement learning maximises.

Names are resolved on first use, so that importing the configuration costs no numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

if TYPE_CHECKING:
    from cudal1_ray.rewards.config import RewardsConfig
    from cudal1_ray.rewards.reward import is_void, register_reward, reward_noise, round_toward_one, verdict_reward
    from cudal1_ray.rewards.smoothing import RewardSmoother

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "config": ["RewardsConfig"],
        "reward": ["is_void", "register_reward", "reward_noise", "round_toward_one", "verdict_reward"],
        "smoothing": ["RewardSmoother"],
    },
)
