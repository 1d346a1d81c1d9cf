"""The reward of one verdict: rewards by name, and evaluations that are void."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.reasons import MOMENTARY, PROBLEM_FAULTS
from cudal1_ray.rewards.config import RewardsConfig
from cudal1_ray.rewards.staged import staged_reward

if TYPE_CHECKING:
    from cudal1_ray.evaluation import Verdict

# Standard errors on each side of a 95% interval.
NORMAL_95 = 1.96

RewardFunction = Callable[["Verdict", float, RewardsConfig], float]

# Rejections that are no fault of the candidate: the evaluator failed, the problem is broken, or the clock was unsure.
VOID_REASONS = MOMENTARY | PROBLEM_FAULTS


def speedup_reward(verdict: Verdict, speedup: float, config: RewardsConfig) -> float:
    """Return s, 0 for a rejected candidate (CUDA-L1, r = t_ref / t_candidate)."""
    return speedup


def log_speedup_reward(verdict: Verdict, speedup: float, config: RewardsConfig) -> float:
    """Return ln(1 + s): a slow accepted candidate still beats a rejected one, which ln(s) reverses below s = 1."""
    return math.log1p(speedup)


def success_reward(verdict: Verdict, speedup: float, config: RewardsConfig) -> float:
    """Return 1 for an accepted candidate, else 0 (CUDA-L1, stage 2)."""
    return float(verdict.accepted)


_rewards: dict[str, RewardFunction] = {
    "speedup": speedup_reward,
    "log_speedup": log_speedup_reward,
    "success": success_reward,
    "staged": staged_reward,
}


def register_reward(name: str, function: RewardFunction) -> None:
    """Make a reward selectable by `rewards.kind=<name>`; list the module that calls this in `plugins`.

    Args:
        function: (verdict, credited speedup, rounded and capped, 0.0 when rejected; configuration) -> reward. It is
            not asked about void evaluations.

    Raises:
        ValueError: when the name is taken.
    """
    if _rewards.setdefault(name, function) is not function:
        raise ValueError(f"there is already a reward named {name!r}")


def reward_names() -> tuple[str, ...]:
    """Return the names that `rewards.kind` accepts."""
    return tuple(sorted(_rewards))


def is_void(verdict: Verdict) -> bool:
    """Return whether nothing is to be learnt from an evaluation: the evaluator or the problem is at fault."""
    return verdict.degenerate and verdict.accepted or not VOID_REASONS.isdisjoint(verdict.reasons)


def verdict_reward(verdict: Verdict, config: RewardsConfig) -> float | None:
    """Return the reward before smoothing, or None for a void evaluation, from which nothing is to be learnt.

    Void are faults of the evaluator and of the problem (`VOID_REASONS`), accepted candidates of degenerate problems,
    and with `config.robust` accepted candidates whose bucket means vary by more than `config.max_bucket_variance` or
    were too few. With `config.robust`, s is the median of the bucket means; else it is the credited speedup. It is
    rounded toward 1 and capped as configured, and becomes a reward as `config.kind` has it: see `speedup_reward`,
    `log_speedup_reward`, `success_reward`, `staged_reward`.

    Raises:
        UserError: when `config.kind` names no reward, or one that gives no finite number.
        ValueError: for an accepted verdict without a speedup.
    """
    function = _function(config)
    if is_void(verdict):
        return None
    if not verdict.accepted:
        return _number(function(verdict, 0.0, config), config)
    speedup = verdict.credited_speedup
    if not (math.isfinite(speedup) and speedup > 0.0):
        raise ValueError(f"an accepted verdict has the credited speedup {speedup}: it must be finite and above 0")
    if config.robust and config.kind != "success":
        agreed = robust_speedup(verdict.bucket_speedups, config.max_bucket_variance)
        if agreed is None:
            return None
        speedup = agreed
    if config.round_decimals is not None:
        speedup = round_toward_one(speedup, config.round_decimals)
    if config.cap is not None:
        speedup = min(speedup, config.cap)
    return _number(function(verdict, speedup, config), config)


def _number(reward: object, config: RewardsConfig) -> float:
    """Return a reward as a float. Raises UserError for anything but a finite number, which a plug-in may give."""
    if isinstance(reward, Real) and math.isfinite(reward):
        return float(reward)
    raise UserError(f"rewards.kind={config.kind}: gives {reward!r:.60} as a reward; it must be a finite number")


def robust_speedup(means: Sequence[float], max_variance: float) -> float | None:
    """Return the median of bucket means (float[n]); None when their unbiased variance is above `max_variance`.

    It is None for fewer than two means, too. Neighbours in time share a bucket (`evaluation.timing.statistics`), so a
    drift of the device shows as variance between buckets and is not averaged away.
    Source: CUDA-L1 (arXiv 2507.14111), robust reward.
    """
    if len(means) < 2:
        return None
    values = np.asarray(means, dtype=np.float64)
    return float(np.median(values)) if float(values.var(ddof=1)) <= max_variance else None


def reward_noise(verdict: Verdict, config: RewardsConfig) -> float:
    """Return the standard deviation that the measurement's noise gives a reward; 0.0 for a rejected candidate.

    The standard error of log(speedup) is the larger of that of the verdict's 95% interval and
    `config.least_noise`; the reward's is half of its difference over one standard error to both sides of s. The whole
    interval moves with s: part of the staged reward is paid for its lower end.
    """
    if not verdict.accepted or verdict.credited_speedup <= 0.0:
        return 0.0
    sigma = config.least_noise
    if 0.0 < verdict.speedup_low <= verdict.speedup_high:
        sigma = max(sigma, math.log(verdict.speedup_high / verdict.speedup_low) / (2 * NORMAL_95))
    function = _function(config)

    def reward_at(factor: float) -> float:
        moved = {name: getattr(verdict, name) * factor for name in ("credited_speedup", "speedup_low", "speedup_high")}
        return function(dataclasses.replace(verdict, **moved), moved["credited_speedup"], config)

    return abs(reward_at(math.exp(sigma)) - reward_at(math.exp(-sigma))) / 2


def _function(config: RewardsConfig) -> RewardFunction:
    if config.kind not in _rewards:
        raise UserError(f"rewards.kind is {config.kind!r}: use one of {', '.join(reward_names())}")
    return _rewards[config.kind]


def round_toward_one(speedup: float, decimals: int = 2) -> float:
    """Return the speedup rounded to `decimals`, down when above 1, up when below: 1.118 -> 1.11, 0.992 -> 1.0.

    The rounded value never lies on the other side of 1, and a change below one unit of the last decimal
    around 1 counts as none. The rule is applied to the decimal number of 12 significant digits nearest to the
    speedup, far more than any measurement has: 1.13 stays 1.13, and 3.3 / 3.0 gives 1.1, although in binary
    both are a little smaller. Rounding twice changes nothing.
    Source: CUDA-L1, reward rounding.

    Raises:
        ValueError: unless the speedup is finite and not negative.
    """
    if not (math.isfinite(speedup) and speedup >= 0.0):
        raise ValueError(f"speedup is {speedup}: it must be finite and not negative")
    exact = Decimal(f"{speedup:.12g}")
    mode = ROUND_FLOOR if exact > 1 else ROUND_CEILING
    return float(exact.scaleb(decimals).to_integral_value(mode).scaleb(-decimals))
