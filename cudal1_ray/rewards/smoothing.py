"""Reward smoothing: rewards against their own running statistics, outliers clipped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cudal1_ray.rewards.config import RewardsConfig

# The key under which run-wide statistics are kept; no problem has an empty id.
_RUN = ""


class RunningStatistics:
    """Mean and population standard deviation of all numbers seen, in one pass (Welford 1962)."""

    def __init__(self, count: int = 0, mean: float = 0.0, m2: float = 0.0) -> None:
        self.count, self.mean, self.m2 = count, mean, m2

    def add(self, value: float) -> None:
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self.m2 += delta * (value - self.mean)

    @property
    def std(self) -> float:
        """Return sqrt(sum((x - mean)^2) / n); 0.0 before the second number."""
        return math.sqrt(max(self.m2, 0.0) / self.count) if self.count else 0.0


class RewardSmoother:
    """r' = clip((r - mu) / sigma, -k, k); mu and sigma over all rewards so far, those of this batch included.

    Including the batch makes the first one well defined. While all rewards seen are alike, sigma is 0 and r'
    is 0: there is nothing to learn from them. Source: CUDA-L1 (arXiv 2507.14111), reward smoothing, k = 1.5 (2nd).

    What acts: an algorithm that normalises within the group cancels mu and sigma, and only the clip is left. mu and
    sigma know failures (0) as well, so at low success nearly every success lies beyond the clip and all are alike:
    a reward that is v with probability p and else 0 has (v - mu) / sigma = sqrt((1 - p) / p), above 1.5 for p < 4/13.
    With log_speedup and lognormal speedups, 97% of successes are clipped at 10% success, 79% at 20%, 24% at 40%, 4% at
    85%. Hence off by default.
    """

    def __init__(self, config: RewardsConfig | None = None) -> None:
        config = config or RewardsConfig()
        config.validate()
        self._clip, self._scope = config.smoothing_clip, config.smoothing_scope
        self._statistics: dict[str, RunningStatistics] = {}

    def smooth(self, rewards: Sequence[float], problem_ids: Sequence[str] | None = None) -> list[float]:
        """Add the rewards of a batch to the statistics and return them smoothed, in the same order.

        Args:
            problem_ids: the problem of each reward; ignored for the scope "run".

        Raises:
            ValueError: for the scope "problem" without `problem_ids`.
        """
        if self._scope == "run":
            keys: Sequence[str] = [_RUN] * len(rewards)
        elif problem_ids is None or len(problem_ids) != len(rewards):
            raise ValueError("smoothing_scope is 'problem': give the problem id of every reward")
        else:
            keys = problem_ids
        for key, reward in zip(keys, rewards, strict=True):
            self._statistics.setdefault(key, RunningStatistics()).add(reward)
        return [self._smoothed(self._statistics[k], r) for k, r in zip(keys, rewards, strict=True)]

    def _smoothed(self, statistics: RunningStatistics, reward: float) -> float:
        # Equal rewards can leave a sigma of rounding errors: below that it counts as none.
        if statistics.std <= 1e-12 * max(1.0, abs(statistics.mean)):
            return 0.0
        return min(max((reward - statistics.mean) / statistics.std, -self._clip), self._clip)

    def get_state(self) -> dict[str, Any]:
        """Return all that `set_state` needs to go on exactly as this one would; plain types only."""
        return {key: [s.count, s.mean, s.m2] for key, s in self._statistics.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Replace the statistics by saved ones."""
        self._statistics = {key: RunningStatistics(*values) for key, values in state.items()}
